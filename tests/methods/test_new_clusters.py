"""What becomes of a cluster that is split: by which layer, from which model its halves go on, and what they know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator.assembly import assemble
from emulator.contracts.methods import BipartitionChoice, Halves, Reading
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.clustered import Tree
from emulator.methods.session import Session
from emulator.run import execute
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played
from tests.methods.test_clustered import HICFL, Small, split_rows


def session_of(loaded: Loaded) -> Session:
    return assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))


def test_a_stable_layer_that_cannot_split_hides_none_that_can(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    real = BipartitionChoice.__call__

    def only_the_second(self: BipartitionChoice, watch: Any, reading: Reading, *rest: Any) -> Halves:
        asked.append(reading.layer)
        halves = real(self, watch, reading, *rest)
        return halves if len(asked) > 1 else Halves(watch.known, [], None, halves.cosines, halves.flops)

    monkeypatch.setattr(BipartitionChoice, "__call__", only_the_second)
    session = played(small(*HICFL, "stop.rounds=4"))
    first, _ = split_rows(session)
    names = [name for name, _ in session.lab.model_facts.layers]
    found = {r["layer"]: r["stability"] for r in session.tables["stability"] if r["round"] == first["round"]}
    assert [names[n] for n in asked if n is not None] == sorted(found, key=lambda name: found[name])
    assert first["layer"] == names[asked[1] or 0]
    served = [r for r in session.world.ledger.rows if r.what == "clustering" and r.round == first["round"]]
    assert len(served) == 3  # for stability, and for each layer that was tried


def test_with_its_history_a_half_is_split_in_the_next_round(small: Small) -> None:
    four = "data.partition={kind: label-blocks, blocks: [[0, 1], [2, 3], [4, 5, 6], [7, 8, 9]], samples_per_client: 40}"
    at: dict[str, list[int]] = {}
    for history in ("restart", "keep"):
        session = played(small(*HICFL, four, f"method.history={history}", "stop.rounds=12"))
        at[history] = [r["round"] for r in split_rows(session)][::2]
        assert session.metrics[-1]["purity"] == 1
    # Stability takes three updates, and a window of two; none of them is of the parent's time.
    first = at["keep"][0]
    assert at["restart"][0] == first
    assert at["keep"][1] == first + 1
    assert at["restart"][1] >= first + 4


@pytest.mark.parametrize("children", ["own", "parent"])
def test_halves_start_from_their_own_average_or_from_that_of_all(small: Small, children: str) -> None:
    loaded = small(*HICFL, f"method.children={children}", "stop.rounds=8")
    tree = Tree(assembled := session_of(loaded), loaded.scenario.method.params)
    tree.plant()
    while not (halves := [c for c in tree.leaves if c.number > 0]):
        assembled.env.step()
    lab, (parent,) = assembled.lab, [c for c in tree._all if c.number == 0]
    assert isinstance(lab, Lab)
    started = [lab.value(h.model).double().numpy() for h in halves]
    sizes = [lab.clients.samples[list(h.members)].sum() for h in halves]
    while parent.round < halves[0].round:
        assembled.env.step()
    whole = lab.value(parent.model).double().numpy()
    assert np.average(started, axis=0, weights=sizes) == pytest.approx(whole, abs=1e-6)
    assert all((start == whole).all() for start in started) == (children == "parent")


def test_what_a_new_cluster_takes_over_survives_an_interruption(small: Small, tmp_path: Path) -> None:
    changes = "method.split_time={kind: stability, epsilon: 5, window: 2, agreement: derived}"
    loaded = small(*HICFL, changes, "method.history=keep", "method.children=parent", "stop.rounds=8")
    cut_off_and_finished(loaded, tmp_path / "cut", 5)
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    for table in ("clusters.csv", "stability.csv", "metrics.csv"):
        assert (tmp_path / "cut" / table).read_bytes() == (tmp_path / "whole" / table).read_bytes()


def test_the_threshold_of_mtcfl_is_the_same_in_all_clusters(small: Small) -> None:
    loaded = small(*HICFL, "method=mtcfl", "method.split_time={kind: convergence, mean_below: 0.8}",
                   "method.local={kind: sgd, batch_size: 8, learning_rate: 0.1}", "stop.rounds=30")  # fmt: skip
    tree = Tree(session := session_of(loaded), loaded.scenario.method.params)
    tree.plant()
    while not (halves := [c for c in tree.leaves if c.number > 0]):
        session.env.step()
    greatest = max(row["mean_update"] for row in session.tables["stability"])
    assert [c.watch.largest for c in halves] == [greatest, greatest]
