"""Measurements: small arrays that are read off models and data. `Lab.measure` takes them, when needed, and remembers them.

A measurement is a function ``(measured, params) -> array`` that may use what `MeasuredModels` holds and nothing else: the states
of one or more models, samples, and a random stream of its own. Tensors are on the device of the run, which may be a GPU.
Facts that it declares about itself:

- ``on``: whose samples they come with: ``"client"`` (one client's own), ``"everybody"`` (one client's own, and apart from them
  those of all others, with features to compare images by), ``"public"`` (the public ones, in the order of the data set),
  ``"test"`` (those of the evaluations) or ``"nothing"`` (the array depends on the models alone);
- ``version``: a number to be raised with any change to what the function computes, because results are remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.encodings import EncodingKind, Layout
from emulator.contracts.learning import MeasurementFacts, measurements
from emulator.errors import InputError
from emulator.learning.probe import ProbeParams
from emulator.learning.recovery import RecoveryParams
from emulator.learning.transmission import Pipeline, Transmission
from emulator.registry import NoParams, Params

if TYPE_CHECKING:
    from torch import Tensor, nn

    from emulator.learning.measured_models import MeasuredModels


@measurements.register("classifier-weights", facts=MeasurementFacts(on="nothing", version=1))
def classifier_weights(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """The parameters of the last layer, laid end to end."""
    parameters = measured.parameters(measured.states[0])
    return np.concatenate([parameters[name].reshape(-1).cpu().numpy() for name in measured.classifier()])


@measurements.register("class-scores", facts=MeasurementFacts(on="public", version=1))
def class_scores(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """What samples of each class get for their own class: mean score and mean softmax score [2, classes].

    The second row is S1's signature vector; the softmax of the first is S4's confidence vector (Eq. 2). A class of which there is
    no public sample (of a text some are too rare) gets 0.
    """
    scores, labels = measured.scores(measured.states[0]).double(), measured.samples.y
    own = [values.gather(1, labels[:, None])[:, 0] for values in (scores, scores.softmax(1))]
    members = [labels == c for c in range(measured.classes)]
    return np.array([[float(row[m].mean()) if bool(m.any()) else 0.0 for m in members] for row in own])


@measurements.register("length", facts=MeasurementFacts(on="nothing", version=1))
def length(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """The Euclidean length of the parameters, as a vector: of an update, how far it goes [1]."""
    return np.array([float(measured.weights(measured.states[0]).norm())])


class EncodedSizeParams(Params):
    """Which transmission: its encodings, whose it is, and the shapes that travel."""

    encodings: tuple[EncodingKind, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
    sender: str = ""
    place: tuple[int, ...] = ()

    @classmethod
    def of(cls, sent: Transmission) -> EncodedSizeParams:
        """Those of a transmission."""
        return cls.model_construct(
            encodings=sent.pipeline.chosen,
            shapes=sent.layout.shapes,
            seed=sent.seed,
            sender=sent.sender,
            place=sent.place,
        )

    def transmission(self) -> Transmission:
        """The transmission."""
        return Transmission(Pipeline(self.encodings), Layout(self.shapes), self.seed, self.sender, self.place)


@measurements.register("encoded-size", EncodedSizeParams, MeasurementFacts(on="nothing", version=1))
def encoded_size(measured: MeasuredModels, params: EncodedSizeParams) -> np.ndarray:
    """The bytes of a model, encoded as it travels, with what else its encodings need [1]."""
    return np.array([params.transmission().length_of(*(state.cpu() for state in measured.states))])


@measurements.register("cosines", facts=MeasurementFacts(on="nothing", version=1))
def cosines(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """The cosine of the first vector with each of the others: of all parameters, then of each layer [others, 1 + layers].

    A layer is a weight matrix or kernel, without its bias (S3 Table I). The cosine with a vector of zeros is 0.
    """
    first, *others = [[measured.weights(state), *measured.layers(state)] for state in measured.states]
    return np.array([[_cosine(a, b) for a, b in zip(first, other, strict=True)] for other in others])


class TrendsParams(Params):
    """Which weights count."""

    changed_by: Annotated[float, Field(ge=0)] = Field(
        0.0, description="only weights count by whose update two further updates differ by more than this (ξ)"
    )


@measurements.register("trends", TrendsParams, MeasurementFacts(on="nothing", version=1))
def trends(measured: MeasuredModels, params: TrendsParams) -> np.ndarray:
    """How three updates in a row, the latest last, agree in each layer [layers, 4] (S3 Eqs. 12, 13 and 19).

    The cosines of the second with the third, of the first with the second, and of the first with the third, and how many weights
    were counted. Two further updates select those: weights by which the two differ by more than ``changed_by``; all of a layer
    where there are none.
    """
    first, second, third = (measured.layers(state) for state in measured.states[:3])
    select = [measured.layers(state) for state in measured.states[3:]]
    rows = []
    for number, (a, b, c) in enumerate(zip(first, second, third, strict=True)):
        if select:
            chosen = (select[0][number] - select[1][number]).abs() > params.changed_by
            if bool(chosen.any()):
                a, b, c = a[chosen], b[chosen], c[chosen]
        rows.append([_cosine(b, c), _cosine(a, b), _cosine(a, c), float(len(a))])
    return np.array(rows)


def _cosine(a: Tensor, b: Tensor) -> float:
    lengths = float(a.norm() * b.norm())
    return float(a @ b) / lengths if lengths else 0.0


@measurements.register("soft-labels", facts=MeasurementFacts(on="public", version=1))
def soft_labels(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """Softmax scores [samples, classes] of the public samples (S5 §III-A)."""
    return np.asarray(measured.scores(measured.states[0]).softmax(1).cpu().numpy())


@measurements.register("fit", facts=MeasurementFacts(on="client", version=1))
def fit(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """How well each of several models fits a client's samples: mean loss and, where they have classes, accuracy [models, 2]."""
    labels, loss = measured.samples.y, measured.task().loss
    rows = []
    for state in measured.states:
        scores = measured.scores(state).double()
        right = float((scores.argmax(1) == labels).double().mean()) if labels.dim() == 1 else np.nan
        rows.append([float(loss(scores, labels, "mean")), right])
    return np.array(rows)


