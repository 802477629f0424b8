"""Worlds in which something else is learned, trained on request as far as a budget of real time goes."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from emulator import plugins
from emulator.certify.folder import TRAINED, CertificateFolder, outcomes_schema, write_table
from emulator.certify.gathering import Gathered
from emulator.certify.measuring import Compared
from emulator.certify.order import DIFFERS, RunOf, row_of, why
from emulator.certify.order import TRAINED as KNOWN_BY_TRAINING
from emulator.certify.quantities import as_documents
from emulator.errors import HflError
from emulator.files import slug
from emulator.machine import cores
from emulator.replay import open_source
from emulator.run_folder import METRICS, prepare
from emulator.study.job import Ended, Order, Setup
from emulator.study.runner import Job

LOOK_EVERY_S = 0.5

ChangesOf = Callable[[int, int], Sequence[tuple[str, Any]]]  # of a world, in a run


def train_what_differs(
    gathered: Gathered,
    folder: CertificateFolder,
    parts: int,
    changes: ChangesOf,
    measures: Sequence[Compared],
    budget_s: float,
    memo: Path | None,
) -> int:
    """Trains runs in worlds whose order differs, world by world, until the budget is spent; returns how many.

    What is under way then is broken off. Its folder keeps what was done, and the next call goes on with it.
    """
    until = time.monotonic() + budget_s
    with _Trainer(memo) as trainer:
        return _train_all(gathered, folder, parts, changes, measures, until, trainer)


def _train_all(
    gathered: Gathered,
    folder: CertificateFolder,
    parts: int,
    changes: ChangesOf,
    measures: Sequence[Compared],
    until: float,
    trainer: _Trainer,
) -> int:
    trained = 0
    for number, rows in folder.outcomes(parts):
        for place, row in enumerate(rows):
            if row["status"] != DIFFERS:
                continue
            if time.monotonic() >= until:
                return trained
            run = place % len(gathered.runs)
            changed = changes(int(row["world"]), run)
            known = _train(gathered.runs[run], changed, folder, int(row["world"]), until, trainer)
            if isinstance(known, str):
                rows[place] = {**row, "reason": known}
            elif known is None:
                return trained
            else:
                rows[place] = row_of(
                    int(row["world"]), gathered.runs[run], KNOWN_BY_TRAINING, row["reason"], known, measures
                )
                trained += 1
            write_table(folder.part(number), rows, outcomes_schema(measures))
    return trained


def _train(
    run: RunOf,
    changes: Sequence[tuple[str, Any]],
    folder: CertificateFolder,
    world: int,
    until: float,
    trainer: _Trainer,
) -> Sequence[Mapping[str, Any]] | str | None:
    """The measurements of a run in a world that is trained; why it failed; or None where the time did not suffice."""
    place = folder.path / TRAINED / f"world-{world}_{slug(run.name)}"
    try:
        loaded = open_source(run.folder).changed(as_documents(changes)).loaded
        if prepare(place, loaded.scenario):
            ended = trainer.run(Order(loaded.document, place, cores(), run.folder), until)
            if ended is None:
                return None
            if ended:
                return f"it could not be trained: {ended}"
    except HflError as error:
        return f"it could not be trained: {why(error)}"
    with (place / METRICS).open(encoding="utf-8", newline="") as file:
        return [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(file)]


class _Trainer(AbstractContextManager["_Trainer"]):
    """A process that trains, one run after another, from when it is first needed until the block ends."""

    def __init__(self, memo: Path | None) -> None:
        self._setup = Setup(memo, sys.path, list(plugins.loaded))
        self._job: Job | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._job is not None:
            if kind is not None:
                self._job.stop()
            self._job.close()

    def run(self, order: Order, until: float) -> str | None:
        """Does a run; returns why it failed, or nothing; None where it was broken off because it was not done by then."""
        if self._job is None or not self._job.alive:
            self._job = Job(self._setup)
        self._job.send(order)
        while True:
            if not self._job.pipe.poll(LOOK_EVERY_S):
                if time.monotonic() >= until:
                    self._job.stop()
                    return None
            elif isinstance(message := self._job.receive(), Ended):
                return message.error
