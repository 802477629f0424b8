"""Devices: nothing is left behind on the CPU, and what is computed elsewhere is known by other keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_device import META, MixedDevicesError, OneDevice, on_meta
from torch import Tensor

from emulator.contracts.learning import (
    DataSetFacts,
    LocalRuleChoice,
    MeasurementChoice,
    data_sets,
    local_rules,
    measurements,
    models,
)
from emulator.learning.data.arrays import ArraySet
from emulator.learning.distillation import DistillationParams
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.learning.recovery import SMALLEST_SIDE
from emulator.registry import NoParams
from emulator.rng import stream
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
Having = Callable[..., Loaded]
CLIENTS, EACH, CLASSES = 8, 6, 4

IMAGES = {
    "mlp": (1, 8, 8),
    "cnn": (1, 8, 8),
    "resnet-1block": (3, 8, 8),
    "resnet-3block": (3, 8, 8),
    "vgg11": (3, 32, 32),
}
IMAGES |= {"audio-cnn": (1, 9, 6), "har-cnn": (6, 1, 40), "resnet18": (3, 32, 32), "cnn-hfldd": (3, 32, 32)}
TEXTS = ("char-lstm", "char-gru", "word-lstm")
SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": [4], "dropout": 0.5}, "cnn": {"channels": [4], "hidden": [6], "dropout": 0.5},
    **{name: {"hidden": 8, "layers": 1} for name in TEXTS},
}  # fmt: skip
BUNDLED = [name for name in models.names() if name != "module"]


def made_up(shape: tuple[int, ...], text: bool) -> ArraySet:
    """A few samples of a shape, of as many owners as there are clients."""
    rng, count = stream(1, "samples"), CLIENTS * EACH
    each = [rng.integers(0, CLASSES, (n, *shape)) if text else rng.normal(size=(n, *shape)) for n in (count, CLIENTS)]
    x, x_test = (a if text else a.astype(np.float32) for a in each)
    owners = np.repeat(np.arange(CLIENTS), EACH)
    names = tuple(f"owner {n}" for n in range(CLIENTS))
    labels, tested = np.arange(count) % CLASSES, np.arange(CLIENTS)
    return ArraySet(x, labels, x_test, tested % CLASSES, CLASSES, owners, names, tested)


def nothing_drawn(weights: Tensor, *args: object, **more: object) -> None:
    """Weights of zeros that take no memory: of some models there are more than a hundred million."""
    weights.data = weights.data.new_zeros(()).expand(weights.shape)


@pytest.fixture
def having(small: Small, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Loaded]:
    """A small scenario with a model, and made-up samples for it."""

    def make(model: str, *changes: str) -> Loaded:
        text = model in TEXTS
        for name in ("kaiming_uniform_", "kaiming_normal_", "uniform_", "normal_"):
            monkeypatch.setattr(torch.nn.init, name, nothing_drawn)
        samples = made_up((4,) if text else IMAGES.get(model, (1, 28, 28)), text)
        data_sets.names()
        monkeypatch.setattr(data_sets, "_plugins", dict(data_sets._plugins))

        @data_sets.register("made-up-samples", facts=DataSetFacts(fingerprint=lambda params: model, owners=True))
        def made_up_samples(params: NoParams) -> ArraySet:
            """Made-up samples."""
            return samples

        own = {"kind": model, **SIZES.get(model, {})}
        return small("data.set=made-up-samples", "data.partition=natural", f"model={own}", "data.public=1", *changes)

    return make


def rule(kind: str) -> LocalRuleChoice:
    """A local rule that takes several steps, with all that a step may do."""
    common = {"epochs": 1, "batch_size": 4, "momentum": 0.5, "weight_decay": 0.01, "clip": 1.0}
    return LocalRuleChoice(kind, local_rules[kind].params(learning_rate=0.1, **common))


SHORT: dict[str, dict[str, Any]] = {
    "gan-recovery": {"steps": 2, "batch_size": 3, "samples": 4, "images": 2}, "text-fisher": {"epochs": 1}
}  # fmt: skip
CASES = {"nothing": None, "client": 1, "everybody": 1, "public": None, "test": None}


def trained_on(mode: OneDevice, loaded: Loaded, kind: str) -> tuple[Lab, list[Handle]]:
    """A lab that has tried out its model, trained two clients on the device, and evaluated one; their models."""
    lab = Lab(loaded.scenario, RunMemory(Memo(None)))
    lab.try_out()
    before = mode.seen["aten.sub_"]
    memory = None if rule(kind)().remember is None else (lab.zeros(), lab.zeros())
    asked = [LocalTraining(lab.initial(), client, rule(kind), 1, memory=memory) for client in range(2)]
    trained = [lab.train(each).model for each in asked]
    lab.evaluate(trained[0])
    assert lab.value(trained[0]).device.type == "cpu"
    assert lab._engine._training.x.device == META
    assert mode.seen["aten.sub_"] >= before + 2  # weights that a step has moved
    return lab, trained


@pytest.mark.parametrize("model", BUNDLED)
def test_no_bundled_model_mixes_devices_when_it_is_trained_evaluated_and_measured(
    having: Having, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    loaded = having(model)
    text, tiny = model in TEXTS, min(IMAGES.get(model, (28, 28))[-2:]) < SMALLEST_SIDE
    with on_meta(monkeypatch) as mode:
        lab, (one, other) = trained_on(mode, loaded, "sgd")
        for kind in measurements.names():
            if (kind == "text-fisher" and not text) or (kind == "gan-recovery" and (text or tiny)):
                continue
            chosen = MeasurementChoice(kind, measurements[kind].params(**SHORT.get(kind, {})))
            read = mode.reads
            states = [] if kind == "text-fisher" else [one, other, one, other, one]
            lab.measure(chosen, states, CASES[measurements[kind].facts.on])
            assert mode.reads > read, kind
        lab.close()


@pytest.mark.parametrize("model", ["cnn", "char-lstm", "resnet18"])
@pytest.mark.parametrize("kind", local_rules.names())
def test_no_rule_mixes_devices_in_a_stack_or_alone(
    having: Having, monkeypatch: pytest.MonkeyPatch, model: str, kind: str
) -> None:
    loaded = having(model)
    with on_meta(monkeypatch) as mode:
        lab, trained = trained_on(mode, loaded, kind)
        lab.evaluate(lab.combine(trained, [0.75, 0.25]))
        assert lab._engine._trainer.stacks(4) == (model != "resnet18")
        lab.close()


@pytest.mark.parametrize("model", ["cnn", "resnet18"])
@pytest.mark.parametrize("soft", [False, True])
def test_neither_distilled_nor_poisoned_samples_mix_devices(
    having: Having, monkeypatch: pytest.MonkeyPatch, model: str, soft: bool
) -> None:
    loaded = having(model)
    how = DistillationParams(images=2, steps=2, batch_size=3, learn_labels=soft)
    with on_meta(monkeypatch) as mode:
        lab = Lab(loaded.scenario, RunMemory(Memo(None)))
        lab.poison({0: ((0, 1),)})
        extra = tuple(lab.distil(client, how) for client in (1, 2))
        lab.value(lab.train(LocalTraining(lab.initial(), 0, rule("sgd"), 1, extra=extra)).model)
        assert mode.seen["aten.linalg_cholesky_ex"] == 4  # steps of two clients
        assert mode.seen["aten.index_put_"] >= 4  # samples and labels that others brought, and labels exchanged
        assert lab._engine._trainer.stacks(4) == (model == "cnn")
        lab.close()


def test_operations_on_two_devices_are_noticed() -> None:
    with OneDevice() as mode, torch.inference_mode():
        there, here = torch.ones(2, device=META), torch.ones(2)
        assert (there * torch.tensor(2.0)).device == META  # 0-dimensional: it may be anywhere
        there.copy_(here)
        assert mode.reads == 0
        assert there.cpu().tolist() == [0.0, 0.0]
        assert mode.reads == 1
        for mixed in (lambda: there + here, lambda: there[torch.tensor([0])], lambda: torch.cat([there, here])):
            with pytest.raises(MixedDevicesError):
                mixed()


RUNS = {
    "distilled": ("method={preset: hfldd, training: {images: 2, steps: 2, batch_size: 2}}",),
    "poisoned": ("attacks={kind: label-flip, superclients: 1.0, clients: 1.0, swap: [[0, 2]]}",),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_whole_run_on_a_device(having: Having, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    loaded = having("cnn", *RUNS[name])
    with on_meta(monkeypatch) as mode:
        assert execute(loaded, tmp_path, Memo(None))["status"] == "complete"
    assert mode.seen["aten.sub_"]
