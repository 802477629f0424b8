"""From a file to a checked study: YAML, types, and every single run's scenario; all problems at once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from emulator import yamlfile
from emulator.contracts.files import FigureChoice
from emulator.errors import Problem, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.measures import ACCURACY
from emulator.scenario import bundled as bundled_scenarios
from emulator.scenario.load import Loaded, find, is_study, parse_changes, ready
from emulator.scenario.schema import name_of
from emulator.study import whatif
from emulator.study.checking import (
    columns_of,
    playable,
    with_runs,
    wrong_baseline,
    wrong_drawings,
    wrong_grid,
    wrong_keys,
    wrong_tune,
)
from emulator.study.claims import Given, wrong_claims
from emulator.study.expand import Change, Point, Wanted, World, covers, expand, expand_tuning, own_seed
from emulator.study.schema import MOST_RUNS, Study
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
    known_from: Path | None = None  # the run folder that it is a what-if of
    tuned: float | str | None = None  # what it has of the key that is tuned; None: nothing is, or not yet

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.loaded.scenario.seed

    @property
    def method(self) -> str:
        """What legends call its method."""
        return self.loaded.scenario.label

    @cached_property
    def trains(self) -> str:
        """What its trainings depend on, roughly: equal for runs that may share them."""
        scenario = self.loaded.scenario
        plain = scenario.model_dump(include={"seed", "data", "model", "method", "compute"})
        plain_fleet = scenario.topology.model_dump(include={"edges", "tiers", "servers", "clients", "total", "fleet"})
        return json.dumps([plain, plain_fleet], sort_keys=True)

    @property
    def values(self) -> dict[str, float | str]:
        """What the run has in every column: values of the grid, and its variant, method and seed."""
        named: dict[str, float | str] = {"variant": self.variant, "method": self.method, "seed": self.seed}
        return named | self.point


@dataclass(frozen=True)
class LoadedStudy:
    """A study, the document that it was read from, and its runs. ``columns`` are what the runs differ in, beside the seed.

    ``worlds`` are those in which runs are replayed: those of ``sources``, or of the study itself where there are none.
    ``tuning`` are runs from which a value of the others is chosen first (see `emulator.study.tuning`); ``base`` and ``last`` are
    the scenario and the changes of the command line.
    """

    study: Study
    document: Document
    runs: tuple[Planned, ...]
    worlds: tuple[World, ...] = ()
    sources: tuple[Path, ...] = ()
    tuning: tuple[Planned, ...] = ()
    base: Document | None = None
    last: tuple[Change, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """``variant``, where there are variants, and the grid's keys."""
        return columns_of(self.study)

    @property
    def ready(self) -> tuple[Planned, ...]:
        """The runs that can be done: all, or those whose value of what is tuned was chosen."""
        return tuple(run for run in self.runs if not self.tuning or run.tuned is not None)

    def tuned_to(self, chosen: Mapping[Point, float | str]) -> LoadedStudy:
        """The same study with runs that have these values of what is tuned. Raises `ScenarioError` as `load`."""
        assert self.base is not None
        wanted = expand(self.study, self.document, self.base, self.last, chosen)
        return replace(self, runs=_checked(list(wanted), self.base))


def bundled() -> dict[str, Path]:
    """The ready studies by name (their path under ``emulator/scenarios`` without the ending)."""
    return {name: path for name, path in ready().items() if is_study(path)}


def load(name: str | Path, overrides: Sequence[str] = ()) -> LoadedStudy:
    """Reads and checks a study file or a bundled study; raises `ScenarioError` with everything that is wrong.

    ``overrides`` are changes (``key.path=value``) to the scenarios of all runs, and come last.
    """
    return check(yamlfile.load(find(str(name), bundled(), "study")), overrides)


def check(document: Document, overrides: Sequence[str] = ()) -> LoadedStudy:
    """As `load`, of a document that was read."""
    study = _read(document)
    last = [_override(key, given, study) for text in overrides for key, given in parse_changes(text)]
    problems = [*_misplaced(study, document), *_of_figures(study, document), *whatif.misplaced(study, document)]
    if study.uncertain is not None:
        problems += [document.problem(("uncertain", *path), message) for path, message in study.uncertain.wrong()]
    if problems:
        raise ScenarioError(tuple(problems))
    runs: tuple[Planned, ...] = ()
    tuning: tuple[Planned, ...] = ()
    base = None
    if study.scenario is not None:
        base = _base(study, document)
        problems = list(wrong_tune(document, study, study.seeds or (own_seed(base),), NOT_HERE))
        if problems:
            raise ScenarioError(tuple(problems))
        tuning = _checked(list(expand_tuning(study, document, base, last)), base)
        runs = _checked(list(expand(study, document, base, last)), base)
    sources = whatif.sources_of(study, document)
    one_a_variant = {run.variant: run for run in reversed(runs)}.values()
    worlds = whatif.checked_worlds(study, document, sources, [run.loaded for run in one_a_variant])
    entries = [(run.name, run.values) for run in runs]
    problems = list(
        wrong_drawings(document, ("figures",), study.figures, columns_of(study), entries, bool(study.claims))
    )
    values = [run.values for run in runs]
    problems += wrong_baseline(document, study.baseline, columns_of(study), values)
    stops = [run.loaded.scenario.stop.budget for run in runs]
    budgets = all(stop and stop == stops[0] for stop in stops)
    measure = next((run.loaded.scenario.objective.measures[0] for run in runs), ACCURACY)
    given = Given(study.target is not None, study.budget is not None or budgets, measure=measure)
    problems += wrong_claims(document, ("claims",), study.claims, columns_of(study), values, given)
    if study.tune is not None and study.tune.by == "accuracy-at-budget" and not (study.budget or all(stops)):
        problems.append(
            document.problem(("tune", "by"), "needs a 'budget' of the study, or one in 'stop' of every run")
        )
    problems += _wrong_goals(study, document, runs)
    if study.whatif is not None:
        replayed = whatif.combined(whatif.about(sources) if sources else entries, worlds)
        at, columns = ("whatif", "figures"), whatif.columns_of(study)
        problems += wrong_drawings(document, at, study.whatif.figures, columns, replayed, bool(study.whatif.claims))
        limited = all(any(covers("stop", change.key) for change in world.changes) for world in worlds)
        whose = "the claim, or a limit of cost, time or bytes in 'stop' of every world"
        given = Given(bool(study.whatif.targets) or study.target is not None, budgets or limited, whose, measure)
        found = [dict(values) for _, values in replayed]
        problems += wrong_claims(document, ("whatif", "claims"), study.whatif.claims, columns, found, given)
        if study.whatif.claims and sources:
            message = "claims are judged on runs with the same seeds; name a 'scenario', whose runs are then replayed"
            problems.append(document.problem(("whatif", "claims"), message, at_key=True))
    if problems:
        raise ScenarioError(tuple(problems))
    return LoadedStudy(study, document, runs, worlds, sources, tuning, base, tuple(last))


