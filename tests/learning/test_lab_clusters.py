"""Clusters in the lab: who is in which, training on rotated images, and tests on data as clusters hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from emulator.contracts.learning import LocalRuleChoice, PartitionFacts, local_rules, models, partitions
from emulator.errors import HflError, InputError
from emulator.learning.clients import ClientData, turned
from emulator.learning.data.arrays import ArraySet
from emulator.learning.facts import Evaluation
from emulator.learning.flat import FlatModel
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.mixtures import expected
from emulator.learning.partitions import ClusteredParts
from emulator.learning.recipes import Handle, LocalTraining
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

ROTATED = "data.partition={kind: rotation, degrees: [0, 90, 180, 270], of: {kind: iid, samples_per_client: 12}}"
BLOCKS = "data.partition={kind: label-blocks, samples_per_client: 12}"
OVERLAP = "{kind: dominant-label, beta: 0.5, labels: [0, 1], samples_per_client: 400, overlap: true}"


def make(loaded: Loaded, memo: Memo | None = None) -> Lab:
    return Lab(loaded.scenario, RunMemory(memo or Memo(None)), max_workers=1)


def trained(lab: Lab, loaded: Loaded, clients: list[int]) -> list[Handle]:
    rule = loaded.scenario.method.params.local
    return [lab.train(LocalTraining(lab.initial(), c, rule, round=1))[0] for c in clients]


@pytest.mark.parametrize("change", [ROTATED, f"data.partition={{kind: rotation, of: {OVERLAP}}}"])
def test_rotated_clients_hold_rotated_images(small: Small, change: str) -> None:
    loaded = small(change, "data.public=3")
    data = ClientData(loaded.scenario)
    original: ArraySet = loaded.scenario.data.set()
    pool = np.setdiff1d(np.arange(len(original.y_train)), data.public)
    plain = loaded.scenario.data.partition.params.of
    assert np.array_equal(data.arrays.x_train[data.public], original.x_train[data.public])
    assert set(data.truth[1]) == {0, 2} if "beta" in change else {0, 1, 2, 3}
    counts = 0
    for client, (part, turn) in enumerate(zip(data.parts, data.truth[1], strict=True)):
        # Which sample an image was is told by its values, turned back.
        back = np.rot90(data.arrays.x_train[part], -turn, axes=(2, 3))
        source = [int(np.flatnonzero((original.x_train[pool] == image).all(axis=(1, 2, 3)))[0]) for image in back[:5]]
        for image, label, index in zip(data.arrays.x_train[part], data.arrays.y_train[part], source, strict=False):
            expected_image = np.rot90(original.x_train[pool[index]], turn, axes=(1, 2))
            assert np.array_equal(image, expected_image)
            assert label == original.y_train[pool[index]]
        assert len(part) == plain.params.samples_per_client
        assert data.label_counts[client].tolist() == np.bincount(data.arrays.y_train[part], minlength=10).tolist()
        counts += len(part)
    assert data.label_counts.sum() == counts
    rotated = len(data.arrays.x_train) - len(original.x_train)
    held_once = len(np.unique(np.concatenate([p for p, t in zip(data.parts, data.truth[1], strict=True) if t])))
    assert rotated == held_once  # each image once, however many clients hold it


def test_images_that_are_not_square_turn_by_half_only() -> None:
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 1, 3, 4)
    arrays = ArraySet(x, np.array([0, 1]), x, np.array([0, 1]), 2)
    parts = [np.array([0]), np.array([0, 1])]
    result, where = turned(arrays, parts, np.array([0, 2]))
    assert [p.tolist() for p in where] == [[0], [2, 3]]
    assert np.array_equal(result.x_train[2:], x[:, :, ::-1, ::-1])
    assert result.y_train.tolist() == [0, 1, 0, 1]
    assert turned(arrays, parts, np.array([0, 0])) == (arrays, parts)
    with pytest.raises(InputError, match="images of 3×4 cannot be rotated by 90 or 270 degrees"):
        turned(arrays, parts, np.array([0, 3]))


# Rotated clients, trained in every way that there is.

MODEL: tuple[str, dict[str, Any]] = ("cnn", {"channels": (4, 8), "hidden": (12,), "dropout": 0.5})
TOLERANCE = 2e-5  # float32 rounding, as in test_trainer


@pytest.fixture(scope="module")
def rotated_data() -> tuple[TrainingData, TrainingData]:
    """The same rotated clients twice: as the lab makes them, and each client's images by themselves, turned by numpy."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(60, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 60)
    parts = np.split(rng.permutation(60), [9, 13, 20, 33, 40, 45, 50, 52, 54, 56, 58])
    parts, turns = [np.sort(p) for p in parts], np.arange(12) % 4
    arrays, where = turned(ArraySet(x, y, x, y, 10), parts, turns)
    images = [np.rot90(x[p], t, axes=(2, 3)) for p, t in zip(parts, turns, strict=True)]
    ends = np.cumsum([len(p) for p in parts])
    own = np.split(np.arange(60), ends[:-1])
    return (
        TrainingData(torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train), where),
        TrainingData(torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate([y[p] for p in parts])), own),
    )  # fmt: skip


