"""Networks that train on made-up samples, to find out how fast this host is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.learning.facts import ModelFacts, model_facts
from emulator.registry import Params

if TYPE_CHECKING:
    from torch import nn

DEPTHWISE_PROBE = "depth-wise blocks"  # there is no such model among those of scenarios
IMAGE, READINGS, TEXT = (3, 32, 32), (1, 6, 128), (80,)  # a photo, six sensors over time, tokens
CLASSES, VOCABULARY = 10, 80


@dataclass(frozen=True)
class Trainable:
    """A network to be timed: what is known of it, the shape of its samples, and a function that trains it.

    ``train(batch_size, batches)`` trains on so many batches of such a size.
    """

    facts: ModelFacts
    shape: tuple[int, ...]
    train: Callable[[int, int], None]


def parameters_of(name: str) -> Params | None:
    """The default parameters of a model, None for the probe. Raises `InputError` where it has none, or is not known."""
    if name == DEPTHWISE_PROBE:
        return None
    plugin = models[name]
    try:
        return plugin.params()
    except ValidationError:
        raise InputError(f"model '{name}' needs parameters, so it cannot be used here") from None


def trainable(name: str, largest_batch: int) -> Trainable:
    """A model with default parameters, or the probe of depth-wise layers, on the first kind of samples that it takes."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return trainable_module(*_module(name), largest_batch)


def trainable_module(module: nn.Module, shape: tuple[int, ...], largest_batch: int) -> Trainable:
    """A module that takes samples of one of the shapes above, or other images."""
    import torch

    tokens = shape == TEXT
    facts = model_facts(module, shape, tokens)
    generator = torch.Generator().manual_seed(0)
    classes = VOCABULARY if tokens else CLASSES
    labels = torch.randint(classes, (largest_batch,), generator=generator)
    if tokens:
        samples = torch.randint(classes, (largest_batch, *shape), generator=generator)
    else:
        samples = torch.randn(largest_batch, *shape, generator=generator)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)
    module.train()

    def train(batch_size: int, batches: int) -> None:
        for _ in range(batches):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(samples[:batch_size]), labels[:batch_size])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return Trainable(facts, shape, train)


def _module(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    params = parameters_of(name)
    if params is None:
        return _depthwise_probe(), IMAGE
    for shape in (IMAGE, READINGS):
        try:
            return models[name].function(shape, CLASSES, params), shape
        except InputError:
            continue
    return models[name].function(TEXT, VOCABULARY, params), TEXT


def _depthwise_probe() -> nn.Module:
    """Inverted residual blocks without their residuals (MobileNetV2, Sandler et al. 2018): most of their time is depth-wise."""
    from torch import nn

    def convolution(inputs: int, outputs: int, kernel: int, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = convolution(3, 16, 3)
    for inputs, outputs in ((16, 24), (24, 32), (32, 64)):
        wide = 4 * inputs
        layers += [*convolution(inputs, wide, 1), *convolution(wide, wide, 3, wide), *convolution(wide, outputs, 1)]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))
