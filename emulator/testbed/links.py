"""How nodes are joined, and how fast each computes: by the kernel, or in user space."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from emulator.errors import HflError
from emulator.testbed import groups
from emulator.testbed.kernel_links import Network, relaying
from emulator.testbed.leftovers import Record
from emulator.testbed.namespaces import TUN, Namespace, check_machine
from emulator.testbed.node import Site
from emulator.testbed.orders import Way
from emulator.testbed.plan import Plan
from emulator.world.fleet import Leg


class Links(Protocol):
    """What joins the nodes of a run."""

    def site(self, name: str) -> Site:
        """Where a node stands."""

    def joined(self, name: str, pid: int, port: int) -> None:
        """A node is there: its process, and the port on which it listens."""

    def way(self, route: tuple[Leg, ...]) -> Way:
        """How a transfer over a route goes."""

    def wire_bytes(self) -> dict[str, int]:
        """By link, the bytes that went over it, headers included; empty where nobody counts them."""


class UserLinks:
    """Over loopback, each node's bytes held back by its own process; devices are slowed by waiting after they have computed."""

    def __init__(self, plan: Plan, speeds: Mapping[str, float]) -> None:
        self._plan, self._speeds = plan, speeds
        self._ports: dict[str, int] = {}
        self._rates = plan.goodput_bps()

    def site(self, name: str) -> Site:
        """See `Links`."""
        return Site(name, rates_bps=self._rates, speed=self._speeds.get(name, 1.0), trains=name in self._speeds)

    def joined(self, name: str, pid: int, port: int) -> None:
        """See `Links`."""
        self._ports[name] = port

    def way(self, route: tuple[Leg, ...]) -> Way:
        """See `Links`."""
        return Way(hops=self._plan.hops(route, self._ports))

    def wire_bytes(self) -> dict[str, int]:
        """See `Links`: nobody counts them."""
        return {}


class KernelLinks:
    """Between network namespaces, shaped by the kernel; devices are slowed by quotas of CPU groups."""

    def __init__(self, plan: Plan, network: Network, quotas: groups.Groups, slowed: Mapping[str, float]) -> None:
        self._plan, self._network, self._quotas, self._slowed = plan, network, quotas, slowed
        self._ends = dict(zip(plan.routes, network.ends, strict=True))
        self._sites: dict[str, tuple[str, str]] = {}
        for route, ends in self._ends.items():
            sender, receiver = plan.ends(route)
            out, into = self._sites.get(sender, ("", ""))[1], self._sites.get(receiver, ("", ""))[0]
            self._sites[sender] = (self._sites.get(sender, ("", ""))[0], out or ends.sender.path)
            self._sites[receiver] = (into or ends.receiver.path, self._sites.get(receiver, ("", ""))[1])

    def site(self, name: str) -> Site:
        """See `Links`. A node that only sends, or only receives, does the other thing nowhere else."""
        listens, sends = self._sites.get(name, ("", ""))
        return Site(name, listens or sends, sends or listens, trains=self._plan.fleet.number(name) is not None)

    def joined(self, name: str, pid: int, port: int) -> None:
        """See `Links`."""
        self._quotas.put(name if name in self._slowed else "", pid)

    def way(self, route: tuple[Leg, ...]) -> Way:
        """See `Links`. Raises `HflError` for a way that the emulation has not used, so that there is none."""
        ends = self._ends.get(route)
        if ends is None:
            sender, receiver = self._plan.ends(route)
            raise HflError(
                f"{sender} sends to {receiver}, which it does not do in the emulation; there is no link for it"
            )
        return Way(ends.sender_address, ends.receiver_address)

    def wire_bytes(self) -> dict[str, int]:
        """See `Links`: as the queues in front of links counted them."""
        wires = self._network.wires.items()
        return {name: wire.tail.shaped(wire.device).bytes for name, wire in wires if wire.link is not None}


def why_not_kernel() -> str:
    """What this machine lacks to shape links and devices by its kernel; "" where it has everything."""
    if sys.platform != "linux":
        return "this is not Linux"
    try:
        check_machine()
        Namespace("a trial").close()  # root of a container may not
    except HflError as error:
        return str(error)
    if groups.find_root() is None:
        return "there is no folder of control groups in which CPU quotas can be made"
    return ""


@contextlib.contextmanager
def kernel_links(plan: Plan, speeds: Mapping[str, float], record: Record) -> Iterator[KernelLinks]:
    """Links between namespaces for the time of the block. Everything that it makes is gone afterwards."""
    root = groups.find_root()
    assert root is not None
    slowed = {name: share for name, share in speeds.items() if share < 1}
    quotas = groups.Groups(root, str(os.getpid()))
    if quotas.folder.exists():
        raise HflError(f"{quotas.folder} is there already, and not ours; remove it, or wait for its owner")
    record.made.group, record.made.device = str(quotas.folder), not TUN.exists()
    record.write()
    try:
        quotas.make(slowed)
        network = Network(plan.shapes, [plan.names(route) for route in plan.routes])
        try:
            with relaying(network.directions):
                yield KernelLinks(plan, network, quotas, slowed)
        finally:
            network.close()
    finally:
        groups.remove(quotas.folder)


def joined_by(kernel: bool) -> Callable[[Plan, Mapping[str, float], Record], AbstractContextManager[Links]]:
    """What gives the links of a plan for the time of a block, with clients' shares of a core."""
    return kernel_links if kernel else lambda plan, speeds, record: nullcontext(UserLinks(plan, speeds))
