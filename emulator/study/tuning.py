"""Tuning: a value of one key, chosen for each variant and grid point from runs with a seed that the results do not have.

The runs are folders ``tuning/...`` in that of the study, and go on as any others. The choice follows from them alone: it is made
again whenever the study is, and ``tuned.json`` says what it was.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emulator.errors import ScenarioError
from emulator.files import read_json, write_json
from emulator.measures import ACCURACY, Measure
from emulator.run_folder import COMPLETE, FAILED, METRICS, SUMMARY, check_unchanged
from emulator.standing import SPENT, last_within, mean_of_last
from emulator.study.expand import Point, point_of
from emulator.study.folder import state_of
from emulator.study.load import LoadedStudy, Planned
from emulator.study.names import TUNED


@dataclass(frozen=True)
class Tuned:
    """A variant at a grid point, and the accuracy (a share) that each value reached there, by its label."""

    variant: str
    point: Mapping[str, float | str]
    accuracies: dict[float | str, float] = field(default_factory=dict)
    measure: Measure = ACCURACY

    @property
    def chosen(self) -> float | str:
        """The label of the best value; of equal ones the first."""
        return max(self.accuracies, key=lambda label: self.measure.sign * self.accuracies[label])


def choices(loaded: LoadedStudy, folder: Path) -> dict[Point, Tuned]:
    """What the runs of tuning in a study's ``folder`` say, by point; only where all runs of a point are over.

    A value with which training diverged loses against any other. Where all did, nothing is chosen.

    Raises `InputError` where a file of one has changed since, or has nothing of what they are judged by.
    """
    by_point: dict[Point, list[Planned]] = {}
    for run in loaded.tuning:
        by_point.setdefault(point_of(run.variant, run.point), []).append(run)
    found = {}
    for point, runs in by_point.items():
        lost = {run.name for run in runs if diverged(folder, run)}
        if len(lost) < len(runs) and all(run.name in lost or state_of(folder, run) == COMPLETE for run in runs):
            measure = _measure(loaded, runs[0])
            accuracies = {
                run.tuned: -measure.sign * math.inf if run.name in lost else _accuracy(loaded, folder, run)
                for run in runs
                if run.tuned is not None
            }
            found[point] = Tuned(runs[0].variant, runs[0].point, accuracies, measure)
    return found


def diverged(folder: Path, run: Planned) -> bool:
    """Whether a run of tuning has ended because training diverged; it is not begun again."""
    said = read_json(folder / run.name / SUMMARY) or {}
    return said.get("status") == FAILED and bool(said.get("diverged")) and state_of(folder, run) == FAILED


def settled(loaded: LoadedStudy, folder: Path) -> LoadedStudy:
    """The study with the values that its tuning has chosen so far; as it is where it tunes nothing."""
    if not loaded.tuning:
        return loaded
    return loaded.tuned_to({point: each.chosen for point, each in choices(loaded, folder).items()})


def write_choices(loaded: LoadedStudy, folder: Path) -> list[Tuned]:
    """Writes ``tuned.json`` of a study that tunes something; returns what was chosen where."""
    tune = loaded.study.tune
    if tune is None:
        return []
    found = list(choices(loaded, folder).values())
    points = [
        {
            "variant": each.variant,
            "point": each.point,
            "tried": [
                {"value": label, tune.by: accuracy if math.isfinite(accuracy) else None}
                for label, accuracy in each.accuracies.items()
            ],
            "chosen": each.chosen,
        }
        for each in found
    ]
    measure = found[0].measure if found else ACCURACY
    about = {} if measure == ACCURACY else {"measure": measure.to_json()}
    write_json(folder / TUNED, {"key": tune.key, "seed": tune.seed, "by": tune.by, **about, "points": points})
    return found


def untuned(loaded: LoadedStudy) -> dict[str, str]:
    """Why runs of a settled study cannot be done, by name: tuning has chosen no value for them."""
    ready = {run.name for run in loaded.ready}
    why = "not begun: not all runs of its tuning are complete, or training diverged in all of them"
    return {r.name: why for r in loaded.runs if r.name not in ready}


def _measure(loaded: LoadedStudy, run: Planned) -> Measure:
    """By what runs of tuning are judged."""
    by_clusters = loaded.study.tune is not None and loaded.study.tune.by == "accuracy-clusters"
    return ACCURACY if by_clusters else run.loaded.scenario.objective.measures[0]


def _accuracy(loaded: LoadedStudy, folder: Path, run: Planned) -> float:
    """By what a run of tuning is judged: a share. Raises `ScenarioError` where it has none."""
    place, study = folder / run.name, loaded.study
    assert study.tune is not None
    check_unchanged(place, "delete the folder, and the study runs it again")
    measure = _measure(loaded, run)
    column = "accuracy_clusters" if study.tune.by == "accuracy-clusters" else measure.name
    with (place / METRICS).open(encoding="utf-8", newline="") as file:
        rows = [
            {
                name: float(row.get(column if name == measure.name else name) or "nan")
                for name in (measure.name, *SPENT.values())
            }
            for row in csv.DictReader(file)
        ]
    if math.isnan(rows[-1][measure.name]):
        message = f"the run in {place} has no such {measure.called}"
        raise ScenarioError((loaded.document.problem(("tune", "by"), message),))
    scenario = run.loaded.scenario
    limits = study.budget.limits if study.budget else scenario.stop.budget
    last = scenario.evaluate.last_rounds or max(1, int(rows[-1]["round"]) // 10)
    found = _by(study.tune.by, rows, limits, last, measure)
    if math.isnan(found):
        problem = loaded.document.problem(("tune", "by"), f"the run in {place} was not evaluated within its budget")
        raise ScenarioError((problem,))
    return found


def _by(
    quantity: str, rows: Sequence[Mapping[str, float]], limits: Mapping[str, float], last: int, measure: Measure
) -> float:
    if quantity == "best-accuracy":
        return measure.best(row[measure.name] for row in rows)
    if quantity == "accuracy-last-rounds":
        return mean_of_last(rows, last, measure.name)
    row = last_within(rows, limits) if quantity == "accuracy-at-budget" else rows[-1]
    return math.nan if row is None else row[measure.name]
