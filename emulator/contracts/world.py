"""The world of time: transports, group operations, faults and movements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from emulator.conformance import Facts
from emulator.contracts.values import short, whole
from emulator.registry import Choice, Chosen, Params, Registry

if TYPE_CHECKING:
    from devices.profile import DeviceProfile
    from emulator.world.overtime import Spells


@dataclass(frozen=True, kw_only=True)
class Transport:
    """What a transfer takes beside the latency of its route and its share of the links. The defaults add nothing.

    ``payload_bytes`` of every ``frame_bytes`` on the wire are the sender's own. ``set_up`` round trips go by before the first
    byte. The window begins with ``initial_segments`` (0: all at once) and doubles with every round trip; it never exceeds
    ``window_bytes``. Flows on a link share it in proportion to their weights: a round trip, a full queue of ``queue_frames`` at
    the link included, to the power of ``-round_trip_power``, times a factor by chance whose logarithm has the standard
    deviation ``spread``.
    """

    payload_bytes: int = 1
    frame_bytes: int = 1
    set_up: float = 0.0
    initial_segments: int = 0
    window_bytes: float = math.inf
    queue_frames: int = 0
    round_trip_power: float = 0.0
    spread: float = 0.0


WHOLE = ("payload_bytes", "frame_bytes", "initial_segments", "queue_frames")
LIMITS: dict[str, tuple[float, float]] = {
    "payload_bytes": (1, 10**9),
    "set_up": (0, 100),
    "window_bytes": (1, math.inf),
    "round_trip_power": (0, 2),
    "spread": (0, 3),
}


class TransportRule(Protocol):
    """How transfers go."""

    def __call__(self, params: Any, /) -> Transport: ...


class TransportChoice(Chosen[Params, TransportRule, Facts]):
    """A transport."""

    slot = "transport"

    def __call__(self) -> Transport:
        """How transfers go: numbers within their limits, and frames no smaller than what they carry."""
        found = self.plugin.function(self.params)
        if not isinstance(found, Transport):
            raise self.broken(f"it must give a Transport, and gives {short(found)}")
        for name, value in vars(found).items():
            whole_number = name in WHOLE and not isinstance(value, int | np.integer)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or whole_number:
                raise self.broken(f"'{name}' is {short(value)}; it must be a {'whole ' * (name in WHOLE)}number")
            least, most = LIMITS.get(name, (0, 10**9))
            if not least <= value <= most:
                raise self.broken(f"'{name}' is {value}; it must be between {least} and {most}")
        if found.payload_bytes > found.frame_bytes:
            raise self.broken(f"frames of {found.frame_bytes} bytes cannot carry {found.payload_bytes}")
        if found.window_bytes < found.payload_bytes:
            raise self.broken(f"a window of {found.window_bytes} bytes holds no segment of {found.payload_bytes}")
        return found


@dataclass(frozen=True)
class Meeting:
    """One member's part in one operation: its device and the aggregator's, how many members, and how large what they bring.

    ``vectors`` of the model's size are brought by each member: SCAFFOLD brings two. ``dropped`` of the members that it was
    planned for are gone before their contributions arrived.
    """

    device: DeviceProfile
    server: DeviceProfile
    size: int
    parameters: int
    vectors: int = 1
    dropped: int = 0


@dataclass(frozen=True)
class OperationCost:
    """What one member pays."""

    seconds: float
    up_bytes: int
    down_bytes: int


@dataclass(frozen=True, kw_only=True)
class GroupOperationFacts(Facts):
    """What is true of a group operation.

    ``alone``: members have nothing to do together, so nobody waits for anybody. ``least``: a function ``(size, params)`` that
    gives how many of so many members must stay to the end for a result; without it, one. ``sums_only``: a function of the
    parameters that says whether the server learns the sum of what members send, and nothing of a single one; without it, it
    sees every model.
    """

    alone: bool = False
    sums: bool = False
    least: Callable[[int, Any], int] | None = None
    sums_only: Callable[[Any], bool] | None = None


class GroupOperationRule(Protocol):
    """What one member pays for one operation."""

    def __call__(self, at: Meeting, params: Any, /) -> OperationCost: ...


class GroupOperationChoice(Chosen[Params, GroupOperationRule, GroupOperationFacts]):
    """A group operation."""

    slot = "group operation"

    def __call__(self, at: Meeting) -> OperationCost:
        """What one member pays: seconds that are finite and not negative, and whole bytes."""
        cost = self.plugin.function(at, self.params)
        if not isinstance(cost, OperationCost):
            raise self.broken(f"it must give an OperationCost, and gives {short(cost)}")
        if not 0 <= cost.seconds < math.inf:
            raise self.broken(f"it takes {cost.seconds} seconds; they must be finite and not negative")
        for size_bytes in (cost.up_bytes, cost.down_bytes):
            if not isinstance(size_bytes, int | np.integer) or size_bytes < 0:
                raise self.broken(f"it moves {size_bytes} bytes; they must be a whole number and not negative")
        return cost

    @property
    def sums_only(self) -> bool:
        """Whether the server sees the sum of the members' models alone."""
        declared = self.plugin.facts.sums_only
        return declared is not None and declared(self.params)

    def least_members(self, size: int) -> int:
        """How many of ``size`` members must stay to the end for the operation to give a result."""
        least = self.plugin.facts.least
        return 1 if least is None else whole(self, "'least'", least(size, self.params), 0)