def _read(document: Document) -> Study:
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        raise ScenarioError((document.problem((), f"{what}; a study has the keys {quote_all(Study.model_fields)}"),))
    if "scenario" not in document.data and "topology" in document.data:
        message = "this is a scenario, not a study; run it with 'hfl run', or name it as the 'scenario' of a study"
        raise ScenarioError((document.problem((), message),))
    try:
        return Study.model_validate({"name": name_of(document.file), **document.data})
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
    places += [(("tune", "set", key), key) for key in (study.tune.set if study.tune else {})]
    yield from wrong_keys(document, places, NOT_HERE)
    yield from wrong_grid(document, ("grid",), study.grid)
    seeds = study.seeds or (0,)
    for i, seed in enumerate(seeds):
        if seed in seeds[:i]:
            yield document.problem(("seeds", i), f"the seed {seed} stands twice")
    tried = 0 if study.tune is None else len(study.tune.values)
    count = len(study.variants or [0]) * math.prod(len(v) for v in study.grid.values()) * (len(seeds) + tried)
    if count > MOST_RUNS:
        yield document.problem((), f"these would be {count:,} runs; a study has at most {MOST_RUNS:,}")


def _of_figures(study: Study, document: Document) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    drawn: list[tuple[Path_, tuple[FigureChoice, ...], tuple[str, ...]]] = [
        (("figures",), study.figures, columns_of(study))
    ]
    if study.whatif is not None:
        drawn.append((("whatif", "figures"), study.whatif.figures, whatif.columns_of(study)))
    for path, figures, columns in drawn:
        for i, figure in enumerate(figures):
            for key, message in figure.params.wrong(columns):
                yield document.problem((*path, i, key), message)
            for file in figure.params.file:
                if file in taken:
                    yield document.problem((*path, i, "file"), f"'{file}' is drawn by {taken[file]} already")
                taken.setdefault(file, f"figure {i + 1}" if path == ("figures",) else f"figure {i + 1} of 'whatif'")


def _wrong_goals(study: Study, document: Document, runs: Sequence[Planned]) -> Iterator[Problem]:
    """Targets that are none of what the runs are judged by, and runs that are judged by different measures."""
    measures = {run.loaded.scenario.objective.measures[0] for run in runs}
    if len(measures) > 1:
        names = quote_all(sorted(measure.name for measure in measures))
        yield document.problem(
            ("scenario",), f"its runs are judged by different measures: {names}; make a study of each"
        )
    goals: list[tuple[Path_, float | None]] = [(("target",), study.target)]
    goals += [(("claims", i, "target"), claim.target) for i, claim in enumerate(study.claims)]
    goals += [(("whatif", "targets", i), each) for i, each in enumerate(study.whatif.targets if study.whatif else ())]
    for path, goal in goals:
        if goal is not None and any(measure.share and not 0 < goal <= 1 for measure in measures):
            advice = f"; for {goal:g} per cent write {goal / 100:g}" if 1 < goal <= 100 else ""
            yield document.problem(path, f"is a share above 0, and at most 1 (it is {goal:g}){advice}")


def _override(key: str, given: Document, study: Study) -> Change:
    """A change of the command line; it must leave what is varied as it is."""
    if study.scenario is None:
        raise ScenarioError((given.problem((), "this study runs nothing; say in 'whatif.set' what is to change"),))
    varied = [*study.grid, *(k for changes in (study.variants or {}).values() for k in changes)]
    varied += [] if study.tune is None else [study.tune.key]
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
            scenario = playable(each.document(base))
            runs.append(Planned(each.name, each.variant, dict(each.point), scenario, tuned=each.tuned))
        except ScenarioError as error:
            for problem in error.problems:
                found.setdefault(problem, []).append(each.name)
    if found:
        every = sorted(found, key=lambda p: (p.file, p.line, p.column, p.key))
        raise ScenarioError(tuple(with_runs(problem, found[problem], len(wanted)) for problem in every))
    return tuple(runs)
