"""A certificate: finished runs, replayed in many worlds, and what came of it in a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from emulator import __version__
from emulator.certify.design import Kind, correlated, numbers, saltelli, shares
from emulator.certify.folder import (
    BASELINE,
    DRAWN,
    SALTELLI,
    TIPPING,
    WORLDS,
    CertificateFolder,
    outcomes_schema,
    worlds_schema,
    write_table,
)
from emulator.certify.gathering import Gathered
from emulator.certify.measuring import Compared, compared
from emulator.certify.order import REPLAYED, RunOf, WorldOf, WorldsOrder, row_of, why
from emulator.certify.pool import pool_of
from emulator.certify.quantities import Quantity, RunWorlds, as_options
from emulator.certify.tipping import Outcomes, tipping_points
from emulator.certify.training import train_what_differs
from emulator.cluster import Backend
from emulator.contracts.uncertainty import Floats
from emulator.errors import InputError
from emulator.files import held, replacing

log = logging.getLogger(__name__)

A_PART = 8  # worlds that are replayed and written at once
CURVES = 200  # worlds whose curves are kept
BASE_WORLD = -1


@dataclass(frozen=True)
class Asked:
    """What a certificate is to say.

    ``worlds`` are drawn by ``design`` from ``seed``; ``base`` is how many base points there are for Sobol indices (None: as many
    as `default_base` says; 0: none). ``targets`` and ``budgets`` as for `emulator.certify.measuring.compared`.
    """

    name: str
    worlds: int = 256
    design: Kind = "sobol"
    seed: int = 0
    base: int | None = None
    targets: tuple[float, ...] = ()
    budgets: Mapping[str, float] = field(default_factory=dict)
    tipping: bool = True


@dataclass(frozen=True)
class Resources:
    """Who does it. ``jobs`` are processes of this machine; ``train_s`` real seconds in which worlds may be trained."""

    jobs: int | None = None
    backend: Backend = "local"
    train_s: float = 0.0
    memo: Path | None = None


@dataclass(frozen=True)
class Progress:
    """Whoever wants to hear how it is getting on: of ``what``, ``done`` of ``of`` are done."""

    on_step: Callable[[str, int, int], None] = lambda _what, _done, _of: None


def default_base(worlds: int, dimensions: int) -> int:
    """Base points for Sobol indices: a power of two, with about as many worlds behind them as are drawn."""
    most = max(2, worlds // (dimensions + 2))
    return 1 << (most.bit_length() - 1)


def certify(
    gathered: Gathered,
    path: Path,
    asked: Asked,
    resources: Resources = Resources(),  # noqa: B008
    progress: Progress = Progress(),  # noqa: B008
) -> dict[str, Any]:
    """Makes a certificate, or goes on with it; returns what ``certificate.yaml`` says.

    Raises `InputError` where the folder holds something else, or the runs have nothing in common to be compared by.
    """
    measures = compared(gathered.measure, gathered.baselines, asked.targets, asked.budgets)
    worlds = Worlds(gathered, asked)
    said = _said(gathered, asked, measures, worlds, path)
    folder = CertificateFolder(path)
    with held(path):
        folder.prepare({"certificate": said, "digests": gathered.digests, "version": __version__, "part": A_PART})
        _write_worlds(path / WORLDS, gathered.quantities, worlds)
        baseline = [
            row_of(BASE_WORLD, run, REPLAYED, "", rows, measures)
            for run, rows in zip(gathered.runs, gathered.baselines, strict=True)
        ]
        write_table(path / BASELINE, baseline, outcomes_schema(measures))
        with pool_of(resources.backend, gathered.runs, resources.jobs) as pool:
            left = [part for part in range(worlds.parts) if not folder.part(part).is_file()]
            done = worlds.parts - len(left)
            progress.on_step("worlds", done * A_PART, worlds.count)
            orders = (WorldsOrder(gathered.runs, worlds.part(number), measures) for number in left)
            for number, answers in pool.answers(orders):
                folder.write_part(left[number], answers, measures)
                done += 1
                progress.on_step("worlds", min(done * A_PART, worlds.count), worlds.count)
            if resources.train_s > 0:
                train_what_differs(
                    gathered, folder, worlds.parts, worlds.changes, measures, resources.train_s, resources.memo
                )
            counts = folder.put_together(worlds.parts, measures)
            if asked.tipping and not (path / TIPPING).is_file():
                at = _Middle(gathered, measures, pool.answers, progress)
                folder.write_tipping(list(tipping_points(gathered.quantities, gathered.methods, measures, at)))
        said = {**said, "counts": {"worlds": worlds.count, "outcomes": worlds.count * len(gathered.runs), **counts}}
        folder.write_certificate(said)
    return said


def commands_of(gathered: Gathered, asked: Asked, world: int) -> list[tuple[Path, list[str]]]:
    """The folders of all runs, and what ``hfl whatif --set`` takes to replay each in a world.

    Raises `InputError` where there is no such world.
    """
    worlds = Worlds(gathered, asked)
    if not 0 <= world < worlds.count:
        raise InputError(f"there is no world {world}; they are numbered from 0 to {worlds.count - 1}")
    return [(run.folder, as_options(worlds.changes(world, number))) for number, run in enumerate(gathered.runs)]


class Worlds:
    """All worlds of a certificate: those of the design, and behind them those for Sobol indices."""

    def __init__(self, gathered: Gathered, asked: Asked) -> None:
        size = len(gathered.quantities)
        self.base = default_base(asked.worlds, size) if asked.base is None else asked.base
        if self.base & (self.base - 1):
            raise InputError(f"the number of base points for Sobol indices is a power of two, or 0, not {self.base}")
        points = shares(asked.design, asked.worlds, size, asked.seed)
        if self.base:
            points = np.concatenate([points, saltelli(self.base, size, asked.seed)])
        self.drawn = asked.worlds
        self.numbers: Floats = numbers(gathered.quantities, correlated(points, gathered.correlations))
        self.count = len(self.numbers)
        self.parts = -(-self.count // A_PART)
        self._runs = gathered.worlds_of_runs()

    def part_of(self, world: int) -> str:
        """The part of the design that a world is of."""
        return DRAWN if world < self.drawn else SALTELLI

    def part(self, number: int) -> tuple[WorldOf, ...]:
        """The worlds of a part of the outcomes."""
        return tuple(self._world(world) for world in range(number * A_PART, min((number + 1) * A_PART, self.count)))

    def changes(self, world: int, run: int) -> list[tuple[str, Any]]:
        """What a world changes in a run. Raises `InputError` where there is no such world."""
        return self._runs[run].changes([float(value) for value in self.numbers[world]])

    def _world(self, world: int) -> WorldOf:
        found = tuple(_or_why(runs, self.numbers[world]) for runs in self._runs)
        return WorldOf(world, found, world < min(CURVES, self.drawn))


def _or_why(runs: RunWorlds, values: Floats) -> list[tuple[str, Any]] | str:
    try:
        return runs.changes([float(value) for value in values])
    except InputError as error:
        return why(error)


class _Middle:
    """Replays of worlds in which all quantities but one are at their middle; labels stay as they are written."""

    def __init__(
        self,
        gathered: Gathered,
        measures: tuple[Compared, ...],
        answers: Callable[[Iterator[WorldsOrder]], Iterator[tuple[int, Any]]],
        progress: Progress,
    ) -> None:
        self._gathered, self._measures, self._answers, self._progress = gathered, measures, answers, progress
        self._runs = gathered.worlds_of_runs()
        half = np.array([0.5])
        self._middle = [None if q.labels is not None else float(q.at(half)[0]) for q in gathered.quantities]
        self._known: dict[tuple[int, float], Outcomes] = {}

    def __call__(self, points: Sequence[tuple[int, float]]) -> list[Outcomes]:
        """The outcomes of all runs at each point: a quantity's number and its value."""
        wanted = [point for point in dict.fromkeys(points) if point not in self._known]
        # One order for each run and point, so that all processes have something to do.
        orders = [(point, run) for point in wanted for run in range(len(self._gathered.runs))]
        found: dict[tuple[tuple[int, float], int], Any] = {}
        for number, answers in self._answers(self._order(*each) for each in orders):
            found[orders[number]] = answers.outcomes[0]
        for point in wanted:
            self._known[point] = [found[point, run] for run in range(len(self._gathered.runs))]
        self._progress.on_step("tipping points", len(self._known), 0)
        return [self._known[point] for point in points]

    def _order(self, point: tuple[int, float], run: int) -> WorldsOrder:
        values: list[float | None] = list(self._middle)
        values[point[0]] = point[1]
        try:
            changes: Any = self._runs[run].changes(values)
        except InputError as error:
            changes = why(error)
        return WorldsOrder((self._gathered.runs[run],), (WorldOf(0, (changes,)),), self._measures)


