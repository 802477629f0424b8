"""The emulator from Python: scenarios, runs, what-if, sweeps, tables and pictures, by the same engine as the ``hfl`` command.

`emulator` exports all of it; ``docs/python.md`` shows how it is used. Nothing here imports torch, simpy or pandas before it is
needed. Errors that a user can cause are `InputError`; a run that fails is an `HflError`.
"""

from __future__ import annotations

import _thread
import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from emulator import interruption, yamlfile
from emulator import plugins as user_code
from emulator.errors import HflError, InputError, suggestion
from emulator.files import slug
from emulator.scenario.load import Loaded, check, dump, find, fingerprint, with_changes
from emulator.scenario.presets import presets
from emulator.yamlfile import Document

if TYPE_CHECKING:
    import pandas as pd

    from analysis.runs import Run
    from analysis.studies import StudyResults
    from emulator.run import Watcher
    from emulator.study.runner import StudyWatcher
    from emulator.whatif import ChangedRun

Changes: TypeAlias = Mapping[str, Any]  # from dotted keys of a scenario to values
GivenScenario: TypeAlias = "Scenario | str | Path | Mapping[str, Any]"
GivenRun: TypeAlias = "Run | Path | str"
GivenRuns: TypeAlias = "GivenRun | Sequence[GivenRun] | StudyResults"


@dataclass(frozen=True, repr=False)
class Scenario:
    """A scenario that was checked. It never changes; `changed` and `against` make others of it."""

    loaded: Loaded

    @property
    def name(self) -> str:
        """What the scenario is called."""
        return self.loaded.scenario.name

    @property
    def seed(self) -> int:
        """The seed of all its random streams."""
        return self.loaded.scenario.seed

    @property
    def method(self) -> str:
        """What legends call its method: its preset, or its kind."""
        return self.loaded.scenario.label

    @property
    def training(self) -> bool:
        """Whether it is run with training, or for its times alone."""
        return self.loaded.training

    @property
    def text(self) -> str:
        """The scenario as YAML with all defaults written out: what ``scenario.yaml`` of a run folder holds."""
        return dump(self.loaded.scenario)

    def changed(self, changes: Changes) -> Scenario:
        """The same scenario with other values at dotted keys, such as ``{"stop.rounds": 20}``.

        Raises `InputError` with everything that is wrong with it.
        """
        return Scenario(self.loaded.changed(_documents(changes)))

    def against(self, preset: str) -> Scenario:
        """The same data, model and world with the method of another preset, as ``hfl run --against`` has it.

        Raises `InputError` where there is no such preset, or the scenario does not suit it.
        """
        if preset not in presets():
            raise InputError(f"unknown preset '{preset}'; {suggestion(preset, presets())}")
        return Scenario(self.loaded.against(preset))

    def __repr__(self) -> str:
        alone = "" if self.training else ", without training"
        return f"<Scenario '{self.name}': {self.method}, seed {self.seed}{alone}>"


