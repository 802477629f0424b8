"""Asynchronous chains of groups: FedAsyncSeq (S4). The clock decides how far each chain gets.

In a window of R rounds the server starts a chain at each sampled group. A model that comes back goes at once to another group,
drawn at random from those that are free, so that fast groups hand on more often; where none is free it waits for the first
that is. A round ends when some chain has made one pass more than any had before, so a window ends with the R-th pass of the
fastest chain, which goes no further. S4's Alg. 1 averages an update of every chain: the server waits for those that are still on
their first pass. It averages the latest model of every chain, weighted by the samples that it has passed through in the
window; later passes under way are cut off. The next window starts with the average. At every instant only what has arrived is
known.

With R = 1 every chain makes one pass through its group, so this is FedSeq: groups are drawn as grouped rounds draw them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import numpy as np
import simpy
from pydantic import Field

from emulator.contracts.methods import GroupResult, MethodFacts, WaitingChoice, methods
from emulator.grouping.sampling import draw
from emulator.grouping.sampling.rules import SamplingParams
from emulator.learning.recipes import Handle
from emulator.methods.estimators import learn
from emulator.methods.forming import (
    Positions,
    charge_formation,
    enquiry,
    form,
    next_return,
    present,
    until_somebody,
)
from emulator.methods.limits import check_groups
from emulator.methods.memory import RuleMemory
from emulator.methods.session import Session
from emulator.methods.slots import GroupSlots
from emulator.methods.training import Group, GroupRound, Waits
from emulator.registry import NoParams, Scale
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.world.world import Steps

_AT_ONCE = (
    1e-9  # relative: chains that return so shortly after one another return together; rounding may set them apart
)

MOST_LOST = 100  # passes in a row from which nothing comes back: a window ends then with what it has


class AsynchronousParams(GroupSlots):
    """The slots of asynchronous chains."""

    share: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="chains, as a share of the groups (C)")
    window: Count | None = Field(
        None, description="rounds from one averaging to the next (R); without it, as many as there are groups"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """Groups that cannot be formed in this fleet, or that would wait for one another."""
        yield from super().problems(scale)
        if self.training.plugin.facts.headers:
            yield (
                "training",
                f"'{self.training.kind}' goes with 'grouped' rounds: all headers get their data before the first",
            )


@methods.register("asynchronous", AsynchronousParams, MethodFacts(privacy=("client", "server", "distributed")))
def asynchronous(session: Session, params: AsynchronousParams) -> Steps:
    """Asynchronous chains: what a group sends back goes at once to another group; averaged every R rounds (FedAsyncSeq)."""
    lab, world = session.lab, session.world
    world.watch()
    model = lab.initial()
    memory = RuleMemory(lab, params.local, session.scenario.topology.client_count)
    model_bytes = world.workload.model_bytes * memory.rule.vectors
    session.begin(model)
    needs = params.formation.plugin.facts.needs
    estimates = yield from learn(session, needs, params.estimator, enquiry(session, params))
    groups, positions, t = list[Group](), Positions(session, params), 0
    while True:
        tries, ready = itertools.count(), None
        while ready is None:
            if not groups or positions.changed():
                positions.note()
                groups = form(session, params, t + 1, estimates)
                check_groups(session, params, groups, t + 1)
                yield from charge_formation(session, params.formation, groups, t + 1, estimates)
            ready = yield from until_somebody(session, params, groups, model, positions.changed, tries)
        if not ready:
            return
        rounds = params.window or len(groups)
        if session.scenario.stop.rounds is not None:
            rounds = min(rounds, session.scenario.stop.rounds - t)
        count = SamplingParams(share=params.share).count(len(ready))
        picked = draw(np.zeros(len(ready)), count, stream(session.seed, "sampling", t + 1))
        chains = [Chain(number, model, ready[i].number) for number, i in enumerate(picked)]
        window = Window(session, params, groups, chains, t, rounds)
        first_bytes = 0 if params.initial_model == "seed" and t == 0 else model_bytes
        work = [world.env.process(window.follow(chain, memory, first_bytes, model_bytes)) for chain in chains]
        yield window.over | world.env.all_of(work)
        if any(chain.at is not None for chain in chains):
            yield world.env.timeout(_AT_ONCE * world.now)
        for chain in chains:
            if chain.at is not None:
                world.give_up_group(*chain.at)
        back = [chain for chain in chains if chain.samples]
        if back:
            total = sum(chain.samples for chain in back)
            model = memory.end_round(lab.combine([c.latest for c in back], [c.samples / total for c in back]))
        t += rounds
        if session.end_round(t, model):
            return


@dataclass
class Chain:
    """One chain within a window: its latest model, the group to which it goes (or was last), and what it has passed through."""

    number: int
    latest: Handle
    group: int
    passes: int = 0
    samples: int = 0
    at: tuple[int, int] | None = None  # round and group of the pass under way


class Window:
    """R rounds between two averagings, from after round ``begins`` on.

    ``over`` happens when the fastest chain is through and nobody is on a first pass any more.
    """

    def __init__(
        self,
        session: Session,
        params: AsynchronousParams,
        groups: Sequence[Group],
        chains: Sequence[Chain],
        begins: int,
        rounds: int,
    ) -> None:
        self.over = session.env.event()
        self._session = session
        self._params = params
        self._groups = groups
        self._chains = chains
        self._begins = begins
        self._rounds = rounds
        self._free = set(range(len(groups))) - {chain.group for chain in chains}
        self._waiting: list[tuple[int, int, simpy.Event]] = []  # chain, where it comes from, where it may go
        self._assigning = False
        self._lost = 0  # passes in a row from which nothing came back
        self._rng = stream(session.seed, "next group", begins + 1)

    def follow(self, chain: Chain, memory: RuleMemory, first_bytes: int, model_bytes: int) -> Steps:
        """One chain from group to group until it has made its passes, or the window is over."""
        params, size = self._params, first_bytes
        waits = Waits(WaitingChoice("all", NoParams()), 1, params.min_members)
        while True:
            group = present(self._session, params, self._groups[chain.group])
            if group is not None:
                at = (self._begins + chain.passes + 1, group.number)
                where = GroupRound(
                    *(at[0], 0, params.local, params.group_operation, memory, size, model_bytes, params.combination)
                )
                chain.at = at
                outcome: GroupResult | None = yield from params.training(
                    self._session, group, chain.latest, where, waits
                )
                chain.at, size = None, model_bytes
                self._ended(chain, outcome)
            self._free.add(chain.group)
            if self.closed() or chain.passes == self._rounds:
                return
            turn = self._ask(chain)
            yield turn | self.over
            if not turn.triggered or self.closed():
                return
            chain.group = cast(int, turn.value)

    def closed(self) -> bool:
        """Whether it is over."""
        return bool(self.over.triggered)

    def _ended(self, chain: Chain, outcome: GroupResult | None) -> None:
        """Counts a pass that has ended, and closes the window where it was the last that is waited for."""
        if outcome is None:
            self._lost += 1
        else:
            chain.latest = outcome.model
            chain.passes += 1
            chain.samples += outcome.samples
            self._lost = 0
        through = any(each.passes == self._rounds for each in self._chains)
        waited_for = any(each.at is not None and not each.passes for each in self._chains)
        if ((through and not waited_for) or self._lost == MOST_LOST) and not self.closed():
            self.over.succeed()

    def _ask(self, chain: Chain) -> simpy.Event:
        """Happens when there is another group for a chain, with its number."""
        turn = self._session.env.event()
        self._waiting.append((chain.number, chain.group, turn))
        if not self._assigning:
            self._assigning = True
            self._session.env.process(self._assign())
        return turn

    def _assign(self) -> Steps:
        """Gives groups that are free and have somebody there to the chains that wait."""
        world, only_one = self._session.world, len(self._groups) == 1
        for waits in itertools.count():
            yield world.env.timeout(_AT_ONCE * world.now)
            if self.closed():
                return
            there = [g for g in sorted(self._free) if present(self._session, self._params, self._groups[g]) is not None]
            self._waiting.sort(key=lambda waiting: waiting[0])
            assigned = list(assign_groups(self._waiting, there, self._rng, only_one))
            if assigned or len(self._free) < len(self._groups):
                break
            # Nobody is there but where they come from, and nothing is under way.
            back = next_return(self._session, waits, self._params.min_members)
            if back is not None:
                yield back
            elif there:
                only_one = True
            else:
                self.over.succeed()
                return
        self._assigning = False
        for waiting, group in assigned:
            self._waiting.remove(waiting)
            self._free.discard(group)
            waiting[2].succeed(group)


def assign_groups(
    waiting: Sequence[tuple[int, int, simpy.Event]],
    free: Sequence[int],
    rng: np.random.Generator,
    back_again: bool = False,
) -> Iterator[tuple[tuple[int, int, simpy.Event], int]]:
    """A random free group for as many of those who wait as possible, never the one they come from (unless ``back_again``)."""
    order = [int(g) for g in rng.permutation(free)]
    taken = order[: len(waiting)]
    spare = order[len(waiting) :]
    for i, group in enumerate(taken):
        if group != waiting[i][1] or back_again:
            continue
        # An exchange with a spare group, or with somebody else whom it does not send back in turn.
        if spare:
            taken[i], spare[0] = spare[0], group
            continue
        for j, other in enumerate(taken):
            if other != waiting[i][1] and group != waiting[j][1]:
                taken[i], taken[j] = other, group
                break
    for who, group in zip(waiting, taken, strict=False):
        if group != who[1] or back_again:
            yield who, group
