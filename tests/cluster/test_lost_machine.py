"""A Ray cluster of two machines (two Ray nodes on this one), of which one is lost in the middle of a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S

from emulator import cluster
from emulator.learning.memo import Memo
from emulator.run import Watcher, execute
from emulator.run_folder import FILES
from emulator.scenario import Loaded

pytest.importorskip("ray")

# Ray takes a machine for lost after half a minute; here after two seconds.
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.mark.slow
def test_a_machine_that_is_lost_changes_nothing(small: Callable[..., Loaded], tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    loaded = small(
        "data.partition.samples_per_client=400", "data.set={kind: synthetic, train_samples: 20000}", "stop.rounds=6"
    )
    execute(loaded, tmp_path / "local", Memo(None), max_workers=1)
    machines = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": QUICK}
    )
    try:
        lost = machines.add_node(num_cpus=1)
        machines.wait_for_nodes()
        with cluster.joined(machines.address, None):
            there = cluster.nodes()
            losing = threading.Timer(0.3, machines.remove_node, (lost,), {"allow_graceful": False})

            def lose_one(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
                if round == 2:  # while the clients of the next round are trained
                    losing.start()

            execute(loaded, tmp_path / "ray", Memo(None), Watcher(lose_one), backend="ray")
            losing.join(PATIENCE_S)
            until = time.monotonic() + 30
            while len(cluster.nodes()) == 2 and time.monotonic() < until:  # the others hear of it a moment later
                time.sleep(0.1)
            assert (len(there), len(cluster.nodes())) == (2, 1)
    finally:
        machines.shutdown()
    for name in set(FILES) - {"manifest.json"}:
        if (tmp_path / "local" / name).exists():
            assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()
