"""Asynchronous aggregation: the cloud makes a new version of its model of what has arrived, and nobody waits for the slowest.

FedAsync, FedBuff, FedAT and their relatives, in any tree. A unit is a group: a single client (formation `single`), an edge with
all of its clients, a tier of equally fast clients. A unit gets the latest version, works on it as a group does in grouped rounds
(`group_rounds`, `participation`, deadlines, a group operation of its members), and hands in its result; the cloud takes it in as
`emulator.methods.versions` says, and the unit gets the version of that instant. Round t is over when version t is made.

Where units are single clients and there is a group operation, such as secure aggregation, it is one of those whose results fill
a buffer: who has trained says so and waits, K of them do the operation together and send their masked models, and the cloud
learns the sum alone. Each scales what it sends by its own share and staleness, which the cloud tells it when they meet: versions
that are made until the sum arrives, of other buffers that meet meanwhile, do not count.

What is under way when the run ends, or at any round, is not in that round's bytes and cost: they count what has ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emulator.contracts.combining import ServerOptimiser
from emulator.contracts.methods import GroupResult, MethodFacts, Patience, methods
from emulator.contracts.world import GroupOperationChoice
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.combining import ServerOptimisers, optimiser_refused
from emulator.methods.estimators import estimates_for, learn_each
from emulator.methods.forming import Positions, charge_formation, enquiry, form, next_return, present
from emulator.methods.limits import check_deadline, check_groups, check_trained
from emulator.methods.memory import RuleMemory
from emulator.methods.pool import Pool
from emulator.methods.rounds import RoundSlots, group_process, send_to_edges
from emulator.methods.selecting import Selecting
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import ANY_EDGE, GroupSlots, chosen_by_default
from emulator.methods.training import Group, GroupRound
from emulator.methods.versions import ARRIVALS, Arrival, VersionSlots
from emulator.methods.waiting import gather
from emulator.registry import NoParams, Scale
from emulator.rng import stream
from emulator.world.fleet import CLOUD, EDGE, Numbers
from emulator.world.meetings import operate, recover
from emulator.world.world import Steps, StepsTo


class BufferedParams(RoundSlots, VersionSlots):
    """The slots of asynchronous aggregation."""

    server_optimiser: ServerOptimiser = chosen_by_default("none", "what the cloud makes of a new version")

    @property
    def meets(self) -> bool:
        """Whether the group operation is one of the clients in a buffer."""
        return self.singles and not self.group_operation.plugin.facts.alone

    @property
    def singles(self) -> bool:
        """Whether units are single clients."""
        return self.formation.kind == "single"

    @property
    def chooses(self) -> bool:
        """See `RoundSlots.chooses`."""
        return self.at_work is not None if self.singles else super().chooses

    @property
    def to_choose(self) -> str:
        """See `RoundSlots.to_choose`."""
        return "an 'at_work', fewer than there are clients" if self.singles else super().to_choose

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet."""
        found = list(super().problems(scale))
        yield from found
        if self.training.plugin.facts.headers:
            yield (
                "training",
                f"'{self.training.kind}' goes with 'grouped' rounds: all headers get their data before the first",
            )
        if self.local().remember is not None:
            yield (
                "local",
                f"'{self.local.kind}' has a memory that belongs to rounds in which all start from one model; take another",
            )
        yield from optimiser_refused("server_optimiser", self.server_optimiser, self.local)
        if self.singles and self.training.plugin.facts.apart:
            yield "training", f"'{self.training.kind}' is for groups, and units are single clients here; leave it out"
        if self.singles and self.participation < 1.0:
            yield "participation", "units are single clients here; say with 'at_work' how many work at once"
        if any(key in ("aggregator", "formation") for key, _ in found):
            return
        yield from self.refused(min(self.most_groups(scale), self.at_work or scale.clients))
        if self.meets:
            yield from self._meeting_refused()

    def _meeting_refused(self) -> Iterable[tuple[str, str]]:
        """Why clients in a buffer cannot do a group operation."""
        least, who = self.group_operation.least_members(self.enough), f"'{self.group_operation.kind}'"
        if self.every is not None:
            yield "every", f"those in a buffer do {who} together; give 'buffer', which says how many they are"
        elif self.enough < max(2, least):
            least = max(2, least)  # of one client the sum is its model
            yield "buffer", f"{who} needs {least} clients, and a buffer has {self.enough}; say {least} or more"
        if self.update == "latest":
            yield "update", f"with {who} the cloud sees sums of results alone; say 'mix' or 'add'"
        if self.group_rounds > 1:
            yield "group_rounds", f"clients of a buffer do {who} once; say 1"
        if self.aggregator != CLOUD:
            yield "aggregator", f"clients of a buffer do {who} under the cloud; say 'cloud'"

    def hindrance(self, members: int) -> tuple[str, str] | None:
        """See `GroupSlots.hindrance`. What clients do together in a buffer hinders none of them alone."""
        return GroupSlots.hindrance(self, members) if self.meets else super().hindrance(members)


