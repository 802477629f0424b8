"""The cases with which the emulator's network clock is compared, by group. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

KB, MB, MBPS, MS = 1_000, 1_000_000, 1e6, 1e-3
Json = dict[str, Any]


def link(rate_bps: float, delay_s: float = 0.0, queue_packets: int = 100) -> Json:
    """A link of the input."""
    return {"rate_bps": rate_bps, "delay_s": delay_s, "queue_packets": queue_packets}


def ask(links: Json, flows: list[Json], repeats: int, limit_s: float = 60.0, spread_s: float = MS) -> Json:
    """An input: all flows start at 0 s, but for the spread."""
    told = {"links": links, "flows": [flow | {"start_s": 0.0} for flow in flows], "repeats": repeats, "seed": 1}
    return told | {"start_spread_s": spread_s, "congestion": "cubic", "handshake": True, "limit_s": limit_s}


def behind_one(delays_s: list[float], size: int, bottleneck: Json, repeats: int, **rest: float) -> Json:
    """Flows that share a bottleneck, each behind an access link of 1 Gbit/s with a delay of its own."""
    access = {f"access{i}": link(1e9, delay_s, 1000) for i, delay_s in enumerate(delays_s)}
    flows = [{"route": [name, "bottleneck"], "bytes": size} for name in access]
    return ask({**access, "bottleneck": bottleneck}, flows, repeats, **rest)


def single() -> Iterator[tuple[str, Json]]:
    """One flow: sizes, rates and delays."""
    for rate in (1, 10, 100):
        for size, name in ((100 * KB, "100 kB"), (MB, "1 MB"), (10 * MB, "10 MB")):
            for delay in (5, 15, 50):
                slow = rate == 1 and size == 10 * MB
                narrow = link(rate * MBPS, delay * MS)
                case = behind_one([0.0], size, narrow, 1 if slow else 3, limit_s=200.0 if slow else 60.0, spread_s=0.0)
                yield f"{name} at {rate} Mbit/s, {delay} ms", case


def equal() -> Iterator[tuple[str, Json]]:
    """Equal flows that share a bottleneck."""
    for count in (2, 4, 8, 16, 32):
        yield (
            f"{count} flows of 1 MB at 10 Mbit/s, 15 ms",
            behind_one([0.0] * count, MB, link(10 * MBPS, 15 * MS), 10),
        )
    yield "8 flows of 4 MB at 100 Mbit/s, 15 ms", behind_one([0.0] * 8, 4 * MB, link(100 * MBPS, 15 * MS), 10)


def trips() -> Iterator[tuple[str, Json]]:
    """Flows of different round-trip times."""
    delays_s = [ms * MS for ms in (0, 5, 10, 20, 40, 60, 80, 100)]
    yield (
        "8 flows of 1 MB at 10 Mbit/s, 15 ms and 0 to 100 ms",
        behind_one(delays_s, MB, link(10 * MBPS, 15 * MS), 5),
    )


def a_round() -> Iterator[tuple[str, Json]]:
    """The uploads of a round: clients behind two edges, each edge with a cell and a backhaul."""
    links: Json = {}
    flows: list[Json] = []
    for edge in range(2):
        links |= {f"cell{edge}": link(40 * MBPS), f"backhaul{edge}": link(30 * MBPS, 10 * MS)}
        for client in range(10 * edge, 10 * edge + 10):
            links[f"access{client}"] = link(10 * MBPS, 15 * MS)
            flows.append({"route": [f"access{client}", f"cell{edge}", f"backhaul{edge}"], "bytes": 400 * KB})
    yield "20 clients behind 2 edges, 400 kB each", ask(links, flows, 5)


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Json]]]] = {
    "single": single,
    "equal": equal,
    "trips": trips,
    "round": a_round,
}
