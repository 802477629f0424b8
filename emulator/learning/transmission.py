"""A model on its way: encoded by its sender, written as bytes, read and decoded by its receiver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.contracts.encodings import (
    ROLES,
    Coder,
    Difference,
    Draw,
    EncodingChoice,
    Feedback,
    Flops,
    Layout,
    Packer,
    Reducer,
    Vector,
)
from emulator.registry import NoParams
from emulator.rng import stream

if TYPE_CHECKING:
    from torch import Tensor

VERSION = 2  # of the arithmetic of the bundled encodings and of their order


def problems(chosen: Sequence[EncodingChoice]) -> Iterator[str]:
    """What is wrong with a list of encodings."""
    roles, order = [each.plugin.facts.role for each in chosen], list(ROLES)
    places = [order.index(role) for role in roles]
    names = [each.kind for each in chosen]
    for number in range(1, len(chosen)):
        if places[number] < places[number - 1]:
            said = "delta, error-feedback, what makes fewer numbers, what makes fewer bits, zstd"
            yield f"'{names[number]}' cannot come after '{names[number - 1]}'; the order is: {said}"
        elif roles[number] == roles[number - 1] != "reduce":
            yield f"'{names[number - 1]}' and '{names[number]}' do the same; leave one of them out"
    if "feedback" in roles and not {"reduce", "code"}.intersection(roles):
        yield "'error-feedback' has nothing to feed back: nothing is left out"
    scaled = [each.kind for each in chosen if getattr(each.params, "scale", False)]
    if "feedback" in roles and scaled:
        yield f"'{scaled[0]}' must not be scaled with 'error-feedback'; say 'scale: false'"


class Pipeline:
    """A list of encodings, one after another."""

    def __init__(self, chosen: Sequence[EncodingChoice]) -> None:
        self.chosen = tuple(chosen)
        made = [choice() for choice in chosen]
        self.difference = any(isinstance(each, Difference) for each in made)
        self.feedback = any(isinstance(each, Feedback) for each in made)
        self._reducers = [each for each in made if isinstance(each, Reducer)]
        coders = [each for each in made if isinstance(each, Coder)]
        self._coder = coders[0] if coders else _plain()
        self._packers = [each for each in made if isinstance(each, Packer)]
        self.draws = self._coder.draws or any(each.draws for each in self._reducers)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process it is made anew of what was chosen."""
        return Pipeline, (self.chosen,)

    @property
    def fixed(self) -> bool:
        """Whether shapes alone say how long it is."""
        return not self._packers

    def length(self, layout: Layout) -> int:
        """Bytes of a vector: exact where nothing is packed, else as its encodings say.

        Raises ``LookupError`` where one does not.
        """
        side = 0
        for reducer in self._reducers:
            more, layout = reducer.length(layout)
            side += more
        size = float(side + self._coder.length(layout))
        for packer in self._packers:
            if packer.ratio is None:
                raise LookupError("nobody says how far these bytes are packed")
            size *= packer.ratio
        return round(size)

    def flops(self, layout: Layout) -> Flops:
        """Floating-point operations of both ends."""
        before = (self.difference + 2 * self.feedback) * layout.count
        encode, decode, side = float(before), float(self.difference * layout.count), 0
        for reducer in self._reducers:
            each = reducer.flops(layout)
            encode, decode = encode + each.encode, decode + each.decode
            more, layout = reducer.length(layout)
            side += more
        each = self._coder.flops(layout)
        size = side + self._coder.length(layout)
        a_byte = [packer.flops_a_byte for packer in self._packers]
        encode += each.encode + sum(size * one.encode for one in a_byte)
        return Flops(encode, decode + each.decode + sum(size * one.decode for one in a_byte))

    def encode(self, vector: Vector, layout: Layout, draw: Draw) -> bytes:
        """The bytes of a vector."""
        sides = b""
        for reducer in self._reducers:
            side, vector = reducer.encode(vector, layout, draw)
            sides += side
            layout = reducer.length(layout)[1]
        data = sides + self._coder.encode(vector, layout, draw)
        for packer in self._packers:
            data = packer.encode(data)
        return data

    def decode(self, data: bytes, layout: Layout, draw: Draw) -> Vector:
        """The vector that bytes stand for."""
        for packer in reversed(self._packers):
            data = packer.decode(data)
        layouts, sides = [layout], list[bytes]()
        for reducer in self._reducers:
            size, layout = reducer.length(layout)
            layouts.append(layout)
            sides.append(data[:size])
            data = data[size:]
        vector = self._coder.decode(data, layout)
        for number in reversed(range(len(self._reducers))):
            vector = self._reducers[number].decode(sides[number], vector, layouts[number], draw)
        return vector


