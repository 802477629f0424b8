"""Losses and measures of tasks, against scikit-learn and torch; their gradients in a stack, in a loop and by torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch import Tensor, nn
from torch.nn import functional

from emulator.contracts.learning import LocalParams, LocalRuleChoice
from emulator.contracts.tasks import TaskChoice, task_named, tasks
from emulator.errors import HflError, InputError
from emulator.learning.trainer import Trainer, TrainingData, TrainJob
from emulator.learning.trial import _check_slope
from emulator.measures import ACCURACY, Measure

FEATURES, OUTPUTS = 5, 4
SIZES = [13, 8, 20, 3, 9, 16, 11, 7, 5, 12, 10, 6]  # more clients than a stack has places
TASKS = {
    "classification": {"measures": ("accuracy", "macro_f1")}, "next-token": {}, "multi-label": {}, "regression": {},
}  # fmt: skip


def chosen(kind: str, **params: Any) -> TaskChoice:
    return TaskChoice(kind, tasks[kind].params.model_validate(params or TASKS[kind]))  # type: ignore[arg-type]


def labels_for(kind: str, count: int, generator: torch.Generator) -> Tensor:
    if kind == "regression":
        return 10 * torch.randn(count, OUTPUTS, generator=generator) + 3
    if kind == "multi-label":
        return (torch.rand(count, OUTPUTS, generator=generator) < 0.3).float()
    return torch.randint(0, OUTPUTS, (count,), generator=generator)


def outputs_and_labels(kind: str, count: int = 200) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return 2 * torch.randn(count, OUTPUTS, generator=generator), labels_for(kind, count, generator)


def measured(kind: str, outputs: Tensor, labels: Tensor, batch: int) -> dict[str, float]:
    """The measures of a task, from a test in batches."""
    rule, count = chosen(kind)(), len(labels)
    parts = list(zip(outputs.split(batch), labels.split(batch), strict=True))  # type: ignore[no-untyped-call]
    loss = sum(float(rule.loss(x, y, "sum")) for x, y in parts) / count
    return dict(rule.measures(sum(rule.counts(x, y) for x, y in parts), loss, count))  # type: ignore[arg-type]


@pytest.mark.parametrize("batch", [200, 64])
def test_measures_are_those_of_scikit_learn(batch: int) -> None:
    scores, y = outputs_and_labels("classification")
    found, guess = measured("classification", scores, y, batch), scores.argmax(1)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, guess))
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, guess, average="macro"))
    found = measured("next-token", scores, y, batch)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, guess))
    assert found["perplexity"] == pytest.approx(math.exp(float(functional.cross_entropy(scores, y))), rel=1e-5)
    scores, y = outputs_and_labels("multi-label")
    found, guess = measured("multi-label", scores, y, batch), scores > 0
    assert found["macro_f1"] == pytest.approx(metrics.f1_score(y, guess, average="macro"))
    assert found["accuracy"] == pytest.approx(float((guess == y.bool()).double().mean()))
    values, y = outputs_and_labels("regression")
    found = measured("regression", values, y, batch)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(y, values), rel=1e-6)
    assert found["r2"] == pytest.approx(metrics.r2_score(y, values), rel=1e-6)


def test_a_target_that_does_not_vary_is_not_explained() -> None:
    y = torch.full((9, 1), 0.1)
    assert measured("regression", torch.zeros(9, 1), y, 9)["r2"] == 0.0


def test_macro_f1_leaves_out_classes_that_are_neither_there_nor_guessed() -> None:
    y = torch.tensor([0, 0, 2])
    scores = functional.one_hot(torch.tensor([0, 2, 2]), OUTPUTS).float()
    assert measured("classification", scores, y, 3)["macro_f1"] == pytest.approx(
        metrics.f1_score(y, scores.argmax(1), average="macro")
    )


def test_losses_are_those_of_torch() -> None:
    expected = {
        "classification": functional.cross_entropy, "next-token": functional.cross_entropy,
        "multi-label": functional.binary_cross_entropy_with_logits, "regression": functional.mse_loss,
    }  # fmt: skip
    for kind, wanted in expected.items():
        outputs, y = outputs_and_labels(kind)
        loss = chosen(kind)().loss
        assert loss(outputs, y, "mean") == pytest.approx(float(wanted(outputs, y)), rel=1e-5), kind
        each = loss(outputs, y, "none")
        assert each.shape == (len(y),)
        assert float(each.sum()) == pytest.approx(float(loss(outputs, y, "sum")), rel=1e-5)


@pytest.mark.parametrize("kind", TASKS)
def test_stated_gradients_are_those_of_the_loss(kind: str) -> None:
    outputs, y = outputs_and_labels(kind, 12)
    rule, weight = chosen(kind)(), torch.rand(3, 4, generator=torch.Generator().manual_seed(1))
    assert rule.gradient is not None
    found = rule.gradient(outputs.view(3, 4, -1), y.view(3, 4, *y.shape[1:]), weight)
    outputs.requires_grad_()
    (wanted,) = torch.autograd.grad((rule.loss(outputs, y, "none") * weight.flatten()).sum(), outputs)
    torch.testing.assert_close(found.view_as(wanted), wanted, rtol=1e-5, atol=1e-7)


def trainer(kind: str, flops: float) -> Trainer:
    generator = torch.Generator().manual_seed(5)
    total = sum(SIZES)
    x = torch.randn(total, FEATURES, 1, 1, generator=generator)
    parts = np.split(np.arange(total), np.cumsum(SIZES)[:-1])
    data = TrainingData(x, labels_for(kind, total, generator), parts, chosen(kind))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 7), nn.ReLU(), nn.Linear(7, OUTPUTS))
    return Trainer(module, data, 3, flops)


def jobs(given: Trainer) -> list[TrainJob]:
    rule = LocalRuleChoice("sgd", LocalParams(epochs=3, batch_size=4, learning_rate=0.01, momentum=0.5))
    return [TrainJob(given._single.state.clone(), client, rule, 1, 0) for client in range(len(SIZES))]


def states(given: Trainer, wanted: Sequence[TrainJob]) -> list[Tensor]:
    found = dict(given.train(wanted))
    return [found[number].state for number in range(len(wanted))]


@pytest.mark.parametrize("kind", TASKS)
def test_a_stack_and_a_loop_agree(kind: str) -> None:
    stacked, alone = trainer(kind, 0.0), trainer(kind, 1e30)
    wanted = jobs(stacked)
    assert stacked.stacks(4)
    assert not alone.stacks(4)
    together = states(stacked, wanted)
    for one, other in zip(together, states(alone, wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    # Who is trained beside whom changes no bit.
    again = states(stacked, wanted[::-1])[::-1]
    assert all(torch.equal(one, other) for one, other in zip(together, again, strict=True))


def test_without_a_gradient_clients_are_trained_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    given, usual = trainer("regression", 0.0), trainer("regression", 1e30)
    given._task = type(given._task)(given._task.loss, given._task.counts, given._task.measures)
    assert not given.stacks(4)
    assert "'regression' does not say what the gradient of its loss is" in given.why_one_by_one(4)
    wanted = jobs(given)
    for one, other in zip(states(given, wanted), states(usual, wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_gradient_that_is_not_that_of_the_loss_is_refused() -> None:
    outputs, y = outputs_and_labels("regression", 6)
    _check_slope(chosen("regression"), outputs, y)

    class Wrong(TaskChoice):
        def __call__(self) -> Any:
            rule = super().__call__()
            right = rule.gradient
            assert right is not None
            return type(rule)(rule.loss, rule.counts, rule.measures, lambda *given: 2 * right(*given))

    with pytest.raises((HflError, RuntimeError), match="its gradient is not that of its loss"):
        _check_slope(Wrong("regression", chosen("regression").params), outputs.detach(), y)


def test_kinds_of_samples() -> None:
    task = chosen("regression", bins=4)
    targets = np.array([[9.0], [1], [2], [3], [4], [5], [6], [0]], np.float32)
    kinds, count = task.kinds_of(targets, 1)
    assert (kinds.tolist(), count) == ([3, 0, 1, 1, 2, 2, 3, 0], 4)
    equal, _ = task.kinds_of(np.ones((5, 1), np.float32), 1)
    assert len(set(equal.tolist())) == 1
    labels = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 1]], np.float32)
    kinds, count = chosen("multi-label").kinds_of(labels, 3)
    assert (kinds.tolist(), count) == ([1, 3, 0], 4)
    numbers = np.array([2, 0])
    assert task_named("classification").kinds_of(numbers, 3) == (numbers, 3)


@pytest.mark.parametrize(
    ("kind", "labels"), [("regression", np.zeros(3, np.int64)), ("classification", np.zeros((3, 1)))]
)
def test_labels_of_another_task_are_refused(kind: str, labels: np.ndarray) -> None:
    with pytest.raises(InputError, match=f"'{kind}' cannot be learned from these samples") as caught:
        task_named(kind).kinds_of(labels, 1)
    assert caught.value.key == "task"


def test_numbers_are_no_labels() -> None:
    with pytest.raises(InputError, match="needs labels 0 or 1"):
        chosen("multi-label").kinds_of(np.array([[0.5]], np.float32), 1)


def test_measures_know_which_way_is_better() -> None:
    mae = Measure("mae", "lower")
    assert (mae.best([3.0, math.nan, 2.0]), ACCURACY.best([0.3, math.nan, 0.2])) == (2.0, 0.3)
    assert math.isnan(mae.best([math.nan]))
    assert (mae.reached(2.0, 2.0), mae.reached(2.1, 2.0), mae.reached(math.nan, 2.0)) == (True, False, False)
    assert (ACCURACY.reached(0.5, 0.5), ACCURACY.reached(0.4, 0.5)) == (True, False)
    # A round target is one that was reached: no better than the value.
    assert (mae.whole(43.02), ACCURACY.whole(0.29), Measure("r2").whole(-0.1234)) == (43.1, 0.29, -0.124)
    assert (mae.named("final_accuracy"), mae.named("accuracy_clusters")) == ("final_mae", "accuracy_clusters")
    assert Measure.from_json(mae.to_json()) == mae
    assert Measure.from_json(None) == ACCURACY
    with pytest.raises(InputError, match="is a number, not inf"):
        mae.check(math.inf)
