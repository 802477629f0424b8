"""Many copies of a small model as one tensor program.

Training a tiny model is bound by the cost of starting operations, not by arithmetic. A `StackedModel` holds several copies of a
module (one a client) and runs them in one program: convolutions become one grouped convolution over the copies' channels,
linear layers one batched matrix product. The program has a backward pass of its own, so that a step makes no graph of a model.
Each copy's result is the one it would have alone, to float32 rounding, and does not depend in a single bit on what the
other copies are: the number of copies and the batch size are always the same (short batches and empty places are padded), and
no operation mixes copies (`emulator.learning.stack_operations`).

The program is read off the module (`emulator.learning.stack_reading`). When a stack is made, its scores, gradients and
buffers are compared with those of the module itself.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from emulator import plugins
from emulator.learning.flat import FlatModel
from emulator.learning.stack_operations import Batch, Weights
from emulator.learning.stack_reading import CannotStackError, read

TOLERANCE = (
    1e-2  # of the length of a vector: by how much a stack may differ from the module; mistakes are of the order of 1
)
ROWS = 5  # of the batch on which they are compared


class StackedModel:
    """``copies`` copies of a module, with their weights and gradients in flat vectors.

    A flat vector of the stack holds one block for each parameter, in the order of the module, and in a block one copy after
    another, each laid out as in the flat vector of a single model (see `emulator.learning.flat`). ``state`` has float buffers
    behind the parameters; ``weights`` is the part before these. One copy shares the vectors of the single model.

    ``samples`` are some of the data set, and show what kind to try it with. Raises `CannotStackError` where the copies cannot be
    computed side by side.
    """

    def __init__(self, flat: FlatModel, copies: int, samples: Tensor) -> None:
        parameters = list(flat.module.parameters())
        self.copies = copies
        self.size = flat.size  # of a single copy's weights
        self._parameters = len(parameters)
        self._parts = [*parameters, *(b for b in flat.module.buffers() if b.is_floating_point())]
        self.state, self._gradient = flat.state, flat.gradient
        if copies > 1:
            self.state, self._gradient = (v.new_zeros(copies * len(v)) for v in (flat.state, flat.gradient))
        self.weights = self.state[: copies * self.size]
        self._stacked = {id(p): view for p, view in zip(self._parts, self._views(self.state), strict=True)}
        numbered = enumerate(zip(parameters, self._views(self._gradient), strict=True))
        self._weights = {id(p): Weights(i, self._stacked[id(p)], view) for i, (p, view) in numbered}
        reasons = []
        for whole in (False, True):
            try:
                with _unchanged(flat.module):
                    self._read(flat.module, whole)
                    if samples.device.type != "meta":
                        self._compare(flat, samples)
            except CannotStackError as error:
                reasons.append(str(error))
            else:
                return
        raise CannotStackError(reasons[0])

    def weights_of(self, parameter: Tensor) -> Weights:
        """A parameter of all copies."""
        return self._weights[id(parameter)]

    def buffer_of(self, buffer: Tensor) -> Tensor:
        """A float buffer of all copies, [copies, *shape]."""
        return self._stacked[id(buffer)]

    @property
    def by_hand(self) -> bool:
        """Whether all of its backward pass is written out, so that a step makes no graph at all."""
        return all(step.operation.by_hand for step in self._program)

    def by_copy(self, flat: Tensor) -> list[Tensor]:
        """Views of a stack's flat vector, of weights or of a state, one for each parameter, of the form [copies, values]."""
        parts = self._parts if len(flat) == len(self.state) else self._parts[: self._parameters]
        pieces = flat.split([self.copies * part.numel() for part in parts])  # type: ignore[no-untyped-call]
        return [piece.view(self.copies, -1) for piece in pieces]

    def _views(self, flat: Tensor) -> list[Tensor]:
        """Views of a stack's flat vector, one for each parameter, of the form [copies, *shape]."""
        views = []
        for piece, part in zip(self.by_copy(flat), self._parts, strict=False):
            if part.dim() == 4:
                out, inner, rows, columns = part.shape
                views.append(piece.view(self.copies, out, rows, columns, inner).permute(0, 1, 4, 2, 3))
            else:
                views.append(piece.view(self.copies, *part.shape))
        return views

    def put(self, flat: Tensor, copy: int, single: Tensor) -> None:
        """Writes a single model's vector into one copy's places of a stack's flat vector; buffers only where that has some."""
        at = 0
        for block in self.by_copy(flat):
            row = block[copy]
            row.copy_(single[at : at + len(row)])
            at += len(row)

    def get(self, flat: Tensor, copy: int) -> Tensor:
        """One copy's values as a single model's vector."""
        return torch.cat([block[copy] for block in self.by_copy(flat)])

    @torch.no_grad()
    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Scores [copies, n, classes] for inputs [copies, n, ...]."""
        values = {0: x}
        for step in self._program:
            values[step.output] = step.operation.forward(batch, *(values[i] for i in step.inputs))
        return values[self._result]

    @torch.no_grad()
    def backward(self, gradient: Tensor, only: Sequence[int] | None = None) -> Tensor:
        """The gradient of ``weights`` in a vector that the next call overwrites, given that of the last forward pass's scores.

        With ``only``, it is that of the parameters with these numbers, and 0 before the first operation that has one of them.
        """
        for weights in self._weights.values():
            if id(weights) in self._added or (only is not None and weights.number not in only):
                weights.gradient.zero_()
        sought = self._sought(only)
        gradients = {self._result: gradient}
        for step in reversed(self._program):
            own = gradients.pop(step.output, None)
            if own is None or step.output not in sought:
                continue
            found = step.operation.backward(own, [i in sought for i in step.inputs])
            for place, each in zip(step.inputs, found, strict=True):
                if each is not None and place in sought:
                    gradients[place] = gradients[place] + each if place in gradients else each
        return self._gradient

    def _sought(self, only: Sequence[int] | None) -> frozenset[int]:
        """The places whose values depend on parameters with these numbers; None: on any."""
        key = None if only is None else tuple(only)
        if key not in self._known_sought:
            found: set[int] = set()
            for step in self._program:
                trained = any(key is None or w.number in key for w in step.operation.parameters)
                if trained or any(i in found for i in step.inputs):
                    found.add(step.output)
            self._known_sought[key] = frozenset(found)
        return self._known_sought[key]

    def _read(self, module: nn.Module, whole: bool) -> None:
        self._program, self._result = read(module, whole, self)
        self._known_sought: dict[tuple[int, ...] | None, frozenset[int]] = {}
        users = [id(w) for step in self._program for w in step.operation.parameters]
        for weights in self._weights.values():
            weights.shared = users.count(id(weights)) > 1
        # What no single operation writes: it is set to 0 before others add to it.
        self._added = {id(w) for w in self._weights.values() if users.count(id(w)) != 1}

    def _compare(self, flat: FlatModel, samples: Tensor) -> None:
        """Raises `CannotStackError` where copies give other scores, gradients or buffers than the module itself."""
        before = flat.state.clone()
        samples, rows = _made_up(samples, ROWS), ROWS
        chosen = [torch.arange(rows).roll(copy) for copy in range(self.copies)]
        padded = [torch.cat([at, at[:1]]) if self.copies > 1 else at for at in chosen]
        batch = Batch(counts=[rows] * self.copies)
        try:
            for copy in range(self.copies):
                self.put(self.state, copy, before)
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.filterwarnings("error", "There is a performance drop")
                scores = self.forward(samples[torch.stack(padded)], batch)
                slope = torch.linspace(-1, 1, scores[0, :rows].numel(), device=scores.device).view_as(scores[0, :rows])
                gradient = torch.zeros_like(scores)
                gradient[:, :rows] = slope
                found = self.backward(gradient).clone()
                state = self.state.clone()
                for copy in {0, self.copies - 1}:
                    flat.state.copy_(before)
                    alone = flat.scores(samples[chosen[copy]])
                    own = flat.gradient_of((alone * slope).sum()).clone()
                    pairs = [(scores[copy, :rows], alone), (self.get(found, copy), own)]
                    pairs.append((self.get(state, copy), flat.state))
                    if not all(_close(a, b.detach()) for a, b in pairs):
                        message = "copies of it side by side give other results than it gives alone"
                        raise CannotStackError(f"{message} (its samples may influence each other)")
        except (CannotStackError, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever a foreign module meets when it is mapped over copies)
            raise CannotStackError(_plainly(plugins.said(error))) from None
        finally:
            flat.state.copy_(before)

    def alike(self, flat: FlatModel, samples: Tensor, rows: int) -> bool:
        """Whether the same weights and samples give the same bits in every copy, in batches of so many rows.

        Where they do not, who is trained beside whom would change results.
        """
        if samples.device.type == "meta":
            return True
        before = self.state.clone()
        for copy in range(self.copies):
            self.put(self.state, copy, flat.state)
        x = _made_up(samples, rows).unsqueeze(0)
        scores = self.forward(x.expand(self.copies, *x.shape[1:]).contiguous(), Batch())
        found = self.backward(scores.tanh())
        self.state.copy_(before)
        return all(bool((each == each[:1]).all()) for each in (scores, *self.by_copy(found)))


@contextlib.contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Raises `CannotStackError` where what is done in the block changes plain attributes of a module, and puts them back.

    A program knows the module's forward pass as it was when it was read, and would not do that.
    """
    parts = [vars(part) for part in module.modules()]
    before = [_plain(part) for part in parts]
    try:
        yield
        if [_plain(part) for part in parts] != before:
            raise CannotStackError("its forward pass changes attributes of the module")
    finally:
        for part, was in zip(parts, before, strict=True):
            for name in _plain(part).keys() - was.keys():
                del part[name]
            part.update(was)


def _plain(attributes: dict[str, object]) -> dict[str, object]:
    kinds = (int, float, complex, str, bytes, type(None))
    return {name: value for name, value in attributes.items() if isinstance(value, kinds) and name != "training"}


def _plainly(said: str) -> str:
    """What torch says of a model that it cannot map over copies, in words for whoever wrote the model."""
    if "random operation" in said:
        return "it draws random numbers by itself; dropout can be an nn.Dropout layer, whose masks are drawn for it"
    if "control flow" in said:
        return "its forward pass decides by the values of samples"
    if "performance drop" in said:
        name = said.rpartition("batching rule for ")[2].split(".")[0]
        return f"torch has no way to map one of its operations over copies ({name})"
    return f"a part of its forward pass cannot be computed for several copies at once ({said})"


def _made_up(samples: Tensor, rows: int) -> Tensor:
    """So many samples of the same kind: made-up numbers, which are the same in every process, or given tokens."""
    if not samples.is_floating_point():
        return samples[torch.arange(rows) % len(samples)]
    return torch.randn(rows, *samples.shape[1:], generator=torch.Generator().manual_seed(0)).to(samples.device)


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return float((one - other).norm()) <= TOLERANCE * max(float(other.norm()), 1e-6)
