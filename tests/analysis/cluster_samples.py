"""Made-up run folders of clustered learning, for the tests of what is drawn of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from analysis_samples import metrics, write_folder

from emulator.files import sealed_text

Born = tuple[int, tuple[int, ...], str, int, Sequence[int], str, int | None]  # see `tree_rows`


def tree_rows(*clusters: Born) -> list[dict[str, Any]]:
    """Rows of clusters.csv from (cluster, parents, reason, round, members, layer, reference); round k ends at 10k s."""
    return [
        {
            "cluster": number,
            "parents": " ".join(map(str, parents)),
            "reason": reason,
            "round": at,
            "time_s": 10.0 * at,
            "layer": layer,
            "reference": "" if reference is None else reference,
            "cosines": "" if reference is None else len(members),
            "size": len(members),
            "members": " ".join(map(str, members)),
        }
        for number, parents, reason, at, members, layer, reference in clusters
    ]


# Eight clients, true clusters 0 1 0 1 ...: split at round 4 by layer 7, one half again (wrongly) at round 6 by layer 3, and two
# of the three merged at round 8.
TRUTH = (0, 1, 0, 1, 0, 1, 0, 1)
TREE = tree_rows(
    (0, (), "start", 0, range(8), "", None),
    (1, (0,), "split", 4, (0, 2, 4, 6), "7", 2),
    (2, (0,), "split", 4, (1, 3, 5, 7), "7", 2),
    (3, (1,), "split", 6, (0, 2), "3", 0),
    (4, (1,), "split", 6, (4, 6), "3", 0),
    (5, (3, 4), "merge", 8, (0, 2, 4, 6), "", None),
    (6, (2,), "kept", 8, (1, 3, 5, 7), "", None),
)


def stability_rows(
    by_layer: Mapping[str, Sequence[float]], kept: float = 0.5, sizes: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """Rows of stability.csv of cluster 0: nothing in rounds 1 and 2, then these values by layer."""
    sizes = sizes or dict.fromkeys(by_layer, 100)
    base = {
        "time_s": 0.0,
        "cluster": 0,
        "layer": "",
        "stability": "",
        "least_stable": "",
        "weights_kept": "",
        "weights": "",
    }
    rows = [{"round": at, **base} for at in (1, 2)]
    for k in range(len(next(iter(by_layer.values())))):
        for layer, values in by_layer.items():
            known = {"layer": layer, "stability": values[k], "least_stable": 2 * values[k]}
            rows.append({"round": k + 3, **base, **known, "weights_kept": kept * sizes[layer], "weights": sizes[layer]})
    return rows


def write_clustered(
    folder: Path,
    tree: Sequence[Mapping[str, Any]] | None = TREE,
    truth: Sequence[int] | None = TRUTH,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    rounds: int = 10,
    judged: bool = True,
    scenario: Mapping[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """A folder of a clustered run: accuracy 0.05 a round, 0.06 by cluster and 0.07 by client; loss 2.3 and less."""
    k = np.arange(rounds + 1)
    table = metrics((0.05 * k).tolist())
    if judged:
        table = table.assign(
            clusters=2.0, accuracy_clusters=0.06 * k, accuracy_clients=0.07 * k, adjusted_rand=0.1 * k, purity=0.5
        )
    write_folder(folder, table, **{"label": "hicfl", **summary})
    for name, rows in {"clusters": tree or [], **(tables or {})}.items():
        if rows:
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    if truth is not None:
        stored = io.BytesIO()
        np.save(stored, np.array([truth, np.zeros_like(truth)], dtype=np.int64))
        entries = {"clusters:abc": sealed_text("clusters:abc", stored.getvalue()), "clients:abc": "AAAA"}
        (folder / "memory.json").write_text(json.dumps(entries))
    if scenario is not None:
        (folder / "scenario.yaml").write_text(yaml.safe_dump(dict(scenario)))
    return folder


def alone(clients: int, first: int = 3) -> list[dict[str, Any]]:
    """A tree that is split in halves, a level every two rounds, until each client is alone."""
    rows: list[Born] = [(0, (), "start", 0, range(clients), "", None)]
    todo = [(0, list(range(clients)), first)]
    while todo:
        parent, members, at = todo.pop(0)
        if len(members) < 2:
            continue
        for half in (members[: len(members) // 2], members[len(members) // 2 :]):
            todo.append((len(rows), half, at + 2 + len(half) % 2))
            rows.append((len(rows), (parent,), "split", at, half, "7" if at < 6 else "3", members[0]))
    return tree_rows(*rows)
