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
        self.velocity = torch.zeros_like(vectors[0]) if self._params.momentum else None

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, by_copy: Callable[[Tensor], list[Tensor]]) -> None:
        """Moves ``weights``; ``by_copy`` gives views [copies, values] that together are a vector."""
        params = self._params
        if params.weight_decay:
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
        if self.velocity is not None:
            direction = self.velocity.mul_(params.momentum).add_(direction)
        weights.sub_(direction, alpha=self._step_size)


def loss_gradient(scores: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the weighted sum of cross-entropies, by scores [copies, n, classes], for weights [copies, n].

    ``y`` are labels [copies, n], or soft targets [copies, n, classes].
    """
    soft = y if y.is_floating_point() else nn.functional.one_hot(y, scores.shape[2])
    shares = scores.softmax(2)
    if y.is_floating_point():
        shares = shares * y.sum(2, keepdim=True)
    return shares.sub_(soft).mul_(weight.unsqueeze(2))


def mask_of(sizes: Sequence[int], only: Sequence[int] | None, device: torch.device) -> Tensor | None:
    """1 for the values of the parameters with these numbers and 0 for others; None where all are trained."""
    if only is None:
        return None
    return torch.cat([torch.full((size,), float(i in only)) for i, size in enumerate(sizes)]).to(device)
