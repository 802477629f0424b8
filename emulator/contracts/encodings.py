"""What models are on the wire: encodings, one after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from emulator.conformance import Facts
from emulator.contracts.values import short
from emulator.registry import Choice, Chosen, Params, Registry

Vector = npt.NDArray[np.float32]


class Draw(Protocol):
    """Streams of random numbers of one transfer; both of its ends have the same ones."""

    def own(self, purpose: str) -> np.random.Generator:
        """A stream that only this sender has in this round."""

    def shared(self, purpose: str) -> np.random.Generator:
        """A stream that all senders of a round have."""


@dataclass(frozen=True)
class Layout:
    """The tensors that a vector is made of, by their shapes, in its order."""

    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each has."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def count(self) -> int:
        """How many numbers there are in all."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of both ends."""

    encode: float
    decode: float


@dataclass(frozen=True)
class Reducer:
    """An encoding that makes fewer numbers of many, and bytes beside them that say what these are.

    ``length`` gives the number of these bytes and the layout of what is left. ``encode`` gives both, ``decode`` takes both and
    the layout of the whole. None of them changes what it is given.
    """

    length: Callable[[Layout], tuple[int, Layout]]
    encode: Callable[[Vector, Layout, Draw], tuple[bytes, Vector]]
    decode: Callable[[bytes, Vector, Layout, Draw], Vector]
    flops: Callable[[Layout], Flops]
    draws: bool = False  # whether anything depends on chance


@dataclass(frozen=True)
class Coder:
    """An encoding that writes numbers as bytes, so many for so many numbers, and reads them again."""

    length: Callable[[Layout], int]
    encode: Callable[[Vector, Layout, Draw], bytes]
    decode: Callable[[bytes, Layout], Vector]
    flops: Callable[[Layout], Flops]
    draws: bool = False


@dataclass(frozen=True)
class Packer:
    """An encoding that makes other bytes of bytes; how many depends on what they are. ``ratio``: out of one, where it is said."""

    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], bytes]
    flops_a_byte: Flops
    ratio: float | None = None


@dataclass(frozen=True)
class Difference:
    """What is encoded is the difference to what the receiver has already."""


@dataclass(frozen=True)
class Feedback:
    """What encoding leaves out is kept, and added to what is encoded next time."""


Encoding = Difference | Feedback | Reducer | Coder | Packer

ROLES: dict[str, type[Encoding]] = {
    "difference": Difference,
    "feedback": Feedback,
    "reduce": Reducer,
    "code": Coder,
    "pack": Packer,
}


@dataclass(frozen=True, kw_only=True)
class EncodingFacts(Facts):
    """What is true of an encoding. ``role``: what it does, in the order in which encodings stand in a list.

    ``summable``: sums of what is encoded are what is encoded of sums, so that it goes with secure aggregation.
    """

    role: Literal["difference", "feedback", "reduce", "code", "pack"]
    summable: bool = False


class EncodingRule(Protocol):
    """Makes an encoding from its parameters."""

    def __call__(self, params: Any, /) -> Encoding: ...


class EncodingChoice(Chosen[Params, EncodingRule, EncodingFacts]):
    """An encoding."""

    slot = "encoding"

    def __call__(self) -> Encoding:
        """The encoding, of the kind that its facts name."""
        made, wanted = self.plugin.function(self.params), ROLES[self.plugin.facts.role]
        if not isinstance(made, wanted):
            raise self.broken(f"it must give a {wanted.__name__}, as its facts say, and gives {short(made)}")
        return made


encodings: Registry[EncodingRule, EncodingFacts] = Registry(EncodingChoice, "emulator.learning.encodings")

EncodingKind = Annotated[EncodingChoice, Choice("encoding")]
