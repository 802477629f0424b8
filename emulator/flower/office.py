"""Who sends messages to nodes and gets their replies: the cloud, or an edge that aggregates. Each message travels on the clock.

A message sets out when it is pushed, with its true bytes. It waits at the server while its node is away, crosses the links,
is worked on by the node's device, and its reply comes back the same way. What a link or an absence cuts off on the way is
sent again, as gRPC does; work that a crash cuts off is lost. When a message's time to live is over, its reply is an error, as
in Flower.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import simpy
from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode

from emulator.errors import HflError
from emulator.flower.clients import Clients, Question
from emulator.flower.codec import EMPTY, Body, Encoder, error_body, reply_to, size_bytes
from emulator.flower.hours import EPOCH_S
from emulator.flower.pricing import RATE, SAMPLES, Price, Work
from emulator.flower.turns import Steps
from emulator.flower.watching import Watch, numbers_in
from emulator.ledger import COMPUTE, Tag
from emulator.world.world import World

log = logging.getLogger(__name__)

_WORK = {"train": "training", "evaluate": "evaluation"}  # what the ledger calls them
_AGAIN_S = 1.0  # after a transfer that was lost at once
_ROUND_KEYS = ("server-round", "server_round", "current_round", "round")


@dataclass
class Member:
    """A node as a server knows it: a client by its number, or an edge (-1) with what works on its messages."""

    node_id: int
    name: str
    number: int = -1
    config: dict[str, int] = field(default_factory=dict)
    state: bytes = b""
    under_way: int = 0  # messages to it that have no reply yet
    expected: bytes = b""  # the state after all that the device was given so far
    serve: Callable[[Letter], Steps[Body]] | None = None


@dataclass
class Letter:
    """A message on its way. ``header`` has its metadata and no content; ``arrived`` happens when its reply is there."""

    header: Message
    body: Body
    member: Member
    round: int
    pushed_s: float
    arrived: simpy.Event
    question: Question | None = None
    reply: Message | None = None
    expired: bool = False  # its time to live is over
    wanted: bool = True


def node_id_of(seed: int, name: str) -> int:
    """A node's id: a number of 63 bits that depends on the seed and its name alone. All take the same bytes in a message."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 2 | 1 << 62


@dataclass
class Counters:
    """Numbers that messages of a run are told apart by, and how many of them are under way."""

    messages: int = 0
    under_way: int = 0


