"""Links between network namespaces, shaped by the kernel. Linux, as root, with iproute2; standard library only.

Every node that the routes imply is a network namespace without a name. A token bucket (tbf) in front of each link has its rate
and its queue. Links with a delay are pairs of TUN devices with `emulator.testbed.relay` between them, links without are veth
pairs. Nothing leaves these namespaces, and all is gone when the process ends that made them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from emulator.errors import HflError
from emulator.testbed.namespaces import Namespace, tun_node

FRAME_BYTES, PACKET_BYTES = 1514, 1500  # a full frame: with Ethernet's header, and without it
BACK_PACKETS = 1000  # that may wait on their way back; acknowledgements are small
BURST_BYTES = 1600  # of a token bucket: one frame, and what tc loses by rounding
BURST_S = (
    5e-4  # a bucket holds as much at least: tokens of a timer that comes late are not lost, or a link would be slower
)
TUN_QUEUE = 10_000  # packets that may wait for the relay
SETTINGS = {
    "net/ipv4/ip_forward": 1,
    "net/ipv4/conf/all/rp_filter": 0,
    "net/ipv4/conf/default/rp_filter": 0,
    "net/ipv4/tcp_timestamps": 1,
    "net/ipv4/tcp_no_metrics_save": 1,
}


class Link(Protocol):
    """One direction of data. The other direction has the same rate and delay."""

    @property
    def rate_bps(self) -> float:
        """Bits of frames in a second."""

    @property
    def delay_s(self) -> float:
        """One way."""

    @property
    def queue_packets(self) -> int:
        """Full packets that wait in front of it at most."""


@dataclass(frozen=True)
class Ends:
    """Where a route begins and ends, and its addresses there."""

    sender: Namespace
    sender_address: str
    receiver: Namespace
    receiver_address: str


@dataclass(frozen=True)
class Wire:
    """A link between two namespaces, with a device of this name at either end. Without a `Link` it is as fast as can be."""

    name: str
    link: Link | None
    device: str
    tail: Namespace
    head: Namespace

    @property
    def has_tun(self) -> bool:
        """Whether packets go through the relay."""
        return self.link is not None and self.link.delay_s > 0

    @property
    def packet_bytes(self) -> int:
        """A full packet as the token bucket counts it."""
        return PACKET_BYTES if self.has_tun else FRAME_BYTES

    @property
    def rate_bps(self) -> float:
        """The rate that makes a full packet take as long as a full frame takes on the link."""
        return self.link.rate_bps * self.packet_bytes / FRAME_BYTES if self.link else 0.0


def node_numbers(routes: Sequence[Sequence[str]]) -> dict[str, tuple[int, int]]:
    """The nodes that each link leads from and to: where one link of a route ends, the next one begins.

    Raises `HflError` where a route would come to a node twice.
    """
    same: dict[tuple[str, str], tuple[str, str]] = {}

    def root(end: tuple[str, str]) -> tuple[str, str]:
        while end in same:
            end = same[end]
        return end

    for route in routes:
        for one, following in itertools.pairwise(route):
            a, b = root((one, "head")), root((following, "tail"))
            if a != b:
                same[a] = b
    numbers: dict[tuple[str, str], int] = {}
    found = {
        name: tuple(numbers.setdefault(root((name, end)), len(numbers)) for end in ("tail", "head"))
        for name in dict.fromkeys(name for route in routes for name in route)
    }
    for route in routes:
        visited = [found[route[0]][0], *(found[name][1] for name in route)]
        if len(set(visited)) < len(visited):
            raise HflError(f"the route {' - '.join(route[1:])} comes to a node twice")
    return {name: (tail, head) for name, (tail, head) in found.items()}


class Network:
    """The namespaces and links that routes imply, each a sequence of links. Raises `HflError` where there can be none here.

    Links that are not among ``links`` are as fast as can be.
    """

    def __init__(self, links: Mapping[str, Link], routes: Sequence[Sequence[str]], congestion: str = "cubic") -> None:
        self.nodes: list[Namespace] = []
        self.directions: list[tuple[int, int, float, float]] = []
        try:
            self._build(links, routes, congestion)
        except BaseException:
            self.close()
            raise

    def _build(self, links: Mapping[str, Link], routes: Sequence[Sequence[str]], congestion: str) -> None:
        numbers = node_numbers(routes)
        for number in range(1 + max((max(pair) for pair in numbers.values()), default=-1)):
            self.nodes.append(Namespace(f"node {number}"))
        self.wires = {
            name: Wire(name, links.get(name), f"link{i}", self.nodes[tail], self.nodes[head])
            for i, (name, (tail, head)) in enumerate(numbers.items())
        }
        for node in self.nodes:
            self._settle(node, congestion)
        with tun_node():
            for wire in self.wires.values():
                self.directions += self._connect(wire)
        self.ends = self._address(routes)

    def _settle(self, node: Namespace, congestion: str) -> None:
        available = node.setting("net/ipv4/tcp_available_congestion_control").split()
        if congestion not in available:
            raise HflError(f"this kernel has no TCP {congestion}; it has {', '.join(available)}")
        for key, value in SETTINGS.items():
            node.set(key, value)
        if Path("/proc/sys/net/ipv6").exists():
            node.set("net/ipv6/conf/all/disable_ipv6", 1)  # whose own packets would take places in queues
            node.set("net/ipv6/conf/default/disable_ipv6", 1)
        node.batch(["link set lo up"])

    def _connect(self, wire: Wire) -> list[tuple[int, int, float, float]]:
        """Makes the devices of a wire; its two directions for the relay, if it is to have any."""
        directions = []
        if wire.has_tun:
            assert wire.link is not None
            there, back = (node.tun(wire.device) for node in (wire.tail, wire.head))
            delay = wire.link.delay_s
            directions = [(there, back, delay, 8 / wire.rate_bps), (back, there, delay, 8 / wire.rate_bps)]
        else:
            # Both ends have one hardware address and resolve none, so that any packet reaches the other end.
            both = "address 02:00:00:00:00:01"
            peer = f"peer name {wire.device} {both} netns {wire.head.path}"
            wire.tail.batch([f"link add {wire.device} {both} type veth {peer}"])
        for node in (wire.tail, wire.head):
            node.batch([f"link set {wire.device} {f'txqueuelen {TUN_QUEUE}' if wire.has_tun else 'arp off'} up"])
            if not wire.has_tun:
                node.whole_packets(wire.device)
        if wire.link is not None:
            burst = max(BURST_BYTES, round(wire.link.rate_bps / 8 * BURST_S))
            for node, packets in ((wire.tail, wire.link.queue_packets), (wire.head, BACK_PACKETS)):
                node.shape(wire.device, wire.rate_bps, packets * wire.packet_bytes, burst)
        return directions

    def _address(self, routes: Sequence[Sequence[str]]) -> list[Ends]:
        """Gives the two ends of each flow addresses of their own, and every node on its way the routes to them."""
        lines: dict[Namespace, list[str]] = {node: [] for node in self.nodes}
        ends = []
        for i, route in enumerate(routes):
            sender, receiver = (f"10.{side}.{i // 250}.{i % 250 + 1}" for side in (1, 2))
            wires = [self.wires[name] for name in route]
            lines[wires[0].tail].append(f"addr add {sender}/32 dev lo")
            lines[wires[-1].head].append(f"addr add {receiver}/32 dev lo")
            for wire in wires:
                lines[wire.tail].append(f"route add {receiver}/32 dev {wire.device}")
                lines[wire.head].append(f"route add {sender}/32 dev {wire.device}")
            ends.append(Ends(wires[0].tail, sender, wires[-1].head, receiver))
        for node, told in lines.items():
            node.batch(told)
        return ends

    def close(self) -> None:
        """Lets go of all descriptors, and so of all namespaces that no process is in."""
        for source, _, _, _ in self.directions:
            os.close(source)
        self.directions = []
        for node in self.nodes:
            node.close()

    def drain(self) -> None:
        """Waits until no packet waits in a queue, and no metric of a connection is kept."""
        for wire in self.wires.values():
            while wire.link is not None and wire.tail.shaped(wire.device).waiting:
                time.sleep(0.01)
        for node in {ends.sender: None for ends in self.ends}:
            node.command("ip", "tcp_metrics", "flush")


@contextlib.contextmanager
def relaying(directions: Sequence[tuple[int, int, float, float]]) -> Iterator[dict[str, Any]]:
    """Runs the relay; what it counted is in the dictionary afterwards."""
    counted: dict[str, Any] = {}
    if not directions:
        yield counted
        return
    words = [sys.executable, str(Path(__file__).with_name("relay.py"))]
    relay = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds={direction[0] for direction in directions},
        start_new_session=True,  # signals of a terminal are for us; the relay ends with its standard input
    )
    try:
        assert relay.stdin is not None
        relay.stdin.write(json.dumps(directions).encode() + b"\n")
        relay.stdin.flush()
        yield counted
        counted |= json.loads(relay.communicate(timeout=10)[0])
    finally:
        relay.kill()
        relay.wait()
