from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.learning.facts import ModelFacts, model_facts
from emulator.learning.layers import blank_sample
from emulator.learning.operations import kept_for_backward


def facts_of(kind: str, shape: tuple[int, ...], **params: object) -> ModelFacts:
    plugin = models[kind]
    return model_facts(plugin.function(shape, 10, plugin.params.model_validate(params)), shape)


def test_lenet5_by_hand() -> None:
    convolutions = 2 * 25 * (1 * 6 * 24 * 24 + 6 * 16 * 8 * 8)
    layers = 2 * (256 * 120 + 120 * 84 + 84 * 10)
    biases = 6 + 16 + 120 + 84 + 10
    facts = facts_of("lenet5", (1, 28, 28))
    # The sample; what comes out of each ReLU, and of each pooling with the places of its maxima (eight bytes each).
    assert facts.activation_bytes == 4 * (784 + 3456 + 864 + 1024 + 256 + 120 + 84) + 8 * (864 + 256)
    sizes = (25 * 6, 25 * 6 * 16, 256 * 120, 120 * 84, 84 * 10)
    expected = ModelFacts(
        44_426, 44_426 - biases, float(convolutions + layers), 44_426, facts.layers, (), facts.activation_bytes
    )
    assert facts == expected
    assert tuple(size for _, size in facts.layers) == sizes
    assert ModelFacts.from_json(facts.to_json()) == facts


def test_mlp_by_hand() -> None:
    weights = 64 * 30 + 30 * 20 + 20 * 10
    layers = (("1", 64 * 30), ("3", 30 * 20), ("5", 20 * 10))
    expected = ModelFacts(weights + 60, weights, 2.0 * weights, weights + 60, layers, (), 4 * (64 + 30 + 20))
    assert facts_of("mlp", (1, 8, 8), hidden=[30, 20]) == expected


@pytest.mark.parametrize(
    ("kind", "shape", "weights"),
    [
        ("cnn-mnist", (1, 28, 28), (500, 25_000, 8000)),
        ("cnn-fashion-mnist", (1, 28, 28), (400, 12_800, 5120)),
        ("cnn-cifar10", (3, 32, 32), (450, 2400, 4000)),
    ],
)
def test_weights_of_s3_table_1(kind: str, shape: tuple[int, ...], weights: tuple[int, ...]) -> None:
    facts = facts_of(kind, shape)
    assert facts.weights == sum(weights)
    assert tuple(size for _, size in facts.layers) == weights


def shape_for(kind: str) -> tuple[int, ...]:
    if kind in TEXTS:
        return (6,)
    return (1, 6, 40) if kind == "har-cnn" else (3, 32, 32)


TEXTS = ("char-gru", "char-lstm", "word-lstm")


@pytest.mark.parametrize("kind", sorted(set(models.names()) - {"module"}))
def test_operations_are_counted_as_torch_counts_them(kind: str) -> None:
    plugin, shape = models[kind], shape_for(kind)
    module = plugin.function(shape, 10, plugin.params()).eval()
    onednn, torch.backends.mkldnn.enabled = torch.backends.mkldnn.enabled, False
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as theirs:
            module(blank_sample(shape, kind in TEXTS))
    finally:
        torch.backends.mkldnn.enabled = onednn
    assert model_facts(module, shape, kind in TEXTS).forward_flops == theirs.get_total_flops() > 0


def test_other_operations_are_counted_as_torch_counts_them() -> None:
    first = nn.Conv1d(3, 8, 3, padding=1), nn.ConvTranspose1d(8, 8, 1)
    module = nn.Sequential(*first, nn.Flatten(), nn.Linear(64, 3))
    with torch.no_grad(), FlopCounterMode(display=False) as theirs:
        module.eval()(torch.zeros(1, 3, 8))
    assert model_facts(module, (3, 8)).forward_flops == theirs.get_total_flops() > 0


def test_attention_of_torch_is_counted_by_hand() -> None:
    width, steps = 32, 16
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.1, batch_first=True)
    module = nn.Sequential(nn.Embedding(10, width), layer, nn.Flatten(), nn.Linear(steps * width, 10))
    projections = steps * (2 * width * 3 * width + 2 * width * width + 2 * 2 * width * 2 * width)
    looking = 2 * 2 * steps * steps * width
    fast = torch.backends.mha.get_fastpath_enabled()
    assert model_facts(module, (steps,), tokens=True).forward_flops == projections + looking + 2 * steps * width * 10
    assert torch.backends.mha.get_fastpath_enabled() == fast


