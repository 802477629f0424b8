"""Local training in one process: the clients of a wave side by side in a stack, or one after another in a loop.

Which way a scenario goes depends on its model and batch size alone, never on a wave, so a client's result is the same
whoever it is trained with. Both ways draw the same batches and the same dropout masks from the same named streams, and
agree to float32 rounding.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from emulator import plugins
from emulator.contracts.learning import LocalParams, LocalRule, Rule
from emulator.errors import DivergedError, HflError
from emulator.learning.device import HOST, Place
from emulator.learning.drawing import Drawn, Masks, dropout_mask, own_dropouts
from emulator.learning.extra_samples import Block, fetch, soft_classes
from emulator.learning.flat import FlatModel, as_trained
from emulator.learning.layers import are_tokens, classifier_of
from emulator.learning.recipes import Swaps, Trainee
from emulator.learning.stack_operations import Batch, SingleValueError
from emulator.learning.stack_reading import CannotStackError
from emulator.learning.stacked import ROWS, StackedModel
from emulator.learning.stepping import Update, loss_gradient, mask_of

COPIES = 10  # clients in a stack
PROBE = -2  # whose samples those are on which a probe is trained (`emulator.learning.probe`)
_NOTHING = torch.empty(0)
# Forward FLOPs of a batch from which on arithmetic dominates and stacking gains nothing (benchmarks/training.py --models shows
# both ways for every model).
STACK_BELOW_FLOPS = 1.3e8
STACK_BELOW_PARAMETERS = 500_000  # ten larger models do not fit into the cache in which one does


@dataclass(frozen=True)
class TrainJob:
    """One local training. ``first_epoch`` counts the client's epochs within the round: it names the random streams.

    ``shared`` and ``own`` are the states of a rule that has memory (see `emulator.learning.rules`). ``extra`` are samples beside
    the client's own; ``swaps`` are labels that it exchanges in its own.
    """

    weights: Tensor
    client: Trainee
    rule: LocalRule
    round: int
    first_epoch: int
    shared: Tensor | None = None
    own: Tensor | None = None
    extra: tuple[Block, ...] = ()
    swaps: Swaps = ()

    def vectors(self) -> list[Tensor]:
        """What the rule's direction refers to: the anchor, and for rules with memory the shared and the own state."""
        return [v for v in (self.weights, self.shared, self.own) if v is not None]

    def bare(self) -> TrainJob:
        """The job without its tensors, which travel to other processes in ways of their own."""
        return replace(self, weights=_NOTHING, shared=None, own=None, extra=())


@dataclass(frozen=True)
class TrainedState:
    """The model's state after a local training, and the client's new state where the rule has one."""

    state: Tensor
    own: Tensor | None


Parts = Sequence[np.ndarray] | Mapping[int, np.ndarray]  # the indices of samples, by client


@dataclass(frozen=True)
class TrainingData:
    """All training samples, and the indices of each client's own."""

    x: Tensor
    y: Tensor
    parts: Parts

    def to(self, device: torch.device) -> TrainingData:
        """The same, with its samples on a device."""
        return TrainingData(self.x.to(device), self.y.to(device), self.parts)

    def of(self, client: Trainee) -> np.ndarray:
        """The indices of a client's samples, or of those of several."""
        return self.parts[client] if isinstance(client, int) else np.concatenate([self.parts[c] for c in client])