class Office:
    """A server of the world with its nodes."""

    def __init__(
        self,
        server: str,
        members: Sequence[Member],
        world: World,
        clients: Clients,
        watch: Watch,
        price: Price,
        run_config: dict[str, object],
        seed: int,
        counters: Counters,
        errors_fail: bool = True,
        on_round: Callable[[int], None] = lambda _round: None,
    ) -> None:
        self.server = server
        self.members = {member.node_id: member for member in members}
        self.world = world
        self.encoder = Encoder()
        self._clients = clients
        self._watch = watch
        self._price = price
        self._run_config = run_config
        self._seed = seed
        self._counters = counters
        self._errors_fail = errors_fail
        self._on_round = on_round
        self._letters: dict[str, Letter] = {}
        self.round = 0

    # What a grid asks.

    def there(self) -> list[int]:
        """The ids of the nodes that the server can reach now, in the order of their numbers."""
        return [member.node_id for member in self.members.values() if self._present(member)]

    def push(self, message: Message, body: Body | None = None) -> str:
        """Takes a message; returns its id. Raises `HflError` where there is no such node."""
        metadata = message.metadata
        member = self.members.get(metadata.dst_node_id)
        if member is None:
            raise HflError(
                f"the app sends a message to node {metadata.dst_node_id}{self._in_round()}, and there is no such node: take "
                "ids from grid.get_node_ids()"
            )
        if metadata.reply_to_message_id or not metadata.ttl > 0:
            raise HflError(f"the app pushes a message that is no request{self._in_round()}: {metadata.message_type!r}")
        body = self.encoder.body(message) if body is None else body
        round_ = self._round_of(message)
        if round_ != self.round:
            self._on_round(round_)
            self.round = round_
        self._watch.touch(self.round)
        env = self.world.env
        values = metadata.__dict__
        values["_message_id"] = self._new_id()
        values["_created_at"] = EPOCH_S + float(env.now)
        header = Message(content=RecordDict(), metadata=metadata)
        letter = Letter(header, body, member, self.round, float(env.now), env.event())
        if member.serve is None:
            letter.question = self._question(letter, member.expected)
            if not member.under_way:  # else its state will be another when this one's turn comes
                self._clients.ahead(letter.question)
        member.under_way += 1
        self._letters[metadata.message_id] = letter
        self._counters.under_way += 1
        env.process(self._deliver(letter))
        message_id: str = metadata.message_id
        return message_id

    def letters(self, ids: Iterable[str]) -> list[Letter]:
        """Those of these messages whose replies were not collected yet."""
        return [letter for i in dict.fromkeys(ids) if (letter := self._letters.get(i)) is not None]

    def collect(self, ids: Iterable[str]) -> list[Message]:
        """The replies that have arrived of these messages, in the order in which the messages were pushed."""
        wanted = set(ids)
        there = [i for i, letter in self._letters.items() if i in wanted and letter.reply is not None]
        found = [reply for i in there if (reply := self._letters.pop(i).reply) is not None]
        self._watch.touch(self.round)
        return found

    def leave(self, ids: Iterable[str]) -> None:
        """Replies to these that are still to come are nobody's any longer."""
        for i in ids:
            letter = self._letters.pop(i, None)
            if letter is not None:
                letter.wanted = False

    # On the clock.

    def _deliver(self, letter: Letter) -> Steps[None]:
        env = self.world.env
        travel = env.process(self._travel(letter))
        yield travel | env.timeout(letter.header.metadata.ttl)
        if letter.reply is None:
            letter.expired = True
            if letter.question is not None:
                self._clients.drop(letter.question)
            reason = f"no reply within the message's time to live of {letter.header.metadata.ttl:g} s"
            letter.reply = self._as_message(letter, error_body(ErrorCode.REPLY_MESSAGE_UNAVAILABLE, reason))
        if not letter.wanted:
            letter.reply = None
        self._counters.under_way -= 1
        letter.member.under_way -= 1
        letter.arrived.succeed()

    def _travel(self, letter: Letter) -> Steps[None]:
        member, kind = letter.member, letter.header.metadata.message_type
        down, up = Tag(f"{kind} message", letter.round), Tag(f"{kind} reply", letter.round)
        down_bytes = size_bytes(letter.header, letter.body)
        yield from self._carry(self.server, member, True, down_bytes, down, letter)
        if letter.expired:
            return
        arrived_s = self.world.now
        body = yield from (self._compute(letter) if member.serve is None else member.serve(letter))
        letter.body = EMPTY  # what it said is needed no longer
        done_s = self.world.now
        reply = self._as_message(letter, body)
        up_bytes = size_bytes(reply, body)
        yield from self._carry(self.server, member, False, up_bytes, up, letter)
        if self._is_over(letter):
            return
        letter.reply = reply
        times = {"pushed_s": letter.pushed_s, "arrived_s": arrived_s, "done_s": done_s, "back_s": self.world.now}
        said = {} if reply.has_error() else numbers_in(reply.content)
        self._watch.replied(letter.round, kind, member.name, times, down_bytes, up_bytes, reply.has_error(), said)
        reply.metadata.__dict__["_created_at"] = EPOCH_S + done_s

    def _compute(self, letter: Letter) -> Steps[Body]:
        """The client's own work, on its device. Where a crash cuts it off nothing ever comes of it."""
        member, metadata, world = letter.member, letter.header.metadata, self.world
        question = self._question(letter, member.expected)
        if letter.question is not None and letter.question.key != question.key:
            self._clients.drop(letter.question)
        letter.question = None
        where = f"node {metadata.dst_node_id} ({member.name}), '{metadata.message_type}' of round {letter.round}"
        answer = self._clients.answer(question, where)
        if answer.is_error and answer.trace:
            said = f"the app's client code raised on {where}:\n{answer.trace.rstrip()}"
            if self._errors_fail:
                raise HflError(said)
            log.warning("%s", said)
        body = Body.of(answer.data, answer.is_error)
        said_numbers = {} if answer.is_error else numbers_in(self._as_message(letter, body).content)
        samples, rate = said_numbers.get(SAMPLES), said_numbers.get(RATE)
        work = Work(answer.flops, answer.steps, answer.host_s, samples, rate)
        seconds = 0.0 if answer.is_error else self._price.seconds(world.fleet.client_devices[member.number], work)
        self._watch.worked(metadata.message_type, answer)
        member.expected = answer.state
        tag = Tag(self._price.named(_WORK.get(metadata.message_type, metadata.message_type)), letter.round)
        done = yield world.busy(COMPUTE, member.number, seconds, tag, int(samples or 0))
        if not done:
            member.expected = member.state
            yield world.env.event()
        member.state = answer.state
        return body

    def _carry(self, server: str, member: Member, down: bool, size: int, tag: Tag, letter: Letter) -> Steps[None]:
        """Sends so many bytes to a node or from it, again and again until they are there, or nobody wants them any more."""
        world, (sender, receiver) = self.world, (server, member.name) if down else (member.name, server)
        while not letter.expired:
            while not self._present(member):
                back = world.until_return()
                yield world.env.event() if back is None else back
                if self._is_over(letter):
                    return
            start_s = world.now
            if (yield world.send(sender, receiver, size, tag)):
                return
            if world.now == start_s:
                yield world.env.timeout(_AGAIN_S)

    @staticmethod
    def _is_over(letter: Letter) -> bool:
        return letter.expired

    def _present(self, member: Member) -> bool:
        if member.number >= 0:
            return bool(self.world.present([member.number], self.server))
        return self.world.all_present or (self.world.is_up(member.name) and self.world.connected(member.name))

    def _question(self, letter: Letter, state: bytes) -> Question:
        metadata, member = letter.header.metadata, letter.member
        return self._clients.question(
            letter.body,
            metadata.message_type,
            metadata.group_id,
            member.node_id,
            dict(member.config),
            dict(self._run_config),
            state,
        )

    def _as_message(self, letter: Letter, body: Body) -> Message:
        return reply_to(letter.header, body, self._new_id(), EPOCH_S + self.world.now)

    def _new_id(self) -> str:
        self._counters.messages += 1
        return hashlib.sha256(f"{self._seed}/{self._counters.messages}".encode()).hexdigest()

    def _round_of(self, message: Message) -> int:
        """The round that a message belongs to, as it says; else the latest one that another has said."""
        if message.has_content():
            for record in message.content.config_records.values():
                for key in _ROUND_KEYS:
                    value = record.get(key)
                    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                        return value
        group: str = message.metadata.group_id
        return int(group) if group.isdecimal() and len(group) < 16 else max(self.round, 1)

    def _in_round(self) -> str:
        return f" (after {self.world.now:g} emulated seconds, in round {self.round})"