def test_running_statistics_belong_to_the_state_and_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(), nn.Linear(4, 3))
    module[3].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    facts = model_facts(module, (2, 1, 1))
    assert facts == ModelFacts(
        12 + 8 + 15, 8 + 4 + 12, 2.0 * (8 + 12), 35 + 8, (("0", 8), ("4", 12)), (), 4 * (2 + 4 + 4)
    )  # its counter is no float
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert [m.training for m in module] == [True, True, True, False, True]


def test_shared_parameters_count_once() -> None:
    layer = nn.Linear(5, 5, bias=False)
    assert model_facts(nn.Sequential(layer, nn.ReLU(), layer), (5,)) == ModelFacts(
        25, 25, 100.0, 25, (("0", 25),), (), 4 * (5 + 5)
    )


def test_a_model_without_parameters() -> None:
    assert model_facts(nn.Flatten(), (1, 2, 2)) == ModelFacts(0, 0, 0.0, 0, ())


def test_a_model_that_fails_is_left_in_training() -> None:
    module = nn.Linear(5, 5)
    with pytest.raises(
        InputError, match=r"model: the model cannot take a sample of the shape \[4\]: RuntimeError: mat1"
    ):
        model_facts(module, (4,))
    assert module.training


def test_depthwise_convolutions_are_told_from_others() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),  # depth-wise
        nn.Conv2d(8, 16, 3, padding=1, groups=8),  # depth-wise, two filters a channel
        nn.Conv2d(16, 16, 3, padding=1, groups=4),  # groups of four channels
        nn.ConvTranspose2d(16, 16, 1, groups=16),  # depth-wise
        nn.Flatten(),
        nn.Linear(16 * 16, 2),
    )
    depthwise = 2 * 16 * (8 * 9 + 16 * 9 + 16)
    facts = model_facts(module, (3, 4, 4))
    assert facts.by_kind == (("depthwise", depthwise),)
    assert facts.forward_flops == depthwise + 2 * 16 * (3 * 8 + 16 * 4 * 9) + 2 * 256 * 2
    alone = model_facts(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 2)), (1, 4, 4))
    assert alone.by_kind == ()  # one channel is no group among others


class Reader(nn.Module):
    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent, self.last = recurrent, nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.recurrent, nn.RNNCellBase):
            return self.last(self.recurrent(x[:, 0]))
        return self.last(self.recurrent(x)[0][:, -1])


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_are_told_from_others(kind: type[nn.RNNBase], gates: int) -> None:
    facts = model_facts(Reader(kind(3, 5, batch_first=True)), (6, 3))
    assert facts.by_kind == (("recurrent", 2 * 6 * gates * 5 * (3 + 5)),)
    assert facts.forward_flops == facts.by_kind[0][1] + 2 * 5 * 4


def test_a_recurrent_cell_is_recurrent() -> None:
    assert model_facts(Reader(nn.GRUCell(3, 5)), (6, 3)).by_kind == (("recurrent", 2 * 3 * 5 * (3 + 5)),)


@pytest.mark.parametrize("kind", ["lenet5", "resnet-3block", "mlp", "char-gru"])
def test_as_much_is_kept_of_every_sample_of_a_batch(kind: str) -> None:
    plugin, shape = models[kind], shape_for(kind)
    module = plugin.function(shape, 10, plugin.params())
    kept = []
    for batch in (3, 4):
        with kept_for_backward(module) as found:
            module(blank_sample(shape, kind in TEXTS).repeat(batch, *[1] * len(shape)))
        kept.append(sum(storage.nbytes() for storage in found.values()))
    more = kept[1] - kept[0]
    if kind != "char-gru":  # which oneDNN runs as one operation here
        assert more == model_facts(module, shape).activation_bytes
    assert 0 < 4 * more <= kept[1]


def test_kinds_and_bytes_are_remembered() -> None:
    facts = model_facts(Reader(nn.GRU(3, 5, batch_first=True)), (6, 3))
    assert ModelFacts.from_json(facts.to_json()) == facts