@measurements.register("squared-loss", facts=MeasurementFacts(on="client", version=1))
def squared_loss(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """How much a client's samples have to teach each of several models: the mean of their squared losses [models]."""
    labels, loss = measured.samples.y, measured.task().loss
    each = [loss(measured.scores(state).double(), labels, "none") for state in measured.states]
    return np.array([float(losses.square().mean()) for losses in each])


class ByLabelParams(Params):
    """How the samples are rotated."""

    turns: Annotated[int, Field(ge=0, le=3)] = Field(0, description="quarter turns, as `numpy.rot90` turns images")


@measurements.register("by-label", ByLabelParams, MeasurementFacts(on="test", version=1))
def by_label(measured: MeasuredModels, params: ByLabelParams) -> np.ndarray:
    """Of each label: its test samples, how many of them are recognised, and the sum of their cross-entropies [3, classes]."""
    import torch

    if params.turns:
        x = torch.rot90(measured.samples.x, params.turns, (2, 3)).contiguous()
        measured = replace(measured, samples=replace(measured.samples, x=x))
    return _counted(measured, measured.samples.y.cpu().numpy(), measured.classes)


@measurements.register("by-owner", facts=MeasurementFacts(on="test", version=1))
def by_owner(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """As by-label, of each owner [3, owners]: test samples, how many are recognised, and the sum of their cross-entropies."""
    owners = measured.samples.owners
    assert owners is not None
    return _counted(measured, owners + 1, int(owners.max()) + 2)[:, 1:]  # those who have no training samples are -1


def _counted(measured: MeasuredModels, kinds: np.ndarray, count: int) -> np.ndarray:
    """Of each kind of test samples: how many there are, how many are recognised, and the sum of their cross-entropies."""
    from torch.nn import functional

    scores, labels = measured.scores(measured.states[0]).double(), measured.samples.y
    right, losses = scores.argmax(1) == labels, functional.cross_entropy(scores, labels, reduction="none")
    rows = (np.ones(len(labels)), right.cpu().numpy(), losses.cpu().numpy())
    return np.stack([np.bincount(kinds, row, count) for row in rows])


class FisherParams(Params):
    """How long labels are drawn for."""

    passes: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="passes over the samples, each with new labels")


@measurements.register("fisher", FisherParams, MeasurementFacts(on="client", version=1))
def fisher(measured: MeasuredModels, params: FisherParams) -> np.ndarray:
    """The diagonal Fisher information of the feature extractor on a client's samples, averaged over each filter.

    The mean square of the gradient of log p(y | x) by the weights (S4 Eq. 3), for labels y that are drawn from the model's own
    prediction (Achille et al. 2019, Task2Vec). A filter is one output of a convolution or a linear layer before the last.
    Raises `InputError` where the model has none.
    """
    module, last = measured.load(measured.states[0]), set(measured.classifier())
    weights = [p for name, p in module.named_parameters() if name not in last and p.dim() > 1]
    if not weights:
        raise InputError("the model has no layers before the last, of which Fisher information could be taken", "model")
    return _diagonal(module, weights, measured.scores(measured.states[0]), measured, params.passes)


class TextFisherParams(FisherParams):
    """How the classifier of the transformer that reads texts is fitted to a client's, before labels are drawn from it."""

    epochs: Annotated[int, Field(ge=1)] = Field(10, description="passes over the client's samples")
    batch_size: Annotated[int, Field(ge=1)] = Field(32, description="samples a step")
    learning_rate: Annotated[float, Field(gt=0)] = Field(0.05, description="step size")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum")
    probe: ProbeParams | None = Field(None, description="how the transformer is trained first; without it, not at all")
    probe_key: str = Field(
        "", description="what determines that training beside the parameters: the content of its data set"
    )


@measurements.register("text-fisher", TextFisherParams, MeasurementFacts(on="client", version=1))
def text_fisher(measured: MeasuredModels, params: TextFisherParams) -> np.ndarray:
    """As ``fisher``, of a small transformer that reads the client's texts, after fitting its classifier to them. Takes no models.

    A unit is one output of a linear layer before the last, a token, or a place in the text (see `emulator.learning.probe`).
    """
    from emulator.learning.probe import fit_classifier, read, transformer
    from emulator.learning.probe_training import trained_transformer

    size = measured.samples.x.shape[1], measured.classes
    module = transformer(*size) if params.probe is None else trained_transformer(params.probe, params.probe_key, *size)
    module.to(measured.samples.x.device)
    features = read(module[:-1], measured.samples.x)
    scores = fit_classifier(module[-1], features, measured.samples.y, params, measured.rng)
    weights = [p for p in module[:-1].parameters() if p.dim() > 1]
    return _diagonal(module, weights, scores, measured, params.passes)


def _diagonal(
    module: nn.Module, weights: Sequence[Tensor], scores: Tensor, measured: MeasuredModels, passes: int
) -> np.ndarray:
    """The diagonal Fisher information of weight matrices and kernels, averaged over the weights of each output.

    ``scores`` are those that the module gives the samples. Labels are drawn from them on the CPU.
    """
    import torch
    from torch.nn import functional

    chances = scores.double().softmax(1).cpu().cumsum(1)
    total = torch.zeros(sum(len(w) for w in weights), dtype=torch.float64, device=scores.device)
    for _ in range(passes):
        drawn = torch.from_numpy(measured.rng.random((len(chances), 1))) * chances[:, -1:]
        labels = torch.searchsorted(chances, drawn, right=True)[:, 0].to(scores.device)
        for x, y in zip(measured.samples.x.split(1), labels.split(1), strict=True):  # type: ignore[no-untyped-call]
            gradients = torch.autograd.grad(functional.cross_entropy(module(x), y), weights)
            total += torch.cat([g.square().flatten(1).mean(1) for g in gradients])
    return np.asarray((total / (passes * max(1, len(chances)))).cpu().numpy())


@measurements.register("gan-recovery", RecoveryParams, MeasurementFacts(on="everybody", version=2))
def gan_recovery(measured: MeasuredModels, params: RecoveryParams) -> np.ndarray:
    """What a client recovers of others' images with a generator trained against a model: a `Recovered`, packed."""
    from emulator.learning.gan import recover

    return recover(measured, params).to_array()
