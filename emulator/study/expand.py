"""From a study to its runs: the base scenario with every combination of variant, grid point and seed.

Changes come in layers: the study's ``set``, the variant, the grid point, the seed, and ``--set`` of the command line. For one key
the last layer counts. A change to a section (``method``) is made before changes to what is in it (``method.local.epochs``),
whatever their layers, so that what ``set`` says for all holds for a variant with another method too, unless the variant says
otherwise itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from emulator import yamlfile
from emulator.scenario.load import alone, with_changes
from emulator.study.names import file_names, run_name, short_names, text_of, world_name
from emulator.study.schema import Study, WhatIf
from emulator.yamlfile import Document

VARIANT = "variant"  # the column of the variants' names, beside those of the grid's keys
HERE = "the study"  # where changes stand that no file has
WORLD = "world"  # and that of the names of worlds
TUNING = "tuning"  # the folder of runs from which values are chosen

Point = tuple[float | str, ...]


class Change(NamedTuple):
    """One key and what is to stand there, with its place in the study's file."""

    key: str
    given: Document


@dataclass(frozen=True)
class Wanted:
    """A run before its scenario is checked. ``point`` maps the grid's keys to numbers, or to names of values.

    ``tuned`` is the label of the value that it has of the key that is tuned; None where there is none, or none is chosen yet.
    """

    name: str
    variant: str
    point: Mapping[str, float | str]
    changes: tuple[Change, ...]
    tuned: float | str | None = None

    def document(self, base: Document) -> Document:
        """The scenario of this run. Raises `ScenarioError` where a change has no place."""
        return with_changes(base, self.changes)


def expand(
    study: Study,
    document: Document,
    base: Document,
    last: Sequence[Change] = (),
    chosen: Mapping[Point, float | str] | None = None,
) -> Iterator[Wanted]:
    """All runs of a study that was read from ``document``, in the order of the file.

    ``base`` is the scenario; it gives the seed where the study gives none. ``last`` are changes of the command line. ``chosen``
    are labels of values that tuning has found best, by point; at other points the first one that is tried stands in.
    """
    seeds = [(str(seed), _seed(seed)) for seed in study.seeds or ()] or [(str(own_seed(base)), [])]
    values = _tried(study, document)
    for each in _points(study, document):
        found = (chosen or {}).get(each.point)
        tuned = [v.change for v in values if v.label == (values[0].label if found is None else found)]
        for seed, its_change in seeds:
            wanted = ordered([*each.layers, tuned, its_change, last])
            yield Wanted(run_name(each.variant_file, each.parts, seed), *each.named, tuple(wanted), found)


def expand_tuning(study: Study, document: Document, base: Document, last: Sequence[Change] = ()) -> Iterator[Wanted]:
    """The runs from which the values of ``tune`` are chosen: each value at each point, with a seed of their own."""
    if study.tune is None:
        return
    key = short_names([*study.grid, study.tune.key])[study.tune.key]
    alone_here = list(_changes(document, ("tune", "set")))
    for each in _points(study, document):
        for value in _tried(study, document):
            wanted = ordered([*each.layers, [value.change], alone_here, _seed(study.tune.seed), last])
            name = run_name(each.variant_file, {**each.parts, key: value.file_name}, str(study.tune.seed))
            yield Wanted(f"{TUNING}/{name}", *each.named, tuple(wanted), value.label)


def own_seed(base: Document) -> int:
    """The seed of a scenario that was read and not checked."""
    said = base.data.get("seed", 0) if isinstance(base.data, dict) else 0
    return said if isinstance(said, int) else 0


def point_of(variant: str, values: Mapping[str, float | str]) -> Point:
    """What tells points apart: the variant, and the labels of the grid's values."""
    return (variant, *values.values())


@dataclass(frozen=True)
class _At:
    """A variant at a point of the grid: changes in layers, and the parts of names of runs there."""

    variant: str
    values: dict[str, float | str]
    layers: tuple[list[Change], ...]
    variant_file: str
    parts: dict[str, str]

    @property
    def named(self) -> tuple[str, dict[str, float | str]]:
        return self.variant, self.values

    @property
    def point(self) -> Point:
        return point_of(self.variant, self.values)


