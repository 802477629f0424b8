"""The networks that Task2Vec reads samples with, its probes: how they are trained first, and the one that reads texts (S4 §IV-C).

S4 takes networks that were trained on other data: a ResNet-18 for images, one like GPT-2 (Radford et al. 2019) for text. Here
images are read by the scenario's own model, and text by a small transformer of GPT-2's form (attention to what came before,
layers normalised at their start), whose first weights are the same in every scenario whatever its seed. `ProbeParams` say on
which data set a probe is trained before clients get it; without them it has random weights. Clients fit its last layer, the
classifier, alone.

Does not import torch at its top: what it costs a device is known without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from emulator.contracts.learning import DataSet, LocalParams, LocalRuleChoice
from emulator.learning.public import about_set

if TYPE_CHECKING:
    from torch import Tensor, nn

    from emulator.learning.measurements import TextFisherParams

WIDTH, HEADS, BLOCKS, INNER = 32, 2, 2, 128
BATCH = 256  # texts that are read at once
SEED = 0
KEY = "method.estimator.probe"


class ProbeParams(LocalParams):
    """On which data set, and how, a probe is trained before clients get it."""

    data: DataSet = Field(
        {"kind": "digits"},
        validate_default=True,
        description="on whose training samples it is trained; images are made as large as the clients'",
    )

    def key(self) -> list[Any]:
        """What determines the training, for content keys. Raises `InputError` where the data set is not there."""
        with about_set(f"{KEY}.data"):
            content = self.data.plugin.facts.fingerprint(self.data.params)
        return [self.data.identity(), content, self.rule.identity()]

    @property
    def rule(self) -> LocalRuleChoice:
        """The training as a local update rule."""
        return LocalRuleChoice("sgd", LocalParams(**{name: getattr(self, name) for name in LocalParams.model_fields}))


def transformer(length: int, classes: int) -> nn.Sequential:
    """The probe for texts of so many tokens: embedding, blocks, the last step, and the classifier, which begins at zero."""
    import torch
    from torch import nn

    from emulator.learning.blocks import Attention, LastStep, PlacedEmbedding, Residual

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layers: list[nn.Module] = [PlacedEmbedding(classes, length, WIDTH)]
        for _ in range(BLOCKS):
            looking = nn.Sequential(nn.LayerNorm(WIDTH), Attention(WIDTH, HEADS))
            thinking = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))
            layers += [Residual(looking, nn.Identity()), Residual(thinking, nn.Identity())]
        last = nn.Linear(WIDTH, classes)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(*layers, LastStep(), nn.LayerNorm(WIDTH), last)


def transformer_parameters(length: int, classes: int) -> int:
    """How many parameters the probe has."""
    norm = 2 * WIDTH
    attention = 3 * WIDTH * WIDTH + 3 * WIDTH + WIDTH * WIDTH + WIDTH
    inner = WIDTH * INNER + INNER + INNER * WIDTH + WIDTH
    blocks = BLOCKS * (2 * norm + attention + inner)
    return (classes + length) * WIDTH + blocks + norm + classifier_parameters(classes)


def classifier_parameters(classes: int) -> int:
    """How many of them are the classifier's."""
    return (WIDTH + 1) * classes


def transformer_flops(length: int, classes: int) -> float:
    """Operations of reading one text, counted as `emulator.learning.facts.ModelFacts` counts them."""
    attention = (
        4 * length * WIDTH * WIDTH + 2 * length * length * WIDTH
    )  # its layers; who looks where, and what is seen there
    inner = 2 * length * WIDTH * INNER
    return 2.0 * (BLOCKS * (attention + inner) + WIDTH * classes)


def read(extractor: nn.Module, x: Tensor) -> Tensor:
    """The features [n, WIDTH] of texts."""
    import torch

    with torch.no_grad():
        return torch.cat([extractor(part) for part in x.split(BATCH)])  # type: ignore[no-untyped-call]


def fit_classifier(
    last: nn.Module, features: Tensor, labels: Tensor, params: TextFisherParams, rng: np.random.Generator
) -> Tensor:
    """Fits the classifier by gradient steps on batches, in place; the scores [n, classes] that it gives then."""
    import torch
    from torch.nn import functional

    weights = list(last.parameters())
    velocity = [torch.zeros_like(w) for w in weights]
    for _ in range(params.epochs):
        order = torch.from_numpy(rng.permutation(len(labels))).to(labels.device)
        for batch in order.split(params.batch_size):  # type: ignore[no-untyped-call]
            loss = functional.cross_entropy(last(features[batch]), labels[batch])
            for weight, speed, gradient in zip(weights, velocity, torch.autograd.grad(loss, weights), strict=True):
                weight.data.sub_(speed.mul_(params.momentum).add_(gradient), alpha=params.learning_rate)
    with torch.no_grad():
        scores: Tensor = last(features)
    return scores
