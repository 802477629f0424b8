"""Run folders with a ledger that was worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from analysis_samples import metrics, write_folder

from emulator.ledger import (
    BROKEN,
    CLIENT_CLIENT,
    CLIENT_SERVER,
    CLOUD_EDGE,
    COMPUTE,
    DONE,
    EDGE_CLOUD,
    EVALUATION,
    GROUP_OPERATION,
    SERVER_CLIENT,
    TRANSFER,
    Ledger,
    Tag,
)

Entry = tuple[str, str, str, float, float, str, int, int, int, str]


def row(
    kind: str,
    who: str,
    start_s: float,
    end_s: float,
    peer: str = "",
    hop: str = "",
    round: int = 1,  # noqa: A002
    group: int = 0,
    group_round: int = 0,
    status: str = DONE,
) -> Entry:
    return (kind, who, peer, start_s, end_s, hop, round, group, group_round, status)


# Round 1 lasts from 0 to 10 s. client-0: down 1-2, compute 2-5, operation 5-6, up 6-8. client-1: down 1-2, compute 2-3, operation
# 5-6, up 6-7; it waits from 3 to 5. Round 2, 10-14 s: client-0 alone, with a transfer to client-2 that is cut off.
ROWS: Sequence[Entry] = (
    row(EVALUATION, "cloud", 0, 0, round=0, group=-1, group_round=-1),
    row(TRANSFER, "cloud", 0, 1, "edge-0", CLOUD_EDGE, group=-1, group_round=-1),
    row(TRANSFER, "edge-0", 1, 2, "client-0", SERVER_CLIENT),
    row(TRANSFER, "edge-0", 1, 2, "client-1", SERVER_CLIENT),
    row(COMPUTE, "client-1", 2, 3),
    row(COMPUTE, "client-0", 2, 5),
    row(GROUP_OPERATION, "client-0", 5, 6),
    row(GROUP_OPERATION, "client-1", 5, 6),
    row(TRANSFER, "client-1", 6, 7, "edge-0", CLIENT_SERVER),
    row(TRANSFER, "client-0", 6, 8, "edge-0", CLIENT_SERVER),
    row(TRANSFER, "edge-0", 8, 10, "cloud", EDGE_CLOUD, group_round=-1),
    row(EVALUATION, "cloud", 10, 10, group=-1, group_round=-1),
    row(COMPUTE, "client-0", 10, 12, round=2),
    row(COMPUTE, "edge-0", 10, 11, round=2),
    row(TRANSFER, "client-0", 11, 14, "client-2", CLIENT_CLIENT, round=2, status=BROKEN),
)

SCENARIO: dict[str, Any] = {
    "name": "digits", "notes": "", "seed": 0, "data": {"set": {"kind": "digits"}}, "method": {"kind": "grouped", "preset": ""},
}  # fmt: skip


def write_run(
    folder: Path,
    rows: Sequence[Entry] = ROWS,
    accuracy: Sequence[float] = (0.1, 0.4, 0.6),
    scenario: dict[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """A run folder with all that pictures need."""
    about = {"label": "fedavg", "seed": 0, **summary}
    write_folder(folder, metrics(list(accuracy)), **about)
    own = {**SCENARIO, **(scenario or {}), "seed": about["seed"]}
    own["method"] = {**own["method"], "preset": about["label"]}
    (folder / "scenario.yaml").write_text(yaml.safe_dump(own), encoding="utf-8")
    ledger = Ledger()
    for kind, who, peer, start_s, end_s, hop, number, group, group_round, status in rows:
        tag = Tag("training" if kind == COMPUTE else "model", number, group, group_round)
        ledger.add(kind, who, start_s, end_s, tag, peer, 1000 if kind == TRANSFER else 0, 0, hop, status)
    ledger.write(folder / "ledger.parquet")
    states = "idle_s,compute_s,send_s,receive_s,idle_j,compute_j,send_j,receive_j"
    lines = [f"client-{c},pi-{c % 2},1,2,3,4,10,20,30,40" for c in range(3)]
    (folder / "energy.csv").write_text(f"client,device,{states}\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (folder / "groups.csv").write_text(
        "round,group,aggregator,size,samples,cov,gamma,p,log_p,label_0,label_1\n"
        "1,0,edge-0,2,30,0.5,1,1,0,10,20\n"
        "2,0,edge-0,2,30,0.25,1,0.5,-0.7,15,15\n"
        "2,1,edge-0,1,8,0.75,1,0.5,-0.7,8,0\n",
        encoding="utf-8",
    )
    return folder