def module() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made: torch.nn.Module = models[MODEL[0]].function((1, 8, 8), 10, models[MODEL[0]].params(**MODEL[1]))
        return made


@pytest.fixture(scope="module")
def jobs() -> list[TrainJob]:
    rule = LocalRuleChoice("sgd", local_rules["sgd"].params(epochs=2, batch_size=4, learning_rate=0.05))
    return [TrainJob(FlatModel(module()).state, client, rule, 2, 0) for client in range(12)]


def states(results: Iterator[tuple[int, TrainedState]]) -> list[torch.Tensor]:
    return [result.state for _, result in sorted(results, key=lambda r: r[0])]


@pytest.mark.parametrize("stacked", [True, False])
def test_rotated_clients_train_as_on_images_turned_by_hand(
    rotated_data: tuple[TrainingData, TrainingData], jobs: list[TrainJob], stacked: bool
) -> None:
    as_in_lab, by_hand = (Trainer(module(), data, 3, 0.0 if stacked else 1e30) for data in rotated_data)
    assert as_in_lab.stacks(4) is stacked
    for ours, theirs in zip(states(as_in_lab.train(jobs)), states(by_hand.train(jobs)), strict=True):
        assert torch.equal(ours, theirs)


def test_rotated_clients_stacked_alone_and_in_workers(
    rotated_data: tuple[TrainingData, TrainingData], jobs: list[TrainJob]
) -> None:
    torch.set_num_threads(1)
    data = rotated_data[0]
    stacked = Trainer(module(), data, 3, 0.0)
    together = states(stacked.train(jobs))
    for number, one in enumerate(states(Trainer(module(), data, 3, 1e30).train(jobs))):
        assert float((one - together[number]).abs().max()) < TOLERANCE
        assert torch.equal(states(stacked.train([jobs[number]]))[0], together[number])
    for count in (1, 2):
        pool = WorkerPool(count, module(), data, 3, 0.0)
        found = states(pool.train(jobs, [1] * len(jobs)))
        pool.close()
        assert all(torch.equal(a, b) for a, b in zip(found, together, strict=True))


# What the lab knows, and under which keys.


def test_the_truth_is_remembered(small: Small) -> None:
    memo = Memo(None)
    loaded = small(ROTATED)
    first, second = make(loaded, memo), make(loaded, memo)
    assert first.clients.clusters is not None
    assert first.clients.turns is not None
    assert sorted(first.clients.clusters) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.array_equal(first.clients.turns, first.clients.clusters)  # 0, 90, 180, 270 degrees
    assert second.clients.clusters is not None
    assert second.clients.turns is not None
    assert second.clients.clusters.tolist() == first.clients.clusters.tolist()
    assert second.clients.turns.tolist() == first.clients.turns.tolist()
    assert not {"_engine", "_data"} & set(vars(second))
    assert second.clients.clusters.dtype == np.int64


def test_without_clusters_nothing_more_is_remembered(small: Small) -> None:
    lab = make(small())
    assert lab.clients.clusters is None
    assert lab.clients.turns is None
    assert [key.partition(":")[0] for key in lab.memory.entries] == ["clients"]