def keep_freed_memory() -> None:
    """Tells the C library to keep freed memory for the next step instead of giving it back to the system.

    A step allocates and frees the same large blocks as the one before; giving them back means that the system must clear
    every page again, which took about a tenth of the time. Does nothing where the C library is not GNU's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


class Trainer:
    """Trains jobs in this process. The module that it is given becomes its own; ``data`` may be replaced between two waves.

    ``place`` is where it trains, and where its data must be. The vectors of jobs and results are on the CPU.
    """

    def __init__(
        self, module: nn.Module, data: TrainingData, seed: int, forward_flops: float, place: Place = HOST
    ) -> None:
        keep_freed_memory()
        module.to(place.device)
        self.data = data
        self._place = place
        self._seed = seed
        self._forward_flops = forward_flops
        self._even: dict[int, bool] = {}
        self.why_not_stacked = ""  # what keeps this model from being stacked, if anything
        self._dropouts = own_dropouts(module)
        self._single = FlatModel(module)

    @cached_property
    def _stacked(self) -> StackedModel | None:
        """The stack in which clients train side by side; None where the model has none."""
        return self._program(COPIES)

    @cached_property
    def _written_out(self) -> StackedModel | None:
        """The model alone as a program with a backward pass of its own; None where it has none."""
        found = self._program(1) if self._place.precision == "float32" else None
        return found if found is not None and found.by_hand else None

    def _program(self, copies: int) -> StackedModel | None:
        try:
            return StackedModel(self._single, copies, self.data.x[:ROWS])
        except CannotStackError as error:
            if copies > 1:
                self.why_not_stacked = str(error)
        return None

    @cached_property
    def _classifier(self) -> list[int]:
        x = self.data.x
        return classifier_of(self._single.module, tuple(x.shape[1:]), are_tokens(x))

    def _trained_parameters(self, chosen: LocalRule) -> list[int] | None:
        """The numbers of the parameters that a rule moves; None: all of them."""
        rule: Rule = chosen()
        return self._classifier if rule.classifier_only else None

    def frozen(self, rule: LocalRule) -> list[str]:
        """The names of the parameters that a rule would move although they take no gradient."""
        only = self._trained_parameters(rule)
        named = enumerate(self._single.module.named_parameters())
        return [name for i, (name, p) in named if not p.requires_grad and (only is None or i in only)]

    def stacks(self, batch_size: int) -> bool:
        """Whether clients are trained side by side. Depends on the model, the batch size and the precision alone.

        Those in bfloat16 are not: it is for models in which arithmetic dominates, and such are not stacked anyway.
        """
        return self._small(batch_size) and self._alike(batch_size)

    def _small(self, batch_size: int) -> bool:
        little = self._forward_flops * batch_size < STACK_BELOW_FLOPS and self._single.size < STACK_BELOW_PARAMETERS
        return little and self._place.precision == "float32"

    def why_one_by_one(self, batch_size: int) -> str:
        """What keeps a model from being stacked that is small enough for it; nothing where it is stacked, or too large."""
        return self.why_not_stacked if self._small(batch_size) and not self._alike(batch_size) else ""

    def _alike(self, rows: int) -> bool:
        """Whether there is a stack in which no copy's result depends on where it stands."""
        if self._stacked is None:
            return False
        if rows not in self._even:
            self._even[rows] = self._stacked.alike(self._single, self.data.x[:rows], rows)
            if not self._even[rows]:
                self.why_not_stacked = "the processor rounds its values by where in memory they stand"
        return self._even[rows]

    @property
    def claimed_flops(self) -> float:
        """The arithmetic of a sample as other trainers are to be told, so that they do not stack what is not stacked here."""
        return math.inf if self.why_not_stacked else self._forward_flops

    def train(self, jobs: Sequence[TrainJob]) -> Iterator[tuple[int, TrainedState]]:
        """Trains all jobs; yields the number of each and its result, in the order in which they end."""
        return (result for result in self.steps(jobs) if result is not None)

    def steps(self, jobs: Sequence[TrainJob]) -> Iterator[tuple[int, TrainedState] | None]:
        """As `train`, and yields None after each step of a stack, so that others can take theirs in between."""
        by_rule: dict[str, list[int]] = {}
        for number, job in enumerate(jobs):
            params = job.rule.params
            alike = f"{job.rule.dump()} {params.step_size(job.round)} {soft_classes(job.extra)}"
            by_rule.setdefault(alike, []).append(number)
        for numbers in by_rule.values():
            params = jobs[numbers[0]].rule.params
            if self.stacks(params.batch_size):
                yield from self._side_by_side({n: jobs[n] for n in numbers})
            else:
                for n in numbers:
                    yield n, self._alone(jobs[n])

    def _alone(self, job: TrainJob) -> TrainedState:
        model, params, program = self._single, job.rule.params, self._written_out
        only = self._trained_parameters(job.rule)
        model.state.copy_(job.weights)
        model.module.train(only is None)
        sizes = [p.numel() for p in model.module.parameters()]
        vectors = [vector[: model.size].to(self._place.device) for vector in job.vectors()]
        update = Update(job, vectors, mask_of(sizes, only, self._place.device))
        drawn = Drawn(job, self.data, self._seed)
        for step in range(drawn.steps):
            batch = drawn.batch(step)
            if drawn.begins_epoch(step):
                # For foreign modules that draw from torch's own stream.
                self._place.seed(drawn.generator.initial_seed())
            (x,), (y,) = fetch(self.data.x, self.data.y, batch[None], [drawn.extra], [job.swaps])
            try:
                gradient = self._gradient_alone(program, x, y, drawn.generator, only, params.smoothing)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:
                if isinstance(error, HflError) or plugins.blamed(error) is not None:
                    raise
                raise _failed(job, len(y), error) from error
            update.step(model.weights, gradient, lambda g: [g.view(1, -1)])
        return _finish(job, model.state.clone(), drawn.steps * params.step_size(job.round), model.size)

    def _gradient_alone(
        self,
        program: StackedModel | None,
        x: Tensor,
        y: Tensor,
        generator: torch.Generator,
        only: list[int] | None,
        smoothing: float,
    ) -> Tensor:
        """The gradient of the mean loss of a batch, by the program of the model, or by torch where it has none."""
        model, device = self._single, self._place.device

        def masks(shape: tuple[int, ...], p: float) -> Tensor:
            return dropout_mask(shape, p, generator).to(device)

        if program is not None:
            batch = Batch(only is None, None, lambda shape, p: masks((len(y), *shape), p).unsqueeze(0))
            scores = program.forward(x.unsqueeze(0), batch)
            weight = scores.new_full((1, len(y)), 1 / len(y))
            return program.backward(loss_gradient(scores, y.unsqueeze(0), weight, smoothing), only)
        for dropout in self._dropouts:
            dropout.source = masks
        try:
            with self._place.arithmetic():
                found = model.module(as_trained(x))
        finally:
            for dropout in self._dropouts:
                dropout.source = None
        return model.gradient_of(nn.functional.cross_entropy(found.float(), y, label_smoothing=smoothing), only)

    def _side_by_side(self, jobs: dict[int, TrainJob]) -> Iterator[tuple[int, TrainedState] | None]:
        """A stack whose places are filled anew as soon as a client is done; the longest trainings begin first."""
        stack = self._stacked
        assert stack is not None
        waiting = deque(sorted(jobs, key=lambda n: -steps_of(jobs[n], self.data)))
        first = jobs[waiting[0]]
        params: LocalParams = first.rule.params
        only = self._trained_parameters(first.rule)
        device = self._place.device
        mask = mask_of([block.numel() for block in stack.by_copy(stack.weights)], only, device)
        update = Update(first, [torch.zeros_like(stack.weights) for _ in first.vectors()], mask)
        update.steps = [0] * COPIES
        places: list[_Place | None] = [None] * COPIES
        rows = params.batch_size
        nothing = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)
        while waiting or any(places):
            for i in range(COPIES):
                if places[i] is None and waiting:
                    number = waiting.popleft()
                    places[i] = _Place(number, Drawn(jobs[number], self.data, self._seed))
                    stack.put(stack.state, i, jobs[number].weights)
                    for vector, single in zip(update.vectors, jobs[number].vectors(), strict=True):
                        stack.put(vector, i, single)
                    for vector in update.state:
                        stack.put(vector, i, torch.zeros(stack.size))
                    update.steps[i] = 0
            batches = [nothing if p is None else p.drawn.padded(p.step, rows) for p in places]
            index, weight = (torch.stack([b[k] for b in batches]) for k in (0, 1))
            sources = [None if p is None else p.drawn.counted(p.step) for p in places]
            batch = Batch(only is None, [0 if s is None else s[0] for s in sources], Masks(sources, rows, device))
            extra = [None if p is None else p.drawn.extra for p in places]
            swaps = [() if p is None else jobs[p.number].swaps for p in places]
            x, y = fetch(self.data.x, self.data.y, index, extra, swaps)
            try:
                scores = stack.forward(x, batch)
            except SingleValueError as error:
                place = places[error.copy]
                assert place is not None
                raise _failed(jobs[place.number], 1, error) from None
            gradient = stack.backward(loss_gradient(scores, y, weight.to(device), params.smoothing), only)
            update.step(stack.weights, gradient, stack.by_copy)
            yield None
            for i, place in enumerate(places):
                if place is None:
                    continue
                place.step += 1
                if place.step == place.drawn.steps:
                    job = jobs[place.number]
                    travelled = place.drawn.steps * params.step_size(job.round)
                    yield place.number, _finish(job, stack.get(stack.state, i), travelled, stack.size)
                    places[i] = None


