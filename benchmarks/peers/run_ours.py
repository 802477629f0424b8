"""Our own engine as a user gets it: a scenario that is run into a folder, with its emulated network, clock and ledger."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from workload import BATCH, LEARNING_RATE, SAMPLES, Rounds, asked, make_workload, network, test_loss

from emulator.api import load_scenario
from emulator.learning.memo import Memo
from emulator.methods.session import Metrics
from emulator.run import Watcher, execute
from emulator.run_folder import prepare


def main() -> None:
    told = asked()
    work = make_workload(told.clients)
    rounds = Rounds(test_loss(network(), work))

    def on_round(number: int, metrics: Metrics) -> None:
        if number:
            rounds.ended(lambda: float(metrics["loss"]))

    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "samples.npz"
        owners = np.repeat([f"{c:05}" for c in range(told.clients)], SAMPLES)
        np.savez(file, x_train=work.x, y_train=work.y, x_test=work.test_x, y_test=work.test_y, user_train=owners)
        scenario = {
            "name": "peers",
            "data": {"set": {"kind": "npz", "path": str(file), "layout": "nchw"}, "partition": "natural"},
            "model": {"kind": "module", "factory": "workload:network"},
            "topology": {"edges": 1, "clients": told.clients},
            "method": {"preset": "fedavg", "local": {"epochs": 1, "batch_size": BATCH, "learning_rate": LEARNING_RATE}},
            "stop": {"rounds": told.rounds},
            "output": {"plot": False},
        }
        loaded, folder = load_scenario(scenario).loaded, Path(place) / "run"
        prepare(folder, loaded.scenario, False, True)
        execute(loaded, folder, Memo(None), Watcher(on_round), max_workers=told.cores)
    rounds.print()


if __name__ == "__main__":
    main()
