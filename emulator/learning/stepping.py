"""What a step of training does beside the model: the gradient of the loss, and the update of the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from emulator.contracts.learning import LocalParams, Rule

if TYPE_CHECKING:
    from emulator.learning.trainer import TrainJob


class Update:
    """The elementwise part of a step, for one client or a whole stack.

    ``vectors`` are what the rule refers to, laid out as the weights: the anchor, and for rules with memory the states.
    ``mask`` is 1 where weights may move and 0 where not; None: all may.
    """

    def __init__(self, job: TrainJob, vectors: list[Tensor], mask: Tensor | None = None) -> None:
        self._params: LocalParams = job.rule.params
        self._rule: Rule = job.rule()
        self._step_size = self._params.step_size(job.round)
        self.vectors = vectors
        self._mask = mask
        self._optimiser = self._rule.optimiser
        kept = self._optimiser.vectors if self._optimiser.move is not None else self._params.momentum > 0
        self.state = [torch.zeros_like(vectors[0]) for _ in range(kept)]  # of the optimiser; by momentum, the velocity
        self.steps = [0]  # of each copy, in its training so far

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, by_copy: Callable[[Tensor], list[Tensor]]) -> None:
        """Moves ``weights``; ``by_copy`` gives views [copies, values] that together are a vector."""
        params, optimiser = self._params, self._optimiser
        if params.weight_decay and not optimiser.decoupled:
            gradient.add_(weights, alpha=params.weight_decay)
        if self._mask is not None:
            gradient.mul_(self._mask)  # before it is clipped: what does not move has no length
        if params.clip is not None:
            views = by_copy(gradient)
            norm = torch.stack([v.square().sum(1) for v in views]).sum(0).sqrt()
            scale = (params.clip / norm.clamp_min(params.clip)).unsqueeze(1)
            for view in views:
                view.mul_(scale)
        anchor, shared, own = (*self.vectors, weights, weights)[:3]
        direction = self._rule.direction(gradient, weights, anchor, shared, own)
        if self._mask is not None:
            direction = direction * self._mask
        if optimiser.move is not None:
            self._move(weights, direction, by_copy)
            return
        for velocity in self.state:
            direction = velocity.mul_(params.momentum).add_(direction)
        weights.sub_(direction, alpha=self._step_size)

    def _move(self, weights: Tensor, direction: Tensor, by_copy: Callable[[Tensor], list[Tensor]]) -> None:
        """A step by an optimiser other than SGD."""
        optimiser, decay = self._optimiser, self._params.weight_decay
        assert optimiser.move is not None
        if decay and optimiser.decoupled:
            weights.sub_(weights if self._mask is None else weights * self._mask, alpha=self._step_size * decay)
        self.steps = [step + 1 for step in self.steps]
        numbers = [
            weights.new_tensor(each).unsqueeze(1) for each in zip(*map(optimiser.numbers, self.steps), strict=True)
        ]
        for views in zip(*map(by_copy, (weights, direction, *self.state)), strict=True):
            views[0].sub_(optimiser.move(views[1], views[2:], *numbers), alpha=self._step_size)


def loss_gradient(scores: Tensor, y: Tensor, weight: Tensor, smoothing: float = 0.0) -> Tensor:
    """The gradient of the weighted sum of cross-entropies, by scores [copies, n, classes], for weights [copies, n].

    ``y`` are labels [copies, n], or soft targets [copies, n, classes]; ``smoothing`` of each is spread over all labels.
    """
    soft = y if y.is_floating_point() else nn.functional.one_hot(y, scores.shape[2])
    if smoothing:
        soft = soft * (1 - smoothing) + smoothing / scores.shape[2]
    shares = scores.softmax(2)
    if y.is_floating_point():
        shares = shares * soft.sum(2, keepdim=True)
    return shares.sub_(soft).mul_(weight.unsqueeze(2))


def mask_of(sizes: Sequence[int], only: Sequence[int] | None, device: torch.device) -> Tensor | None:
    """1 for the values of the parameters with these numbers and 0 for others; None where all are trained."""
    if only is None:
        return None
    return torch.cat([torch.full((size,), float(i in only)) for i, size in enumerate(sizes)]).to(device)
