"""Measures the recorded cases with the kernel's TCP, and writes them with their answers to ``recorded/kernel-*.json``.

    sudo python3 benchmarks/referees/record.py [single equal trips round]    about 20 minutes for all
    python3 benchmarks/referees/record.py --show                             the table of what is recorded

A machine that does nothing else gives the best figures; the notes of an answer have the load, and how late packets were.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from case import FRAME_BYTES, PAYLOAD_BYTES

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded"
KB, MB, MBPS, MS = 1_000, 1_000_000, 1e6, 1e-3
FIRST_WINDOW = 10  # segments: RFC 6928
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


GROUPS = {"single": single, "equal": equal, "trips": trips, "round": a_round}


def by_hand_s(case: Json) -> float:
    """What a single flow takes without loss: handshake, slow start, and frames at the rate of the narrowest link.

    Windows double from ten segments every round trip; a window that is sent before its first acknowledgement is back leaves
    the link idle until then.
    """
    flow = case["flows"][0]
    links = [case["links"][name] for name in flow["route"]]
    rate_bps: float = min(one["rate_bps"] for one in links)
    delay_s: float = sum(one["delay_s"] for one in links)
    frame_s = FRAME_BYTES * 8 / rate_bps
    left: int = -(-flow["bytes"] // PAYLOAD_BYTES)
    unused_s: float = (left * PAYLOAD_BYTES - flow["bytes"]) * 8 / rate_bps  # of the last frame
    time_s, window = 2 * delay_s, FIRST_WINDOW
    while left > window and window * frame_s < 2 * delay_s + frame_s:
        time_s, left, window = time_s + 2 * delay_s + frame_s, left - window, 2 * window
    return time_s + left * frame_s - unused_s + delay_s


def measure(case: Json) -> Json:
    """The answer of the kernel's referee, to the microsecond. Ends the process where it refuses."""
    done = subprocess.run([sys.executable, HERE / "kernel.py"], input=json.dumps(case), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"kernel.py ended with {done.returncode}")
    answer: Json = json.loads(done.stdout)
    return answer | {"repeats": [[round(seconds, 6) for seconds in repeat] for repeat in answer["repeats"]]}


def machine() -> Json:
    """When and where it was measured."""
    told = Path("/proc/cpuinfo").read_text()
    cpu = next((line.split(":")[1].strip() for line in told.splitlines() if line.startswith("model name")), "unknown")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": date, "kernel": platform.release(), "cpu": cpu, "cores": os.cpu_count()}


def record(group: str) -> None:
    """Measures a group of cases and writes its file, a case a line; shows each as it comes."""
    done: list[Json] = []
    for name, case in GROUPS[group]():
        done.append({"name": name, "input": case, "output": measure(case)})
        print(row(done[-1]), *done[-1]["output"]["notes"], sep="\n    ", flush=True)
    lines = ",\n".join(json.dumps(one) for one in done)
    RECORDED.mkdir(exist_ok=True)
    target = RECORDED / f"kernel-{group}.json"
    target.write_text(f'{{"machine": {json.dumps(machine())},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")


def row(one: Json) -> str:
    """Medians over the repeats of the first, the median and the last flow's time, as a line of Markdown."""
    repeats = [sorted(repeat) for repeat in one["output"]["repeats"]]
    ends = [repeat[-1] for repeat in repeats]
    first = statistics.median(repeat[0] for repeat in repeats)
    middle, last = statistics.median(map(statistics.median, repeats)), statistics.median(ends)
    hand = f"{by_hand_s(one['input']):.3f}" if len(one["input"]["flows"]) == 1 else ""
    return f"| {one['name']} | {first:.3f} | {middle:.3f} | {last:.3f} | {min(ends):.3f} to {max(ends):.3f} | {hand} |"


def show() -> None:
    """Prints what is recorded."""
    columns = ("case", "first, s", "median, s", "last, s", "last, least to most", "without loss, by hand")
    print(f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", sep="\n")
    for group in GROUPS:
        file = RECORDED / f"kernel-{group}.json"
        for one in json.loads(file.read_text(encoding="utf-8"))["cases"] if file.exists() else []:
            print(row(one))


def main() -> None:
    """Records the groups that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="group", help=f"of {', '.join(GROUPS)}; all where none is named")
    parser.add_argument("--show", action="store_true", help="print the table of what is recorded, and measure nothing")
    asked = parser.parse_args()
    if unknown := set(asked.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if asked.show:
        show()
        return
    for group in asked.groups or GROUPS:
        record(group)


if __name__ == "__main__":
    main()