@dataclass(frozen=True, repr=False)
class Picture:
    """A picture that a notebook shows. ``png`` are the bytes of a PNG file."""

    png: bytes

    @property
    def pixels(self) -> tuple[int, int]:
        """Width and height."""
        width, height = struct.unpack(">II", self.png[16:24])
        return width, height

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = self.pixels  # of print; a screen shows it at half of that
        return self.png, {"width": width // 2, "height": height // 2}

    def __repr__(self) -> str:
        return f"<Picture of {self.pixels[0]} x {self.pixels[1]} pixels>"


def load_scenario(
    source: str | Path | Mapping[str, Any],
    changes: Changes | None = None,
    *,
    training: bool = True,
    plugins: Sequence[str | Path] = (),
) -> Scenario:
    """Reads and checks a scenario: a file, the name of a bundled one, or a mapping that holds what a file would.

    ``changes`` are values by dotted keys, as ``--set`` gives them. Without ``training`` the scenario is played on the clock
    alone: no accuracy, and a fleet of any size. ``plugins`` are modules or ``.py`` files with plug-ins; they are imported here
    and in every process that trains. Raises `InputError` with everything that is wrong, each with its key and, in a file, its
    line.
    """
    user_code.load([str(name) for name in plugins])
    built = isinstance(source, Mapping)
    document = yamlfile.from_data(source, "scenario") if built else yamlfile.load(find(str(source)))
    return Scenario(check(with_changes(document, _documents(changes or {})), training))


def load_run(folder: Path | str) -> Run:
    """Reads a run folder: ``metrics``, ``ledger``, ``energy``, ``groups`` and ``groupings`` are pandas tables.

    Raises `InputError` if it is no run folder, or damaged.
    """
    from analysis.runs import load_run as load

    return load(folder)


def run_scenario(
    scenario: GivenScenario,
    out: Path | str | None = None,
    *,
    overwrite: bool = False,
    workers: int | None = None,
    device: str | None = None,
    memo: bool | Path | str = True,
    progress: bool = True,
) -> Run:
    """Runs a scenario into a run folder and reads it; goes on with it where an earlier run was cut off.

    ``out`` is the folder, by default ``runs/NAME-SEED-DIGITS``, where the digits tell scenarios apart. A folder that holds this
    run already, complete, is read; one that holds another run is replaced with ``overwrite`` alone. ``workers`` is how many
    processes train, by default as many as there are cores. ``device`` is what models are computed on (``auto``, ``cpu``, ``cuda``
    or ``cuda:N``), by default what the scenario says. ``memo`` says where results are remembered: in the user's cache
    folder, in this file, or (False) nowhere. ``progress`` shows how the run gets on, on stderr or in the notebook.

    Raises `InputError` where scenario or folder are no good, `HflError` where the run fails. An interruption leaves a folder that
    the same call goes on with.
    """
    loaded = _on(_loaded(scenario, None if overwrite else out), device)
    alone = "" if loaded.training else "-no-training"
    usual = f"{slug(loaded.scenario.name)}-{loaded.scenario.seed}-{fingerprint(loaded.scenario)}{alone}"
    folder = Path("runs") / usual if out is None else Path(out)
    return _run(loaded, folder, overwrite, workers, memo, progress)


def what_if(
    run: GivenRun,
    changes: Changes,
    out: Path | str | None = None,
    *,
    workers: int | None = None,
    device: str | None = None,
    memo: bool | Path | str = True,
    progress: bool = True,
) -> Run:
    """Runs a finished run again in a changed world; trains only what the change makes different, as ``hfl whatif``.

    ``changes`` are values by dotted keys of the scenario. ``manifest["trainings"]`` of the run that is returned says how many
    trainings it asked for and how many had to be computed; ``manifest["whatif"]`` from which instant on it learns something else
    (``parts``: ``time_s`` and ``round``, or None) and after which rounds those models were kept that it read. ``out``
    is its folder, by default one in that of the given run; the rest is as for `run_scenario`. Raises as that, and `InputError`
    where nothing changes or the given run is not complete.
    """
    from emulator.whatif import open_run

    changes = changes if device is None else {**changes, "compute.device": device}
    if not changes:
        raise InputError("say what is to change, for example {'topology.links.access.up': '2 Mbit/s'}")
    changed = open_run(_folder(run)).changed(_documents(changes))
    place = changed.folder if out is None else Path(out)
    return _run(changed.loaded, place, False, workers, memo, progress, changed)


def sweep(
    scenario: GivenScenario,
    grid: Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] | None = None,
    *,
    variants: Mapping[str, Changes] | None = None,
    target: float | None = None,
    out: Path | str | None = None,
    overwrite: bool = False,
    jobs: int | None = None,
    workers: int | None = None,
    device: str | None = None,
    memo: bool | Path | str = True,
    progress: bool = True,
) -> StudyResults:
    """Runs a scenario at every point of a grid and with every seed, several runs at a time; goes on where it was cut off.

    ``grid`` maps dotted keys to lists of values, or to mappings from names to values. ``seeds`` are the seeds, or how many, by
    default the scenario's own. ``variants`` are named changes, each of which is run at every point. ``target`` is an accuracy
    (a share); the tables then say what reaching it took. ``out`` is the folder, by default ``studies/NAME-DIGITS``, where the
    digits tell scenarios apart. ``jobs`` is how many runs go at a time, by default as many as there are cores; the rest is as
    for `run_scenario`.

    Of what is returned, ``table`` has a row for each evaluation, ``runs`` one for each run, ``summary`` one for each point with
    means over seeds. Raises `InputError` with everything that is wrong, `HflError` that names the runs that failed.
    """
    from analysis.studies import load_study, write_tables
    from emulator.study.load import check as check_study
    from emulator.study.runner import run_all, run_left

    base = _on(_loaded(scenario, None if overwrite else out), device)
    if not base.training:
        raise InputError("a sweep trains; load the scenario with training, or run each point with run_scenario")
    varied = {"grid": grid, "seeds": seeds, "variants": variants, "target": target}
    document = yamlfile.from_data(
        {"name": base.scenario.name} | {key: value for key, value in varied.items() if value is not None}, "sweep"
    )
    document.data["scenario"] = base.document.data
    for table, places in ((document.keys, base.document.keys), (document.values, base.document.values)):
        table.update({("scenario", *path): mark for path, mark in places.items()})
    study = check_study(document)
    usual = Path("studies") / f"{slug(base.scenario.name)}-{fingerprint(base.scenario)}"
    folder = usual if out is None else Path(out)

    def show(left: int, done: int) -> contextlib.AbstractContextManager[StudyWatcher]:
        return _study_progress(base.scenario.name, left, done, progress)

    with _interruptible():
        file = _memo_file(memo)
        failed = run_left(
            study, folder, show, lambda runs, watcher: run_all(runs, folder, file, jobs, workers, watcher), overwrite
        )
    if len(failed) < len(study.runs):
        results = load_study(folder)
        write_tables(results)
    if failed:
        listed = "\n".join(f"  {name}: {message}" for name, message in failed.items())
        raise HflError(f"{len(failed)} of {len(study.runs)} runs failed\n{listed}")
    return results


