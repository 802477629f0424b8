"""S5 Tables II and III: what the ledger counts at S5's own sizes, to the digit; and whether buffers are among the bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from emulator.assembly import assemble
from emulator.contracts.learning import MeasurementChoice
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle
from emulator.learning.timing import TimingLab
from emulator.methods.session import Session
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

MIB = 2**20  # S5's "MB"
MNIST = ("model=lenet5", "data.set={kind: synthetic, shape: [1, 28, 28], train_samples: 41000}")
CIFAR10 = ("model=cnn-hfldd", "data.set={kind: synthetic, shape: [3, 32, 32], train_samples: 41000}")
# S5 §V-A: 100 clients of 400 samples straight under a server; the first model is a seed, and bytes are those of parameters.
SETTING = (
    "topology.edges=0", "topology.clients=100", "topology.buffers=local", "method.initial_model=seed",
    "data.partition={kind: classes-per-client, classes: 10, samples_per_client: 400}",
)  # fmt: skip
FEDAVG = ("method=fedavg",)
FEDSEQ = (
    "method=fedavg",
    "method.formation={kind: random, size: 10}",
    "method.training={kind: sequential, ring: true}",
)
HFLDD = ("method=hfldd", "data.public=100", "data.public_set={kind: synthetic, seed: 9}")


class Guessing(TimingLab):
    """A lab that trains nothing, and whose clients predict as ten kinds of clients would, of which the largest has ``most``."""

    most = 0
    told = 0

    def measure(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> np.ndarray:
        kind = 0 if self.told < self.most else 1 + self.told % 9
        self.told += 1
        labels = np.full((1000, 10), 0.01, np.float32)
        labels[:, kind] = 0.91
        return labels


def bytes_sent(loaded: Loaded, headers: int = 0) -> int:
    lab = Guessing(loaded.scenario, RunMemory(Memo(None)))
    lab.most = headers  # cluster sampling makes as many clusters as the largest kind has clients
    session: Session = assemble(loaded.scenario, lab)
    session.env.run(session.env.process(loaded.scenario.method(session)))
    assert len({place.header for place in session.places}) == headers
    return int(session.metrics[-1]["bytes_total"])


@pytest.mark.parametrize(
    ("which", "method", "rounds", "headers", "printed"),
    [
        (MNIST, FEDAVG, 17, 0, 593.15), (MNIST, FEDSEQ, 1, 0, 38.98), (MNIST, HFLDD, 5, 16, 39.92),
        (CIFAR10, FEDAVG, 35, 0, 27_630.37), (CIFAR10, FEDSEQ, 4, 0, 2_296.04), (CIFAR10, HFLDD, 32, 23, 5_844.32),
    ],
)  # fmt: skip
def test_bytes_are_those_of_tables_ii_and_iii(
    small: Small, which: tuple[str, ...], method: tuple[str, ...], rounds: int, headers: int, printed: float
) -> None:
    # S5 counts rounds from 0: what it prints for round 17 was sent in 18 of them.
    loaded = small(*which, *method, *SETTING, f"stop.rounds={rounds + 1}")
    assert round(bytes_sent(loaded, headers) / MIB, 2) == printed


def test_buffers_that_are_local_have_no_bytes_and_change_nothing_else(small: Small) -> None:
    base = (*CIFAR10, *FEDAVG, *SETTING[:2], SETTING[4], "stop.rounds=1")
    sent, local = (small(*base, f"topology.buffers={each}") for each in ("sent", "local"))
    buffers = 2 * (16 + 32 + 64 + 128 + 512 + 512 + 128)
    assert bytes_sent(local) == 100 * 2 * 4 * 1_020_160
    assert bytes_sent(sent) == 100 * 2 * 4 * (1_020_160 + buffers)
    needs = [
        assemble(each.scenario, TimingLab(each.scenario, RunMemory(Memo(None)))).world.workload.need(32)
        for each in (sent, local)
    ]
    assert needs[0] == needs[1]  # devices hold them all the same
