"""From a file to a checked study: YAML, types, and every single run's scenario; all problems at once."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from emulator import yamlfile
from emulator.errors import InputError, Problem, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.scenario import bundled as bundled_scenarios
from emulator.scenario.load import Loaded, check, find, is_study, parse_change, ready
from emulator.study.expand import VARIANT, Change, Wanted, covers, expand
from emulator.study.names import text_of
from emulator.study.schema import MOST_RUNS, Study, column_named, same_value
from emulator.yamlfile import Document, Path_

NOT_HERE = {
    "seed": "the seeds of a study stand in 'seeds'",
    "output.against": "a study runs its variants and nothing beside them",
}


@dataclass(frozen=True)
class Planned:
    """One run of a study. ``point`` maps the grid's keys to numbers, or to names of values."""

    name: str
    variant: str
    point: dict[str, float | str]
    loaded: Loaded

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.loaded.scenario.seed

    @property
    def method(self) -> str:
        """What legends call its method."""
        method = self.loaded.scenario.method
        return str(method.params.preset or method.kind)

    @cached_property
    def trains(self) -> str:
        """What its trainings depend on, roughly: equal for runs that may share them."""
        scenario = self.loaded.scenario
        plain = scenario.model_dump(include={"seed", "data", "model", "method"})
        return json.dumps([plain, scenario.topology.clients, scenario.topology.edges], sort_keys=True)

    def value(self, column: str) -> float | str:
        """What the run has in a column: a value of the grid, or its variant, method or seed."""
        named: dict[str, float | str] = {"variant": self.variant, "method": self.method, "seed": self.seed}
        return (named | self.point)[column]