def compare(runs: GivenRuns, target: float | None = None) -> pd.DataFrame:
    """A row for each run: its accuracy, what reaching ``target`` took, and its accuracy on equal budgets.

    ``target`` is an accuracy (a share), by default the highest that all runs reach, in whole per cent. Times are in emulated
    seconds, costs in client-seconds, energies in joules. Runs without training have a row with what they took instead. ``runs``
    are runs, their folders, or the results of a sweep. Raises `InputError` where there are none, or runs with and without
    training.
    """
    from analysis import tables

    found = _runs(runs)
    if found and not any(run.training for run in found):
        if target is not None:
            raise InputError("target: these runs are without training and have no accuracy")
        return tables.charges(found)
    return tables.compare(found, target)


def plot(kind: str, runs: GivenRuns, path: Path | str | None = None, **options: Any) -> Picture:
    """Draws a picture of runs, their folders, the results of a sweep or the folder of a certificate.

    ``hfl list plots`` names the kinds.

    ``options`` are those of the kind, such as ``x="time"`` or ``title``. With a ``path`` the picture is written there too, as
    PNG, SVG or PDF. Raises `InputError` where there is no such kind, an option is no good or does not suit the runs.
    """
    from analysis.certainty import figures as certain
    from analysis.certainty.certificate import one_certificate
    from analysis.figures import choose, draw
    from analysis.series import load_results, results_of
    from analysis.studies import StudyResults

    if "file" in options:
        raise InputError("file: give the path as 'path'")
    asked = yamlfile.from_data(options, f"plot '{kind}'")
    certificate = one_certificate([runs]) if isinstance(runs, Path | str) else None
    if certificate is not None:
        return _picture(partial(certain.draw, kind, certificate, asked), path)
    if isinstance(runs, StudyResults):
        results = runs
    else:
        results = load_results([runs]) if isinstance(runs, Path | str) else results_of(_runs(runs))
    chosen = choose(kind, asked)  # last: plug-ins of the runs may have the kind
    return _picture(partial(draw, chosen, results), path)