def _plain() -> Coder:
    made = EncodingChoice("float32", NoParams())()
    assert isinstance(made, Coder)
    return made


@dataclass(frozen=True)
class Transmission:
    """What comes of a model on its way, as a function of models: of the model, of what the receiver has where the difference is
    sent, and of what was left out before where that is fed back. Gives the model as it arrives, and what is left out now.

    ``sent`` numbers of a vector travel, the first ones; the rest stays as the sender has it. ``place`` names the streams of
    whatever is drawn, so that it is another one in every round.
    """

    pipeline: Pipeline
    layout: Layout
    seed: int
    sender: str
    place: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """See `VectorFunction`."""
        return 1 + self.pipeline.feedback

    def identity(self) -> list[Any]:
        """See `VectorFunction`."""
        drawn = [self.seed, self.sender, *self.place] if self.pipeline.draws else []
        return ["transmission", VERSION, [each.identity() for each in self.pipeline.chosen], self.layout.count, drawn]

    def __call__(self, *values: Tensor) -> list[Tensor]:
        """See `VectorFunction`."""
        import torch

        data = self.encoded(*values)
        came = self.received(data, *values)
        if not self.pipeline.feedback:
            return [came]
        whole, meant = self._meant(values)
        left = np.zeros_like(whole)
        left[: self.layout.count] = meant - self.pipeline.decode(data, self.layout, self)
        return [came, torch.from_numpy(left)]

    def encoded(self, *values: Tensor) -> bytes:
        """The bytes that travel."""
        data = self.pipeline.encode(self._meant(values)[1], self.layout, self)
        if self.pipeline.fixed and len(data) != self.pipeline.length(self.layout):
            raise RuntimeError(f"encoded as {len(data)} bytes, and {self.pipeline.length(self.layout)} were booked")
        return data

    def received(self, data: bytes, *values: Tensor) -> Tensor:
        """The model as it arrives. Of ``values`` no more is read than what the receiver has, and what does not travel."""
        import torch

        sent, came = self.layout.count, self.pipeline.decode(data, self.layout, self)
        result = self._numpy(values[0]).copy()
        result[:sent] = self._numpy(values[1])[:sent] + came if self.pipeline.difference else came
        return torch.from_numpy(result)

    def length_of(self, *values: Tensor) -> int:
        """How many bytes it really is."""
        return len(self.pipeline.encode(self._meant(values)[1], self.layout, self))

    def _meant(self, values: Sequence[Tensor]) -> tuple[Vector, Vector]:
        """The whole vector, and what of it is to be encoded."""
        whole, *further = map(self._numpy, values)
        meant = whole[: self.layout.count]
        for number, vector in enumerate(further):
            piece = vector[: self.layout.count]
            meant = meant - piece if self.pipeline.difference and number == 0 else meant + piece
        return whole, meant

    def own(self, purpose: str) -> np.random.Generator:
        """See `Draw`."""
        return stream(self.seed, "encoding", purpose, *self.place, self.sender)

    def shared(self, purpose: str) -> np.random.Generator:
        """See `Draw`."""
        return stream(self.seed, "encoding", purpose, *self.place)

    @staticmethod
    def _numpy(value: Tensor) -> Vector:
        return np.asarray(value.numpy(), dtype=np.float32)
