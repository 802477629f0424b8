"""Runs that belong together: those that differ in nothing but their seed are one line, one bar or one row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.runs import COMPLETE, Run, load_run, load_runs, measure_of, unique_labels
from analysis.studies import INDEX, StudyResults, evaluations, load_study
from emulator.errors import InputError

VARIANT = "variant"
NO_DIFFERENCE = ("seed", "name", "notes", "output")  # keys of a scenario that make no other experiment of it


@dataclass(frozen=True, eq=False)
class Series:
    """Runs that differ in their seed alone, and what legends call them."""

    label: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """The run that stands for all where only one can be shown."""
        return self.runs[0]

    @property
    def alone(self) -> Series:
        """The first run under the label of all."""
        return Series(self.title, self.runs[:1])

    @property
    def note(self) -> str:
        """Which of several runs the first one is; empty where there is only one."""
        return "" if len(self.runs) == 1 else f"seed {self.first.seed}"

    @property
    def title(self) -> str:
        """The label, with the seed of the first run where there are several."""
        return f"{self.label} ({self.note})" if self.note else self.label


Given = Series | Run | Path | str


def as_series(given: Sequence[Given]) -> list[Series]:
    """Series from what people have: run folders, runs that are loaded, or series.

    Runs whose scenarios are equal but for the seed are one series, named by their method; where that does not tell them from
    others, also by name, seed or folder. Raises `InputError` where nothing is given, a folder is given twice or is no run folder.
    """
    if not given:
        raise InputError("give at least one run")
    ready = [each for each in given if isinstance(each, Series)]
    loaded = [each for each in given if isinstance(each, Run)]
    runs = [*loaded, *load_runs(each for each in given if isinstance(each, Path | str))]
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(_experiment(run), []).append(run)
    together = [group for runs in alike.values() for group in _by_seed(runs)]
    several = any(len(group) > 1 for group in together)  # the seed of several is no name for them
    named = unique_labels([replace(group[0], seed=None) if several else group[0] for group in together])
    for label, group in zip(named, together, strict=True):
        states = {run.status for run in group} - {COMPLETE}
        shown = f"{label} [{', '.join(sorted(states))}]" if states else label
        ready.append(Series(shown, tuple(sorted(group, key=lambda run: -1 if run.seed is None else run.seed))))
    return ready


def _experiment(run: Run) -> str:
    """A text that is equal for runs that differ in their seed alone."""
    known = {key: value for key, value in run.scenario.items() if key not in NO_DIFFERENCE}
    if not known:  # nothing but the method is known
        return json.dumps([run.name, run.label, run.training])
    return json.dumps([run.label, run.training, known], sort_keys=True, default=str)


def _by_seed(runs: Sequence[Run]) -> list[list[Run]]:
    """One group; where a seed stands twice or is not known, each run alone: a mean would count it twice."""
    seeds = [run.seed for run in runs]
    together = len(set(seeds)) == len(seeds) and (None not in seeds or len(seeds) == 1)
    return [list(runs)] if together else [[run] for run in runs]


def results_of(given: Sequence[Given], target: float | None = None) -> StudyResults:
    """Any runs as if they were a study that varies nothing but ``variant``, the label of their series.

    Raises `InputError` as `as_series`.
    """
    import pandas as pd

    found: list[pd.DataFrame] = []
    folders: dict[str, Path] = {}
    every = as_series(given)
    for series in every:
        for run in series.runs:
            name = str(len(folders))
            identity: Mapping[str, Any] = {
                "run": name, VARIANT: series.label, "method": run.label, "seed": -1 if run.seed is None else run.seed,
            }  # fmt: skip
            found.append(evaluations(run, identity))
            folders[name] = run.folder
    table = pd.concat(found, ignore_index=True)
    measure = measure_of(run for series in every for run in series.runs)
    return StudyResults(Path(), "", (VARIANT,), target, table, (), folders, measure=measure)


def load_results(folders: Sequence[Path | str]) -> StudyResults:
    """The results of one study folder, or of any run folders. Raises `InputError` where they are neither, or mixed."""
    studies = [folder for folder in folders if (Path(folder) / INDEX).is_file()]
    if not studies:
        return results_of([Path(folder) for folder in folders])
    if len(folders) > 1:
        raise InputError(f"'{studies[0]}' is the folder of a study: give it alone, or give run folders")
    return load_study(folders[0])


def runs_of(results: StudyResults, names: Sequence[str]) -> tuple[Run, ...]:
    """The runs of these names, in their order."""
    return tuple(load_run(results.folders[name]) for name in names)
