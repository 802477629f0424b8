"""A changed world is answered from memory: the same files as a fresh run, and nothing trained."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S

from analysis.runs import load_run
from analysis.whatif import as_text, side_by_side, targets_between
from emulator import checkpoint
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

WORLDS = [
    "topology.links.access.up=1 Mbit/s",
    "topology.links.backhaul.latency=2 s",
    "topology.devices={laptop: 0.5, raspberry-pi-3b-plus: 0.5}",
    "topology.edge_device=laptop",
    "method.group_operation={kind: secure-aggregation, a: 0 s, b: 3 s, c: 1 s}",
    "topology.links.peer={bandwidth: 1 Gbit/s}",
    "topology.transport={kind: tcp, spread: 0.5, window: 30 kB}",
]


@pytest.mark.parametrize("change", WORLDS)
def test_from_memory_gives_the_files_of_a_fresh_run(small: Small, tmp_path: Path, change: str) -> None:
    execute(small("stop.rounds=3"), tmp_path / "run", Memo(None), max_workers=1)
    changed = small("stop.rounds=3", change)
    known = checkpoint.read_memory(tmp_path / "run")
    replay = execute(changed, tmp_path / "replay", Memo(None), known=known, max_workers=1)
    fresh = execute(changed, tmp_path / "fresh", Memo(None), max_workers=1)
    assert replay["trainings"] == {"asked": fresh["trainings"]["computed"], "computed": 0}
    assert fresh["trainings"]["computed"] > 0
    for name in ("metrics.csv", "ledger.parquet", "summary.json"):
        assert (tmp_path / "replay" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


def test_what_changes_the_learning_is_trained(small: Small, tmp_path: Path) -> None:
    execute(small("stop.rounds=3"), tmp_path / "run", Memo(None), max_workers=1)
    known = checkpoint.read_memory(tmp_path / "run")
    longer = execute(small("stop.rounds=4"), tmp_path / "longer", Memo(None), known=known, max_workers=1)
    assert longer["trainings"]["computed"] == longer["trainings"]["asked"]
    other = execute(
        small("stop.rounds=3", "method.local.learning_rate=0.2"), tmp_path / "o", Memo(None), known=known, max_workers=1
    )
    assert other["trainings"]["computed"] == other["trainings"]["asked"] > 0


def test_side_by_side_compares_the_same_accuracies(small: Small, tmp_path: Path) -> None:
    execute(small("stop.rounds=4"), tmp_path / "run", Memo(None), max_workers=1)
    slow = small("stop.rounds=4", "topology.links.access.latency=5 s")
    execute(slow, tmp_path / "slow", Memo(None), known=checkpoint.read_memory(tmp_path / "run"), max_workers=1)
    before, after = load_run(tmp_path / "run"), load_run(tmp_path / "slow")
    table = side_by_side(before, after)
    assert list(table["accuracy"]) == targets_between(before, after)
    assert (table["round_before"] == table["round_after"]).all()
    assert (table["bytes_total_before"] == table["bytes_total_after"]).all()
    assert list(table["cost_s_before"]) == pytest.approx(list(table["cost_s_after"]), rel=1e-9)
    later = table[table["round_before"] > 0]
    # Each group round adds two latencies; the secure aggregation adds two more.
    added = (after.metrics["time_s"] - before.metrics["time_s"]).iloc[1]
    assert added == pytest.approx(2 * 4 * (5 - 0.020), rel=1e-9)
    assert len(later)
    assert (later["time_s_after"] > later["time_s_before"]).all()
    assert as_text(table).count("\n") == len(table) + 3


def test_the_command_answers_without_torch(small: Small, tmp_path: Path) -> None:
    execute(small("stop.rounds=3", "output.plot=false"), tmp_path / "run", Memo(None), max_workers=1)
    code = (
        "import sys; from emulator.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch imported:', 'torch' in sys.modules)"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "whatif",
        str(tmp_path / "run"),
        "--set",
        "topology.links.access.up=2 Mbit/s",
    ]
    done = subprocess.run([*command, "--no-memo"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "trainings reused 48 of 48" in done.stdout
    assert "torch imported: False" in done.stdout
    (folder,) = (tmp_path / "run").glob("whatif-*")
    assert (folder / "comparison.csv").read_text().startswith("accuracy,round_before,")
    bad = subprocess.run(
        [*command[:5], "--set", "topology.links.acces.up=2 Mbit/s"], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert bad.returncode == 2
    assert "topology.links.acces: unknown key; did you mean 'access'?" in bad.stderr
