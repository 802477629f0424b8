"""Made-up certificates: two methods whose times follow from a bandwidth and an overhead by simple formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

World = Mapping[str, Any]
Rule = Callable[[World, int], float]  # a world and a seed to a figure

BANDWIDTH = {
    "name": "bandwidth", "key": "topology.links.client.up", "source": "the scenario", "distribution": "uniform",
    "text": "uniform from 1 to 9 Mbit/s", "unit": "bit/s", "factor": False, "scale": "linear", "middle": 5e6,
    "low": 1.4e6, "high": 8.6e6,
}  # fmt: skip
OVERHEAD = {
    "name": "overhead", "key": "overhead", "source": "a paper", "distribution": "uniform", "text": "uniform from 1 to 2",
    "unit": "", "factor": True, "scale": "linear", "middle": 1.5, "low": 1.05, "high": 1.95,
}  # fmt: skip
DEVICE = {
    "name": "device", "key": "devices", "source": "", "distribution": "choice", "text": "one of two", "unit": "", "factor": False,
    "scale": "labels", "labels": ["pi3", "pi4"],
}  # fmt: skip
RANGES = {"bandwidth": (1e6, 9e6), "overhead": (1.0, 2.0)}
TIME = {"column": "time_to_0.8_s", "kind": "to", "axis": "time", "target": 0.8, "unit": "s", "better": "lower"}
BYTES = {"column": "bytes_to_0.8", "kind": "to", "axis": "bytes", "target": 0.8, "unit": "B", "better": "lower"}
AFTER = {"column": "accuracy_at_3600s", "kind": "at", "axis": "time", "budget": 3600, "unit": "", "better": "higher"}


def linear_a(world: World, seed: int) -> float:
    """100 s of computing, and 1 s for each Mbit/s that is missing from 100: falls with the bandwidth."""
    return 200.0 - 10.0 * world["bandwidth"] / 1e6


def linear_b(world: World, seed: int) -> float:
    """Grows with the bandwidth; equal to the other at 4 Mbit/s."""
    return 120.0 + 10.0 * world["bandwidth"] / 1e6


def noisy(rule: Rule, spread: float, salt: int) -> Rule:
    """A rule times a factor that depends on the seed alone."""

    def drawn(world: World, seed: int) -> float:
        return rule(world, seed) * float(np.exp(spread * np.random.default_rng([salt, seed]).normal()))

    return drawn


def write_certificate(
    folder: Path,
    rules: Mapping[str, Mapping[str, Rule]],
    quantities: Sequence[Mapping[str, Any]] = (BANDWIDTH, OVERHEAD),
    worlds: int = 200,
    base: int = 0,
    seeds: Sequence[int] = (1, 2, 3),
    measures: Sequence[Mapping[str, Any]] = (TIME,),
    status: Callable[[World, str, int], str] = lambda world, method, seed: "replayed",
    tipping: Sequence[tuple[Any, ...]] = (),
    curves: bool = False,
    seed: int = 0,
    correlations: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Writes one. ``rules`` has for each method the rule of each measure's column."""
    folder.mkdir(parents=True, exist_ok=True)
    points = _drawn(quantities, worlds, seed).assign(part="drawn")
    if base:
        points = pd.concat([points, _saltelli(quantities, base).assign(part="saltelli")], ignore_index=True)
    points.insert(0, "world", range(len(points)))
    rows = _outcomes(points.to_dict("records"), rules, seeds, measures, status)
    middle = {q["name"]: q.get("middle", q.get("labels", [None])[0]) for q in quantities}
    before = _outcomes([{"world": -1, **middle}], rules, seeds, measures, lambda *_: "replayed")
    points.to_parquet(folder / "worlds.parquet")
    rows.to_parquet(folder / "outcomes.parquet")
    before.to_parquet(folder / "baseline.parquet")
    table = pd.DataFrame(tipping, columns=["better", "than", "measure", "quantity", "at", "side"])
    table.to_csv(folder / "tipping.csv", index=False)
    if curves:
        _curves(rows[rows["world"] < 50], measures[0]["column"]).to_parquet(folder / "curves.parquet")
    runs = [{"run": f"{m}-{s}", "folder": f"../{m}-{s}", "method": m, "seed": s} for m in rules for s in seeds]
    about = {
        "version": 1, "name": "made up", "runs": runs, "quantities": list(map(dict, quantities)), "without_effect": [],
        "correlations": list(map(dict, correlations)),
        "design": {"kind": "sobol", "worlds": worlds, "seed": seed, "saltelli": base},
        "measures": list(map(dict, measures)), "counts": {"worlds": len(points), "outcomes": len(rows)},
    }  # fmt: skip
    (folder / "certificate.yaml").write_text(yaml.safe_dump(about, sort_keys=False))
    return folder


