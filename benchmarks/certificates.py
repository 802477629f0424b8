"""Certificates of the five verdicts of docs/verdicts.md: is the winner still the winner in the worlds that one would believe?

    python benchmarks/certificates.py [--studies studies] [--only S2 S5] [--worlds 256] [--seeds 3] [--middle]

Each verdict is a study whose runs are replayed in worlds that are drawn from `UNCERTAIN` and from the spreads of profiles.
These are the small studies on embedded digits; with ``--middle``, those on real data that docs/verdicts.md reports, which take
hours where they are not done yet. What is not done of a study is run first (``hfl study``). A certificate is the folder
``certificate`` or ``certificate-CASE`` in the study's; what ``hfl certify`` prints is in a text file of the same name beside it.
Of a small study only the seeds and the grid points are run that a certificate needs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator import yamlfile
from emulator.scenario.load import find
from emulator.study.load import LoadedStudy, bundled, check
from emulator.study.tuning import settled

# What one would believe of a fleet whose network nobody has measured: access lines within a factor of two of what the scenario
# says in two worlds of three, their two directions alike; a backhaul up to ten times narrower; other delays; other devices.
UNCERTAIN = """
uncertain:
  quantities:
    topology.links.access.up: {name: access up, factor: {kind: log-normal, median: 1, spread: 2}}
    topology.links.access.down: {name: access down, factor: {kind: log-normal, median: 1, spread: 2}}
    topology.links.access.latency: {name: access latency, factor: {kind: log-normal, median: 1, spread: 2}}
    topology.links.backhaul: {name: backhaul, factor: {kind: log-uniform, low: 0.1, high: 1}}
    topology.devices: {name: speed of devices, factor: {kind: log-normal, median: 1, spread: 1.3}}
  correlations:
    - {between: [access up, access down], value: 0.8}
"""


@dataclass(frozen=True)
class Case:
    """Runs of a study that are compared, and by what: those that have ``where`` in its columns."""

    name: str = ""
    where: dict[str, float | str] = field(default_factory=dict)
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A verdict: its study on real data, the small one, and cases of both; of the small one, variants, and further changes."""

    middle: str
    small: str
    cases: tuple[Case, ...]
    small_cases: tuple[Case, ...]
    variants: tuple[str, ...] = ()  # all of them, where none are named
    changes: dict[str, Any] = field(default_factory=dict)


def _budgets(**amounts: str) -> tuple[str, ...]:
    return tuple(word for axis, amount in amounts.items() for word in ("--budget", f"{axis}={amount}"))


CLUSTERS = ("--measure", "accuracy_clusters")

VERDICTS = {
    "S1": Verdict(
        "visit/middle-tables",
        "visit/tables-small",
        (Case(words=("--target", "0.25", *_budgets(time="65 s", bytes="410 MB", energy="23 kJ"))),),
        (Case(),),
    ),
    "S2": Verdict(
        "group-fel/middle-cost",
        "group-fel/fig-11-small",
        (Case(words=("--target", "0.75", *_budgets(time="315 s", bytes="510 MB", energy="122 kJ"))),),
        (Case(),),
        # A budget in client-seconds lets runs go on for longer where rounds are cheaper, and that would have to be trained.
        changes={"stop": {"rounds": 40}},
    ),
    "S3": Verdict(
        "hicfl/middle-tables",
        "hicfl/table-2-small",
        tuple(Case(name, {"variant": name}, CLUSTERS) for name in ("Non-IID-1", "Non-IID-2")),
        tuple(Case(name, {"variant": name}, CLUSTERS) for name in ("Non-IID-1", "Non-IID-2")),
    ),
    "S4": Verdict(
        "fedseq/middle-table-2",
        "fedseq/table-2-small",
        (Case(words=("--target", "0.25", *_budgets(time="84 s", bytes="450 MB", energy="40 kJ"))),),
        (Case("alpha-0", {"data.partition.alpha": 0.0}),),
        ("FedAvg", "FedSeq", "FedAsyncSeq", "FedSeq2Par"),
    ),
    "S5": Verdict(
        "hfldd/methods-fashion",
        "hfldd/methods-small",
        (
            Case("C-1", {"data.partition.classes": 1}, ("--target", "0.6", *_budgets(time="29 s", energy="15 kJ"))),
            Case("C-2", {"data.partition.classes": 2}, ("--target", "0.6", *_budgets(time="29 s", energy="15 kJ"))),
        ),
        tuple(Case(f"C-{c}", {"data.partition.classes": c}) for c in (1, 2)),
    ),
}
# Centralized learning has neither links nor clients: the worlds do not concern it.
LEFT_OUT = ("centralized",)


