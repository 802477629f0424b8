"""What a run of an app writes into its folder: the same files as any run, and two tables more.

``rounds.csv`` has a row for each round with every metric that was reported, ``replies.csv`` one for each reply.
``metrics.csv`` has the rounds in which an accuracy was reported. Where none was in any round it has all of them, and the
folder says that it has no accuracy, as that of a run without training does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator import __version__, run_folder
from emulator.files import write_json, write_text
from emulator.flower.app import App
from emulator.flower.setting import FlowerScenario
from emulator.flower.support import check
from emulator.flower.watching import Watch
from emulator.measures import ACCURACY
from emulator.run_folder import FAILED, digests
from emulator.run_results import fleet_json, made_here, metrics_csv, table_csv, write_energy
from emulator.scenario import dump
from emulator.scenario.inputs import inputs_of_world
from emulator.standing import last_within, mean_of_last
from emulator.world.world import World

ROUNDS, REPLIES = "rounds", "replies"  # tables


@dataclass(frozen=True)
class Outcome:
    """What a run has come to."""

    world: World
    watch: Watch
    stopped_by: str
    rounds: int
    replies: dict[str, Any]


def ready(folder: Path, scenario: FlowerScenario, overwrite: bool = False) -> bool:
    """As `run_folder.prepare`; whether the app reports an accuracy is not known before it has run."""
    return run_folder.prepare(folder, scenario, overwrite, run_folder.trained_in(folder) is not False)


def begin_folder(folder: Path, scenario: FlowerScenario, app: App) -> dict[str, Any]:
    """Writes what is known before a run, and returns its manifest."""
    manifest: dict[str, Any] = {
        "hfl_emulator": __version__,
        "name": scenario.name,
        "label": scenario.label,
        "seed": scenario.seed,
        "training": True,
        "tables": [ROUNDS, REPLIES],
        "plugins": [],
        "compute": {"device": "cpu", "precision": "float32", "gpus": []},
        "inputs": inputs_of_world(scenario.topology),
        "flower": {"version": check(), "folder": str(app.folder), **scenario.flower.model_dump()},
        **made_here(),
    }
    (folder / run_folder.SUMMARY).unlink(missing_ok=True)  # what it says of the files is about to be untrue
    write_text(folder / run_folder.SCENARIO, dump(scenario))
    write_json(folder / run_folder.MANIFEST, manifest)
    return manifest


def end_folder(
    folder: Path,
    scenario: FlowerScenario,
    manifest: dict[str, Any],
    outcome: Outcome,
    status: str,
    error: BaseException | None,
) -> dict[str, Any]:
    """Writes what came of a run and returns its summary. Raises `HflError` where that is not possible."""
    rounds = outcome.watch.rows()
    tested = [row for row in rounds if not math.isnan(row["accuracy"])]
    rows = tested or rounds
    manifest["training"] = bool(tested)
    write_text(folder / run_folder.METRICS, metrics_csv(rows))
    write_text(folder / f"{ROUNDS}.csv", metrics_csv(rounds))
    if outcome.watch.replies:
        write_text(folder / f"{REPLIES}.csv", table_csv(outcome.watch.replies))
    outcome.world.ledger.write(folder / run_folder.LEDGER)
    write_json(folder / run_folder.FLEET, fleet_json(outcome.world))
    write_energy(folder / run_folder.ENERGY, folder / run_folder.LEDGER, outcome.world)
    counts = outcome.replies
    manifest["replies"] = counts
    manifest["trainings"] = {"asked": counts["run"] + counts["remembered"], "computed": counts["run"]}
    write_json(folder / run_folder.MANIFEST, manifest)
    summary = _summary_of(scenario, outcome, rows, status)
    if status == FAILED and error is not None:
        summary["error"] = str(error) or type(error).__name__
    write_json(folder / run_folder.SUMMARY, summary | {"files": digests(folder)})
    return summary


def _summary_of(
    scenario: FlowerScenario, outcome: Outcome, rows: list[dict[str, float]], status: str
) -> dict[str, Any]:
    limits = {} if scenario.stop is None else scenario.stop.budget
    budget: dict[str, Any] = {"budget": limits} if limits else {}
    if limits:
        within = last_within(rows, limits)
        budget["accuracy_at_budget"] = None if within is None else _known(within["accuracy"])
    last = max(1, outcome.rounds // 10)
    best = ACCURACY.best(row["accuracy"] for row in rows)
    return {
        "name": scenario.name,
        "label": scenario.label,
        "seed": scenario.seed,
        "training": not math.isnan(best),
        "status": status,
        "stopped_by": outcome.stopped_by,
        "rounds": outcome.rounds,
        "best_accuracy": _known(best),
        "final": {name: _known(value) for name, value in rows[-1].items()} if rows else None,
        "last_rounds": {"rounds": last, "accuracy": _known(mean_of_last(rows, last))},
        **budget,
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
