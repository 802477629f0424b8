"""Measurements: what they read off models, worked out by other means, and how the lab remembers them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from emulator.contracts.learning import MeasurementChoice, MeasurementFacts, measurements, models
from emulator.errors import InputError
from emulator.learning import lab as lab_module
from emulator.learning.lab import Lab
from emulator.learning.layers import classifier_of
from emulator.learning.measured_models import MeasuredModels
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.registry import NoParams
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
PUBLIC = "data.public=3"


def make(loaded: Loaded, memo: Memo | None = None) -> Lab:
    return Lab(loaded.scenario, RunMemory(memo or Memo(None)), max_workers=1)


def trained(lab: Lab, loaded: Loaded, client: int) -> Handle:
    return lab.train(LocalTraining(lab.initial(), client, loaded.scenario.method.params.local, 0))[0]


def by_hand(lab: Lab, handle: Handle) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The weights and biases of the small perceptron, from its flat vector."""
    state, inputs, hidden, classes = lab.value(handle), 64, 8, 10
    first, bias, second, last = state.split([hidden * inputs, hidden, classes * hidden, classes])
    return first.view(hidden, inputs), bias, second.view(classes, hidden), last


def forward(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    return torch.relu(x.flatten(1) @ w1.T + b1) @ w2.T + b2


def public(lab: Lab) -> tuple[Tensor, Tensor]:
    data = lab._engine.data
    x, y = data.arrays.x_train[data.public], data.arrays.y_train[data.public]
    return torch.from_numpy(x), torch.from_numpy(y)


def test_classifier_weights_are_the_last_layers(small: Small) -> None:
    loaded = small()
    lab = make(loaded)
    model = trained(lab, loaded, 2)
    _, _, w2, b2 = by_hand(lab, model)
    found = lab.measure("classifier-weights", [model])
    assert found.tolist() == torch.cat([w2.flatten(), b2]).tolist()


def test_class_scores_are_means_over_the_public_samples_of_each_class(small: Small) -> None:
    loaded = small(PUBLIC)
    lab = make(loaded)
    model = trained(lab, loaded, 1)
    found = lab.measure("class-scores", [model])
    x, y = public(lab)
    assert sorted(y.tolist()) == [c for c in range(10) for _ in range(3)]
    scores = forward(x, *by_hand(lab, model))
    for c in range(10):
        mine = scores[y == c]
        assert found[0, c] == pytest.approx(float(mine[:, c].mean()), abs=1e-5)
        assert found[1, c] == pytest.approx(float(mine.softmax(1)[:, c].mean()), abs=1e-6)


def test_soft_labels_are_the_predictions_on_the_public_samples(small: Small) -> None:
    loaded = small(PUBLIC)
    lab = make(loaded)
    model = trained(lab, loaded, 1)
    found = lab.measure("soft-labels", [model])
    assert found.shape == (30, 10)
    np.testing.assert_allclose(found, forward(public(lab)[0], *by_hand(lab, model)).softmax(1), atol=1e-6)


def test_fit_tells_how_well_several_models_do_on_a_clients_samples(small: Small) -> None:
    loaded = small()
    lab = make(loaded)
    handles = [lab.initial(), trained(lab, loaded, 0), trained(lab, loaded, 5)]
    found = lab.measure("fit", handles, 5)
    data = lab._engine.data
    x, y = (torch.from_numpy(a[data.parts[5]]) for a in (data.arrays.x_train, data.arrays.y_train))
    for row, handle in zip(found, handles, strict=True):
        scores = forward(x, *by_hand(lab, handle))
        assert row[0] == pytest.approx(float(nn.functional.cross_entropy(scores, y)), rel=1e-5)
        assert row[1] == pytest.approx(float((scores.argmax(1) == y).double().mean()))
    assert found[2, 0] == found[:, 0].min()  # its own model fits a client best


def test_fisher_information_is_the_mean_square_of_the_gradient_in_expectation(small: Small) -> None:
    loaded = small()
    lab = make(loaded)
    model = trained(lab, loaded, 3)
    w1, b1, w2, b2 = (v.double() for v in by_hand(lab, model))
    data = lab._engine.data
    x = torch.from_numpy(data.arrays.x_train[data.parts[3]]).flatten(1).double()
    expected = torch.zeros(8, dtype=torch.float64)
    for sample in x:
        p = forward(sample[None], w1, b1, w2, b2)[0].softmax(0)
        # ∂ log p(y|x) / ∂ W1_j = (W2ᵀ (e_y - p))_j [z_j > 0] x, and E_y of the square of the first is w_jᵀ (diag p - p pᵀ) w_j.
        spread = torch.diag(w2.T @ (torch.diag(p) - torch.outer(p, p)) @ w2)
        expected += spread * (w1 @ sample + b1 > 0) * sample.square().mean() / len(x)
    found = lab.measure(MeasurementChoice("fisher", measurements["fisher"].params(passes=300)), [model], 3)
    np.testing.assert_allclose(found, expected, rtol=0.15)  # 3,600 draws
    once = lab.measure("fisher", [model], 3)
    assert once.shape == (8,)
    assert 0 < np.abs(once - expected.numpy()).max() < expected.max()


def test_fisher_information_needs_layers_before_the_last(small: Small) -> None:
    loaded = small("model.hidden=[]")
    lab = make(loaded)
    with pytest.raises(InputError, match="no layers before the last"):
        lab.measure("fisher", [lab.initial()], 0)


def test_filters_of_convolutions(small: Small) -> None:
    loaded = small("model={kind: cnn, channels: [3, 5], hidden: [7]}")
    lab = make(loaded)
    found = lab.measure("fisher", [lab.initial()], 0)
    assert found.shape == (3 + 5 + 7,)
    assert (found >= 0).all()
    assert (found > 0).any()


class Reversed(nn.Module):
    """A model whose parts are not in the order in which they are called, with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.last = nn.Linear(4, 3)
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.BatchNorm1d(4))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(torch.relu(self.first(x)) * self.scale)
        return result


def test_the_classifier_is_the_layer_that_is_called_last() -> None:
    module = Reversed()
    module.first[2].eval()
    names = [name for name, _ in module.named_parameters()]
    assert [names[i] for i in classifier_of(module, (2, 4))] == ["last.weight", "last.bias"]
    assert module.training
    assert not module.first[2].training
    for name, shape in (("mlp", (1, 8, 8)), ("cnn", (1, 8, 8)), ("lenet5", (1, 28, 28)), ("resnet-1block", (3, 8, 8))):
        model = models[name].function(shape, 10, models[name].params())
        named = list(model.named_parameters())
        assert [named[i][0] for i in classifier_of(model, shape)] == [n for n, _ in named[-2:]]
        assert named[-1][1].shape == (10,)
    with pytest.raises(InputError, match="no layer that could be its classifier"):
        classifier_of(nn.Flatten(), (2, 2))


# The lab.


def test_nothing_is_computed_twice_and_a_what_if_needs_no_engine(small: Small) -> None:
    memo, loaded = Memo(None), small(PUBLIC)
    lab = make(loaded, memo)
    first = lab.measure_all("class-scores", (((trained(lab, loaded, c),), None) for c in range(8)))
    assert lab.trained == 8
    again = make(small(PUBLIC, "topology.links.access.up=1 Mbit/s"), memo)
    second = again.measure_all("class-scores", [((trained(again, loaded, c),), None) for c in range(8)])
    assert again.trained == 0
    assert again.asked == 8
    assert "_engine" not in vars(again)
    assert np.array_equal(first, second)
    assert memo.stats()["measure"][0] == 8


def test_the_same_in_one_go_and_one_by_one(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = small()
    lab, other, few = make(loaded), make(loaded), make(loaded)
    together = lab.measure_all("fit", [((trained(lab, loaded, c),), c) for c in (4, 1, 4)])
    assert lab.trained == 2
    one_by_one = [other.measure("fit", [trained(other, loaded, c)], c) for c in (4, 1, 4)]
    monkeypatch.setattr(lab_module, "MEASURED_BYTES", 1)
    in_parts = few.measure_all("fit", [((trained(few, loaded, c),), c) for c in (4, 1, 4)])
    assert np.array_equal(together, one_by_one)
    assert np.array_equal(together, in_parts)
    assert lab.measure_all("fit", []) == []


def test_models_that_nobody_refers_to_are_freed_part_by_part(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = small()
    lab = make(loaded)
    monkeypatch.setattr(lab_module, "MEASURED_BYTES", 2 * 4 * lab.model_facts.state_size)
    made: list[weakref.ref[Handle]] = []
    most = 0

    def subjects() -> Iterator[tuple[tuple[Handle], int]]:
        nonlocal most
        for c in range(8):
            handle = trained(lab, loaded, c)
            made.append(weakref.ref(handle))
            gc.collect()
            most = max(most, sum(h is not None and h.value is not None for h in (m() for m in made)))
            yield (handle,), c

    lab.measure_all("fit", subjects())
    assert lab.trained == 8
    assert 0 < most <= 2
    assert all(m() is None for m in made)


def test_keys_tell_apart_what_differs_and_only_that(small: Small) -> None:
    def keys(kind: str, client: int | None, *changes: str) -> set[str]:
        loaded = small(PUBLIC, *changes)
        lab = make(loaded)
        lab.measure(kind, [lab.initial()], client)
        return {key for key in lab.memory.entries if key.startswith("measure:")}

    # On public samples or none, who holds the rest does not matter; on a client's own it does.
    for change, others in (
        ("data.partition.alpha=0.4", {"fit"}),
        ("topology.clients=9", {"fit"}),
        ("data.public=4", {"fit", "class-scores"}),
        ("seed=4", {"fit", "class-scores", "classifier-weights"}),
        ("model.hidden=[9]", {"fit", "class-scores", "classifier-weights"}),
        ("method.local.learning_rate=0.2", set()),
        ("topology.edges=4", set()),
    ):
        for kind, client in (("fit", 0), ("class-scores", None), ("classifier-weights", None)):
            changed = keys(kind, client) != keys(kind, client, change)
            assert changed is (kind in others), (change, kind)
    assert keys("fit", 0) != keys("fit", 1)
    assert len(keys("fit", 0) | keys("class-scores", None) | keys("soft-labels", None)) == 3


def test_a_new_version_or_other_parameters_are_measured_anew(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    measurements.names()
    monkeypatch.setattr(measurements, "_plugins", dict(measurements._plugins))
    calls = []

    def count(measured: MeasuredModels, params: NoParams) -> np.ndarray:
        calls.append(len(measured.states))
        return np.array([float(measured.rng.random()), float(len(measured.samples.x))])

    lab = make(small())
    measurements.register("count", facts=MeasurementFacts(on="test", version=1))(count)
    first = lab.measure("count", [lab.initial(), lab.zeros()])
    assert lab.measure("count", [lab.initial(), lab.zeros()]).tolist() == first.tolist()
    assert first[1] == len(lab._engine.data.arrays.x_test)
    assert calls == [2]
    measurements.register("count", facts=MeasurementFacts(on="test", version=2))(count)
    assert lab.measure("count", [lab.initial(), lab.zeros()]).tolist() == first.tolist()  # the stream has the same name
    assert calls == [2, 2]
    one, two = (MeasurementChoice("fisher", measurements["fisher"].params(passes=n)) for n in (1, 2))
    assert not np.array_equal(lab.measure(one, [lab.initial()], 0), lab.measure(two, [lab.initial()], 0))


@pytest.mark.parametrize(("kind", "client"), [("fit", None), ("class-scores", 3), ("classifier-weights", 0)])
def test_a_client_is_named_where_its_samples_are_wanted_and_only_there(
    small: Small, kind: str, client: int | None
) -> None:
    lab = make(small(PUBLIC))
    with pytest.raises(ValueError, match="a measurement on"):
        lab.measure(kind, [lab.initial()], client)


def test_measurements_under_way_are_taken_together_unless_they_are_lost(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = small(PUBLIC)
    lab, by_itself = make(loaded), make(loaded)
    models = [trained(lab, loaded, client) for client in range(4)]
    held = [lab.announce("class-scores", [model]) for model in models]
    del held[3]  # its client was lost
    waves = []
    measure = lab._engine.measure
    monkeypatch.setattr(lab._engine, "measure", lambda jobs: waves.append(len(jobs)) or measure(jobs))
    found = [lab.measure("class-scores", [model]) for model in models]
    assert waves == [3, 1]
    alone = [by_itself.measure("class-scores", [trained(by_itself, loaded, client)]) for client in range(4)]
    assert [a.tobytes() for a in found] == [a.tobytes() for a in alone]