def _picture(draw: Callable[[list[Path]], None], path: Path | str | None) -> Picture:
    """What is drawn to files, also to ``path`` where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        shown = Path(folder) / "picture.png"
        draw([*([] if path is None else [Path(path)]), shown])
        return Picture(shown.read_bytes())


def _documents(changes: Changes) -> list[tuple[str, Document]]:
    """Changes with what messages call them. Raises `InputError` where a key is none."""
    for key in changes:
        if not isinstance(key, str) or not all(key.split(".")):
            raise InputError(f"changes: {key!r} is no key of a scenario, such as 'stop.rounds'")
    return [(key, yamlfile.from_data(value, "changes")) for key, value in changes.items()]


def _loaded(scenario: GivenScenario, out: Path | str | None = None) -> Loaded:
    """A scenario that is to be run into a folder, which may hold runs already; their plug-ins are imported."""
    from analysis.folders import run_folders
    from emulator.recorded import load_to_go_on

    if isinstance(scenario, Scenario):
        return scenario.loaded
    load_to_go_on([] if out is None else run_folders([out]))
    return load_scenario(scenario).loaded


def _on(loaded: Loaded, device: str | None) -> Loaded:
    """A scenario on a device (None: that which it says). Raises `InputError` where there is none of this name."""
    return loaded if device is None else loaded.changed(_documents({"compute.device": device}))


def _folder(run: GivenRun) -> Path:
    from analysis.folders import one_run

    return one_run(Path(run)) if isinstance(run, Path | str) else run.folder


def _runs(given: GivenRuns) -> list[Run]:
    from analysis.runs import Run, load_runs
    from analysis.series import runs_of
    from analysis.studies import StudyResults

    if isinstance(given, StudyResults):
        return list(runs_of(given, list(given.folders)))
    each = [given] if isinstance(given, Run | Path | str) else given
    return [run for one in each for run in ([one] if isinstance(one, Run) else load_runs([one]))]


def _memo_file(memo: bool | Path | str) -> Path | None:
    from emulator.learning.memo import default_path

    if isinstance(memo, bool):
        return default_path() if memo else None
    return Path(memo)


def _run(
    loaded: Loaded,
    folder: Path,
    overwrite: bool,
    workers: int | None,
    memo: bool | Path | str,
    progress: bool,
    changed: ChangedRun | None = None,
) -> Run:
    from emulator.learning.memo import Memo
    from emulator.replay import run_changed
    from emulator.run import execute
    from emulator.run_folder import prepare

    if prepare(folder, loaded.scenario, overwrite, loaded.training):
        remembered = contextlib.closing(Memo(_memo_file(memo)))
        with _interruptible(), remembered as opened, _run_progress(loaded, progress) as watcher:
            if changed is None:
                execute(loaded, folder, opened, watcher, max_workers=workers)
            else:
                run_changed(changed, folder, opened, watcher, workers)
    return load_run(folder)


@contextlib.contextmanager
def _run_progress(loaded: Loaded, shown: bool) -> Iterator[Watcher]:
    from emulator.run import Watcher

    if not shown:
        yield Watcher()
        return
    from rich.console import Console

    from emulator.cli.progress import RunProgress

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with RunProgress(console, loaded.scenario.label, loaded.scenario.stop) as progress:
        yield progress.watcher


@contextlib.contextmanager
def _study_progress(name: str, left: int, done: int, shown: bool) -> Iterator[StudyWatcher]:
    from emulator.study.runner import StudyWatcher

    if not shown:
        yield StudyWatcher()
        return
    from rich.console import Console

    from emulator.cli.study_progress import StudyProgress

    with StudyProgress(Console(stderr=True, highlight=False, soft_wrap=True), name, left, done) as progress:
        yield progress.watcher


def _interruptible() -> contextlib.AbstractContextManager[None]:
    """A block in which no interruption is lost; the signal handlers stay as they are."""
    return interruption.heard(_thread.interrupt_main)
