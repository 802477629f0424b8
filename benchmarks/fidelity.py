"""How far the network clock is from packets: transfers, shares and rounds against ns-3, the kernel's TCP and SimGrid.

    python benchmarks/fidelity.py [--only single equal trips round] [--referees ns3 kernel simgrid]    compares now
    python benchmarks/fidelity.py --recorded                                      compares with what was recorded
    python benchmarks/fidelity.py --record                                        compares now, and records it
    python benchmarks/fidelity.py --recorded --plot FILE                          draws all flows in the order of their ends

The cases are in ``benchmarks/referees/cases.py``, the referees beside it (README.md there). ns-3 is installed into an environment
of its own; the kernel's TCP needs root; SimGrid needs Debian's python3-simgrid. A referee that is missing is skipped, and a line
says why. All of it takes about half an hour, most of it the kernel's, in real time; every run is bounded in time and traffic.

For each case: the seconds of the first, the middle and the last flow, as medians over repeats; what the emulator says with
`transport: tcp` (medians over 41 seeds), and by how many per cent it and `transport: fluid` are off. Where the two packet
referees differ by more than 15 %, the last column says by how much. The fluid is compared with SimGrid's, to digits.
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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import simpy

from analysis.plots.style import check_path
from emulator.contracts.world import Transport
from emulator.errors import InputError
from emulator.learning.memo import default_path
from emulator.rng import stream
from emulator.world.carriage import Carriage
from emulator.world.fleet import Leg
from emulator.world.sharing import SharedNetwork
from emulator.world.transports import TcpParams, tcp

HERE = Path(__file__).resolve().parent
REFEREES = HERE / "referees"
RECORDED = REFEREES / "recorded"
sys.path += [str(HERE), str(REFEREES)]

from cases import GROUPS, Json  # noqa: E402
from order_statistics import Repeats, plot  # noqa: E402
from peers import SkippedError, System, last_words, python_of  # noqa: E402

NS3 = System("ns-3 3.44", "", ("ns3==3.44.post0",))
SIMGRID_PYTHON = "/usr/bin/python3"
PATIENCE_S = 1800
SEEDS = 41
APART = 0.15  # packet referees that differ by more than this share are both reported
PACKETS = ("ns3", "kernel")
NAMES = (*PACKETS, "simgrid")


def ours(case: Json, transport: Transport, seed: int = 0) -> list[float]:
    """The emulator's seconds of every flow of a case. Queues and late starts play no part."""
    env = simpy.Environment()
    network = SharedNetwork(env, stream(seed, "jitter"), carriage=Carriage(transport, seed))
    ends = [0.0] * len(case["flows"])

    def send(number: int, flow: Json) -> Iterable[simpy.Event]:
        ways = [case["links"][name] for name in flow["route"]]
        route = tuple(
            Leg(name, f"sender {number}", f"receiver {number}", "", way["rate_bps"], way.get("delay_s", 0.0))
            for name, way in zip(flow["route"], ways, strict=True)
        )
        yield env.timeout(flow["start_s"])
        yield network.transfer(route, flow["bytes"])
        ends[number] = env.now - flow["start_s"]

    for number, flow in enumerate(case["flows"]):
        env.process(send(number, flow))
    env.run()
    return ends


def by_order(repeats: Iterable[Sequence[float]]) -> list[float]:
    """The median over repeats of the first flow's seconds, of the second's, and so on."""
    return [statistics.median(place) for place in zip(*map(sorted, repeats), strict=True)]


