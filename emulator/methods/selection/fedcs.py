"""FedCS (Nishio and Yonetani 2019): as many clients as can be done before a deadline.

The server asks some of the candidates, drawn at random, for their resources. Each answers how long it will take to get the model,
to train and to send it back, as its device and its link are now. Then it adds clients greedily, those who cost least time first,
as long as the round ends before the deadline (Algorithm 3): the model goes to all of them at once, as fast as the slowest gets
it, and they send theirs back one after another. No clients beyond ``count`` are added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import Field

from emulator.contracts.methods import Patience
from emulator.contracts.selection import Call, SelectionFacts, selections
from emulator.ledger import Tag
from emulator.methods.selecting import NUMBER_BYTES, SELECTIONS
from emulator.methods.selection import Selector
from emulator.methods.session import Session
from emulator.methods.waiting import gather
from emulator.registry import Params
from emulator.units import PositiveSeconds
from emulator.world.world import StepsTo


class FedcsParams(Params):
    """Who is asked, and when a round is to end."""

    deadline: PositiveSeconds = Field(description="how long a round may take by what clients answer (T_round)")
    request: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of the candidates that are asked; at least as many as are wanted"
    )


class Resources(NamedTuple):
    """What a client answers, in seconds: to get the model, to train it, and to send it back."""

    down_s: float
    train_s: float
    up_s: float


def greedy(asked: Mapping[int, Resources], deadline_s: float, most: int) -> list[int]:
    """Clients that together end before the deadline (Algorithm 3), at most so many, in the order in which they are added."""
    left, chosen, down_s, so_far_s = dict(asked), list[int](), 0.0, 0.0

    def after(one: Resources) -> tuple[float, float]:
        """When the model has reached all with this one, and how long from then until all have sent theirs back."""
        return max(down_s, one.down_s), so_far_s + one.up_s + max(0.0, one.train_s - so_far_s)

    while left and len(chosen) < most:
        client = min(left, key=lambda c: (sum(after(left[c])), c))
        latest = after(left.pop(client))
        if sum(latest) < deadline_s:
            chosen.append(client)
            down_s, so_far_s = latest
    return chosen


@selections.register("fedcs", FedcsParams, SelectionFacts(tables=(SELECTIONS,)))
class Fedcs(Selector):
    """FedCS: asks candidates how long they will take, and takes as many as fit into a deadline (Nishio and Yonetani 2019)."""

    def __init__(self, session: Session, params: FedcsParams) -> None:
        self._session, self._params = session, params
        self._answers: dict[int, Resources] = {}

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """Asks, and adds those who cost least time first."""
        world, most = self._session.world, len(call.candidates)
        some = max(call.count, min(most, math.ceil(self._params.request * most - 1e-9)))
        drawn: list[int] = call.rng.choice(call.candidates, some, replace=False).tolist()
        work = {client: self._answer(call, client) for client in sorted(drawn)}
        give_up = partial(world.give_up, call.at.round, call.group)
        self._answers = yield from gather(world, work, Patience(len(work)), world.now, give_up)
        return greedy(self._answers, self._params.deadline, call.count)

    def _answer(self, call: Call, client: int) -> StepsTo[Resources | None]:
        """A request and its answer, three numbers."""
        session, world, at, how = self._session, self._session.world, call.at, call.at.local.params
        name, tag = world.fleet.client_names[client], Tag("selection", at.round, call.group, at.group_round)
        if not (yield world.send(call.server, name, NUMBER_BYTES, tag)):
            return None
        held = int(session.lab.clients.samples[client])
        found = Resources(
            world.send_now_s(call.server, name, at.down_bytes),
            world.train_now_s(client, held, how.epochs, how.batch_size, at.memory.rule.step_flops),
            world.send_now_s(name, call.server, at.up_bytes),
        )
        return found if (yield world.send(name, call.server, len(found) * NUMBER_BYTES, tag)) else None

    def scores(self, client: int) -> Mapping[str, float]:
        """How long it says that it takes, alone."""
        return {"system": sum(self._answers[client])} if client in self._answers else {}
