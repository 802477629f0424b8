"""The grid of an app, on the emulated clock."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo  # type: ignore[attr-defined]
from flwr.serverapp import Grid
from flwr.supercore.run import Run, RunNotRunningException

from emulator.errors import HflError
from emulator.flower.codec import Body
from emulator.flower.office import Office
from emulator.flower.turns import Steps, Stopped, Turns, here
from emulator.flower.worker import RUN_ID

_MOST_EMPTY = 1000  # pulls in a row that find nothing although nothing is under way


class EmulatedGrid(Grid):
    """A server's grid: what it sends takes time on the links of the world, and what it waits for lets the clock go on."""

    def __init__(self, office: Office, turns: Turns) -> None:
        self._office = office
        self._turns = turns
        self._empty_s = -1.0  # when a pull found nothing last
        self._empty = 0

    def set_run(self, run: Run) -> None:
        """There is one run, and no other can be chosen."""

    @property
    def run(self) -> Run:
        """The run."""
        return Run.create_empty(RUN_ID)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message with this content, for a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are there now, on the emulated clock."""
        if here() is None:
            raise RunNotRunningException  # a thread that Flower's older servers keep beside, and that ends so
        return self._turns.wait(self._there())

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are there now."""
        return [NodeInfo(node_id=node_id) for node_id in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Sends messages; they set out at this instant. Returns their ids."""
        shared: dict[int, Body] = {}
        whole = isinstance(messages, list | tuple)  # made beforehand: nobody changes a content between two messages
        ids, seat = list[str](), here()
        self._turns.wait(self._nothing())  # what the app has computed so far takes its time first
        for message in messages:
            try:
                with nullcontext() if seat is None else seat.for_us():
                    ids.append(self._push(message, shared if whole else None))
            except HflError as error:
                self._turns.fail(error)
                raise Stopped from None
        self._turns.idle = 0
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that are there now.

        Where nothing has come since the last pull found nothing at the same instant, the clock goes on to the next reply.
        """
        return self._turns.wait(self._pulled(list(message_ids)))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Sends messages and waits for all replies, at most so many emulated seconds.

        The replies stand in the order of the messages, whichever came first.
        """
        ids = list(self.push_messages(messages))
        return self._turns.wait(self._received(ids, timeout))

    def _push(self, message: Message, shared: dict[int, Body] | None) -> str:
        """``shared``: bodies of contents that stay the same from message to message."""
        body = None
        if shared is not None and message.has_content():
            body = shared.get(id(message.content))
            if body is None:
                body = shared[id(message.content)] = self._office.encoder.body(message)
        return self._office.push(message, body)

    def _there(self) -> Steps[list[int]]:
        yield from ()
        found = self._office.there()
        self._turns.seen = len(found), len(self._office.members)
        return found

    def _nothing(self) -> Steps[None]:
        yield from ()

    def _pulled(self, ids: list[str]) -> Steps[list[Message]]:
        env = self._office.world.env
        found = self._office.collect(ids)
        if not found and ids and self._empty_s == env.now:
            coming = [letter.arrived for letter in self._office.letters(ids) if not letter.arrived.processed]
            if coming:
                yield env.any_of(coming)
                found = self._office.collect(ids)
            else:
                self._empty += 1
                if self._empty > _MOST_EMPTY:
                    raise HflError(
                        f"the app's server never returns: it asks again and again, after {env.now:g} emulated seconds, for "
                        f"replies to {len(ids)} messages that it has collected already or never sent"
                    )
        if found:
            self._empty = 0
        self._empty_s = -1.0 if found else float(env.now)
        return found

    def _received(self, ids: list[str], timeout: float | None) -> Steps[list[Message]]:
        env = self._office.world.env
        coming = [letter.arrived for letter in self._office.letters(ids)]
        if coming:
            everything = env.all_of(coming)
            yield everything if timeout is None else everything | env.timeout(max(0.0, timeout))
        found = self._office.collect(ids)
        self._office.leave(ids)
        return found
