"""Execution of a run: a scenario is played into its folder, or on from where an earlier process stopped."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator import checkpoint, run_folder
from emulator.assembly import assemble, play, rare_collections
from emulator.cluster import Backend
from emulator.errors import DivergedError, HflError
from emulator.files import aside_of, held, write_json, write_text
from emulator.kept import KeptModels, ModelKeeper
from emulator.learning.interface import AnyLab
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.ledger import Ledger
from emulator.methods.session import Metrics, Session
from emulator.run_folder import COMPLETE, FAILED, INTERRUPTED, digests
from emulator.run_results import manifest_of, metrics_csv, summary_of, write_results
from emulator.scenario import Loaded, dump
from emulator.world.endings import check

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watcher:
    """Who wants to hear how a run is getting on."""

    on_round: Callable[[int, Metrics], None] = lambda _round, _metrics: None
    on_trained: Callable[[int, int], None] = lambda done, waiting: None


def execute(
    loaded: Loaded,
    folder: Path,
    memo: Memo,
    watcher: Watcher = Watcher(),  # noqa: B008
    known: dict[str, bytes] | None = None,
    max_workers: int | None = None,
    backend: Backend = "local",
    kept: KeptModels | None = None,
    explain: Callable[[AnyLab], dict[str, Any]] = lambda _lab: {},
) -> dict[str, Any]:
    """Runs a scenario into a folder that `prepare` made ready, or goes on with it; without training where it was loaded so.

    Returns the summary and how many trainings it took. ``known`` are small results from elsewhere, ``kept``
    models. ``explain`` gives what the manifest is to say beside, once the run is complete. With the backend ``ray``
    clients are trained on the cluster that this process has joined (`emulator.cluster`). An interruption
    (``KeyboardInterrupt``) or an error leaves a valid folder with all that was done, marked as such, and is raised again; one of
    a user's own code as an `HflError` with its place in that code. Raises `InputError` where another process writes the folder,
    `HflError` where it was removed or cannot be written any more.
    """
    scenario = loaded.scenario
    started = time.monotonic()
    memory = RunMemory(memo, {**(known or {}), **checkpoint.read_memory(folder)})
    with loaded.locating(), contextlib.ExitStack() as undone:
        check(scenario)
        lab: AnyLab
        if loaded.training:
            restored, values = checkpoint.Restored(folder), [KeptModels(folder), *([] if kept is None else [kept])]
            lab = Lab(scenario, memory, watcher.on_trained, restored, max_workers, backend, values)
            undone.callback(lab.close)
            lab.try_out()
        else:
            lab = TimingLab(scenario, memory)
        session = assemble(scenario, lab, Ledger(aside_of(folder / run_folder.LEDGER)))
        undone.pop_all()
    # Only now: bad input that shows when data and model are read leaves no folder behind.
    import pyarrow.parquet  # noqa: F401 (the ledger needs it: now, so that memory does not grow by it in the middle of the run)

    with held(folder):
        manifest = manifest_of(scenario, loaded.training)
        (folder / run_folder.SUMMARY).unlink(missing_ok=True)  # what it says of the files is about to be untrue
        write_text(folder / run_folder.SCENARIO, dump(scenario))
        write_json(folder / run_folder.MANIFEST, manifest)
        keeper = _Keeper(folder, session, scenario.output.checkpoint)

        def on_round(round: int, metrics: Metrics) -> None:  # noqa: A002
            keeper.round_ended()
            watcher.on_round(round, metrics)

        session.on_round = on_round
        if isinstance(lab, Lab) and scenario.output.keep_models is not None:
            session.on_models = ModelKeeper(folder, lab, scenario.output.keep_models).round_ended
        status = FAILED
        try:
            with loaded.locating(), contextlib.nullcontext() if loaded.training else rare_collections():
                play(session)
            status = COMPLETE
        except KeyboardInterrupt:
            status = INTERRUPTED
            raise
        finally:
            lab.close()
            trainings = {"asked": lab.asked, "computed": lab.trained}
            manifest |= {"wall_s": round(time.monotonic() - started, 3), "trainings": trainings}
            explained = explain(lab) if status == COMPLETE else {}
            manifest |= explained
            summary = keeper.finish(manifest, status, sys.exception())
    return summary | {"trainings": trainings} | explained


class _Keeper:
    """Writes the folder of a run: while it lasts what it would need to go on, and at its end what came of it.

    What it would need is written after the first round that ends so many seconds of real time after the last time.
    """

    def __init__(self, folder: Path, session: Session, every_s: float) -> None:
        self._folder = folder
        self._session = session
        self._every_s = every_s
        self._due = time.monotonic() + every_s
        self._identity = _identity(folder)

    def round_ended(self) -> None:
        """Writes metrics and checkpoint, if it is time. Where there is no space for them, the run goes on with a warning."""
        now = time.monotonic()
        if now < self._due:
            return
        self._check_there()
        try:
            write_text(self._folder / run_folder.METRICS, metrics_csv(self._session.metrics))
            checkpoint.write(self._folder, self._session.lab)
        except HflError as error:
            log.warning("%s; the run goes on, and could be resumed from what was kept before", error)
        took = time.monotonic() - now
        self._due = now + max(self._every_s, 20 * took)  # large models: never more than a twentieth of the time

    def finish(self, manifest: dict[str, Any], status: str, error: BaseException | None) -> dict[str, Any]:
        """Writes what came of the run and returns its summary. Raises `HflError` where that is not possible."""
        self._check_there()
        folder, session = self._folder, self._session
        if status != COMPLETE:  # first: with it nothing is lost, whatever becomes of the rest
            checkpoint.write(folder, session.lab)
        write_results(folder, session)
        if status == COMPLETE:
            checkpoint.clear(folder)
            checkpoint.write_memory(folder, session.lab)
        write_json(folder / run_folder.MANIFEST, manifest)
        summary = summary_of(session, manifest["training"], status)
        if status == FAILED and error is not None:
            summary["error"] = str(error) or type(error).__name__
            summary |= {"diverged": True} if isinstance(error, DivergedError) else {}
        write_json(folder / run_folder.SUMMARY, summary | {"files": digests(folder)})
        self._check_there()
        return summary

    def _check_there(self) -> None:
        if _identity(self._folder) != self._identity:
            raise HflError(
                f"'{self._folder}' was removed or replaced while the run was writing it; what it held is lost"
            )


def _identity(folder: Path) -> tuple[int, int] | None:
    """What tells a folder from another one of the same name; None where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