def two_lines(folder: Path, **options: Any) -> Path:
    """A and B whose times are linear in the bandwidth: A is better above 4 Mbit/s, so in 5 of 8 worlds."""
    options.setdefault("tipping", [("A", "B", "time_to_0.8_s", "bandwidth", 4e6, "above")])
    return write_certificate(folder, {"A": {"time_to_0.8_s": linear_a}, "B": {"time_to_0.8_s": linear_b}}, **options)


def _drawn(quantities: Sequence[Mapping[str, Any]], worlds: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return _mapped(quantities, rng.random((worlds, len(quantities))))


def _saltelli(quantities: Sequence[Mapping[str, Any]], base: int) -> pd.DataFrame:
    from SALib.sample import sobol

    problem = {
        "num_vars": len(quantities),
        "names": [q["name"] for q in quantities],
        "bounds": [[0, 1]] * len(quantities),
    }
    return _mapped(quantities, sobol.sample(problem, base, calc_second_order=False, seed=3))


def _mapped(quantities: Sequence[Mapping[str, Any]], points: np.ndarray) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for quantity, shares in zip(quantities, points.T, strict=True):
        if quantity["scale"] == "labels":
            labels = quantity["labels"]
            columns[quantity["name"]] = [labels[min(int(s * len(labels)), len(labels) - 1)] for s in shares]
        else:
            low, high = RANGES.get(quantity["name"], (0.0, 1.0))
            columns[quantity["name"]] = low + (high - low) * shares
    return pd.DataFrame(columns)


def _outcomes(
    worlds: Sequence[World],
    rules: Mapping[str, Mapping[str, Rule]],
    seeds: Sequence[int],
    measures: Sequence[Mapping[str, Any]],
    status: Callable[[World, str, int], str],
) -> pd.DataFrame:
    rows = []
    for world in worlds:
        for method, rule in rules.items():
            for seed in seeds:
                said = status(world, method, seed)
                row = {
                    "world": world["world"],
                    "run": f"{method}-{seed}",
                    "method": method,
                    "seed": seed,
                    "status": said,
                }
                row["reason"] = "" if said in ("replayed", "trained") else "from round 3 on"
                for measure in measures:
                    known = said in ("replayed", "trained")
                    row[measure["column"]] = rule[measure["column"]](world, seed) if known else np.nan
                rows.append(row)
    return pd.DataFrame(rows)


def _curves(outcomes: pd.DataFrame, column: str) -> pd.DataFrame:
    rows = []
    for row in outcomes.to_dict("records"):
        for round_ in range(1, 21):
            time_s = row[column] * round_ / 16
            known = {key: row[key] for key in ("world", "run", "method", "seed")}
            accuracy = 0.9 * (1 - float(np.exp(-round_ / 7)))
            rows.append(
                {
                    **known,
                    "round": round_,
                    "time_s": time_s,
                    "bytes_total": 1e6 * round_,
                    "cost_s": 10.0 * time_s,
                    "accuracy": accuracy,
                }
            )
    return pd.DataFrame(rows)
