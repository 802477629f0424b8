"""Which runs are compared, and what is uncertain about their world."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from emulator import yamlfile
from emulator.certify import spreads
from emulator.certify.measuring import Rows
from emulator.certify.order import RunOf
from emulator.certify.quantities import Quantity, RunWorlds, as_documents
from emulator.errors import InputError, ScenarioError, suggestion
from emulator.explain import explain
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.replaying import Book, ReplayLab
from emulator.measures import Measure
from emulator.replay import Source, describe_missing, open_source, replay
from emulator.scenario.schema import Scenario
from emulator.scenario.uncertain_schema import Uncertain
from emulator.study.names import text_of
from emulator.study.whatif import source_names
from emulator.yamlfile import Document

OF_ITSELF = ("seed", "name", "notes", "output", "compute", "uncertain")  # make no other experiment of a scenario
KEY = "uncertain"


@dataclass(frozen=True)
class Stated:
    """A section ``uncertain``, and the document in which it stands."""

    section: Uncertain
    document: Document

    def quantities(self) -> list[Quantity]:
        """The quantities of the section, in its order."""
        found = []
        for key, drawn in self.section.quantities.items():
            distribution = drawn.value if drawn.value is not None else drawn.factor
            assert distribution is not None
            place = self.document.keys.get((KEY, "quantities", key))
            found.append(
                Quantity(
                    drawn.name or key,
                    tuple(key.split(".")),
                    "stated",
                    distribution,
                    drawn.factor is not None,
                    drawn.whole,
                    place,
                )
            )
        return found


@dataclass(frozen=True)
class Gathered:
    """Runs that are compared, and what is uncertain about their world.

    ``without_effect`` are quantities that no run depends on, with the reasons. ``baselines`` are the measurements of the runs in
    the world as it is written.
    """

    runs: tuple[RunOf, ...]
    scenarios: tuple[Scenario, ...]
    quantities: tuple[Quantity, ...]
    without_effect: tuple[tuple[Quantity, str], ...]
    correlations: np.ndarray[Any, np.dtype[np.float64]]
    stated: Stated
    measure: Measure
    baselines: tuple[Rows, ...]
    digests: tuple[str, ...]

    @property
    def methods(self) -> list[str]:
        """What the methods are called."""
        return list(dict.fromkeys(run.method for run in self.runs))

    def worlds_of_runs(self) -> list[RunWorlds]:
        """What worlds change in each run."""
        named = zip(self.runs, self.scenarios, strict=True)
        return [RunWorlds(run.name, scenario, self.quantities) for run, scenario in named]


def read_uncertain(document: Document) -> Stated:
    """The section of a file that has it alone, or among others. Raises `ScenarioError` with all that is wrong with it."""
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get(KEY), dict):
        raise ScenarioError((document.problem((), f"has no section '{KEY}' with quantities"),))
    try:
        section = Uncertain.model_validate(data[KEY])
    except ValidationError as error:
        problems = explain(document, error.errors(include_url=False), Uncertain, (KEY,))
        raise ScenarioError(tuple(sorted(problems, key=lambda p: (p.line, p.column, p.key)))) from None
    wrong = tuple(document.problem((KEY, *path), message) for path, message in section.wrong())
    if wrong:
        raise ScenarioError(wrong)
    return Stated(section, document)


def gather(folders: Sequence[Path], stated: Stated | None, judged_by: str = "") -> Gathered:
    """Reads finished runs. ``stated`` is what is uncertain, by default what their scenario says.

    ``judged_by`` names another accuracy than that of the global model, such as ``accuracy_clusters``.

    Raises `InputError` where a folder cannot be replayed, where runs are of different scenarios, or where a quantity cannot be
    put where it is said to stand.
    """
    sources = [open_source(folder) for folder in folders]
    plain = [source.changed([]).loaded for source in sources]
    scenarios = [loaded.scenario for loaded in plain]
    names = source_names(folders)
    if any(not source.training for source in sources):
        raise InputError("runs without training reach no accuracy, so there is nothing to compare them by")
    _check_comparable(names, scenarios)
    runs = tuple(
        RunOf(name, method, scenario.seed, folder.resolve())
        for name, method, scenario, folder in zip(names, _methods(scenarios), scenarios, folders, strict=True)
    )
    _check_once_each(runs)
    if stated is None:
        own = scenarios[0].uncertain
        stated = Stated(own or Uncertain(), sources[0].document if own else yamlfile.from_data({}, "no uncertain"))
    by_name = dict(zip(names, scenarios, strict=True))
    given = stated.quantities()
    masks, reason = spreads.masks(by_name, [quantity.path for quantity in given])
    quantities = ([] if reason else [masks]) + given
    idle = [(masks, reason)] if reason else []
    if stated.section.profiles:
        layers = {
            kind for source, scenario in zip(sources, scenarios, strict=True) for kind in _layers(source, scenario)
        }
        for quantity in spreads.of_profiles(by_name, given):
            if quantity.path[-2] == "efficiency" and quantity.path[-1] not in layers:
                idle.append((quantity, "no model has such layers"))
            else:
                quantities.append(quantity)
    if not quantities:
        raise InputError("nothing is uncertain about these runs; say what is in a section 'uncertain'")
    size, first = len(quantities), 0 if reason else 1
    correlations = np.eye(size)
    within = slice(first, first + len(given))
    correlations[within, within] = stated.section.correlation_matrix()
    baselines = tuple(_baseline(source) for source in sources)
    gathered = Gathered(
        runs, tuple(scenarios), tuple(quantities), tuple(idle), correlations, stated,
        _measure(scenarios[0].objective.measures[0], judged_by, baselines), baselines, tuple(map(_digest, folders)),
    )  # fmt: skip
    _check_places(gathered, sources)
    return gathered


def _measure(measure: Measure, judged_by: str, baselines: Sequence[Rows]) -> Measure:
    """What runs are judged by, of which all must have measured something."""
    found = replace(measure, name=judged_by or measure.name, title="" if judged_by else measure.title)
    for rows in baselines:
        if all(math.isnan(float(row.get(found.name, math.nan))) for row in rows):
            known = [
                name for name, value in rows[-1].items() if name.startswith(measure.name) and not math.isnan(value)
            ]
            raise InputError(f"not all runs have measured '{found.name[:60]}'; {suggestion(found.name, known)}")
    return found


def _layers(source: Source, scenario: Scenario) -> list[str]:
    """The kinds of layers of a run's model that are not dense."""
    memo = Memo(None)
    try:
        return [kind for kind, _ in ReplayLab(scenario, RunMemory(memo, source.known), Book()).model_facts.by_kind]
    finally:
        memo.close()


