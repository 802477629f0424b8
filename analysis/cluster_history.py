"""What run folders tell of clusters: the tree in which they came to be, who belongs where, and what was true.

The true clusters are those of the scenario's partition. A run folder keeps them among the small results of ``memory.json``.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.runs import CLUSTERS, STABILITY, Run
from emulator.errors import InputError
from emulator.files import unsealed_text

if TYPE_CHECKING:
    import pandas as pd

MEMORY = "memory.json"
# Of the last evaluation, where clusters are judged: columns of metrics.csv.
CLUSTER_METRICS = ("clusters", "accuracy_clusters", "accuracy_clients", "adjusted_rand")
UNCHANGED = ("start", "kept")  # reasons of rows in clusters.csv that put nobody elsewhere


@dataclass(frozen=True)
class Node:
    """A cluster from when it came to be until it was split, merged or changed, or the run ended.

    ``born`` and ``ended`` are pairs of a round and a time in seconds.
    """

    cluster: int
    members: tuple[int, ...]
    reason: str
    layer: str
    reference: int | None
    born: tuple[float, float]
    ended: tuple[float, float]


def tree(run: Run) -> list[Node]:
    """The clusters of a run in the order in which they came to be; raises `InputError` where the run has made none.

    Where clients choose among models (IFCA), every change of a cluster's members is a node of its own.
    """
    rows = run.clusters.to_dict("records")
    for row in rows:
        numbers = all(re.fullmatch(r"[0-9]{1,8}", word) for word in f"{row['members']} {row['parents']}".split())
        if not numbers or len(str(row["members"]).split()) != row["size"]:
            what = f"the members or parents of cluster {row['cluster']} are no numbers, or not as many as its size says"
            raise InputError(f"'{run.folder / CLUSTERS}' is damaged: {what}")
    last = run.metrics.iloc[-1]
    end = (float(last["round"]), float(last["time_s"]))
    members = [tuple(int(c) for c in str(row["members"]).split()) for row in rows]
    parents = [_parents(rows, place) for place in range(len(rows))]
    found = []
    for place, row in enumerate(rows):
        heirs = [later for later in range(place + 1, len(rows)) if place in parents[later]]
        began = (float(row["round"]), float(row["time_s"]))
        over = [(float(rows[h]["round"]), float(rows[h]["time_s"])) for h in heirs]
        reference = row["reference"]
        found.append(
            Node(
                int(row["cluster"]),
                members[place],
                str(row["reason"]),
                str(row["layer"]),
                int(reference) if math.isfinite(reference) else None,
                began,
                min(over, default=max(end, began)),
            )
        )
    return found


def _parents(rows: Sequence[Any], place: int) -> set[int]:
    """The rows whose clusters a cluster came out of: those it names, or else its own earlier row."""
    row = rows[place]
    named = {int(p) for p in str(row["parents"]).split()} or {int(row["cluster"])}
    latest: dict[int, int] = {}
    for earlier in range(place):
        latest[int(rows[earlier]["cluster"])] = earlier
    return {latest[cluster] for cluster in named if cluster in latest}


def final_clusters(run: Run) -> np.ndarray:
    """The cluster of every client at the end, int64 [clients]; raises `InputError` where the run has made no clusters."""
    nodes = tree(run)
    of = np.zeros(1 + max((c for node in nodes for c in node.members), default=-1), dtype=np.int64)
    for node in nodes:
        of[list(node.members)] = node.cluster
    return of


def true_clusters(run: Run) -> np.ndarray | None:
    """The true cluster of every client, int64 [clients]; None where the partition makes none, or the folder does not say.

    Raises `InputError` where the file that says it is damaged.
    """
    path = run.folder / MEMORY
    try:
        memory = json.loads(path.read_bytes()) if path.is_file() else {}
        kept = [(key, value) for key, value in memory.items() if key.startswith("clusters:")]
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    if len(kept) != 1:
        return None
    raw = unsealed_text(*kept[0])
    if raw is None:
        raise InputError(f"'{path}' is damaged, or of another version: the true clusters do not match their checksum")
    return np.asarray(np.load(io.BytesIO(raw), allow_pickle=False)[0], dtype=np.int64)


def clustering_rounds(run: Run) -> float:
    """The last round at whose end clients were put into other clusters; 0 if never, nan for a method that makes no clusters.

    When reorganising leaves a cluster as it is, that is no change.
    """
    if not (run.folder / CLUSTERS).is_file():
        return math.nan
    changed = run.clusters[~run.clusters["reason"].isin(UNCHANGED)]
    return float(changed["round"].max()) if len(changed) else 0.0


def weights_kept(run: Run) -> float:
    """The share of the layers' weights that counted for stability in the first cluster, mean over its rounds; nan if unknown."""
    if not (run.folder / STABILITY).is_file():
        return math.nan
    rows = run.stability
    rows = rows[(rows["cluster"] == 0) & (rows["layer"] != "")]
    by_round = rows.groupby("round")[["weights_kept", "weights"]].sum()
    return float((by_round["weights_kept"] / by_round["weights"]).mean()) if len(by_round) else math.nan


def layer_names(table: pd.DataFrame) -> list[str]:
    """The layers of a table in the order of the model, ``all`` (all parameters) first where it is there."""
    return [str(name) for name in dict.fromkeys(table["layer"]) if name]


def layer_title(name: str, layers: Sequence[str]) -> str:
    """What pictures call a layer: its name in the model, and whether it is the first or the last."""
    own = [layer for layer in layers if layer != "all"]
    if name == "all":
        return "all parameters"
    place = " (first)" if name == own[0] else " (last)" if name == own[-1] else ""
    return f"layer {name}{place if len(own) > 1 else ''}"