@dataclass
class _Place:
    """Who is in a place of the stack, and how far."""

    number: int
    drawn: Drawn
    step: int = 0


def steps_of(job: TrainJob, data: TrainingData) -> int:
    """How many mini-batches a training has."""
    params: LocalParams = job.rule.params
    samples = len(data.of(job.client)) + sum(len(y) for _, y in job.extra)
    return -(-samples // params.batch_size) * params.epochs


def _who(job: TrainJob) -> str:
    if job.client == PROBE:
        return "the probe"
    return f"client {job.client}" if isinstance(job.client, int) else f"{len(job.client)} clients in one place"


def _failed(job: TrainJob, count: int, error: Exception) -> HflError:
    samples = f"{count} sample{'' if count == 1 else 's'}"
    message = f"the training of {_who(job)} failed in round {job.round}, on a batch of {samples}"
    said = str(error) if isinstance(error, SingleValueError) else plugins.said(error)
    return HflError(f"{message}: {said}")


def _finish(job: TrainJob, state: Tensor, travelled: float, size: int) -> TrainedState:
    """The result of a training, on the CPU; raises `DivergedError` where it diverged."""
    state = state.cpu()
    if not math.isfinite(float(state.sum())):  # one value that is not finite makes the sum so, at a tenth of the cost
        whose = "estimator.probe" if job.client == PROBE else "local" if job.round else "estimator"
        key = f"method.{whose}.learning_rate" if job.first_epoch >= 0 else "evaluate.personal.learning_rate"
        raise DivergedError(
            f"the training of {_who(job)} diverged in round {job.round}: its weights are no longer finite; "
            f"a smaller {key} (now {job.rule.params.learning_rate:g}) may help"
        )
    rule: Rule = job.rule()
    if rule.remember is None or job.shared is None or job.own is None:
        return TrainedState(state, None)
    own = torch.zeros_like(state)
    own[:size] = rule.remember(state[:size], job.weights[:size], job.shared[:size], job.own[:size], travelled)
    return TrainedState(state, own)
