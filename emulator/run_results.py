"""What a run writes into its folder.

A run folder holds ``scenario.yaml`` (resolved), ``manifest.json`` (how it was made), ``metrics.csv`` (a row per evaluation),
``groups.csv`` and ``groupings.csv`` (the groups that were formed, see `emulator.grouping.diagnostics`), ``topology.csv``
(who stands where in groups that have headers, see `emulator.grouping.topology`), a CSV file for each table that the method or
the attack declares and has filled (`emulator.tables`), ``recovered.npy`` (images that an attacker recovered, see
`emulator.methods.attacks`), ``ledger.parquet`` (everything that happened), ``energy.csv`` (each client's seconds and joules by
state), ``fleet.json`` (every client, server, link beside the tree and move, as ``hfl fleet`` shows them), ``memory.json`` (small
results, see `emulator.checkpoint`) and ``summary.json``.
All but the manifest are the same, byte for byte, for the same scenario and versions, whether or not the run was interrupted.
``summary.json`` is written last and says whether the run is complete; `emulator.run_folder` has more on it.

A run without training (`emulator.learning.timing`) has the same folder. Its manifest and its summary say so; its accuracies and
losses are empty.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from emulator import __version__, ledger, recorded, run_folder
from emulator.accounting import energy_by_state
from emulator.files import replacing, write_json, write_text
from emulator.grouping.diagnostics import groupings_csv, groups_csv
from emulator.grouping.topology import topology_csv
from emulator.measures import ACCURACY
from emulator.methods.session import Metrics, Session
from emulator.scenario import Scenario
from emulator.scenario.declared import tables_of
from emulator.scenario.inputs import inputs_of
from emulator.standing import last_within, mean_of_last
from emulator.world.fleet_columns import tables
from emulator.world.world import World


def metrics_csv(rows: list[Metrics], columns: Sequence[str] = ()) -> str:
    """``metrics.csv`` as text; what was not measured is left empty. ``columns`` are those of a table without rows."""
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0] if rows else columns, lineterminator="\n")
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


def fleet_json(world: World) -> dict[str, dict[str, str]]:
    """``fleet.json``: columns of `emulator.world.fleet_columns` as texts with a line for each row; there may be a million."""
    packed = {}
    for name, columns in tables(world.fleet, world.movements, world.now).items():
        packed[name] = {c: "\n".join([cell.replace("\n", " ") for cell in cells]) for c, cells in columns.items()}
    return packed


def write_results(folder: Path, session: Session) -> None:
    """Writes every table of a session as it stands, its ledger and its energy. Raises `HflError` where that is not possible."""
    write_text(folder / run_folder.METRICS, metrics_csv(session.metrics, session.usual_columns))
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
    write_json(folder / run_folder.FLEET, fleet_json(session.world))
    write_energy(folder / run_folder.ENERGY, folder / run_folder.LEDGER, session.world)


def summary_of(session: Session, training: bool, status: str) -> dict[str, Any]:
    """``summary.json`` of a session as it stands."""
    rows, measure = session.metrics, session.measures[0]
    attack = {} if session.attack is None else {"attack": session.attack.facts()}
    budget: dict[str, Any] = {"budget": limits} if (limits := session.scenario.stop.budget) else {}
    if budget:
        within = last_within(rows, limits)
        known = within is not None and not math.isnan(within[measure.name])
        budget[measure.named("accuracy_at_budget")] = within[measure.name] if within is not None and known else None
    last = session.scenario.evaluate.last_rounds or max(1, session.rounds // 10)
    mean, best = mean_of_last(rows, last, measure.name), measure.best(row[measure.name] for row in rows)
    return {
        "name": session.scenario.name,
        "label": session.scenario.label,
        "seed": session.scenario.seed,
        "training": training,
        "status": status,
        "stopped_by": session.stopped_by,
        "rounds": session.rounds,
        **measure_of(session.scenario),
        measure.named("best_accuracy"): None if math.isnan(best) else best,
        "final": {name: None if math.isnan(value) else value for name, value in rows[-1].items()} if rows else None,
        "last_rounds": {"rounds": last, measure.name: None if math.isnan(mean) else mean},
        **budget,
        **attack,
    }


def measure_of(scenario: Scenario) -> dict[str, Any]:
    """What a run folder says of the measure by which models are judged, where that is not the accuracy."""
    measure = scenario.objective.measures[0]
    return {} if measure == ACCURACY else {"measure": measure.to_json()}


def manifest_of(scenario: Scenario, training: bool) -> dict[str, Any]:
    """``manifest.json`` of a run that begins now, in this process."""
    return {
        "hfl_emulator": __version__,
        "name": scenario.name,
        "label": scenario.label,
        "seed": scenario.seed,
        "training": training,
        **measure_of(scenario),
        "tables": list(tables_of(scenario)),
        "plugins": recorded.as_json(scenario),
        "compute": _compute(scenario),
        "inputs": inputs_of(scenario),
        **made_here(),
    }


def made_here() -> dict[str, Any]:
    """What a manifest says of this process: its command, when it began, versions, and the host."""
    packages = ("torch", "torchvision", "simpy", "numpy", "pandas", "pydantic", "scikit-learn", "pyarrow")
    return {
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


def _compute(scenario: Scenario) -> dict[str, Any]:
    """What models of a run are computed on, with the names of the GPUs."""
    compute, gpus = scenario.compute, []
    if compute.kind != "cpu":
        from emulator.learning.device import gpu_names

        gpus = [name for number, name in enumerate(gpu_names()) if compute.number in (None, number)]
    return {"device": compute.device, "precision": compute.precision, "gpus": gpus}


def _command() -> list[str]:
    """The command that this process runs; nothing where it is a script or a notebook of the user's."""
    script = Path(sys.argv[0])
    ours = script.stem == "hfl" or script.parts[-2:] == ("emulator", "__main__.py")
    return ["hfl", *sys.argv[1:]] if ours else []
