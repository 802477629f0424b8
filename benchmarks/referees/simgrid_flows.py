"""Flows in SimGrid: how long each takes. Runs under a Python that has SimGrid's module; the README has the format.

    /usr/bin/python3 benchmarks/referees/simgrid_flows.py < case.json > answer.json

``"model": "fluid"`` shares every link max-min fairly, with no correction for TCP: a flow has its share from the start, and the
latencies of its links come after its last byte. ``"model": "tcp"`` is SimGrid's own default, LV08, with the factors that its
authors fitted to TCP.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from case import Case, RefusedError, read_case, refuse

# Without any of SimGrid's corrections: no factors, no window, and shares that do not depend on round-trip times.
FLUID = {
    "network/model": "CM02",
    "network/bandwidth-factor": "1",
    "network/latency-factor": "1",
    "network/weight-S": "0",
    "network/TCP-gamma": "0",
    "network/crosstraffic": "0",
    "surf/precision": "1e-12",
    "maxmin/precision": "1e-12",
}
TCP = {"network/model": "LV08"}
LOG = "--log=root.thres:critical"


def simulate(case: Case) -> dict[str, Any]:
    """The answer to a case. Raises `RefusedError` where SimGrid is missing."""
    try:
        import simgrid  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise RefusedError(f"needs SimGrid's Python module (Debian's python3-simgrid): {error}") from None

    fluid = case.model == "fluid"
    settings = FLUID if fluid else TCP
    engine = simgrid.Engine(["referee", LOG, *(f"--cfg={key}:{value}" for key, value in settings.items())])
    zone = simgrid.NetZone.create_full_zone("zone")
    # CM02 weighs flows by the inverse of their latencies. The fluid model has none on its links: they are added in the end.
    links = {name: zone.create_split_duplex_link(name, link.rate_bps / 8) for name, link in case.links.items()}
    for name, link in links.items():
        link.set_latency(0.0 if fluid else case.links[name].delay_s)
        link.seal()
    up = simgrid.LinkInRoute.Direction.UP
    hosts = []
    for i, flow in enumerate(case.flows):
        pair = [zone.create_host(f"{end} {i}", 1e9).seal() for end in ("sender", "receiver")]
        route = [simgrid.LinkInRoute(links[name], up) for name in flow.route]
        zone.add_route(pair[0].netpoint, pair[1].netpoint, None, None, route, True)
        hosts.append(pair)
    zone.seal()
    times = [[0.0] * len(case.flows) for _ in range(case.repeats)]

    def send(i: int, repeat: int, zero_s: float, late_s: float) -> None:
        flow = case.flows[i]
        simgrid.this_actor.sleep_until(zero_s + flow.start_s + late_s)
        simgrid.Comm.sendto(*hosts[i], flow.bytes)
        latency_s = case.round_trip_s(flow) / 2 if fluid else 0.0
        times[repeat][i] = engine.clock - zero_s - flow.start_s + latency_s

    def all_repeats() -> None:
        for repeat in range(case.repeats):
            zero_s = engine.clock
            late_s = case.late_s(repeat)
            actors = [
                simgrid.Actor.create(f"flow {i}", hosts[i][0], send, i, repeat, zero_s, late_s[i])
                for i in range(len(case.flows))
            ]
            for actor in actors:
                actor.join()

    simgrid.Actor.create("repeats", hosts[0][0], all_repeats)
    engine.run()
    notes = [
        "payload at the links' rates: no headers, no handshake" if fluid else "LV08 with SimGrid's own factors for TCP"
    ]
    return {"referee": f"SimGrid {simgrid.simgrid_version} {case.model}", "repeats": times, "notes": notes}


def main() -> None:
    """Reads a case, simulates, writes the answer."""
    try:
        json.dump(simulate(read_case(sys.stdin.read())), sys.stdout)
    except RefusedError as error:
        refuse(error)
    print()


if __name__ == "__main__":
    main()