def _digest(folder: Path) -> str:
    """What tells finished runs apart: their scenario and their measurements."""
    parts = [(folder / name).read_bytes() for name in ("scenario.yaml", "metrics.csv")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _check_comparable(names: Sequence[str], scenarios: Sequence[Scenario]) -> None:
    """Runs must differ in method and seed alone."""
    flat = [_flattened(s.model_dump(exclude={*OF_ITSELF, "method"})) for s in scenarios]
    for name, other in zip(names[1:], flat[1:], strict=True):
        keys = [key for key in dict.fromkeys([*flat[0], *other]) if flat[0].get(key) != other.get(key)]
        if keys:
            a, b = (each.get(keys[0], "not given") for each in (flat[0], other))
            more = f" (and {len(keys) - 1} more keys differ)" if len(keys) > 1 else ""
            raise InputError(
                f"the runs '{names[0]}' and '{name}' are of different scenarios: {keys[0]} is {a} and {b}{more}; "
                "runs that are compared differ in their method and seed alone"
            )


def _flattened(data: Any, above: str = "") -> dict[str, str]:
    if isinstance(data, Mapping) and data:
        parts = (_flattened(value, f"{above}.{key}" if above else str(key)) for key, value in data.items())
        return {key: text for part in parts for key, text in part.items()}
    return {} if data is None else {above: text_of(data)}


def _methods(scenarios: Sequence[Scenario]) -> list[str]:
    """A name for the method of each; where two are called the same, with what they differ in."""
    flat = [_flattened(scenario.method.dump()) for scenario in scenarios]
    labels = [scenario.label for scenario in scenarios]
    found = []
    for label, own in zip(labels, flat, strict=True):
        alike = [other for name, other in zip(labels, flat, strict=True) if name == label]
        keys = [key for key in own if len({other.get(key, "") for other in alike}) > 1]
        found.append(f"{label} ({', '.join(f'{key} {own[key]}' for key in keys)})" if keys else label)
    return found


def _check_once_each(runs: Sequence[RunOf]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for run in runs:
        if (run.method, run.seed) in seen:
            other = seen[run.method, run.seed]
            raise InputError(
                f"the runs '{other}' and '{run.name}' are both {run.method} with seed {run.seed}; give one of them"
            )
        seen[run.method, run.seed] = run.name


def _baseline(source: Source) -> Rows:
    """The measurements of a run in its own world, replayed."""
    memo = Memo(None)
    try:
        result = replay(source, source.changed([]), memo)
    finally:
        memo.close()
    if not result.known:
        raise InputError(f"the run in '{source.folder}' cannot be replayed as it is: {describe_missing(result)}")
    return result.metrics


def _check_places(gathered: Gathered, sources: Sequence[Source]) -> None:
    """Each quantity by itself, at its middle or with each of its labels, must make a scenario of every run."""
    for number, quantity in enumerate(gathered.quantities):
        tried = quantity.at(np.array([0.5])) if quantity.labels is None else np.arange(float(len(quantity.labels)))
        for worlds, source in zip(gathered.worlds_of_runs(), sources, strict=True):
            for value in tried:
                numbers: list[float | None] = [None] * len(gathered.quantities)
                numbers[number] = float(value)
                source.changed(as_documents(worlds.changes(numbers), quantity.place))
