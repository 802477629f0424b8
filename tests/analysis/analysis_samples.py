"""Made-up runs for the tests of the analysis: exact small tables, and long curves that look like training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.runs import COLUMNS, Run
from emulator.files import write_json


def metrics(
    accuracy: Sequence[float],
    time_s: Sequence[float] | None = None,
    bytes_total: Sequence[float] | None = None,
    cost_s: Sequence[float] | None = None,
    energy_j: Sequence[float] | None = None,
) -> pd.DataFrame:
    """Unless given, round k ends at 10k s with 1000k bytes, 100k client-seconds and 5k J."""
    k = np.arange(len(accuracy), dtype=float)
    total = np.asarray(1000 * k if bytes_total is None else bytes_total, dtype=float)
    cost = np.asarray(100 * k if cost_s is None else cost_s, dtype=float)
    table = pd.DataFrame(
        {
            "round": np.arange(len(accuracy)),
            "time_s": 10 * k if time_s is None else time_s,
            "accuracy": accuracy,
            "loss": 2.3 * (1 - np.asarray(accuracy)),
            "bytes_server_client": 0.4 * total,
            "bytes_client_server": 0.4 * total,
            "bytes_client_client": 0.0,
            "bytes_cloud_edge": 0.1 * total,
            "bytes_edge_cloud": 0.1 * total,
            "bytes_total": total,
            "cost_training_s": 0.75 * cost,
            "cost_group_s": 0.25 * cost,
            "cost_s": cost,
            "energy_j": 5 * k if energy_j is None else energy_j,
        }
    )
    return table[list(COLUMNS)]


def make_run(
    table: pd.DataFrame,
    label: str = "fedavg",
    name: str = "digits",
    seed: int | None = 0,
    status: str = "complete",
    folder: str = "runs/a",
) -> Run:
    return Run(Path(folder), name, label, seed, status, table)


def realistic(
    label: str,
    best: float,
    speed: float,
    rounds: int = 120,
    round_s: float = 95.0,
    round_bytes: float = 21e6,
    round_cost_s: float = 310.0,
    seed: int = 0,
    status: str = "complete",
    noise: float = 0.012,
) -> Run:
    """A run on 10 classes that saturates at ``best``, with noise that fades and rounds of uneven length."""
    rng = np.random.default_rng([seed, *label.encode()])
    k = np.arange(rounds + 1)
    clean = 0.1 + (best - 0.1) * (1 - np.exp(-speed * k / 30)) ** 1.2
    accuracy = np.clip(clean + rng.normal(0, noise, k.size) * np.exp(-k / 150) * (k > 0), 0, 1)
    uneven = np.concatenate([[0.0], np.cumsum(rng.uniform(0.8, 1.25, rounds))])
    table = metrics(
        np.round(accuracy, 4).tolist(),
        time_s=(round_s * uneven).tolist(),
        bytes_total=(np.round(round_bytes * k)).tolist(),
        cost_s=(round_cost_s * uneven).tolist(),
        energy_j=(4.1 * round_cost_s * uneven).tolist(),
    )
    return make_run(table, label, seed=seed, status=status, folder=f"runs/{label}-{seed}")


def write_folder(folder: Path, table: pd.DataFrame, **summary: Any) -> Path:
    """A run folder as far as the analysis reads it. ``status=None`` leaves the summary out."""
    folder.mkdir(parents=True)
    table.to_csv(folder / "metrics.csv", index=False)
    about = {
        "name": "digits",
        "label": "fedavg",
        "seed": 0,
        "status": "complete",
        "stopped_by": "rounds",
        **summary,
    }
    if about["status"] is not None:
        about |= {"rounds": int(table["round"].iloc[-1]), "best_accuracy": float(table["accuracy"].max())}
        about["final"] = {str(key): float(value) for key, value in table.iloc[-1].items()}
        write_json(folder / "summary.json", about)
    return folder
