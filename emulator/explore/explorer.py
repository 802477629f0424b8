"""Behind the page: runs are replayed one after another in a thread of their own, and trained in a process if that is wanted."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from analysis.certainty.certificate import Certificate
from analysis.folders import run_folders
from analysis.runs import Run, load_runs, measure_of, unique_labels
from emulator import checkpoint, plugins
from emulator.errors import HflError
from emulator.explore.controls import Control, controls_of
from emulator.explore.fleet_chart import FleetView, view_of
from emulator.explore.sureness import certificate_of
from emulator.learning.memo import Memo
from emulator.machine import cores
from emulator.measures import Measure
from emulator.methods.session import Metrics
from emulator.replay import Replay, Source, open_source, replay
from emulator.run_folder import prepare
from emulator.study.job import Ended, Order, Progressed, Setup
from emulator.study.runner import Job
from emulator.whatif import ChangedRun


class SupersededError(Exception):
    """Nobody waits for this replay any longer."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A run in a changed world: its replay, or why there is none; and how long that took, in real seconds."""

    replay: Replay | None
    error: str
    took_s: float


class Explorer:
    """Finished runs that are replayed beside each other. The controls are those of the first."""

    def __init__(self, folders: Sequence[Path], memo: Path | None, certificate: Path | None = None) -> None:
        """Raises `InputError` where a folder cannot be replayed. The folder of a comparison stands for its runs.

        Without a ``certificate`` one is looked for in and beside the folders.
        """
        folders = run_folders(folders)
        self.certificate: Certificate | None = certificate_of(folders, certificate)
        self.sources: list[Source] = [open_source(folder) for folder in folders]
        self.runs: list[Run] = load_runs(folders)
        self.measure: Measure = measure_of(self.runs)
        self.labels: list[str] = unique_labels(self.runs)
        self.memo = memo
        self.controls: list[Control] = controls_of(self.sources[0].changed([]).loaded.scenario)
        self.trainings: set[Training] = set()  # that are under way
        self._memo: Memo | None = None  # belongs to the thread that replays
        self._thread = ThreadPoolExecutor(1, "replay")
        self.ask([], lambda: True)  # the first replay takes longest: what all have in common is made then

    def command(self, changes: Sequence[str]) -> str:
        """What to type for the same answers: a line for each run."""
        words = [word for change in changes for word in ("--set", change)]
        words += [word for name in plugins.loaded for word in ("--plugin", name)]
        return "\n".join(shlex.join(["hfl", "whatif", str(source.folder), *words]) for source in self.sources)

    def ask(self, changes: Sequence[str], wanted: Callable[[], bool]) -> Future[list[Answer]]:
        """Replays all runs with these changes, after whatever is under way; gives up when it is not ``wanted`` any more."""
        return self._thread.submit(self._answer, list(changes), wanted)

    def fleet(self, number: int, changes: Sequence[str], wanted: Callable[[], bool]) -> Future[FleetView]:
        """Who takes part in a run with these changes, after whatever is under way."""

        def view() -> FleetView:
            if not wanted():
                raise SupersededError
            return view_of(self.sources[number].what_if(changes).loaded.scenario)

        return self._thread.submit(view)

    def _answer(self, changes: Sequence[str], wanted: Callable[[], bool]) -> list[Answer]:
        if self._memo is None:
            self._memo = Memo(self.memo)

        def watch(round: int, metrics: Metrics) -> None:  # noqa: A002
            if not wanted():
                raise SupersededError

        answers = []
        for source in self.sources:
            began = time.perf_counter()
            result, error = None, ""
            try:
                result = replay(source, source.what_if(changes), self._memo, watch)
            except HflError as failure:
                error = str(failure)
            except SupersededError:
                raise
            except Exception as failure:  # noqa: BLE001 (the page is to stay)
                error = f"{type(failure).__name__}: {failure}"
            answers.append(Answer(result, error, time.perf_counter() - began))
        return answers

    def learn(self, source: Source, folder: Path) -> Future[None]:
        """Takes over the small results of a run folder: what was trained there is known from now on."""
        return self._thread.submit(lambda: source.known.update(checkpoint.read_memory(folder)))

    def close(self) -> None:
        """Stops trainings, and ends the thread when what is under way is over; nothing new is begun."""
        for training in list(self.trainings):
            training.stop(wait=True)

        def end() -> None:
            if self._memo is not None:
                self._memo.close()

        self._thread.submit(end)
        self._thread.shutdown()


class Training:
    """Trains worlds of runs that need it, one after another, each into the folder that ``hfl whatif`` would use.

    ``tell`` hears how it is getting on; ``ended`` hears at last why it failed, or nothing. Both are called in another thread.
    """

    def __init__(
        self,
        explorer: Explorer,
        worlds: Sequence[tuple[Source, ChangedRun, str]],
        tell: Callable[[str], None],
        ended: Callable[[str], None],
    ) -> None:
        """``worlds`` are sources, as they are changed, and what to call them."""
        self._explorer = explorer
        self._tell = tell
        self._ended = ended
        self._job: Job | None = None
        self._stopped = False
        self._lock = threading.Lock()
        explorer.trainings.add(self)
        self._thread = threading.Thread(target=self._work, args=(worlds,), name="training")
        self._thread.start()

    def stop(self, wait: bool = False) -> None:
        """Breaks it off; the folder keeps what was done, and the same training goes on from there."""
        with self._lock:
            self._stopped = True
            if self._job is not None:
                self._job.stop()
        if wait:
            self._thread.join()

    def _work(self, worlds: Sequence[tuple[Source, ChangedRun, str]]) -> None:
        try:
            error = next(filter(None, (self._train(*world) for world in worlds)), "")
        except (HflError, OSError) as failure:
            error = str(failure)
        self._explorer.trainings.discard(self)
        self._ended("stopped; the same training goes on from where it was" if self._stopped and error else error)

    def _train(self, source: Source, changed: ChangedRun, label: str) -> str:
        """Trains one; returns why it failed, or nothing."""
        folder, loaded = changed.folder, changed.loaded
        if prepare(folder, loaded.scenario, training=loaded.training):
            with self._lock:
                if self._stopped:
                    return "stopped"
                self._job = job = Job(Setup(self._explorer.memo, sys.path, list(plugins.loaded)))
            try:
                job.send(Order(loaded.document, folder, cores(), changed.source))
                while not isinstance(message := job.receive(), Ended):
                    if isinstance(message, Progressed):
                        limit = loaded.scenario.stop.rounds
                        self._tell(f"{label}: round {message.round}" + (f" of {limit}" if limit else ""))
            finally:
                with self._lock:
                    self._job = None
                job.close()
            if message.error:
                return f"{label}: {message.error}"
        self._explorer.learn(source, folder)
        return ""