@dataclass(frozen=True)
class FleetSize:
    """How many clients and edges there are, and the names of all: of clients by number, of servers by tier."""

    clients: int
    edges: int
    client_names: Sequence[str] = ()
    server_names: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class FaultEffect:
    """What a fault does: 0 in a spell of ``nodes`` means down, of ``links`` (by edge) no bandwidth; ``speeds`` are factors.

    ``breaks_transfers``: what is on a link when it goes out is lost; otherwise it waits. ``moves``: clients of an edge that is
    down are served by another one.
    """

    nodes: dict[str, Spells] = field(default_factory=dict)
    links: dict[str, Spells] = field(default_factory=dict)
    speeds: dict[int, Spells] = field(default_factory=dict)
    breaks_transfers: bool = False
    moves: bool = False


RngOf = Callable[[str], np.random.Generator]


class FaultRule(Protocol):
    """Who is out of order and when; ``rng_of(target)`` is a random stream of the target's own."""

    def __call__(self, fleet: FleetSize, rng_of: RngOf, params: Any, /) -> FaultEffect: ...


class FaultChoice(Chosen[Params, FaultRule, Facts]):
    """A fault."""

    slot = "fault"

    def __call__(self, fleet: FleetSize, rng_of: RngOf) -> FaultEffect:
        """What it does. Its spells are looked at when they are made: they must come in order, and none before time 0."""
        found = self.plugin.function(fleet, rng_of, self.params)
        if not isinstance(found, FaultEffect):
            raise self.broken(f"it must give a FaultEffect, and gives {short(found)}")
        for client in found.speeds:
            if client not in range(fleet.clients):
                raise self.broken(
                    f"it slows client {short(client)} down, and there are clients 0 to {fleet.clients - 1}"
                )
        for spells in (*found.nodes.values(), *found.links.values(), *found.speeds.values()):
            spells.wrong = self.broken
        return found


@dataclass(frozen=True)
class Ground:
    """Who may move, and between which servers.

    ``clients`` and ``homes``: the name of each client, and of the server that it is behind at first. ``tiers``: the names of
    all servers by tier, the cloud's among them. ``places``: where clients and servers stand whose rows say it, in metres.
    ``neighbours``: to whom each server has a direct link.
    """

    clients: Sequence[str]
    homes: Sequence[str]
    tiers: Mapping[str, Sequence[str]]
    places: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    neighbours: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def peers(self, client: int) -> Sequence[str]:
        """The servers of the tier that a client's own is of."""
        return next(names for names in self.tiers.values() if self.homes[client] in names)


Stays = Iterable[tuple[float, str]]  # from when on a client is behind which server, in order; "": none is in reach


class MovementRule(Protocol):
    """Which clients move, by number, and where to; before its first stay a client is at its home.

    Stays are asked for one after another, and may be endless. ``rng_of(target)`` is a random stream of the target's own.
    """

    def __call__(self, ground: Ground, rng_of: RngOf, params: Any, /) -> Mapping[int, Stays]: ...


class MovementChoice(Chosen[Params, MovementRule, Facts]):
    """A movement."""

    slot = "movement"

    def __call__(self, ground: Ground, rng_of: RngOf) -> dict[int, Iterator[tuple[float, str]]]:
        """Who moves where. Stays are looked at when they are asked for: they come in order, at servers that there are."""
        found = self.plugin.function(ground, rng_of, self.params)
        if not isinstance(found, Mapping):
            raise self.broken(f"it must give stays by the number of the client, and gives {short(found)}")
        for client in found:
            if client not in range(len(ground.clients)):
                raise self.broken(
                    f"it moves client {short(client)}, and there are clients 0 to {len(ground.clients) - 1}"
                )
        known = {name for names in ground.tiers.values() for name in names} | {""}
        return {client: self._checked(stays, known) for client, stays in found.items()}

    def _checked(self, stays: Stays, known: set[str]) -> Iterator[tuple[float, str]]:
        last_s = -math.inf
        for stay in stays:
            if not isinstance(stay, tuple) or len(stay) != 2 or stay[1] not in known:
                raise self.broken(f"a stay is an instant and a server's name ('' for none), and it gives {short(stay)}")
            if not max(last_s, 0.0) <= stay[0] < math.inf or stay[0] == last_s:
                raise self.broken(f"a stay from {short(stay[0])} s on cannot follow one from {last_s} s on")
            last_s = stay[0]
            yield stay


transports: Registry[TransportRule, Facts] = Registry(TransportChoice, "emulator.world.transports")
group_operations: Registry[GroupOperationRule, GroupOperationFacts] = Registry(
    GroupOperationChoice, "emulator.world.operations"
)
faults: Registry[FaultRule, Facts] = Registry(FaultChoice, "emulator.world.faults")
movements: Registry[MovementRule, Facts] = Registry(MovementChoice, "emulator.world.moving")

TransportKind = Annotated[TransportChoice, Choice("transport")]
GroupOperation = Annotated[GroupOperationChoice, Choice("group operation")]
Fault = Annotated[FaultChoice, Choice("fault")]
MovementKind = Annotated[MovementChoice, Choice("movement")]