@dataclass(frozen=True)
class LoadedStudy:
    """A study, the document that it was read from, and its runs. ``columns`` are what the runs differ in, beside the seed."""

    study: Study
    document: Document
    runs: tuple[Planned, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """``variant``, where there are variants, and the grid's keys."""
        return columns_of(self.study)


def bundled() -> dict[str, Path]:
    """The ready studies by name (their path under ``emulator/scenarios`` without the ending)."""
    return {name: path for name, path in ready().items() if is_study(path)}


def columns_of(study: Study) -> tuple[str, ...]:
    """What the runs of a study differ in, beside the seed."""
    return (*([VARIANT] if study.variants else []), *study.grid)


def load(name: str | Path, overrides: Sequence[str] = ()) -> LoadedStudy:
    """Reads and checks a study file or a bundled study; raises `ScenarioError` with everything that is wrong.

    ``overrides`` are changes (``key.path=value``) to the scenarios of all runs, and come last.
    """
    document = yamlfile.load(find(str(name), bundled(), "study"))
    study = _read(document)
    base = _base(study, document)
    last = [_override(text, study) for text in overrides]
    problems = [*_misplaced(study, document), *_of_figures(study, document)]
    if problems:
        raise ScenarioError(tuple(problems))
    runs = _checked(list(expand(study, document, base, last)), base)
    if problems := list(_of_drawn_runs(study, document, runs)):
        raise ScenarioError(tuple(problems))
    return LoadedStudy(study, document, runs)


def _read(document: Document) -> Study:
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        raise ScenarioError((document.problem((), f"{what}; a study has the keys {quote_all(Study.model_fields)}"),))
    if "scenario" not in document.data and "topology" in document.data:
        message = "this is a scenario, not a study; run it with 'hfl run', or name it as the 'scenario' of a study"
        raise ScenarioError((document.problem((), message),))
    try:
        return Study.model_validate(document.data)
    except ValidationError as error:
        found = dict.fromkeys(explain(document, error.errors(include_url=False), Study))
        raise ScenarioError(tuple(sorted(found, key=lambda p: (p.line, p.column, p.key)))) from None


def _base(study: Study, document: Document) -> Document:
    """The scenario that everything starts from; one that stands in the study need not have a name of its own."""
    if isinstance(study.scenario, dict):
        base = document.below(("scenario",))
        base.data = {"name": study.name, **study.scenario}
        return base
    beside = Path(document.file).parent / study.scenario
    known = bundled_scenarios()
    if not beside.is_file() and study.scenario not in known:
        hint = suggestion(study.scenario.removesuffix(".yaml"), known, "bundled scenarios")
        message = f"there is no file '{beside}' and no such bundled scenario; {hint}"
        raise ScenarioError((document.problem(("scenario",), message),))
    return yamlfile.load(beside if beside.is_file() else known[study.scenario])


def _misplaced(study: Study, document: Document) -> Iterator[Problem]:
    """What is wrong with keys and values before they meet a scenario."""
    places: list[tuple[Path_, str]] = [(("set", key), key) for key in study.set]
    places += [(("variants", name, key), key) for name, changes in (study.variants or {}).items() for key in changes]
    places += [(("grid", key), key) for key in study.grid]
    for path, key in places:
        if not all(key.split(".")):
            yield document.problem(path, "expected a key of the scenario, such as 'stop.rounds'", at_key=True)
        elif key in NOT_HERE:
            yield document.problem(path, NOT_HERE[key], at_key=True)
    for key, other in itertools.permutations(study.grid, 2):
        if covers(key, other):
            yield document.problem(("grid", other), f"lies in '{key}', which the grid varies too", at_key=True)
    for key, values in study.grid.items():
        entries = list(values.values() if isinstance(values, dict) else values)
        for i, entry in enumerate(entries):
            if isinstance(values, list) and text_of(entry) in map(text_of, entries[:i]):
                yield document.problem(("grid", key, i), f"the value '{text_of(entry)}' stands twice")
    seeds = study.seeds or (0,)
    for i, seed in enumerate(seeds):
        if seed in seeds[:i]:
            yield document.problem(("seeds", i), f"the seed {seed} stands twice")
    count = len(study.variants or [0]) * math.prod(len(v) for v in study.grid.values()) * len(seeds)
    if count > MOST_RUNS:
        yield document.problem((), f"these would be {count:,} runs; a study has at most {MOST_RUNS:,}")


def _of_figures(study: Study, document: Document) -> Iterator[Problem]:
    taken: dict[str, int] = {}
    for i, figure in enumerate(study.figures):
        for key, message in figure.params.wrong(columns_of(study)):
            yield document.problem(("figures", i, key), message)
        for file in figure.params.file:
            if file in taken:
                yield document.problem(("figures", i, "file"), f"'{file}' is drawn by figure {taken[file] + 1} already")
            taken.setdefault(file, i)


def _of_drawn_runs(study: Study, document: Document, runs: Sequence[Planned]) -> Iterator[Problem]:
    """Figures without runs, and those that would take different runs for seeds of one."""
    columns = columns_of(study)
    for i, figure in enumerate(study.figures):
        where = {column_named(name, columns): value for name, value in figure.params.where.items()}
        chosen = [run for run in runs if all(same_value(value, run.value(c)) for c, value in where.items())]
        if not chosen:
            yield document.problem(("figures", i, "where"), "no run is of these values")
        seen: dict[tuple[float | str, ...], str] = {}
        for run in chosen:
            place = (*(run.value(c) for c in figure.params.told_apart(columns)), run.seed)
            if place in seen:
                message = f"the runs '{seen[place]}' and '{run.name}' would be taken for one; say what tells them apart"
                yield document.problem(("figures", i), message)
                break
            seen[place] = run.name


def _override(text: str, study: Study) -> Change:
    """A change of the command line; it must leave what is varied as it is."""
    key, given = parse_change(text)
    varied = [*study.grid, *(k for changes in (study.variants or {}).values() for k in changes)]
    undone = next((other for other in varied if covers(key, other)), "")
    message = NOT_HERE.get(key, f"the study varies '{undone}'" if undone else "")
    if message:
        raise ScenarioError((given.problem((), message),))
    return Change(key, given)


def _checked(wanted: Sequence[Wanted], base: Document) -> tuple[Planned, ...]:
    """Every run with its scenario; raises one error with the problems of all, each once."""
    runs: list[Planned] = []
    found: dict[Problem, list[str]] = {}
    for each in wanted:
        try:
            runs.append(Planned(each.name, each.variant, dict(each.point), _scenario(each.document(base))))
        except ScenarioError as error:
            for problem in error.problems:
                found.setdefault(problem, []).append(each.name)
    if found:
        every = sorted(found, key=lambda p: (p.file, p.line, p.column, p.key))
        raise ScenarioError(tuple(_with_runs(problem, found[problem], len(wanted)) for problem in every))
    return tuple(runs)


def _scenario(document: Document) -> Loaded:
    """A checked scenario whose traces can be played. Raises `ScenarioError`."""
    from emulator.world import endings

    loaded = check(document)
    try:
        endings.check(loaded.scenario)
    except InputError as error:
        raise loaded.locate(InputError(error.message, error.key or "topology")) from error
    return loaded


def _with_runs(problem: Problem, names: Sequence[str], count: int) -> Problem:
    """The problem, and which runs have it, unless all do."""
    if len(names) == count:
        return problem
    which = f"in the run '{names[0]}'" if len(names) == 1 else f"in {len(names)} of {count} runs, such as '{names[0]}'"
    return Problem(problem.file, problem.line, problem.column, problem.key, f"{problem.message} ({which})")
