"""The arithmetic: models as flat vectors, trained one client after another in this process.

A model's state is one float32 vector, its parameters followed by its float buffers, in the order of the module. All that
happens to models outside a forward pass (steps, averages, files) is elementwise on such vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from emulator.errors import HflError
from emulator.learning.clients import ClientData
from emulator.learning.facts import ModelFacts, model_facts
from emulator.learning.rules import LocalParams
from emulator.registry import Chosen
from emulator.rng import derive, stream
from emulator.scenario.schema import Scenario

EVALUATION_BATCH = 1024


@dataclass(frozen=True)
class TrainJob:
    """One local training. ``first_epoch`` counts the client's epochs within the round: it names the random streams."""

    weights: Tensor
    client: int
    rule: Chosen
    round: int
    first_epoch: int


class FlatModel:
    """A module whose parameters, gradients and float buffers are views of flat vectors."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parameters = list(module.parameters())
        buffers = [b for b in module.buffers() if b.is_floating_point()]
        self.state = torch.cat([t.detach().reshape(-1).float() for t in (*parameters, *buffers)])
        self.size = sum(p.numel() for p in parameters)
        self.weights = self.state[: self.size]
        self.gradient = torch.zeros_like(self.weights)
        self.random = any(isinstance(m, nn.modules.dropout._DropoutNd) for m in module.modules())
        at = 0
        for tensor in (*parameters, *buffers):
            view = slice(at, at + tensor.numel())
            tensor.data = self.state[view].view_as(tensor)
            if at < self.size:
                tensor.grad = self.gradient[view].view_as(tensor)
            at = view.stop


class Engine:
    """Models and data of one scenario. Everything it does is determined by its arguments and the scenario's seed."""

    def __init__(self, scenario: Scenario, data: ClientData) -> None:
        self.data = data
        self._seed = scenario.seed
        arrays = data.arrays
        self._x, self._y = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train)
        limit = scenario.evaluate.samples
        self._x_test, self._y_test = torch.from_numpy(arrays.x_test[:limit]), torch.from_numpy(arrays.y_test[:limit])
        self._factory: Callable[[], nn.Module] = lambda: scenario.model(arrays.shape, arrays.classes)
        self._model = FlatModel(self._fresh())

    def _fresh(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive(self._seed, "initial-model"))
            return self._factory()

    def facts(self) -> ModelFacts:
        """Size and arithmetic of the model."""
        return model_facts(self._fresh(), self.data.arrays.shape)

    def initial(self) -> Tensor:
        """The state of the untrained model."""
        return FlatModel(self._fresh()).state

    def average(self, states: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """The weighted sum of states, in double precision, in the given order."""
        total = torch.zeros(states[0].shape, dtype=torch.float64)
        for state, weight in zip(states, weights, strict=True):
            total.add_(state, alpha=weight)
        return total.float()

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[Tensor]:
        """The states after local training, in the order of the jobs."""
        for job in jobs:
            yield self._train_one(job)

    def _train_one(self, job: TrainJob) -> Tensor:
        model, params = self._model, job.rule.params
        assert isinstance(params, LocalParams)
        model.state.copy_(job.weights)
        model.module.train()
        anchor = job.weights[: model.size]
        velocity = torch.zeros_like(model.weights) if params.momentum else None
        mine = torch.from_numpy(self.data.parts[job.client])
        for epoch in range(job.first_epoch, job.first_epoch + params.epochs):
            names = (job.client, job.round, epoch)
            order = mine[torch.from_numpy(stream(self._seed, "batches", *names).permutation(len(mine)))]
            if model.random:
                torch.manual_seed(derive(self._seed, "dropout", *names))
            for batch in torch.split(order, params.batch_size):
                self._step(model, batch, job.rule, anchor, velocity)
        state = model.state.clone()
        if not torch.isfinite(state).all():
            raise HflError(
                f"the training of client {job.client} diverged in round {job.round}: its weights are no longer finite; "
                f"a smaller method.local.learning_rate (now {params.learning_rate:g}) may help"
            )
        return state

    def _step(self, model: FlatModel, batch: Tensor, rule: Chosen, anchor: Tensor, velocity: Tensor | None) -> None:
        params: LocalParams = rule.params
        model.gradient.zero_()
        loss = nn.functional.cross_entropy(model.module(self._x[batch]), self._y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            gradient = model.gradient
            if params.weight_decay:
                gradient = gradient.add(model.weights, alpha=params.weight_decay)
            step: Tensor = rule.plugin.function(gradient, model.weights, anchor, params)
            if velocity is not None:
                velocity.mul_(params.momentum).add_(step)
                step = velocity
            model.weights.sub_(step, alpha=params.learning_rate)

    def evaluate(self, state: Tensor) -> tuple[float, float]:
        """Accuracy (a share) and mean cross-entropy on the test set."""
        model = self._model
        model.state.copy_(state)
        model.module.eval()
        correct, loss = 0, 0.0
        with torch.inference_mode():
            for start in range(0, len(self._y_test), EVALUATION_BATCH):
                y = self._y_test[start : start + EVALUATION_BATCH]
                scores = model.module(self._x_test[start : start + EVALUATION_BATCH])
                correct += int((scores.argmax(1) == y).sum())
                loss += float(nn.functional.cross_entropy(scores, y, reduction="sum"))
        count = len(self._y_test)
        return correct / count, float(np.float64(loss) / count)
