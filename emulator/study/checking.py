"""What is checked alike in the runs of a study and in the worlds of its what-if."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from emulator.contracts.files import FigureChoice
from emulator.errors import InputError, Problem, quote_all
from emulator.scenario.load import Loaded, check
from emulator.study.expand import VARIANT, covers
from emulator.study.names import text_of
from emulator.study.schema import Study, column_named, same_value
from emulator.yamlfile import Document, Path_


def columns_of(study: Study) -> tuple[str, ...]:
    """What the runs of a study differ in, beside the seed."""
    return (*([VARIANT] if study.variants else []), *study.grid)


def wrong_keys(
    document: Document, places: Iterable[tuple[Path_, str]], not_here: Mapping[str, str]
) -> Iterator[Problem]:
    """Problems of keys by their place in the study; ``not_here`` says why some have none there."""
    for path, key in places:
        if not all(key.split(".")):
            yield document.problem(path, "expected a key of the scenario, such as 'stop.rounds'", at_key=True)
        elif key in not_here:
            yield document.problem(path, not_here[key], at_key=True)


def wrong_grid(document: Document, at: Path_, grid: Mapping[str, Any]) -> Iterator[Problem]:
    """An empty grid, keys of it that lie in others, and values that stand twice."""
    if not grid and at in document.keys:
        yield document.problem(at, "the grid is empty; give keys of the scenario with lists of values, or leave it out")
    for key, other in itertools.permutations(grid, 2):
        if covers(key, other):
            yield document.problem((*at, other), f"lies in '{key}', which the grid varies too", at_key=True)
    for key, values in grid.items():
        entries = list(values.values() if isinstance(values, dict) else values)
        for i, entry in enumerate(entries):
            if isinstance(values, list) and text_of(entry) in map(text_of, entries[:i]):
                yield document.problem((*at, key, i), f"the value '{text_of(entry)}' stands twice")


def wrong_baseline(
    document: Document, baseline: Mapping[str, Any], columns: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    """A baseline of something that is not varied, or that no run has. ``runs`` are what each has in the columns."""
    for name, value in baseline.items():
        try:
            column = column_named(name, columns)
        except InputError as error:
            yield document.problem(("baseline", name), error.message, at_key=True)
            continue
        if column not in columns:
            yield document.problem(
                ("baseline", name), "name something that the study varies beside the seed", at_key=True
            )
        elif not any(same_value(value, run[column]) for run in runs):
            known = quote_all(dict.fromkeys(text_of(run[column]) for run in runs))
            yield document.problem(("baseline", name), f"no run has '{text_of(value)[:60]}' there; there are: {known}")


def wrong_tune(
    document: Document, study: Study, seeds: Sequence[int], not_here: Mapping[str, str]
) -> Iterator[Problem]:
    """A key that cannot be tuned or that the study varies itself, too few values, and a seed that the results have too."""
    tune = study.tune
    if tune is None:
        return
    key = ("tune", "key")
    if not all(tune.key.split(".")) or tune.key in not_here:
        what = not_here.get(tune.key, "expected a key of the scenario, such as 'method.local.learning_rate'")
        yield document.problem(key, what)
    for other in study.grid:
        if covers(tune.key, other):
            yield document.problem(key, f"the grid varies '{other}'; leave one of them out")
    said = {"'set'": study.set} | {f"the variant '{name}'": its for name, its in (study.variants or {}).items()}
    said["'tune.set'"] = tune.set
    for who, changes in said.items():
        if tune.key in changes:
            yield document.problem(key, f"{who} sets '{tune.key}' itself; leave one of them out")
    varied = [*study.grid, *(k for changes in (study.variants or {}).values() for k in changes)]
    for own in tune.set:
        undone = next((other for other in varied if covers(own, other)), "")
        if undone and own != tune.key:
            yield document.problem(("tune", "set", own), f"the study varies '{undone}'", at_key=True)
    yield from wrong_grid(document, ("tune",), {"values": tune.values})
    if len(tune.values) < 2:
        yield document.problem(("tune", "values"), "there is nothing to choose; give at least two values")
    if tune.seed in seeds:
        yield document.problem(("tune", "seed"), f"the seed {tune.seed} is one of the study's; choose another")


def wrong_drawings(
    document: Document,
    at: Path_,
    figures: Sequence[FigureChoice],
    columns: Sequence[str],
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    claims: bool,
) -> Iterator[Problem]:
    """Figures without runs, or of claims that are not there, and those that would take different runs for seeds of one.

    ``entries`` are the names of all runs, and what each has in the columns, ``method`` and ``seed``; ``claims`` says whether
    there are any.
    """
    for i, figure in enumerate(figures):
        if figure.kind == "claims" and not claims:
            yield document.problem((*at, i), f"there are no '{'.'.join((*map(str, at[:-1]), 'claims'))}' to draw")
        where = {column_named(name, columns): value for name, value in figure.params.where.items()}
        chosen = [(n, v) for n, v in entries if all(same_value(value, v[c]) for c, value in where.items())]
        if not chosen:
            yield document.problem((*at, i, "where"), "no run is of these values")
        seen: dict[tuple[Any, ...], str] = {}
        for name, values in chosen:
            place = (*(values[c] for c in figure.params.told_apart(columns)), values["seed"])
            if place in seen:
                message = f"the runs '{seen[place]}' and '{name}' would be taken for one; say what tells them apart"
                yield document.problem((*at, i), message)
                break
            seen[place] = name


def playable(document: Document, training: bool = True) -> Loaded:
    """A checked scenario whose traces can be played. Raises `ScenarioError`."""
    from emulator.world import endings

    loaded = check(document, training)
    try:
        endings.check(loaded.scenario)
    except InputError as error:
        raise loaded.locate(InputError(error.message, error.key or "topology")) from error
    return loaded


def with_runs(problem: Problem, names: Sequence[str], count: int, what: str = "run") -> Problem:
    """The problem, and which runs have it, unless all do."""
    if len(names) == count:
        return problem
    which = (
        f"in the {what} '{names[0]}'"
        if len(names) == 1
        else f"in {len(names)} of {count} {what}s, such as '{names[0]}'"
    )
    return Problem(problem.file, problem.line, problem.column, problem.key, f"{problem.message} ({which})")
