"""One run: scenario, world, lab and method put together, and the folder that holds what came of it.

A run folder holds ``scenario.yaml`` (resolved), ``manifest.json`` (how it was made), ``metrics.csv`` (a row per evaluation),
``groups.csv`` and ``groupings.csv`` (the groups that were formed, see `emulator.grouping.diagnostics`), ``topology.csv``
(who stands where in groups that have headers, see `emulator.grouping.topology`), a CSV file for each table that the method or
the attack declares and has filled (`emulator.tables`), ``recovered.npy`` (images that an attacker recovered, see
`emulator.methods.attacks`), ``ledger.parquet`` (everything that happened), ``energy.csv`` (each client's seconds and joules by
state), ``memory.json`` (small results, see `emulator.checkpoint`) and ``summary.json``.
All but the manifest are the same, byte for byte, for the same scenario and versions, whether or not the run was interrupted.
``summary.json`` is written last and says whether the run is complete; `emulator.run_folder` has more on it.

A run without training (`emulator.learning.timing`) has the same folder. Its manifest and its summary say so; its accuracies and
losses are empty.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import importlib.metadata
import io
import logging
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from emulator import __version__, checkpoint, ledger, recorded, run_folder
from emulator.accounting import Meter, energy_by_state
from emulator.cluster import Backend
from emulator.errors import HflError
from emulator.files import aside_of, held, replacing, write_json, write_text
from emulator.grouping.diagnostics import groupings_csv, groups_csv
from emulator.grouping.topology import topology_csv
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import AnyLab, TimingLab
from emulator.ledger import Ledger
from emulator.methods.session import METRICS, Metrics, Session
from emulator.rng import stream
from emulator.run_folder import COMPLETE, FAILED, INTERRUPTED, digests
from emulator.scenario import Loaded, Scenario, dump
from emulator.scenario.declared import tables_of
from emulator.world.clock import DeadEndError, finish, new_clock
from emulator.world.disturbances import Disturbances, disturbances
from emulator.world.endings import check, watch
from emulator.world.fleet import Fleet
from emulator.world.network import DedicatedNetwork, Network
from emulator.world.played import Played, played
from emulator.world.sharing import SharedNetwork
from emulator.world.world import Workload, World

BYTES_PER_PARAMETER = 4  # models travel as float32

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Watcher:
    """Who wants to hear how a run is getting on."""

    on_round: Callable[[int, Metrics], None] = lambda _round, _metrics: None
    on_trained: Callable[[int, int], None] = lambda done, waiting: None


def label_of(scenario: Scenario) -> str:
    """What legends call the scenario's method: its preset, or its kind."""
    return scenario.method.params.preset or scenario.method.kind


def execute(
    loaded: Loaded,
    folder: Path,
    memo: Memo,
    watcher: Watcher = Watcher(),  # noqa: B008
    known: dict[str, bytes] | None = None,
    max_workers: int | None = None,
    backend: Backend = "local",
) -> dict[str, Any]:
    """Runs a scenario into a folder that `prepare` made ready, or goes on with it; without training where it was loaded so.

    Returns the summary and how many trainings it took. ``known`` are small results from elsewhere. With the backend ``ray``
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
            lab = Lab(scenario, memory, watcher.on_trained, checkpoint.Restored(folder), max_workers, backend)
            undone.callback(lab.close)
            lab.try_out()
        else:
            lab = TimingLab(scenario, memory)
        session = assemble(scenario, lab, Ledger(aside_of(folder / run_folder.LEDGER)))
        undone.pop_all()
    # Only now: bad input that shows when data and model are read leaves no folder behind.
    import pyarrow.parquet  # noqa: F401 (the ledger needs it: now, so that memory does not grow by it in the middle of the run)

    with held(folder):
        manifest = _manifest(scenario, loaded.training)
        (folder / run_folder.SUMMARY).unlink(missing_ok=True)  # what it says of the files is about to be untrue
        write_text(folder / run_folder.SCENARIO, dump(scenario))
        write_json(folder / run_folder.MANIFEST, manifest)
        keeper = _Keeper(folder, session, scenario.output.checkpoint)

        def on_round(round: int, metrics: Metrics) -> None:  # noqa: A002
            keeper.round_ended()
            watcher.on_round(round, metrics)

        session.on_round = on_round
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
            summary = keeper.finish(manifest, status, sys.exception())
    return summary | {"trainings": trainings}


def play(session: Session) -> None:
    """Plays a session's method to its end. Raises `HflError` where it waits for something that nobody does."""
    try:
        finish(session.env, session.env.process(session.scenario.method(session)))
    except DeadEndError as error:
        when = f"after {session.world.now:g} emulated seconds, in round {session.rounds + 1}"
        why = session.world.waited_for() or "the method waits for something that nobody does"
        raise HflError(f"nothing happens any more {when}: {why}") from error


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Looks for unused objects in cycles less often: a large world has millions of objects, and hardly a cycle among them."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


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
        _write_results(folder, session)
        if status == COMPLETE:
            checkpoint.clear(folder)
            checkpoint.write_memory(folder, session.lab)
        write_json(folder / run_folder.MANIFEST, manifest)
        summary = summary_of(session, manifest["training"], status)
        if status == FAILED and error is not None:
            summary["error"] = str(error) or type(error).__name__
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