def _write_worlds(path: Path, quantities: Sequence[Quantity], worlds: Worlds) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    schema = worlds_schema({quantity.name: quantity.labels is not None for quantity in quantities})
    columns: dict[str, Any] = {
        "world": np.arange(worlds.count),
        "part": [worlds.part_of(w) for w in range(worlds.count)],
    }
    for number, quantity in enumerate(quantities):
        column = worlds.numbers[:, number]
        columns[quantity.name] = column if quantity.labels is None else [quantity.cell(value) for value in column]
    with replacing(path) as aside:
        parquet.write_table(pa.table(columns, schema=schema), aside)


def _said(gathered: Gathered, asked: Asked, measures: Sequence[Compared], worlds: Worlds, path: Path) -> dict[str, Any]:
    """What ``certificate.yaml`` says, but for counts."""
    names = [quantity.name for quantity in gathered.quantities]
    pairs = [(i, j) for j in range(len(names)) for i in range(j) if gathered.correlations[i, j]]
    return {
        "version": 1,
        "name": asked.name,
        "runs": [_run(run, path) for run in gathered.runs],
        "quantities": [_quantity(quantity) for quantity in gathered.quantities],
        "without_effect": [
            {"name": q.name, "source": q.source, "text": _text(q), "reason": reason}
            for q, reason in gathered.without_effect
        ],
        "correlations": [
            {"between": [names[i], names[j]], "value": float(gathered.correlations[i, j])} for i, j in pairs
        ],
        "design": {"kind": asked.design, "worlds": asked.worlds, "seed": asked.seed, "saltelli": worlds.base},
        "measures": [each.to_json() for each in measures],
    }


def _run(run: RunOf, path: Path) -> dict[str, Any]:
    place = Path(os.path.relpath(run.folder, path.resolve())).as_posix()
    return {"run": run.name, "folder": place, "method": run.method, "seed": run.seed}


def _quantity(quantity: Quantity) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": quantity.name, "key": ".".join(quantity.path), "source": quantity.source,
        "distribution": quantity.distribution.dump(), "text": _text(quantity), "unit": quantity.unit,
        "factor": quantity.factor, "scale": quantity.scale,
    }  # fmt: skip
    if quantity.labels is not None:
        return about | {"labels": quantity.labels}
    low, middle, high = (float(value) for value in quantity.at(np.array([0.05, 0.5, 0.95])))
    return about | {"middle": middle, "low": low, "high": high}


def _text(quantity: Quantity) -> str:
    """A distribution in words: ``log-uniform, low 2.075 ns, high 864.6 ns``."""
    from emulator.study.names import text_of

    said = {k: v for k, v in quantity.distribution.dump().items() if v is not None}
    return f"a factor, {text_of(said)}" if quantity.factor else text_of(said)
