"""Tasks: the loss that local training makes small, and the measures of how good a model is.

Each is a function from its parameters to a `TaskRule`. What tasks declare about themselves is a
`emulator.contracts.tasks.TaskFacts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from emulator.contracts.tasks import TaskFacts, TaskParams, TaskRule, tasks
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure

if TYPE_CHECKING:
    from torch import Tensor

MACRO_F1 = Measure("macro_f1", share=True, title="macro-F1")
MAE = Measure("mae", "lower", title="mean absolute error")
R2 = Measure("r2", title="R²")
PERPLEXITY = Measure("perplexity", "lower")


class ClassificationParams(TaskParams):
    """What is measured."""

    measures: tuple[Literal["accuracy", "macro_f1"], ...] = Field(
        ("accuracy",),
        min_length=1,
        description="columns of metrics.csv; the first is what targets mean, and what is drawn",
    )


@tasks.register("classification", ClassificationParams, TaskFacts(measures=(ACCURACY, MACRO_F1)))
def classification(params: ClassificationParams) -> TaskRule:
    """One class for each sample: cross-entropy; accuracy, and macro-F1 where it is asked for."""
    return _of_classes(tuple(params.measures))


class NextTokenParams(TaskParams):
    """What is measured."""

    measures: tuple[Literal["accuracy", "perplexity"], ...] = Field(
        ("accuracy", "perplexity"),
        min_length=1,
        description="columns of metrics.csv; the first is what targets mean, and what is drawn",
    )


@tasks.register("next-token", NextTokenParams, TaskFacts(measures=(ACCURACY, PERPLEXITY)))
def next_token(params: NextTokenParams) -> TaskRule:
    """The token that follows a text: cross-entropy; accuracy, and perplexity (e to the mean cross-entropy)."""
    return _of_classes(tuple(params.measures))


def _of_classes(wanted: tuple[str, ...]) -> TaskRule:
    import torch
    from torch.nn import functional

    from emulator.learning.stepping import loss_gradient

    def counts(scores: Tensor, labels: Tensor) -> np.ndarray:
        guess, classes = scores.argmax(1), scores.shape[1]
        right = float((guess == labels).sum())
        if "macro_f1" not in wanted:
            return np.array([right])
        each = (labels[guess == labels], guess, labels)  # of each class: recognised, guessed, there
        return np.concatenate([[right], *(torch.bincount(of, minlength=classes).cpu().numpy() for of in each)])

    def measures(counts: np.ndarray, loss: float, samples: int) -> Mapping[str, float]:
        found = {"accuracy": float(counts[0]) / samples, "perplexity": math.exp(min(loss, 700.0))}
        if "macro_f1" in wanted:
            found["macro_f1"] = _mean_f1(*counts[1:].reshape(3, -1))
        return found

    return TaskRule(
        lambda scores, labels, reduction: functional.cross_entropy(scores, labels, reduction=reduction),
        counts,
        measures,
        loss_gradient,
    )


def _mean_f1(right: np.ndarray, guessed: np.ndarray, there: np.ndarray) -> float:
    """The mean F1 over all that is there or was guessed at all; of what is neither, there is none."""
    known = guessed + there > 0
    return float(np.mean(2 * right[known] / (guessed + there)[known])) if known.any() else math.nan


class MultiLabelParams(TaskParams):
    """What is measured, and from which score on a sample is said to have a label."""

    measures: tuple[Literal["macro_f1", "accuracy"], ...] = Field(
        ("macro_f1", "accuracy"),
        min_length=1,
        description="columns of metrics.csv; the first is what targets mean, and what is drawn. The accuracy is the share of "
        "single labels that are right",
    )


@tasks.register(
    "multi-label",
    MultiLabelParams,
    TaskFacts(
        measures=(MACRO_F1, ACCURACY),
        labels="numbers",
        kinds=lambda params, outputs: None if outputs is None else outputs + 1,
        kind_of=lambda labels, params: _first_label(labels),
    ),
)
def multi_label(params: MultiLabelParams) -> TaskRule:
    """Any number of labels for each sample (a row of 0 and 1): binary cross-entropy; macro-F1 and accuracy of single labels."""
    from torch.nn import functional

    from emulator.learning.stack_functions import Evenly

    def loss(scores: Tensor, labels: Tensor, reduction: str) -> Tensor:
        each = functional.binary_cross_entropy_with_logits(scores, labels, reduction="none").mean(-1)
        return _reduced(each, reduction)

    def gradient(scores: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        with Evenly():
            shares = scores.sigmoid()
        return shares.sub_(labels).mul_(weight.unsqueeze(-1) / labels.shape[-1])

    def counts(scores: Tensor, labels: Tensor) -> np.ndarray:
        guess, there = scores > 0, labels > 0.5
        each = (guess & there, guess, there, guess == there)
        return np.concatenate([of.sum(0).cpu().numpy() for of in each]).astype(np.float64)

    def measures(counts: np.ndarray, loss: float, samples: int) -> Mapping[str, float]:
        right, guessed, there, same = counts.reshape(4, -1)
        return {"macro_f1": _mean_f1(right, guessed, there), "accuracy": float(same.sum()) / (samples * len(same))}

    return TaskRule(loss, counts, measures, gradient)


def _first_label(labels: np.ndarray) -> np.ndarray:
    """The first label that a sample has; of one that has none, a kind of its own behind all labels."""
    if not np.isin(labels, (0, 1)).all():
        raise InputError("'multi-label' needs labels 0 or 1, and the set has other numbers; take 'regression'", "task")
    found: np.ndarray = np.where(labels.any(axis=1), labels.argmax(axis=1), labels.shape[1]).astype(np.int64)
    return found


class RegressionParams(TaskParams):
    """What is measured, and into how many kinds samples are divided by their targets."""

    measures: tuple[Literal["mae", "r2"], ...] = Field(
        ("mae", "r2"),
        min_length=1,
        description="columns of metrics.csv; the first is what targets mean, and what is drawn",
    )
    bins: Annotated[int, Field(ge=1, le=1000)] = Field(
        10,
        description="kinds of samples, for partitions and label counts: as many with low as with high targets (quantiles of the "
        "first target of the training samples)",
    )


@tasks.register(
    "regression",
    RegressionParams,
    TaskFacts(
        measures=(MAE, R2),
        labels="numbers",
        kinds=lambda params, outputs: params.bins,
        kind_of=lambda labels, params: _bin(labels[:, 0], params.bins),
    ),
)
def regression(params: RegressionParams) -> TaskRule:
    """Numbers for each sample: squared error (the mean over its numbers); mean absolute error, and R²."""

    def loss(found: Tensor, wanted: Tensor, reduction: str) -> Tensor:
        return _reduced((found - wanted).square().mean(-1), reduction)

    def counts(found: Tensor, wanted: Tensor) -> np.ndarray:
        found, wanted = found.double(), wanted.double()
        off = found - wanted
        each = (off.abs().sum(0), off.square().sum(0), wanted.sum(0), wanted.square().sum(0))
        return np.concatenate([of.cpu().numpy() for of in each])

    def measures(counts: np.ndarray, loss: float, samples: int) -> Mapping[str, float]:
        off, squares, total, all_squares = counts.reshape(4, -1)
        spread = all_squares - total**2 / samples
        there = spread > 1e-12 * all_squares  # of what does not vary, nothing can be explained: 0
        share = np.where(there, 1 - squares / np.where(there, spread, 1), 0.0)
        return {"mae": float(off.mean()) / samples, "r2": float(share.mean())}

    def gradient(found: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
        return (found - wanted).mul_(weight.unsqueeze(-1) * (2 / wanted.shape[-1]))

    return TaskRule(loss, counts, measures, gradient)


def _bin(targets: np.ndarray, count: int) -> np.ndarray:
    """The quantile of each target, from 0: of equal targets the same."""
    edges = np.quantile(targets.astype(np.float64), np.arange(1, count) / count)
    found: np.ndarray = np.searchsorted(edges, targets, side="right").astype(np.int64)
    return found


def _reduced(each: Tensor, reduction: str) -> Tensor:
    return {"mean": each.mean, "sum": each.sum}.get(reduction, lambda: each)()
