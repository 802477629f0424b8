"""Runs in some worlds, as an order that any process can answer: on this machine, or on another."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.certify.measuring import Compared
from emulator.certify.quantities import as_documents
from emulator.errors import HflError, ScenarioError
from emulator.learning.memo import Memo
from emulator.replay import Replay, Source, describe_missing, open_source, replay

REPLAYED, DIFFERS, TRAINED, FAILED = "replayed", "order differs", "trained", "failed"
STATUSES = (REPLAYED, DIFFERS, TRAINED, FAILED)
CURVE = ("round", "time_s", "bytes_total", "cost_s")

Changes = Sequence[tuple[str, Any]]
Row = dict[str, Any]


@dataclass(frozen=True)
class RunOf:
    """A finished run of a certificate: its name, what its method is called, its seed and its folder."""

    name: str
    method: str
    seed: int
    folder: Path


@dataclass(frozen=True)
class WorldOf:
    """A world: its number, and what it changes in each run; a text instead, where there is no such world."""

    number: int
    changes: tuple[Changes | str, ...]
    curves: bool = False


@dataclass(frozen=True)
class Answers:
    """What came of an order: rows of outcomes, and of curves."""

    outcomes: list[Row]
    curves: list[Row]


@dataclass(frozen=True)
class WorldsOrder:
    """All runs in some worlds. ``packed`` are their folders as archives, for machines that do not see them."""

    runs: tuple[RunOf, ...]
    worlds: tuple[WorldOf, ...]
    measures: tuple[Compared, ...]
    packed: tuple[Any, ...] | None = None

    def answer(self, memo: Memo) -> Answers:
        """Replays them. Nothing of a memo is used: what comes out depends on the runs alone."""
        outcomes: list[Row] = []
        curves: list[Row] = []
        empty = Memo(None)
        try:
            for world in self.worlds:
                for number, (run, changes) in enumerate(zip(self.runs, world.changes, strict=True)):
                    rows: Sequence[Mapping[str, Any]] = ()
                    if isinstance(changes, str):
                        row = self._row(world, run, FAILED, changes, ())
                    else:
                        row, rows = self._replayed(world, run, _source(run, self._packed(number)), changes, empty)
                    outcomes.append(row)
                    if world.curves:
                        measure = self.measures[0].measure.name
                        curves += [_curve_row(world, run, each, measure) for each in rows]
        finally:
            empty.close()
        return Answers(outcomes, curves)

    def _packed(self, number: int) -> Any:
        return None if self.packed is None else self.packed[number]

    def _replayed(
        self, world: WorldOf, run: RunOf, source: Source, changes: Changes, memo: Memo
    ) -> tuple[Row, Sequence[Mapping[str, Any]]]:
        try:
            result = replay(source, source.changed(as_documents(changes)), memo)
        except HflError as error:
            return self._row(world, run, FAILED, why(error), ()), ()
        if not result.known:
            return self._row(world, run, DIFFERS, _differs(result), ()), ()
        return self._row(world, run, REPLAYED, "", result.metrics), result.metrics

    def _row(self, world: WorldOf, run: RunOf, status: str, reason: str, rows: Sequence[Mapping[str, Any]]) -> Row:
        return row_of(world.number, run, status, reason, rows, self.measures)


def row_of(
    world: int,
    run: RunOf,
    status: str,
    reason: str,
    rows: Sequence[Mapping[str, Any]],
    measures: Sequence[Compared],
) -> Row:
    """A row of ``outcomes.parquet``."""
    known = status in (REPLAYED, TRAINED)
    about = {
        "world": world,
        "run": run.name,
        "method": run.method,
        "seed": run.seed,
        "status": status,
        "reason": reason,
    }
    return about | {each.column: each.of(rows) if known else math.nan for each in measures}


def why(error: Exception) -> str:
    """What an error says, without the file and line that a world has no part in."""
    if isinstance(error, ScenarioError):
        return "; ".join(f"{p.key}: {p.message}" if p.key else p.message for p in error.problems)
    return str(error)


def _differs(result: Replay) -> str:
    if result.parts is None:
        return f"other trainings are needed: {describe_missing(result)}"
    return str(result.parts)


def _curve_row(world: WorldOf, run: RunOf, row: Mapping[str, Any], measure: str) -> Row:
    about = {"world": world.number, "run": run.name, "method": run.method, "seed": run.seed}
    return about | {name: row[name] for name in CURVE} | {"accuracy": row.get(measure, math.nan)}


_sources: dict[Path, Source] = {}  # that this process has opened: each is read once


def _source(run: RunOf, packed: Any) -> Source:
    """A run, ready to be replayed; from its archive where its folder is not here."""
    if run.folder not in _sources:
        if packed is None or (run.folder / "scenario.yaml").is_file():
            _sources[run.folder] = open_source(run.folder)
        else:
            _sources[run.folder] = _unpacked(packed)
    return _sources[run.folder]


def _unpacked(packed: Any) -> Source:
    import ray

    from emulator.study.ray_runner import unpack

    folder = Path(tempfile.mkdtemp(prefix="hfl-run-"))
    logging.getLogger(__name__).info("unpacking a run into %s", folder)
    try:
        unpack(ray.get(packed), folder)
        return open_source(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