@methods.register("buffered", BufferedParams, MethodFacts(tables=(ARRIVALS,)))
def buffered(session: Session, params: BufferedParams) -> Steps:
    """Asynchronous aggregation: the cloud takes in what has arrived, and waits for nobody (FedAsync, FedBuff, FedAT)."""
    world, model = session.world, session.lab.initial()
    world.watch()
    units = Units(session, params)
    if params.wait_for_members.kind != "all":
        first_bytes = 0 if params.initial_model == "seed" else world.workload.model_bytes
        tier = EDGE if params.aggregator == ANY_EDGE else params.aggregator
        sizes = (first_bytes, world.workload.model_bytes)
        check_deadline(session, "wait_for_members", params.wait_for_members, params.local, *sizes, tier)
    session.selecting = selecting = Selecting(session, params.selection)
    session.begin(model)
    needs = params.formation.plugin.facts.needs
    everything = (*needs, *params.selection.plugin.facts.needs)
    said = yield from learn_each(session, everything, params.estimator, enquiry(session, params))
    estimates = estimates_for(said, needs)
    selecting.learnt(said)
    meet = units.meet if params.meets else None
    pool = units.pool = Pool(session, params, model, units.work, units.choose, units.note, meet)
    cloud, formed = ServerOptimisers(session, params.server_optimiser), False
    for t in itertools.count(1):
        tries = itertools.count()
        while not (formed and (yield from pool.next_version())):
            if not formed or units.positions.changed():
                units.positions.note()
                groups, formed = form(session, params, t, estimates), True
                check_groups(session, params, groups, t)
                units.optimisers.forget()
                units.serve(groups)
                yield from charge_formation(session, params.formation, groups, t, estimates)
                continue
            back = next_return(session, next(tries), params.min_members)
            if back is None:
                session.end_early(NOBODY_LEFT, model)
                return
            if (yield from session.wait(back, model)):
                return
        model = yield from cloud.step(CLOUD, 0, model, pool.versions.model, Tag("model", t))
        pool.versions.model = model
        if session.end_round(t, model):
            check_trained(session, pool.came_back, "wait_for_members")
            return


