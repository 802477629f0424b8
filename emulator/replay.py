"""Finished runs played again in other worlds, in memory: nothing is trained and nothing is written.

What a `Source` holds is read once; each replay then takes as long as the emulation alone. Its numbers are those that
``hfl whatif`` writes for the same change, bit for bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator import __version__, checkpoint
from emulator.assembly import assemble, play, rare_collections
from emulator.errors import InputError, ScenarioError
from emulator.files import read_json
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.replaying import Book, NotKnownError, ReplayLab
from emulator.learning.timing import TimingLab
from emulator.ledger import Ledger
from emulator.methods.session import Metrics
from emulator.run_folder import COMPLETE, MANIFEST
from emulator.run_results import summary_of
from emulator.whatif import ChangedRun, FinishedRun, open_run
from emulator.world import endings


@dataclass(frozen=True, eq=False)
class Source(FinishedRun):
    """A finished run, ready to be replayed: with its small results, and the handles that its replays share."""

    known: dict[str, bytes]
    book: Book = field(default_factory=Book)


@dataclass(frozen=True, eq=False)
class Replay:
    """What a replay gave.

    ``metrics`` has a row for each evaluation; measures that are not known are nan. ``asked`` counts the local trainings that
    the method asked for, ``missing`` those that would have to be computed. ``to_the_end`` is false where what happens next
    depends on what is missing: the replay stops there, and there may be more of both.
    """

    metrics: tuple[Metrics, ...]
    summary: dict[str, Any]
    asked: int
    missing: int
    to_the_end: bool = True

    @property
    def known(self) -> bool:
        """Whether everything was known, so that the numbers are those of the run in this world."""
        return self.to_the_end and not self.missing


def open_source(folder: Path) -> Source:
    """Reads a finished run. Raises `InputError` where the folder holds none, or one that this version cannot replay.

    Plug-ins that its manifest names are imported, where they are as they were (`emulator.recorded`).
    """
    run = open_run(folder)
    if not (folder / checkpoint.MEMORY).is_file():
        raise InputError(f"'{folder}' has no {checkpoint.MEMORY}, so nothing of the run can be replayed; run it again")
    source = Source(folder, run.document, run.training, checkpoint.read_memory(folder))
    try:
        plain = source.changed([]).loaded
    except ScenarioError as error:
        raise InputError(
            f"the run in '{folder}' {_made_by(folder)}; its scenario is not understood:\n{error}"
        ) from error
    empty = Memo(None)
    try:
        # Every run knows its model's facts, by a key that changes with the versions of everything that computes.
        _ = ReplayLab(plain.scenario, RunMemory(empty, source.known), Book()).model_facts
    except NotKnownError:
        raise InputError(
            f"the run in '{folder}' {_made_by(folder)}; its results cannot be reused: run it again"
        ) from None
    finally:
        empty.close()
    return source


def _made_by(folder: Path) -> str:
    """Which versions a run was made by, beside those at work here."""
    import importlib.metadata

    try:
        said = read_json(folder / MANIFEST) or {}
        theirs = f"version {said['hfl_emulator']} with torch {said['packages']['torch']}"
    except (OSError, InputError, KeyError, TypeError):
        theirs = "an unknown version"
    ours = f"version {__version__} with torch {importlib.metadata.version('torch')}"
    return f"was made by {theirs}, and this is {ours if ours != theirs else 'a later state of it'}"


def replay(
    source: Source, changed: ChangedRun, memo: Memo, on_round: Callable[[int, Metrics], None] | None = None
) -> Replay:
    """Plays a source as it was changed (see `Source.what_if`). Trains nothing.

    ``on_round`` is told after every round; whatever it raises ends the replay. Raises `InputError` with its place where the
    scenario cannot be played.
    """
    loaded, memory = changed.loaded, RunMemory(memo, source.known)
    scenario = loaded.scenario
    to_the_end = True
    try:
        with loaded.locating():
            endings.check(scenario)
            lab = ReplayLab(scenario, memory, source.book) if loaded.training else TimingLab(scenario, memory)
            try:
                session = assemble(scenario, lab, _Passing())
            except NotKnownError:
                return Replay((), {}, 0, 0, to_the_end=False)
            if on_round is not None:
                session.on_round = on_round
            with rare_collections():
                try:
                    play(session)
                except NotKnownError:
                    to_the_end = False
    finally:
        source.known.update(memory.entries)  # what the memo knew is not looked up again
    missing = lab.missing if isinstance(lab, ReplayLab) else 0
    summary = summary_of(session, loaded.training, COMPLETE)
    return Replay(tuple(session.metrics), summary, lab.asked, missing, to_the_end)


def describe_missing(result: Replay) -> str:
    """How much of a replay is known and how much would have to be trained: ``1,200 of 25,000 trainings are missing``."""
    if result.to_the_end:
        return f"{result.missing:,} of {result.asked:,} trainings are missing"
    if not result.asked:
        return "nothing of it is known: everything would have to be trained"
    rounds = max((int(row["round"]) for row in result.metrics if not math.isnan(row["loss"])), default=0)
    return (
        f"it is known up to round {rounds}; what comes then depends on models that would have to be trained "
        f"(at least {result.missing:,} trainings)"
    )


class _Passing(Ledger):
    """A ledger that keeps its latest rows only, and of these what a `Meter` reads: a replay needs the totals alone."""

    CHUNK = 20_000
    KEPT = ("kind", "who", "peer", "start_s", "end_s", "bytes", "hop", "status")

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def _write_rows(self, path: Path) -> None:
        """The rows are gone."""
