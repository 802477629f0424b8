"""What the driver of a testbed and its nodes tell each other over the control channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator.learning.recipes import VectorFunction
from emulator.learning.trainer import TrainJob
from emulator.learning.transmission import Transmission

ENCODED = "encoded:"  # before the key of a model: its bytes as they travel
NUMBER_BYTES = 4  # of a number of a model's state


@dataclass(frozen=True)
class Draw:
    """The untrained model, drawn from the scenario's seed; None: a vector of zeros."""

    number: int | None


@dataclass(frozen=True)
class Weigh:
    """The weighted sum of what is needed."""

    weights: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """What a function gives for what is needed."""

    function: VectorFunction


@dataclass(frozen=True)
class Train:
    """A local training of the one model that is needed; the job has no tensors."""

    job: TrainJob


@dataclass(frozen=True)
class Encode:
    """What travels of the models that are needed."""

    transmission: Transmission


@dataclass(frozen=True)
class Decode:
    """A model as it arrives: needed are its bytes and, where the difference travels, the model that its receiver has."""

    transmission: Transmission


@dataclass(frozen=True)
class Same:
    """The one thing that is needed, under another key."""


How = Draw | Weigh | Run | Train | Encode | Decode | Same


@dataclass(frozen=True)
class Step:
    """One thing that a node computes from what it has."""

    gives: tuple[str, ...]
    needs: tuple[str, ...]
    how: How


@dataclass(frozen=True)
class Order:
    """Something that a node is to do; it reports under this number."""

    number: int


@dataclass(frozen=True)
class Work(Order):
    """Steps, one after another, on the node's device."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Meet(Order):
    """A step of secure aggregation (`emulator.testbed.secure`): a call of the party that a node is in a meeting."""

    meeting: str
    call: str
    needs: Mapping[int, str] = field(default_factory=dict)  # keys of messages, by the number of the client
    gives: str = ""
    about: Any = None


@dataclass(frozen=True)
class Hop:
    """One way of a transfer in user space, from one process to the next: through which links, which either end holds."""

    port: int
    held_by_sender: tuple[str, ...]
    held_by_receiver: tuple[str, ...]
    delay_s: float


@dataclass(frozen=True)
class Way:
    """How a transfer goes: over the kernel's links, from one address to another, or over hops in user space."""

    sender: str = ""
    receiver: str = ""
    hops: tuple[Hop, ...] = ()


@dataclass(frozen=True)
class Send(Order):
    """Something that a node has, or nothing, filled up to so many bytes; after steps that make it."""

    way: Way
    content: str
    size_bytes: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Expect(Order):
    """What a transfer brings that comes under this number: a state of so many numbers, or bytes; "" is nothing."""

    content: str
    numbers: int = 0
    length: int = -1  # of bytes that are no state; -1: all that came


@dataclass(frozen=True)
class Tell(Order):
    """Asks for something that a node has; it is reported over the control channel."""

    key: str


@dataclass(frozen=True)
class Give(Order):
    """Gives a node something over the control channel."""

    key: str
    value: bytes
    is_state: bool


@dataclass(frozen=True)
class Drop(Order):
    """Nobody needs these any more."""

    keys: Sequence[str]


@dataclass(frozen=True)
class Stop(Order):
    """Nobody waits for an order any longer; the answer says how many bytes of it have come or gone."""

    other: int


@dataclass(frozen=True)
class Report:
    """What came of an order, and from when to when, on the host's monotonic clock.

    ``value`` is what was asked for; ``failed`` says what went wrong.
    """

    number: int
    began_s: float
    ended_s: float
    value: Any = None
    failed: str = ""
    lost: bool = False  # it could not be done because somebody was gone, which the driver knows of
