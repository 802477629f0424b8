"""What is known of models and clients' data without seeing either: size, arithmetic and accuracy of a model, who holds what.

Does not import torch by itself: remembered facts are read without it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from emulator import plugins

if TYPE_CHECKING:
    from torch import nn


FACTS_VERSION = 5  # raise it whenever facts of a model are found in another way
_BIAS = re.compile(r"bias(_[ih]h_l\d+(_reverse)?)?")  # of a recurrent layer there are several


@dataclass(frozen=True)
class ModelFacts:
    """Size and arithmetic of a model.

    ``parameters`` counts what is trained, ``weights`` the same without biases, ``state_size`` the floats
    that make up the whole state (parameters and float buffers, such as running means). ``forward_flops``
    are the operations of one forward pass of one sample in convolutions and matrix products, a
    multiplication with its addition counted as two; what else a model does (activations, pooling,
    normalisation) is small beside them and not counted. ``layers`` are the names and sizes of its weight
    matrices and kernels (what has more than one dimension), in the order of the model. ``by_kind`` are the forward FLOPs
    in layers that are not dense: depth-wise convolutions and recurrent layers, by kind. ``activation_bytes`` are kept of a
    sample for the backward pass, the sample itself among them.
    """

    parameters: int
    weights: int
    forward_flops: float
    state_size: int
    layers: tuple[tuple[str, int], ...]
    by_kind: tuple[tuple[str, float], ...] = ()
    activation_bytes: int = 0

    def to_json(self) -> bytes:
        """The facts as they are remembered."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, stored: bytes) -> ModelFacts:
        """The facts that `to_json` wrote."""
        found = json.loads(stored)
        layers = tuple((str(name), int(size)) for name, size in found["layers"])
        by_kind = tuple((str(kind), float(flops)) for kind, flops in found["by_kind"])
        return cls(**found | {"layers": layers, "by_kind": by_kind})


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the test set, or on test data as some clients hold it; nan where that was not measured.

    ``values`` are those of the task's measures and the mean loss, by name.
    """

    values: Mapping[str, float]

    @classmethod
    def of_classes(cls, accuracy: float, loss: float) -> Evaluation:
        """That of samples that have classes."""
        return cls({"accuracy": accuracy, "loss": loss})

    @property
    def accuracy(self) -> float:
        """The share of samples that are recognised; nan where it was not measured."""
        return self.values.get("accuracy", math.nan)

    @property
    def loss(self) -> float:
        """The mean loss; nan where it was not measured."""
        return self.values.get("loss", math.nan)


@dataclass(frozen=True)
class ClientFacts:
    """What is known of the clients' data without seeing a sample: int64 ``label_counts`` [clients, classes].

    Where labels are numbers, the classes are the kinds that the task makes of them.

    Where the partition makes clusters, int64 [clients]: the true cluster of each client, to judge clusters that are found, and by
    how many quarter turns its images are rotated. Where each client is one person, of whom there are test samples too, ``people``
    numbers them, int64 [clients].
    """

    label_counts: np.ndarray
    clusters: np.ndarray | None = None
    turns: np.ndarray | None = None
    people: np.ndarray | None = None

    @cached_property
    def samples(self) -> np.ndarray:
        """Samples of each client."""
        return np.asarray(self.label_counts.sum(axis=1))


def state_shapes(module: nn.Module) -> list[list[int]]:
    """The shapes of the tensors of a model's state, in its order: parameters, then float buffers."""
    buffers = [b for b in module.buffers() if b.is_floating_point()]
    return [list(tensor.shape) for tensor in (*module.parameters(), *buffers)]


def model_facts(module: nn.Module, shape: tuple[int, ...], tokens: bool = False, key: str = "model") -> ModelFacts:
    """Facts of a model that takes samples of this shape, ``tokens`` or floats.

    Runs it once on one sample; leaves it as it was. Raises `InputError`, about ``key``, where it takes no such sample.
    """
    from emulator.learning.layers import blank_sample
    from emulator.learning.operations import DENSE, Operations, kept_for_backward

    named = list(module.named_parameters())
    parameters = sum(p.numel() for _, p in named)
    biases = sum(p.numel() for name, p in named if _BIAS.fullmatch(name.rpartition(".")[2]))
    buffers = sum(b.numel() for b in module.buffers() if b.is_floating_point())
    training = [m for m in module.modules() if m.training]
    module.eval()  # so that running statistics stay as they are, and a batch of one sample is enough
    try:
        # Recurrent layers and attention are otherwise run as one operation each, which the counter does not know.
        refused = plugins.asking(f"the model cannot take a sample of the shape {list(shape)}", key)
        counted = Operations()
        with refused, _in_small_steps(), kept_for_backward(module) as kept, counted.telling_recurrent(module), counted:
            module(blank_sample(shape, tokens).to(named[0][1].device if named else "cpu"))
    finally:
        for part in training:
            part.training = True
    layers = tuple((name.removesuffix(".weight"), p.numel()) for name, p in named if p.dim() > 1)
    by_kind = tuple((kind, float(flops)) for kind, flops in sorted(counted.flops.items()) if kind != DENSE)
    return ModelFacts(
        parameters,
        parameters - biases,
        float(counted.flops.total()),
        parameters + buffers,
        layers,
        by_kind,
        sum(storage.nbytes() for storage in kept.values()),
    )


@contextlib.contextmanager
def _in_small_steps() -> Iterator[None]:
    """A block in which torch computes layers by matrix products."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    onednn, attention = torch.backends.mkldnn, torch.backends.mha
    before = onednn.enabled, attention.get_fastpath_enabled()
    onednn.enabled = False  # type: ignore[assignment]
    attention.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        onednn.enabled = before[0]
        attention.set_fastpath_enabled(before[1])