def shown(order: Sequence[float]) -> list[float]:
    """First, middle and last; of a single flow its one time."""
    return list(order) if len(order) == 1 else [order[0], order[(len(order) - 1) // 2], order[-1]]


def as_tcp(case: Json) -> list[list[float]]:
    """What the emulator says of a case with TCP, by seed."""
    model = tcp(TcpParams())
    return [ours(case, model, seed) for seed in range(SEEDS if len(case["flows"]) > 1 else 1)]


def emulated(case: Json) -> tuple[list[float], list[float]]:
    """What the emulator says of a case, as `shown`: as TCP, and as a fluid."""
    return shown(by_order(as_tcp(case))), shown(by_order([ours(case, Transport())]))


def order_statistics(answers: Mapping[str, Mapping[str, Sequence[Json]]]) -> dict[str, dict[str, Repeats]]:
    """By case of several flows: the seconds of all by repeat, as packet referees answered and as the emulator says."""
    found: dict[str, dict[str, Repeats]] = {}
    for group, by_referee in answers.items():
        for place, (name, case) in enumerate(GROUPS[group]()):
            if len(case["flows"]) > 1:
                told = {who: by_referee[who][place]["output"]["repeats"] for who in PACKETS if who in by_referee}
                found[name] = told | {"tcp": as_tcp(case), "fluid": [ours(case, Transport())]}
    return found


def ask(command: Sequence[str], cases: Json | list[Json]) -> Any:
    """What a referee answers. Raises `SkippedError` where it refuses, fails or takes too long."""
    clean = {
        name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"
    }  # they import their neighbours
    try:
        done = subprocess.run(
            command, input=json.dumps(cases), capture_output=True, text=True, timeout=PATIENCE_S, env=clean
        )
    except OSError as error:
        raise SkippedError(str(error)) from None
    except subprocess.TimeoutExpired:
        raise SkippedError(f"it took more than {PATIENCE_S} s") from None
    if done.returncode:
        raise SkippedError(last_words(done.stdout + done.stderr))
    return json.loads(done.stdout)


def ask_all(referee: str, group: str, envs: Path) -> list[Json]:
    """The cases of a group with a referee's answers, in the form in which they are recorded. Raises `SkippedError`."""
    names, cases = zip(*GROUPS[group](), strict=True)
    if referee == "ns3":
        more = [case | {"repeats": max(15, case["repeats"]) if len(case["flows"]) > 1 else 1} for case in cases]
        more = [case | {"limit_s": 600.0} for case in more]
        answers = ask([str(python_of("ns3", NS3, envs)), str(REFEREES / "ns3_flows.py")], more)
    elif referee == "kernel":
        more, answers = list(cases), []
        for name, case in zip(names, cases, strict=True):
            print(f"kernel: {name}", file=sys.stderr, flush=True)
            answers.append(ask([sys.executable, str(REFEREES / "kernel.py")], case))
    else:
        more = [case | {"repeats": 1, "model": "fluid", "start_spread_s": 0.0} for case in cases]
        answers = [ask([SIMGRID_PYTHON, str(REFEREES / "simgrid_flows.py")], case) for case in more]
    return [
        {"name": name, "input": case, "output": rounded(answer)}
        for name, case, answer in zip(names, more, answers, strict=True)
    ]


def rounded(answer: Json) -> Json:
    """An answer to the nanosecond. A flow that did not end has no time; its repeat is left out."""
    whole = [[round(seconds, 9) for seconds in repeat] for repeat in answer["repeats"] if None not in repeat]
    return answer | {"repeats": whole}


def recorded(referee: str, group: str) -> list[Json]:
    """What was recorded of a group. Raises `SkippedError` where nothing was."""
    file = RECORDED / f"{referee}-{group}.json"
    if not file.exists():
        raise SkippedError("nothing is recorded")
    cases: list[Json] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return cases


def record(referee: str, group: str, found: Sequence[Json]) -> None:
    """Writes a group's cases and answers, a case a line, with date and machine."""
    told = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    cpu = next((line.split(":")[1].strip() for line in told.splitlines() if line.startswith("model name")), "unknown")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    machine = {"date": date, "kernel": platform.release(), "cpu": cpu, "cores": os.cpu_count()}
    lines = ",\n".join(json.dumps(one) for one in found)
    RECORDED.mkdir(exist_ok=True)
    text = f'{{"machine": {json.dumps(machine)},\n"cases": [\n{lines}\n]}}\n'
    (RECORDED / f"{referee}-{group}.json").write_text(text, encoding="utf-8")


def off(said: Sequence[float], measured: Sequence[float]) -> list[float]:
    """By which share each of several times is too long."""
    return [a / b - 1 for a, b in zip(said, measured, strict=True)]


def percent(shares: Sequence[float]) -> str:
    """Shares as per cent, one beside the other."""
    return " ".join(f"{100 * share:+.1f}" for share in shares)


def seconds(times: Sequence[float]) -> str:
    """Seconds one beside the other."""
    return " ".join(f"{time:.3f}" if time < 10 else f"{time:.2f}" for time in times)


def rows(group: str, answers: Mapping[str, Sequence[Json]]) -> Iterable[str]:
    """The table of a group in Markdown: first, middle and last flow of each case."""
    packets = [name for name in PACKETS if name in answers]
    yield f"| {group} | tcp, s | {''.join(f'{name}, s | tcp, % | fluid, % | ' for name in packets)}apart |"
    yield "|---" * (3 + 3 * len(packets)) + "|"
    for place, (name, case) in enumerate(GROUPS[group]()):
        tcp_s, fluid_s = emulated(case)
        cells, found = [name, seconds(tcp_s)], []
        for referee in packets:
            measured = shown(by_order(answers[referee][place]["output"]["repeats"]))
            found.append(measured)
            cells += [seconds(measured), percent(off(tcp_s, measured)), percent(off(fluid_s, measured))]
        apart = [abs(a / b - 1) for a, b in zip(*found, strict=True)] if len(found) == 2 else []
        cells.append(f"{100 * max(apart):.0f} %" if apart and max(apart) > APART else "")
        yield f"| {' | '.join(cells)} |"


def simgrid_row(group: str, answers: Sequence[Json]) -> str:
    """How far our fluid is from SimGrid's: the largest relative difference of any flow of a group."""
    worst = 0.0
    for one in answers:
        said, measured = ours(one["input"], Transport()), one["output"]["repeats"][0]
        worst = max(worst, *(abs(a / b - 1) for a, b in zip(said, measured, strict=True)))
    return f"fluid against SimGrid's, {group}: {worst:.1e} at most"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="groups of cases")
    parser.add_argument("--referees", nargs="+", choices=NAMES, default=list(NAMES))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--recorded", action="store_true", help="compare with what was recorded, and ask nobody")
    which.add_argument("--record", action="store_true", help="write down what the referees answer")
    parser.add_argument(
        "--envs", type=Path, default=default_path().parent / "referees", help="folder of the environments"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw all flows in the order of their ends")
    asked = parser.parse_args()
    if asked.plot:
        if asked.only == ["single"]:
            parser.error("--plot draws cases of several flows, and --only names none")
        try:
            check_path(asked.plot)
        except InputError as error:
            parser.error(str(error))
    get = recorded if asked.recorded else partial(ask_all, envs=asked.envs.resolve())
    skipped: dict[str, str] = {}
    told: dict[str, dict[str, Sequence[Json]]] = {}
    for group in asked.only:
        answers = told[group] = {}
        for referee in [name for name in asked.referees if name not in skipped]:
            try:
                answers[referee] = get(referee, group)
            except SkippedError as error:
                skipped[referee] = str(error)
                continue
            if asked.record:
                record(referee, group, answers[referee])
        print("\n".join(rows(group, answers)), flush=True)
        if "simgrid" in answers:
            print(simgrid_row(group, answers["simgrid"]))
        print(flush=True)
    for referee, why in skipped.items():
        print(f"{referee}: skipped: {why}")
    if asked.plot:
        plot(order_statistics(told), asked.plot)


if __name__ == "__main__":
    main()