def assemble(scenario: Scenario, lab: AnyLab, ledger: Ledger | None = None) -> Session:
    """World and session of a scenario, ready to run its method."""
    facts = lab.model_facts
    ledger = ledger or Ledger()
    env = new_clock(scenario.topology.clients)
    fleet = Fleet(scenario.topology, scenario.seed)
    workload = Workload(facts.state_size * BYTES_PER_PARAMETER, facts.forward_flops, facts.parameters)
    traces = played(scenario.topology, scenario.seed)
    disturbed = disturbances(scenario)
    watch(env, scenario.topology)
    network = network_of(scenario, env, traces, disturbed)
    world = World(env, fleet, network, workload, ledger, traces.speeds, disturbed)
    powers = {name: device.power for name, device in zip(fleet.client_names, fleet.client_devices, strict=True)}
    session = Session(scenario, world, lab, Meter(ledger, powers))
    env.where = lambda: f"in round {session.rounds + 1}"
    if scenario.attacks is not None:
        session.attack = scenario.attacks(session)
    return session


def network_of(scenario: Scenario, env: simpy.Environment, traces: Played, disturbed: Disturbances) -> Network:
    """The network that a scenario asks for."""
    jitter = stream(scenario.seed, "jitter")
    if scenario.topology.sharing == "dedicated":
        return DedicatedNetwork(env, jitter)
    return SharedNetwork(env, jitter, traces.bandwidths, traces.latencies, disturbed.links)


def metrics_csv(rows: list[Metrics]) -> str:
    """``metrics.csv`` as text; what was not measured is left empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0] if rows else METRICS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if math.isnan(value) else value for name, value in row.items()} for row in rows)
    return file.getvalue()


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of which there is at least one row as text."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def write_energy(path: Path, ledger_file: Path, world: World) -> None:
    """``energy.csv``: a row for each client with the seconds and the joules of each state of its device."""
    import pyarrow as pa
    import pyarrow.csv

    fleet = world.fleet
    rows = ledger.batches(ledger_file, "kind", "who", "peer", "start_s", "end_s")
    powers = [device.power for device in fleet.client_devices]
    kinds = {id(device): device for device in fleet.client_devices}
    titles = {key: device.name for key, device in kinds.items()}
    names = {"client": fleet.client_names, "device": [titles[id(device)] for device in fleet.client_devices]}
    columns = {name: ledger.text_column(texts) for name, texts in names.items()}
    figures = energy_by_state(rows, fleet.client_names, powers, world.now)
    table = pa.table(columns | {name: ledger.number_column(values) for name, values in figures.items()})
    plain = not any(sign in name for name in set(names["device"]) for sign in ',"\r\n')
    style = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed")
    with replacing(path) as aside, aside.open("wb") as file:  # pyarrow: there may be a million rows
        file.write(",".join(table.column_names).encode() + b"\n")
        pyarrow.csv.write_csv(table, file, style)


def _write_results(folder: Path, session: Session) -> None:
    write_text(folder / run_folder.METRICS, metrics_csv(session.metrics))
    if session.groupings:
        write_text(folder / run_folder.GROUPS, groups_csv(session.groupings))
        write_text(folder / run_folder.GROUPINGS, groupings_csv(session.groupings))
    for name, table in session.tables.items():
        if table:
            write_text(folder / f"{name}.csv", table_csv(table))
    if session.places:
        write_text(folder / run_folder.TOPOLOGY, topology_csv(session.places))
    if session.images:
        with replacing(folder / run_folder.IMAGES) as aside:
            np.save(aside, np.stack(session.images), allow_pickle=False)
    session.world.ledger.write(folder / run_folder.LEDGER)
    write_energy(folder / run_folder.ENERGY, folder / run_folder.LEDGER, session.world)


def summary_of(session: Session, training: bool, status: str) -> dict[str, Any]:
    """``summary.json`` of a session as it stands."""
    rows = session.metrics
    attack = {} if session.attack is None else {"attack": session.attack.facts()}
    return {
        "name": session.scenario.name,
        "label": label_of(session.scenario),
        "seed": session.scenario.seed,
        "training": training,
        "status": status,
        "stopped_by": session.stopped_by,
        "rounds": session.rounds,
        "best_accuracy": max((r["accuracy"] for r in rows if not math.isnan(r["accuracy"])), default=None),
        "final": {name: None if math.isnan(value) else value for name, value in rows[-1].items()} if rows else None,
        **attack,
    }


def _manifest(scenario: Scenario, training: bool) -> dict[str, Any]:
    packages = ("torch", "torchvision", "simpy", "numpy", "pandas", "pydantic", "scikit-learn", "pyarrow")
    return {
        "hfl_emulator": __version__,
        "name": scenario.name,
        "label": label_of(scenario),
        "seed": scenario.seed,
        "training": training,
        "tables": list(tables_of(scenario)),
        "plugins": recorded.as_json(scenario),
        "command": _command(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {p: importlib.metadata.version(p) for p in packages},
        "host": {
            "name": platform.node(),
            "system": platform.platform(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        },
    }


def _command() -> list[str]:
    """The command that this process runs; nothing where it is a script or a notebook of the user's."""
    script = Path(sys.argv[0])
    ours = script.stem == "hfl" or script.parts[-2:] == ("emulator", "__main__.py")
    return ["hfl", *sys.argv[1:]] if ours else []