def hfl(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "emulator", *words], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def runs_of(loaded: LoadedStudy, case: Case, folder: Path, seeds: int) -> list[str]:
    """The folders of the runs of a case, of the first seeds."""
    known = sorted({run.seed for run in loaded.runs})[:seeds]
    chosen = [
        run
        for run in loaded.runs
        if run.seed in known
        and run.method not in LEFT_OUT
        and all(run.values[column] == value for column, value in case.where.items())
    ]
    return [str(folder / run.name) for run in chosen if (folder / run.name / "summary.json").is_file()]


def small_study(verdict: Verdict, folder: Path, seeds: int) -> Path:
    """The file of a small study with as many seeds and as much of its grid as its certificates need."""
    path = find(verdict.small, bundled(), "study")
    data = yamlfile.load(path).data
    kept = {key: [case.where[key] for case in verdict.small_cases if key in case.where] for key in data.get("grid", {})}
    grid = {key: kept[key] or values for key, values in data.get("grid", {}).items()}
    data |= {"scenario": str(path.parent / data["scenario"]), "seeds": seeds, "set": data["set"] | verdict.changes}
    data |= {"grid": grid} if grid else {}
    if verdict.variants:
        data["variants"] = {name: data["variants"][name] for name in verdict.variants}
    for key in ("claims", "figures"):
        data.pop(key, None)
    file = folder.with_suffix(".yaml")
    file.write_text(yamlfile.dump(data), encoding="utf-8")
    return file


def certify(name: str, verdict: Verdict, given: argparse.Namespace, uncertain: Path) -> None:
    bundled_name, cases = (verdict.middle, verdict.cases) if given.middle else (verdict.small, verdict.small_cases)
    folder = given.studies / bundled_name.replace("/", "-")
    study = bundled_name if given.middle else str(small_study(verdict, folder, given.seeds))
    if given.run:
        hfl("study", study, "--out", str(folder))
    loaded = check(yamlfile.load(find(study, bundled(), "study")))
    loaded = settled(loaded, folder) if loaded.tuning else loaded
    for case in cases:
        runs = runs_of(loaded, case, folder, given.seeds)
        if not runs:
            print(f"{name} {case.name}: {folder} holds no finished runs of it")
            continue
        place = folder / ("certificate" if not case.name else f"certificate-{case.name}")
        words = ("--uncertain", str(uncertain), "--worlds", str(given.worlds), *given.words, *case.words)
        text = hfl("certify", *runs, *words, "--out", str(place))
        place.with_suffix(".txt").write_text(text, encoding="utf-8")
        print(f"## {name}: {bundled_name} {case.name}\n\n{text}\n", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, default=Path("studies"))
    parser.add_argument("--only", nargs="+", choices=[*VERDICTS], default=[*VERDICTS])
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=5, help="of each study, the first so many")
    parser.add_argument("--middle", action="store_true", help="the studies on real data")
    parser.add_argument("--run", action=argparse.BooleanOptionalAction, default=True, help="run what is not done yet")
    parser.add_argument("words", nargs="*", help="words for hfl certify, after --")
    given = parser.parse_args(words)
    given.studies.mkdir(parents=True, exist_ok=True)
    uncertain = given.studies / "uncertain.yaml"
    uncertain.write_text(UNCERTAIN, encoding="utf-8")
    for name in given.only:
        certify(name, VERDICTS[name], given, uncertain)


if __name__ == "__main__":
    main()