def _points(study: Study, document: Document) -> Iterator[_At]:
    variants = {name: list(_changes(document, ("variants", name))) for name in study.variants or {"": {}}}
    axes = [_axis(document, ("grid", key), key, values) for key, values in study.grid.items()]
    common = [*(Change(*change) for change in alone(HERE)), *_changes(document, ("set",))]
    file_name = file_names(list(variants))
    shorter = short_names(list(study.grid))
    for variant, changes in variants.items():
        for point in itertools.product(*axes):
            parts = {shorter[v.key]: v.file_name for v in point}
            layers = (common, changes, [v.change for v in point])
            yield _At(variant, {v.key: v.label for v in point}, layers, file_name[variant] if variant else "", parts)


def _seed(seed: int) -> list[Change]:
    return [Change("seed", yamlfile.from_data(seed, HERE))]


def _tried(study: Study, document: Document) -> list[_Value]:
    """The values among which tuning chooses."""
    return [] if study.tune is None else _axis(document, ("tune", "values"), study.tune.key, study.tune.values)


@dataclass(frozen=True)
class World:
    """A world in which runs are replayed: changes to their scenarios. ``label`` is empty where worlds have no names."""

    name: str
    label: str
    point: Mapping[str, float | str]
    changes: tuple[Change, ...]

    @property
    def values(self) -> dict[str, float | str]:
        """What the world has in its columns."""
        return {**({WORLD: self.label} if self.label else {}), **self.point}

    def document(self, base: Document) -> Document:
        """The scenario of a run in this world. Raises `ScenarioError` where a change has no place."""
        return with_changes(base, self.changes)


def worlds_of(whatif: WhatIf, document: Document) -> Iterator[World]:
    """All worlds of a study that was read from ``document``: each named one at every point of the grid."""
    named = {name: list(_changes(document, ("whatif", "worlds", name))) for name in whatif.worlds or {"": {}}}
    axes = [_axis(document, ("whatif", "grid", key), key, values) for key, values in whatif.grid.items()]
    common = list(_changes(document, ("whatif", "set")))
    file_name, shorter = file_names(list(named)), short_names(list(whatif.grid))
    for label, changes in named.items():
        for point in itertools.product(*axes):
            wanted = ordered([common, changes, [v.change for v in point]])
            name = world_name(file_name[label] if label else "", {shorter[v.key]: v.file_name for v in point})
            yield World(name, label, {v.key: v.label for v in point}, tuple(wanted))


def ordered(layers: Iterable[Iterable[Change]]) -> list[Change]:
    """The changes that count, in the order in which they are to be made (see the module's docstring)."""
    kept: dict[tuple[str, ...], Change] = {}
    for layer in layers:
        for change in layer:
            path = tuple(change.key.split("."))
            for earlier in [p for p in kept if p[: len(path)] == path and _says(change.given.data, p[len(path) :])]:
                del kept[earlier]
            kept[path] = change
    return [kept[path] for path in sorted(kept, key=len)]


def covers(key: str, other: str) -> bool:
    """Whether a change of ``key`` would undo a change of ``other`` before it."""
    return f"{other}.".startswith(f"{key}.")


@dataclass(frozen=True)
class _Value:
    """One value of a grid key."""

    key: str
    label: float | str
    file_name: str
    change: Change


def _axis(document: Document, at: tuple[str, ...], key: str, values: list[Any] | dict[str, Any]) -> list[_Value]:
    """The values of a key that stand ``at`` a place of the study."""
    entries: list[tuple[str | int, Any]] = list(values.items() if isinstance(values, dict) else enumerate(values))
    labels: list[Any] = [place if isinstance(place, str) else value for place, value in entries]
    if not all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
        labels = [text_of(label) for label in labels]
    names = file_names([text_of(label) for label in labels])
    axis = []
    for (place, _), label in zip(entries, labels, strict=True):
        given = document.below((*at, place))
        given.keys[()] = document.keys[at]
        axis.append(_Value(key, label, names[text_of(label)], Change(key, given)))
    return axis


def _changes(document: Document, path: tuple[str, ...]) -> Iterator[Change]:
    data = document.data
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
    for key in data or ():
        yield Change(key, document.below((*path, key)))


def _says(value: Any, path: Sequence[str]) -> bool:
    """Whether a value holds something at ``path``."""
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    return True
