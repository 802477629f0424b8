"""What models are on the wire: which encodings a transfer has, what they cost, and what comes out at its other end.

A model that is sent is encoded by its sender, written as bytes, and decoded by its receiver: the one that goes on is what was
decoded, and the ledger has the bytes that were written. Both ends compute for that. Servers in between pass bytes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import simpy
from pydantic import Field

from emulator.contracts.encodings import EncodingKind, Layout
from emulator.contracts.learning import MeasurementChoice
from emulator.contracts.world import GroupOperation
from emulator.errors import InputError, suggestion
from emulator.learning.measurements import EncodedSizeParams
from emulator.learning.recipes import Handle
from emulator.learning.timing import TimingLab
from emulator.learning.transmission import Pipeline, Transmission, problems
from emulator.ledger import Tag
from emulator.registry import Params, Scale

if TYPE_CHECKING:
    from emulator.methods.session import Session
    from emulator.world.world import StepsTo

CLIENT = "client"
KEY = "encodings"
ENCODING, DECODING = "encoding", "decoding"  # what nodes compute for


class Encodings(Params):
    """What models are on the links of a tier: a list of encodings, one after another. Without any, four bytes a number."""

    up: tuple[EncodingKind, ...] = Field((), strict=False, description="of what the tier sends to the servers above it")
    down: tuple[EncodingKind, ...] = Field((), strict=False, description="of what it gets from them")
    peer: tuple[EncodingKind, ...] = Field((), strict=False, description="of what its nodes send to each other")

    def lists(self) -> Iterator[tuple[str, Sequence[EncodingKind]]]:
        """Those that there are, by direction."""
        yield from ((name, found) for name in ("up", "down", "peer") if (found := getattr(self, name)))


def problems_of(
    given: Mapping[str, Encodings], scale: Scale, operation: GroupOperation | None, memory: str
) -> Iterable[tuple[str, str]]:
    """What is wrong with the encodings of a method; ``memory`` is the kind of a local rule that has one, else ""."""
    tiers = [CLIENT, *(tier for tier in scale.tiers if tier != "cloud")]
    for tier, own in given.items():
        if tier not in tiers:
            yield f"{KEY}.{tier}", f"unknown tier '{tier[:40]}'; {suggestion(tier, tiers, 'tiers')}"
            continue
        for direction, chosen in own.lists():
            at = f"{KEY}.{tier}.{direction}"
            yield from ((at, message) for message in problems(chosen))
            roles = {each.plugin.facts.role: each.kind for each in chosen}
            if "feedback" in roles and direction != "up":
                yield (
                    at,
                    "'error-feedback' is for what goes up: a sender has one memory, and here it has many receivers",
                )
            if "difference" in roles and direction == "peer":
                yield at, "'delta' is for what goes up or down: nobody knows what the next one has"
            if operation is not None and not operation.plugin.facts.alone and (tier, direction) == (CLIENT, "up"):
                for each in chosen:
                    if not each.plugin.facts.summable:
                        message = f"'{operation.kind}' adds up what clients send, and '{each.kind}' gives what cannot be added"
                        yield at, f"{message}; take 'random-k' (after 'delta'), or no group operation"
    if memory and any(True for own in given.values() for _ in own.lists()):
        yield KEY, f"'{memory}' sends states beside models, which are not encoded; take another 'local'"


class Wire:
    """All that is encoded in a run: by whom, and what both ends remember of it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        given: Mapping[str, Encodings] = getattr(session.scenario.method.params, KEY, {})
        self._pipelines = {
            (tier, direction): Pipeline(chosen) for tier, own in given.items() for direction, chosen in own.lists()
        }
        self._shared: dict[
            tuple[str, str], Handle
        ] = {}  # the last model from a server to one below it, which both have
        self._left: dict[str, Handle] = {}  # what a sender has left out so far
        self._encoded: dict[
            tuple[object, ...], simpy.Event
        ] = {}  # by a server in this round, for all that it sends it to
        self._round = 0

    @property
    def used(self) -> bool:
        """Whether anything is encoded."""
        return bool(self._pipelines)

    @cached_property
    def layout(self) -> Layout:
        """The tensors that travel."""
        lab, facts = self._session.lab, self._session.lab.model_facts
        shapes, sent = list[tuple[int, ...]](), 0
        buffers = self._session.scenario.topology.buffers == "sent"
        for shape in lab.state_shapes:
            one = Layout((shape,))
            if sent + one.count > facts.parameters and not buffers:
                break
            shapes.append(shape)
            sent += one.count
        return Layout(tuple(shapes))

    def deliver(
        self, sender: str, receiver: str, model: Handle, tag: Tag, via: str, beside_bytes: int = 0
    ) -> StepsTo[Handle | None] | None:
        """Steps that bring a model from one node to another and return it as it arrives; None where it is not encoded."""
        tier, direction, pair = self._way(sender, receiver)
        pipeline = self._pipelines.get((tier, direction))
        if pipeline is None:
            return None
        return self._deliver(pipeline, sender, receiver, pair, model, tag, via, beside_bytes)

    def took(self, sender: str, receiver: str, model: Handle) -> None:
        """A model has arrived as it is."""
        _, direction, pair = self._way(sender, receiver)
        if direction == "down":
            self._shared[pair] = model

    def _way(self, sender: str, receiver: str) -> tuple[str, str, tuple[str, str]]:
        """Whose encodings a transfer has, in which direction, and the pair of its upper and its lower end."""
        fleet = self._session.world.fleet
        clients = [fleet.number(node) is not None for node in (sender, receiver)]
        if all(clients):
            return CLIENT, "peer", (sender, receiver)
        if any(clients):
            return (CLIENT, "up", (receiver, sender)) if clients[0] else (CLIENT, "down", (sender, receiver))
        tier_of = fleet.roster.by_name
        if receiver in fleet.path(sender):
            return tier_of[sender].tier, "up", (receiver, sender)
        if sender in fleet.path(receiver):
            return tier_of[receiver].tier, "down", (sender, receiver)
        return tier_of[sender].tier, "peer", (sender, receiver)

    def _deliver(
        self,
        pipeline: Pipeline,
        sender: str,
        receiver: str,
        pair: tuple[str, str],
        model: Handle,
        tag: Tag,
        via: str,
        beside_bytes: int,
    ) -> StepsTo[Handle | None]:
        session, known = self._session, [model]
        if pipeline.difference:
            known.append(self._shared.get(pair) or session.lab.initial())
        if pipeline.feedback and sender in self._left:
            known.append(self._left[sender])
        place = (tag.round, tag.group, tag.group_round)
        transmission = Transmission(pipeline, self.layout, session.seed, sender, place)
        size, flops = self._size(transmission, known), pipeline.flops(self.layout)
        whose = (sender, *place, id(pipeline), receiver if pipeline.difference else "")
        came, *left = session.lab.apply(transmission, known)
        if not (yield from self._compute(sender, flops.encode, tag.with_purpose(ENCODING), came.key, whose)):
            return None
        if not (yield session.world.send(sender, receiver, size + beside_bytes, tag, via, came.key)):
            return None
        if not (yield from self._compute(receiver, flops.decode, tag.with_purpose(DECODING), came.key)):
            return None
        self.took(sender, receiver, came)
        if left:
            self._left[sender] = left[0]
        return came

    def _compute(
        self, node: str, flops: float, tag: Tag, content: str, shared: tuple[object, ...] | None = None
    ) -> StepsTo[bool]:
        """What a node computes to encode or decode; a server encodes what is the same for many receivers once."""
        world = self._session.world
        if not flops:
            return True
        client = world.fleet.number(node)
        if client is not None:
            return bool((yield world.compute(client, flops, 0, tag, content=content)))
        if tag.round > self._round:
            self._round, self._encoded = tag.round, {}
        if shared is None:
            yield world.serve(node, flops, tag, content)
            return True
        begun = self._encoded.get(shared)
        if begun is None:
            begun = self._encoded[shared] = world.serve(node, flops, tag, content)
        if not begun.processed:
            yield begun
        return True

    def _size(self, transmission: Transmission, known: Sequence[Handle]) -> int:
        """How many bytes travel: by shapes, or as a measurement says where they are packed."""
        pipeline, lab = transmission.pipeline, self._session.lab
        if pipeline.fixed:
            return pipeline.length(self.layout)
        if isinstance(lab, TimingLab):
            try:
                return pipeline.length(self.layout)
            except LookupError:
                why = "how far bytes are packed depends on what is learned; without training say it with its 'ratio'"
                raise InputError(why, f"method.{KEY}") from None
        asked = MeasurementChoice("encoded-size", EncodedSizeParams.of(transmission))
        return int(lab.measure(asked, known)[0])