def test_keys_of_trainings_change_with_the_rotation(small: Small) -> None:
    changes = ["iid", "{kind: rotation}", "{kind: rotation, degrees: [0, 90]}", "{kind: rotation, degrees: [180, 0]}"]
    keys = set()
    for change in changes:
        loaded = small(f"data.partition={change}")
        keys.add(trained(make(loaded), loaded, [0])[0].key)
    assert len(keys) == len(changes)


def test_a_partition_that_makes_clusters_must_say_so(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.names()
    monkeypatch.setattr(partitions, "_plugins", dict(partitions._plugins))
    iid = partitions["iid"].function
    partitions.register("silent")(lambda *args: ClusteredParts(_plain(iid, *args), np.zeros(8, np.int64)))
    partitions.register("loud", facts=PartitionFacts(clusters=True))(lambda *args: _plain(iid, *args))
    for kind in ("silent", "loud"):
        with pytest.raises(
            HflError, match=rf"partition '{kind}' .*: it must be registered with PartitionFacts\(clusters"
        ):
            ClientData(small(f"data.partition={kind}").scenario)


def _plain(iid: Any, *args: Any) -> list[np.ndarray]:
    parts: list[np.ndarray] = iid(*args[:-1], partitions["iid"].params())
    return parts


# Tests on data as clients hold it.


def test_accuracy_is_weighted_as_the_clients_hold_the_labels() -> None:
    upright = np.array([[10, 4, 5], [5, 4, 1], [20.0, 2.0, 5.0]])  # of three labels: samples, recognised, losses
    upside_down = np.array([[10, 4, 5], [1, 0, 0], [40.0, 8.0, 10.0]])
    counts, turns = np.array([[6, 2, 0], [0, 2, 0], [5, 0, 5]]), np.array([0, 0, 2])
    accuracy, loss = expected({0: upright, 2: upside_down}, counts[:1], turns[:1])
    assert accuracy == pytest.approx((6 * 0.5 + 2 * 1.0) / 8)
    assert loss == pytest.approx((6 * 2.0 + 2 * 0.5) / 8)
    accuracy, loss = expected({0: upright, 2: upside_down}, counts, turns)
    assert accuracy == pytest.approx((6 * 0.5 + 4 * 1.0 + 5 * 0.1 + 5 * 0.0) / 20)
    assert loss == pytest.approx((6 * 2.0 + 4 * 0.5 + 5 * 4.0 + 5 * 2.0) / 20)
    with pytest.raises(InputError, match="no test sample has the label 1, which clients hold"):
        expected({0: np.array([[1, 0, 1], [1, 0, 1], [0.0, 0, 0]])}, counts[:1], turns[:1])


def on_cluster(lab: Lab, model: Handle, cluster: int) -> Evaluation:
    clusters = lab.clients.clusters
    assert clusters is not None
    return lab.evaluate_each([(model, np.flatnonzero(clusters == cluster).tolist())])[0]


def each_on_its_own(lab: Lab, models: list[Handle]) -> list[Evaluation]:
    return lab.evaluate_each([(model, [client]) for client, model in enumerate(models)])


def by_hand(lab: Lab, model: Handle, labels: list[int], turn: int) -> tuple[float, float]:
    """Accuracy and loss on the test samples with these labels, turned: one sample, one vote."""
    flat = lab._engine._tested
    flat.state.copy_(lab.value(model))
    arrays = lab._engine.data.arrays
    chosen = np.isin(arrays.y_test, labels)
    x = np.ascontiguousarray(np.rot90(arrays.x_test[chosen], turn, axes=(2, 3)))
    y = torch.from_numpy(arrays.y_test[chosen])
    with torch.no_grad():
        scores = flat.module.eval()(torch.from_numpy(x)).double()
    return float((scores.argmax(1) == y).double().mean()), float(torch.nn.functional.cross_entropy(scores, y))


def test_a_cluster_is_tested_on_its_labels(small: Small) -> None:
    # 12 samples of 4 labels or of 6: all labels of a block are equally frequent, in training as in testing.
    loaded = small(
        "data.partition={kind: label-blocks, blocks: [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]], samples_per_client: 12}"
    )
    lab = make(loaded)
    model = lab.combine(trained(lab, loaded, [0, 1, 2, 3]), [0.25] * 4)
    for cluster, labels in enumerate(([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])):
        found = on_cluster(lab, model, cluster)
        accuracy, loss = by_hand(lab, model, labels, 0)
        assert found.accuracy == pytest.approx(accuracy, abs=1e-12)
        assert found.loss == pytest.approx(loss, rel=1e-6)
    assert on_cluster(lab, model, 0).accuracy != on_cluster(lab, model, 1).accuracy


def test_a_cluster_is_tested_on_images_rotated_as_its_own(small: Small) -> None:
    loaded = small(
        "data.partition={kind: rotation, degrees: [0, 90], "
        "of: {kind: label-blocks, blocks: [[0, 1, 2, 3]], samples_per_client: 48}}"
    )
    lab = make(loaded)
    upright = [c for c in range(8) if not lab._engine.data.truth[1, c]]
    model = lab.combine(trained(lab, loaded, upright), [0.25] * 4)
    for cluster in (0, 1):
        accuracy, loss = by_hand(lab, model, [0, 1, 2, 3], cluster)
        assert on_cluster(lab, model, cluster).accuracy == pytest.approx(accuracy, abs=1e-12)
        assert on_cluster(lab, model, cluster).loss == pytest.approx(loss, rel=1e-6)
    assert on_cluster(lab, model, 0).accuracy > on_cluster(lab, model, 1).accuracy + 0.1


def test_all_clients_together_are_the_test_set_where_they_are_alike(small: Small) -> None:
    loaded = small(
        "data.partition={kind: label-blocks, blocks: [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], samples_per_client: 20}"
    )
    lab = make(loaded)
    model = trained(lab, loaded, [0])[0]
    together, common = lab.evaluate_each([(model, range(8))])[0], lab.evaluate(model)
    assert together.accuracy == pytest.approx(common.accuracy, abs=1e-12)
    assert together.loss == pytest.approx(common.loss, rel=1e-6)


def test_every_client_is_tested_as_it_is_itself(small: Small) -> None:
    memo = Memo(None)
    loaded = small(ROTATED)
    lab = make(loaded, memo)
    own = trained(lab, loaded, list(range(8)))
    found = each_on_its_own(lab, own)
    assert lab.trained == 8
    for client, (model, evaluation) in enumerate(zip(own, found, strict=True)):
        assert evaluation == lab.evaluate_each([(model, [client])])[0]
        weights = lab.clients.label_counts[client] / 12
        by_label = [by_hand(lab, model, [c], lab._engine.data.truth[1, client])[0] for c in range(10)]
        assert evaluation.accuracy == pytest.approx(float(weights @ by_label), abs=1e-12)
    shared = each_on_its_own(lab, [own[0]] * 8)
    assert shared[0] == found[0]
    again = make(loaded, memo)
    assert each_on_its_own(again, trained(again, loaded, list(range(8)))) == found
    assert on_cluster(lab, own[0], 1) == on_cluster(again, trained(again, loaded, [0])[0], 1)
    assert again.trained == 0
    assert not {"_engine", "_data"} & set(vars(again))  # neither data nor torch was needed


def test_tests_of_one_rotation_serve_all_clusters_and_clients(small: Small) -> None:
    loaded = small(BLOCKS)
    lab = make(loaded)
    model = trained(lab, loaded, [0])[0]
    for cluster in range(4):
        on_cluster(lab, model, cluster)
    each_on_its_own(lab, [model] * 8)
    assert sum(key.startswith("measure:") for key in lab.memory.entries) == 1


def test_the_common_test_set_is_as_it_was(small: Small) -> None:
    loaded = small(BLOCKS)
    lab = make(loaded)
    model = trained(lab, loaded, [0])[0]
    accuracy, loss = by_hand(lab, model, list(range(10)), 0)
    assert lab.evaluate(model).accuracy == pytest.approx(accuracy, abs=1e-12)
    assert lab.evaluate(model).loss == pytest.approx(loss, rel=1e-5)


def test_labels_that_are_not_tested(small: Small) -> None:
    few = make(small(BLOCKS, "evaluate.samples=3"))
    with pytest.raises(InputError, match="no test sample has the label"):
        on_cluster(few, few.initial(), 3)