class Units:
    """What the groups of asynchronous aggregation do: they come for a version, work on it, and hand in what they made."""

    pool: Pool

    def __init__(self, session: Session, params: BufferedParams) -> None:
        self.positions = Positions(session, params)
        self.optimisers = ServerOptimisers(session, params.edge_optimiser)
        self._session = session
        self._params = params
        self._operation = GroupOperationChoice("none", NoParams()) if params.meets else params.group_operation
        self._memory = RuleMemory(session.lab, params.local, session.scenario.topology.client_count)
        self._turns = 0
        self._client: Numbers = np.zeros(0, np.int64)  # by unit, where they are single clients
        self._number: dict[int, int] = {}  # of the unit that a client is
        self._given: set[int] = set()  # clients that got the model while they were chosen

    def serve(self, groups: Sequence[Group]) -> None:
        """These are the units from now on."""
        self.pool.serve(groups)
        if self._params.singles:
            self._client = np.full(max((each.number for each in groups), default=-1) + 1, -1)
            self._client[[each.number for each in groups]] = [each.members[0] for each in groups]
            self._number = {each.members[0]: each.number for each in groups}

    def choose(self, idle: Numbers, count: int) -> StepsTo[Sequence[Group]]:
        """So many of those that can work now: single clients as `selection` says, others at random; each with the members that
        are there. Nobody where groups are to be formed anew."""
        if self.positions.changed():
            return []
        units: Mapping[int, Group] = self.pool.units
        if not self._session.world.all_present:
            here = ((n, present(self._session, self._params, units[n])) for n in idle.tolist())
            units = {n: unit for n, unit in here if unit is not None}
            idle = np.fromiter(units, np.int64)
        if len(idle) > count:
            self._turns += 1
            idle = yield from self._some(idle, count)
        return [units[n] for n in idle.tolist()]

    def _some(self, there: Numbers, count: int) -> StepsTo[Numbers]:
        """So many of these units, by number."""
        session, version = self._session, self.pool.versions
        if not self._params.singles:
            rng = stream(session.seed, "next unit", self._turns)
            return there[np.sort(rng.choice(len(there), count, replace=False))]
        assert session.selecting is not None
        candidates, at = self._client[there], self._rounds(version.number)[0]
        if (candidates[1:] < candidates[:-1]).any():
            candidates.sort()
        chosen = yield from session.selecting.choose(CLOUD, 0, candidates, count, version.model, at, 1, self._turns)
        if session.selecting.how.sends_model and not session.wire.used:
            self._given.update(chosen)
        return np.array([self._number[client] for client in chosen], np.int64)

    def work(self, unit: Group, model: Handle, version: int) -> StepsTo[GroupResult | None]:
        """A unit's way from a version of the model to its result."""
        rounds = self._rounds(version)
        if self._params.singles and unit.members[0] in self._given:
            self._given.discard(unit.members[0])
            rounds = [replace(rounds[0], down_bytes=0), *rounds[1:]]
        arrivals = send_to_edges(self._session, [unit], [model], rounds[0].down_bytes, version + 1)
        arrival = next(iter(arrivals.values()), None)
        return (yield from group_process(self._session, self._params, unit, model, arrival, rounds))

    def _rounds(self, version: int) -> list[GroupRound]:
        """The group rounds of a unit that gets this version."""
        params, size = self._params, self._session.world.workload.model_bytes
        down = 0 if params.initial_model == "seed" and version == 0 else size
        up = 0 if params.meets else size
        first = GroupRound(
            *(
                version + 1,
                0,
                params.local,
                self._operation,
                self._memory,
                down,
                up,
                params.combination,
                self.optimisers,
            )
        )
        return [first, *(replace(first, group_round=k, down_bytes=size) for k in range(1, params.group_rounds))]

    def note(self, arrival: Arrival, row: dict[str, Any]) -> None:
        """A row of the table of arrivals."""
        of = {"round": self.pool.versions.number + 1, "from_round": arrival.version, "group": arrival.unit}
        self._session.note(ARRIVALS.name, of | row)

    def meet(self, arrivals: Sequence[Arrival]) -> StepsTo[Sequence[Arrival]]:
        """The group operation of the clients in a full buffer, and their uploads; nobody where too few are left."""
        session, world, operation = self._session, self._session.world, self._params.group_operation
        names, size, asked = world.fleet.client_names, world.workload.model_bytes, len(arrivals)
        of = {arrival.result.members[0]: arrival for arrival in arrivals}
        tag = Tag("model", self.pool.versions.number + 1)
        meeting = (CLOUD, operation, self._memory.rule.vectors, asked, tag)
        contents = {c: arrival.result.model.key for c, arrival in of.items()}
        left = yield world.env.process(operate(world, sorted(of), *meeting, contents))

        def upload(client: int) -> StepsTo[Handle | None]:
            place = Tag("model", of[client].version + 1, of[client].unit, 0)
            return session.deliver(names[client], CLOUD, of[client].result.model, size, place)

        everybody = Patience(len(left))
        came = yield from gather(world, {c: upload(c) for c in left}, everybody, world.now, lambda _: None)
        least = max(1, operation.least_members(asked))
        if len(came) >= least:
            yield from recover(world, list(came), *meeting, contents)
        if len(came) < least:
            return []
        return [replace(of[c], result=replace(of[c].result, model=model)) for c, model in came.items()]
