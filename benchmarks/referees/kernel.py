"""Flows of the kernel's own TCP between network namespaces: how long each takes. Linux, as root; the README has the format.

    sudo python3 benchmarks/referees/kernel.py < case.json > answer.json

`emulator.testbed.kernel_links` makes the links. Nothing leaves its namespaces, and all is gone when the process ends.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(
    0, str(Path(__file__).parents[2])
)  # the emulator, of which nothing but the standard library is needed here

from case import Case, RefusedError, read_case, refuse
from transfers import listen, play, probe

from emulator.errors import HflError
from emulator.testbed.kernel_links import Network, relaying
from emulator.testbed.namespaces import check_machine
from emulator.testbed.relay import be_prompt

SET_UP_S, EXTRA_S = 60, 30  # that building may take, and a repeat beyond its limit


class CaseNetwork(Network):
    """The namespaces and links of a case. Raises `HflError` where this machine cannot have them."""

    def __init__(self, case: Case) -> None:
        # Each sender has a host of its own in front of its first link. A queue inside the sending host would hold TCP back
        # (TCP small queues), where the queue of a link drops.
        super().__init__(
            case.links, [(f"host of {flow.route[0]}", *flow.route) for flow in case.flows], case.congestion
        )

    def notes(self, case: Case) -> list[str]:
        """What the queues counted, one line a link that gives flows the least or dropped something."""
        crossing = Counter(name for flow in case.flows for name in flow.route)
        narrowest = {min(flow.route, key=lambda n: case.links[n].rate_bps / crossing[n]) for flow in case.flows}
        lines = []
        for name, wire in self.wires.items():
            if wire.link is None:
                continue
            counts, lost = wire.tail.shaped(wire.device), wire.tail.dropped(wire.device)
            if name in narrowest or counts.drops or lost:
                size = counts.bytes / max(1, counts.packets)
                kind = "IP packets" if wire.has_tun else "frames"
                lines.append(
                    f"link {name}: {counts.packets} {kind} of {size:.0f} bytes on average, {counts.drops} dropped by its queue"
                    + (f", {lost} LOST by its device" if lost else "")
                )
        return lines


def measure(case: Case) -> dict[str, Any]:
    """The answer to a case. Raises `RefusedError` where it cannot be had."""
    network = CaseNetwork(case)
    listeners = [listen(ends) for ends in network.ends]
    load, repeats = [os.getloadavg()[0]], []
    prompt = be_prompt()
    with relaying(network.directions) as counted:
        farthest = max(range(len(case.flows)), key=lambda i: case.round_trip_s(case.flows[i]))
        delay_s = case.round_trip_s(case.flows[farthest])
        trips = probe(network.ends[farthest], delay_s)
        for repeat in range(case.repeats):
            repeats.append(play(case, repeat, network.ends, listeners))
            network.drain()
            time.sleep(delay_s + 0.05)  # for packets that are on their way
    load.append(os.getloadavg()[0])
    node = network.ends[0].sender
    buffers = [f"{key} {node.setting(f'net/ipv4/{key}')}" for key in ("tcp_rmem", "tcp_wmem")]
    notes = [
        *network.notes(case),
        f"round trip of a small packet: {statistics.median(trips) * 1e3:.2f} ms (median of {len(trips)}, "
        f"{min(trips) * 1e3:.2f} to {max(trips) * 1e3:.2f}) for {delay_s * 1e3:g} ms of delays",
        f"TCP {case.congestion}; {'; '.join(buffers)}",
        f"load average of the machine {load[0]:.2f} before, {load[1]:.2f} after",
        f"real-time priority: {'yes' if prompt and counted.get('real_time', True) else 'no'}",
    ]
    if counted.get("packets"):
        late = ", ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in counted["late_s"].items())
        notes.append(f"the relay passed {counted['packets']} packets on, late by ms: {late}")
    return {"referee": f"Linux {platform.release()} TCP", "repeats": repeats, "notes": notes}


def out_of_time(*_: object) -> None:
    """The last resort where something hangs."""
    raise RefusedError("took longer than all limits together; what it made is gone")


def main() -> None:
    """Reads a case, measures, writes the answer."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGALRM, out_of_time)
    try:
        case = read_case(sys.stdin.read())
        check_machine()
        signal.setitimer(signal.ITIMER_REAL, SET_UP_S + case.repeats * (case.limit_s + EXTRA_S))
        json.dump(measure(case), sys.stdout)
        print()
    except (RefusedError, HflError) as error:
        refuse(error)


if __name__ == "__main__":
    main()
