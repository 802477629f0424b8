"""Finished runs in other worlds: played in memory (`replay`), where nothing is trained, or as runs (`run_changed`).

What a `Source` holds is read once; each replay then takes as long as the emulation alone. Its numbers are those that
``hfl whatif`` writes for the same change, bit for bit. Where something has to be trained, it is said from when on what is learned
differs (`parting`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from emulator import __version__, checkpoint, yamlfile
from emulator.assembly import assemble, play, rare_collections
from emulator.errors import HflError, InputError, ScenarioError
from emulator.files import read_json
from emulator.kept import KeptModels
from emulator.learning.interface import AnyLab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.replaying import Book, CourseLab, NotKnownError, PartedError, ReplayLab
from emulator.learning.timing import TimingLab
from emulator.ledger import Ledger
from emulator.methods.session import Metrics
from emulator.run import Watcher, execute
from emulator.run_folder import COMPLETE, MANIFEST
from emulator.run_results import summary_of
from emulator.scenario import Loaded
from emulator.whatif import ChangedRun, FinishedRun, open_run
from emulator.world import endings


@dataclass(frozen=True, eq=False)
class Source(FinishedRun):
    """A finished run, ready to be replayed: with its small results, and the handles that its replays share."""

    known: dict[str, bytes]
    book: Book = field(default_factory=Book)

    @cached_property
    def kept(self) -> KeptModels:
        """The models that the run has kept."""
        return KeptModels(self.folder)

    @cached_property
    def course(self) -> set[str]:
        """The keys of all models that the run asked for. Raises `NotKnownError` where it cannot be played to its end."""
        scenario = self.changed([]).loaded.scenario
        with closing(Memo(None)) as empty, rare_collections():
            lab = CourseLab(scenario, RunMemory(empty, self.known))
            play(assemble(scenario, lab, _Passing()))
        return lab.course


@dataclass(frozen=True)
class Parting:
    """From which instant on what is learned differs from the finished run: emulated seconds, and the round under way then."""

    time_s: float
    round: int

    def __str__(self) -> str:
        return f"what is learned differs from {self.time_s:g} emulated seconds on (round {self.round})"


@dataclass(frozen=True, eq=False)
class Replay:
    """What a replay gave.

    ``metrics`` has a row for each evaluation; measures that are not known are nan. ``asked`` counts the local trainings that
    the method asked for, ``missing`` those that would have to be computed. ``to_the_end`` is false where what happens next
    depends on what is missing: the replay stops there, and there may be more of both. ``parts`` says from when on what is
    learned differs from the run, where something is missing and that can be told.
    """

    metrics: tuple[Metrics, ...]
    summary: dict[str, Any]
    asked: int
    missing: int
    to_the_end: bool = True
    parts: Parting | None = None

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
            lab: ReplayLab | TimingLab = TimingLab(scenario, memory)
            if loaded.training:
                lab = ReplayLab(scenario, memory, source.book, source.kept)
            try:
                session = assemble(scenario, lab, _Passing())
            except NotKnownError:
                return Replay((), {}, 0, 0, to_the_end=False, parts=Parting(0.0, 1))
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
    parts = parting(source, loaded, memo, on_round) if missing or not to_the_end else None
    return Replay(tuple(session.metrics), summary, lab.asked, missing, to_the_end, parts)


def replay_worlds(source: Source, worlds: Iterable[Mapping[str, Any]], memo: Memo) -> Iterator[Replay | HflError]:
    """Replays a source in many worlds, one after another, and gives what came of each when it is known, in their order.

    A world maps keys of the scenario (dotted) to what they are to be, as YAML would have it. One that cannot be played gives the
    error in place of a replay. Each replay is the one that `replay` gives, bit for bit; what the run knows is read once for all.
    """
    for world in worlds:
        changes = [(key, yamlfile.from_data(value, f"world: {key}")) for key, value in world.items()]
        try:
            yield replay(source, source.changed(changes), memo)
        except HflError as error:
            yield error


def parting(
    source: Source, loaded: Loaded, memo: Memo, on_round: Callable[[int, Metrics], None] | None = None
) -> Parting | None:
    """From which instant on a source learns something else as it was changed; None where it never does, or nobody can tell.

    Plays both as far as that. ``on_round`` as for `replay`.
    """
    scenario = loaded.scenario
    try:
        lab = CourseLab(scenario, RunMemory(memo, source.known), source.course)
        try:
            session = assemble(scenario, lab, _Passing())
        except (PartedError, NotKnownError):
            return Parting(0.0, 1)
        if on_round is not None:
            session.on_round = on_round
        with rare_collections():
            play(session)
    except PartedError:
        return Parting(session.world.now, session.rounds + 1)
    except HflError:
        pass  # the models that a run asks for may depend on models that are not known
    return None


def run_changed(
    changed: ChangedRun,
    folder: Path,
    memo: Memo,
    watcher: Watcher = Watcher(),  # noqa: B008
    max_workers: int | None = None,
) -> dict[str, Any]:
    """Runs a finished run as it was changed into a folder, as `execute`; trains only what is not known.

    The manifest and the summary that it returns have ``whatif``: ``parts`` (see `Replay`), and ``kept_models``, the rounds after
    which those models were kept that it read.
    """
    kept, goes_on = changed.kept(), (folder / checkpoint.MEMORY).exists()

    def explain(lab: AnyLab) -> dict[str, Any]:
        parts = None
        if lab.trained or goes_on:  # an earlier part may have trained
            with suppress(InputError):
                parts = parting(open_source(changed.source), changed.loaded, memo)
        return {"whatif": {"parts": None if parts is None else asdict(parts), "kept_models": sorted(kept.used)}}

    return execute(changed.loaded, folder, memo, watcher, changed.known(), max_workers, kept=kept, explain=explain)


def describe_trained(said: Mapping[str, Any]) -> str:
    """What a changed run had to train, from when on and from what; ``said`` is its manifest, or what `run_changed` gave."""
    asked, computed = said["trainings"]["asked"], said["trainings"]["computed"]
    parts, kept = said["whatif"]["parts"], said["whatif"]["kept_models"]
    made = f"{computed:,} of {asked:,} trainings were made again"
    if parts is None:
        return f"{made}, from kept models on" if kept else made
    begun = max((number for number in kept if number < parts["round"]), default=None)
    since = f"the beginning on: no model was kept before round {parts['round']} (output.keep_models)"
    return f"{Parting(**parts)}; {made}, from {since if begun is None else f'the models kept after round {begun} on'}"


def describe_missing(result: Replay) -> str:
    """How much of a replay is known and how much would have to be trained: ``1,200 of 25,000 trainings are missing``.

    And from when on what is learned differs, where that is known.
    """
    since = "" if result.parts is None else f"; {result.parts}"
    if result.to_the_end:
        return f"{result.missing:,} of {result.asked:,} trainings are missing{since}"
    if not result.asked:
        return "nothing of it is known: everything would have to be trained"
    rounds = max((int(row["round"]) for row in result.metrics if not math.isnan(row["loss"])), default=0)
    return (
        f"it is known up to round {rounds}; what comes then depends on models that would have to be trained "
        f"(at least {result.missing:,} trainings){since}"
    )


class _Passing(Ledger):
    """A ledger that keeps its latest rows only, and of these what a `Meter` reads: a replay needs the totals alone."""

    CHUNK = 20_000
    KEPT = ("kind", "who", "peer", "start_s", "end_s", "bytes", "hop", "status")

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def _write_rows(self, path: Path) -> None:
        """The rows are gone."""
