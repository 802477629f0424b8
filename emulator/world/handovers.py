"""Clients that move while something is under way: what a handover cuts and costs, and how transfers go on elsewhere.

A handover happens at the instant at which a client comes behind another server. Its device goes on with what it computes. Its
transfers under way are lost, or resumed over the new server, or carried to their end by the old one. Before the new server
serves it, the interruption must be over and its state must have come from the old one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import simpy

from emulator.errors import HflError
from emulator.ledger import BROKEN, DONE, Tag
from emulator.world.fleet import CLOUD, Fleet
from emulator.world.movements import Movements
from emulator.world.played import DIRECTIONS
from emulator.world.simpy_internals import happens_at

if TYPE_CHECKING:
    from emulator.world.world import Steps, World

HANDOVER = "handover"
# How often clients may move while nobody asks for anything else: so many times, and so many more for each that moves.
MOVES = 100_000
MOVES_A_CLIENT = 1_000


class Part(NamedTuple):
    """What of a transfer has gone over the old server: how many bytes are left, and what books it with a status."""

    left_bytes: int
    book: Callable[[str], None]


class Handovers:
    """The handovers of a run: those under way, and the next."""

    def __init__(self, env: simpy.Environment, fleet: Fleet, movements: Movements) -> None:
        self.resuming = False  # whether what is being cut off now goes on elsewhere
        self._env = env
        self._fleet = fleet
        self._movements = movements
        self._under_way: dict[int, simpy.Event] = {}
        self._last = {client: path.latest(0.0) for client, path in movements.paths.items()}
        self._next = [(path.next_change(0.0), client) for client, path in movements.paths.items()]
        heapq.heapify(self._next)

    @property
    def next_s(self) -> float:
        """When a client moves next."""
        return self._next[0][0] if self._next else math.inf

    def under_way(self, client: int) -> bool:
        """Whether a client is between two servers."""
        return client in self._under_way

    def or_next(self, event: simpy.Event | None) -> simpy.Event | None:
        """Happens with an event, or when the first of the handovers under way is over."""
        events = [*self._under_way.values(), *([] if event is None else [event])]
        return self._env.any_of(events) if len(events) > 1 else next(iter(events), None)

    def follow(self, world: World) -> Steps:
        """Moves the clients of a world, one after another, as long as anything else happens in it."""
        most, asked, moves = MOVES + MOVES_A_CLIENT * len(self._movements.paths), -1, 0
        while self.next_s < math.inf:
            yield happens_at(self._env, self.next_s)
            now_s = self._env.now
            asked, moves = (asked, moves + 1) if world.requests == asked else (world.requests, 0)
            while self.next_s <= now_s:
                _, client = self._next[0]
                path = self._movements.paths[client]
                heapq.heapreplace(self._next, (path.next_change(now_s), client))
                self._move(world, client, path.at(now_s))
            if self._env.peek() == math.inf:
                return  # whoever waits waits for something that nobody does
            if moves > most and world.devices.idle:
                often = f"clients have moved {moves:,} times since anybody asked for anything else"
                raise HflError(
                    f"after {now_s:g} emulated seconds nothing but handovers happens: {often}; "
                    "let clients stay longer, or make handovers quicker (topology.movement)"
                )

    def _move(self, world: World, client: int, server: str) -> None:
        how, name, old = self._movements.how, self._fleet.client_names[client], self._last[client]
        assert how is not None
        if not server or how.transfers != "carried":
            self.resuming = how.transfers == "resumed"
            for way in DIRECTIONS:
                world.cut(f"{name}/{way}")
            self.resuming = False
        before = self._under_way.pop(client, None)
        if before is not None:  # its state is where it was
            world.cut((HANDOVER, client))
        size_bytes = int(how.state) + world.workload.model_bytes * how.model
        if server and server != old and (size_bytes or how.interruption):
            over = self._under_way[client] = self._env.event()
            self._env.process(self._hand_over(world, client, (old, server), size_bytes, over))
        elif server:
            self._last[client] = server
        if before is not None:
            before.succeed()

    def _hand_over(self, world: World, client: int, ends: tuple[str, str], size_bytes: int, over: simpy.Event) -> Steps:
        assert self._movements.how is not None
        if self._movements.how.interruption:
            yield self._env.timeout(self._movements.how.interruption)
        if size_bytes and self._under_way.get(client) is over:
            yield world.carry(*ends, size_bytes, Tag(HANDOVER), CLOUD, None, (HANDOVER, client))
        if self._under_way.get(client) is over:  # else it has moved on meanwhile
            del self._under_way[client]
            self._last[client] = ends[1]
            over.succeed()

    def send(self, world: World, sender: str, receiver: str, size_bytes: int, tag: Tag, via: str) -> Steps:
        """A transfer in a world in which clients move; returns whether it arrived. See `World.send`.

        Those of clients that stay go the same way, so that nothing depends on whether a client will move some day.
        """
        numbers = (self._fleet.number(sender), self._fleet.number(receiver))
        movers = [n for n in numbers if n is not None and n in self._movements.paths]
        places = (sender, receiver, (tag.round, tag.group))
        parts: list[Part] = []  # that have gone another way already
        arrived = False
        while True:
            wait = self._wait(movers)
            if wait is not None:
                if (yield world.hold(wait, places)):
                    continue
                break
            refusal = self._refusal(world, movers, (sender, receiver), via)
            if refusal:
                yield world.lost(refusal)
                break
            known = len(parts)
            arrived = yield world.carry(sender, receiver, size_bytes, tag, CLOUD, parts.append)
            if arrived or len(parts) == known:
                break
            size_bytes = parts[-1].left_bytes
        for part in parts:
            part.book(DONE if arrived else BROKEN)
        return arrived

    def _wait(self, movers: Sequence[int]) -> simpy.Event | None:
        """What a transfer must wait for before it can begin or go on; None: for nothing."""
        for client in movers:
            if client in self._under_way:
                return self._under_way[client]
            back_s = self._movements.paths[client].next_in_reach(self._env.now)
            if (
                self._env.now < back_s
                and self._movements.how is not None
                and self._movements.how.transfers == "resumed"
            ):
                return happens_at(self._env, back_s) if back_s < math.inf else None
        return None

    def _refusal(self, world: World, movers: Sequence[int], ends: tuple[str, str], via: str) -> str:
        """Why a transfer is lost; "" where it can begin. With ``transfers: lost`` clients talk to their own servers alone."""
        how, names = self._movements.how, self._fleet.client_names
        for client in movers:
            if not self._movements.paths[client].at(self._env.now):
                return f"{names[client]} has no server in reach"
            servers = [node for node in (*ends, via) if self._fleet.number(node) is None and node != CLOUD]
            if how is not None and how.transfers == "lost" and not all(world.serves(s, client) for s in servers):
                return f"{names[client]} has left {servers[0]}"
        return ""
