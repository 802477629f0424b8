"""Gossip among servers: groups train under their own server, which then averages with its neighbours instead of with a cloud.

The time structure of SD-FEEL (Sun, Shao, Mao, Wang and Zhang, "Semi-Decentralized Federated Edge Learning with Data and Device
Heterogeneity", IEEE TNSM 2023): local updates, averages within each edge, and exchanges between neighbouring edges. There is no
barrier over all: a server begins its next round when it has what its neighbours had to send, so that of two servers a few links
apart one may be some rounds ahead. Round t is over when every server has ended its own round t.

Every server has a model of its own. The accuracy of a round is the mean over all clients, each with the model of its server.

Where a server or a link to a neighbour is down, nothing comes over it, and the server keeps its own model with that weight.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import simpy
from pydantic import Field

from emulator.contracts.methods import GroupResult, MethodFacts, Waiting, methods
from emulator.grouping.mixing import mixing_weights
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.cluster_models import Clusters
from emulator.methods.estimators import learn
from emulator.methods.forming import Positions, charge_formation, enquiry, form, next_return
from emulator.methods.limits import check_deadline, check_groups, check_trained
from emulator.methods.memory import RuleMemory
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import ANY_EDGE, GroupSlots, chosen_by_default
from emulator.methods.training import Group, GroupRound, Waits
from emulator.registry import Scale
from emulator.scenario.words import Count
from emulator.world.fleet import CLOUD
from emulator.world.world import Steps, StepsTo


class GossipParams(GroupSlots):
    """The slots of gossip among servers."""

    group_rounds: Count = Field(1, description="group rounds in a round, before models are exchanged (K)")
    exchanges: Count = Field(1, description="times in a round that servers exchange models with their neighbours (α)")
    mixing: Literal["samples", "equal"] = Field(
        "samples",
        description="towards which average neighbours move: that by samples (SD-FEEL), or one in which all servers count alike "
        "(Metropolis weights)",
    )
    wait_for_members: Waiting = chosen_by_default("all", "how long a group waits for its members in a group round")

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet."""
        yield from super().problems(scale)
        parts = scale.neighbourhoods.get(self.aggregator)
        if self.aggregator in (CLOUD, ANY_EDGE):
            yield "aggregator", f"'{self.aggregator}' has no neighbours; name a tier of servers, such as 'edge'"
        elif scale.servers_of(self.aggregator) == 1:
            yield "aggregator", f"tier '{self.aggregator}' has one server, and neighbours are at least two; add servers"
        elif parts is None and scale.servers_of(self.aggregator):  # else there is no such tier, as was said
            how = (
                f"join them with topology.links.direct: [{{tier: {self.aggregator}, shape: ring, bandwidth: 1 Gbit/s}}]"
            )
            yield "aggregator", f"servers of tier '{self.aggregator}' have no direct links to their neighbours; {how}"
        elif parts is not None and parts > 1:
            yield (
                "aggregator",
                f"direct links leave the servers of tier '{self.aggregator}' in {parts} parts that never hear of each "
                "other; join them all",
            )
        if self.local().remember is not None:
            yield "local", f"'{self.local.kind}' has a memory that belongs to one global model; take another"
        if self.training.plugin.facts.headers:
            yield (
                "training",
                f"'{self.training.kind}' goes with 'grouped' rounds: headers get their data before the first",
            )


@methods.register("gossip", GossipParams, MethodFacts(privacy=("client", "server", "distributed")))
def gossip(session: Session, params: GossipParams) -> Steps:
    """Gossip: groups train under their server, which averages with its neighbours instead of with a cloud (SD-FEEL)."""
    world, model = session.world, session.lab.initial()
    if params.wait_for_members.kind != "all":
        world.watch()
        first_bytes = 0 if params.initial_model == "seed" else world.workload.model_bytes
        sizes = (first_bytes, world.workload.model_bytes)
        check_deadline(session, "wait_for_members", params.wait_for_members, params.local, *sizes, params.aggregator)
    session.begin(model)
    servers = Servers(session, params, model)
    yield from servers.begin()
    for server in servers.names:
        world.env.process(servers.follow(server))
    clusters = servers.models_after(0)
    for t in itertools.count(1):
        if (yield from session.wait(servers.ended(t) | servers.deserted, clusters)):
            return
        if not servers.ended(t).triggered:
            session.end_early(NOBODY_LEFT, clusters)
            return
        clusters = servers.models_after(t)
        if session.end_round(t, clusters):
            check_trained(session, servers.trained, "wait_for_members")
            return


class Servers:
    """The servers of a tier, each with its groups and a model of its own."""

    def __init__(self, session: Session, params: GossipParams, model: Handle) -> None:
        roster, tier = session.world.fleet.roster, params.aggregator
        self.names = roster.tiers[tier]
        self.trained = False  # whether any group came back so far
        self._have = set(self.names) if params.initial_model == "seed" else set[str]()  # who has a model
        self.deserted = session.env.event()  # happens when nobody is there to train, and nobody will be
        self._session = session
        self._params = params
        self._near = {name: [n for n in roster.neighbours.get(name, ()) if n in self.names] for name in self.names}
        self._estimates: np.ndarray | None = None
        self._groups: list[Group] = []
        self._positions = Positions(session, params)
        self._weights: Mapping[str, Mapping[str, float]] = {}
        self._memory = RuleMemory(session.lab, params.local, session.scenario.topology.client_count)
        self._models = {(0, name): model for name in self.names}  # by round and server, of rounds that are not over
        self._over: dict[int, simpy.Event] = {}
        self._mail: dict[tuple[int, int, str, str], simpy.Event] = {}  # by round, exchange, sender and receiver

    def begin(self) -> Steps:
        """Learns what groups are formed by, forms them, and settles how much servers take from each other.

        Where clients move, a server counts with those that it has at home: it may have none some day.
        """
        session, params = self._session, self._params
        needs = params.formation.plugin.facts.needs
        self._estimates = yield from learn(session, needs, params.estimator, enquiry(session, params))
        yield from self._form(1)
        held, samples = session.lab.clients.samples, dict.fromkeys(self.names, 0)
        if session.world.movements.paths:
            for client, server in enumerate(session.world.fleet.servers_at(params.aggregator)):
                samples[server] += int(held[client])
        else:
            for group in self._groups:
                samples[group.aggregator] += int(held[list(group.members)].sum())
        self._weights = mixing_weights(self._near, samples if params.mixing == "samples" else None)

    def _form(self, t: int) -> Steps:
        session, params = self._session, self._params
        self._positions.note()
        self._groups = form(session, params, t, self._estimates)
        check_groups(session, params, self._groups, t)
        yield from charge_formation(session, params.formation, self._groups, t, self._estimates)

    def ended(self, t: int) -> simpy.Event:
        """Happens when every server has ended its round t."""
        return self._over.setdefault(t, self._session.env.event())

    def models_after(self, t: int) -> Clusters:
        """The models of all servers after round t, and whose each client has."""
        number = {name: n for n, name in enumerate(self.names)}
        of = np.array([number[name] for name in self._session.world.fleet_now().servers_at(self._params.aggregator)])
        models = tuple(self._models[t, name] for name in self.names)
        for name in self.names if t else ():
            del self._models[t - 1, name]
        return Clusters(models, of)

    def follow(self, server: str) -> Steps:
        """One server from round to round, for ever."""
        session, params, world = self._session, self._params, self._session.world
        model, size = self._models[0, server], world.workload.model_bytes
        have = self._have  # a server gets its first model from the cloud, or from a neighbour
        for t in itertools.count(1):
            if not (yield from self._somebody(t)):
                return
            if server not in have:
                came_down = yield from session.deliver(CLOUD, server, model, size, Tag("model", t))
                if came_down is not None:
                    have.add(server)
                    model = came_down
            results = (yield from self._train(server, model, t)) if server in have else []
            if results:
                self.trained = True
                total = sum(result.samples for result in results)
                shares = [result.samples / total for result in results]
                model = session.lab.combine([result.model for result in results], shares)
            for exchange in range(params.exchanges):
                own = model if server in have else None
                came = yield from self._exchange(server, own, t, exchange)
                if came:
                    model = self._mixed(server, own, came)
                    have.add(server)
            self._models[t, server] = model
            if all((t, name) in self._models for name in self.names):
                self.ended(t).succeed(world.now)

    def _somebody(self, t: int) -> StepsTo[bool]:
        """Waits until a group of any server can train, as rounds of other methods do. False: none ever can."""
        waits = 0
        while True:
            if self._positions.changed():
                yield from self._form(t)
            if any(self._there(group) for group in self._groups):
                return True
            back = next_return(self._session, waits, self._params.min_members)
            if back is None:
                if not self.deserted.triggered:
                    self.deserted.succeed()
                return False
            yield back
            waits += 1

    def _there(self, group: Group) -> Group | None:
        """A group with the members that are there; None where it cannot train. The cloud is needed for a first model alone."""
        world = self._session.world
        if world.all_present:
            return group
        if group.aggregator not in self._have and not world.connected(group.aggregator):
            return None
        members = world.present(group.members, group.aggregator)
        return replace(group, members=tuple(members)) if len(members) >= self._params.min_members else None

    def _train(self, server: str, model: Handle, t: int) -> StepsTo[list[GroupResult]]:
        """The group rounds of a server's groups, side by side; what came of those that ended."""
        env = self._session.env
        ready = [group for group in map(self._there, self._own(server)) if group is not None]
        work = [env.process(self._group_rounds(group, model, t)) for group in ready]
        yield env.all_of(work)
        return [process.value for process in work if process.value is not None]

    def _own(self, server: str) -> Sequence[Group]:
        return [group for group in self._groups if group.aggregator == server]

    def _group_rounds(self, group: Group, model: Handle, t: int) -> StepsTo[GroupResult | None]:
        params, size = self._params, self._session.world.workload.model_bytes
        waits = Waits(params.wait_for_members, len(group.members), params.min_members)
        result: GroupResult | None = None
        for k in range(params.group_rounds):
            down = 0 if params.initial_model == "seed" and t == 1 and k == 0 else size
            at = GroupRound(*(t, k, params.local, params.group_operation, self._memory, down, size, params.combination))
            result = yield from params.training(self._session, group, model, at, waits)
            if result is None:
                return None
            model = result.model
        return result

    def _exchange(self, server: str, model: Handle | None, t: int, exchange: int) -> StepsTo[dict[str, Handle]]:
        """Sends a server's model, if it has one, to its neighbours and waits for theirs; returns those that came."""
        env, near = self._session.env, self._near[server]
        for neighbour in near:
            env.process(self._deliver(server, neighbour, model, t, exchange))
        mail = {neighbour: self._letter(t, exchange, neighbour, server) for neighbour in near}
        yield env.all_of(mail.values())
        for neighbour in near:
            del self._mail[t, exchange, neighbour, server]
        return {neighbour: letter.value for neighbour, letter in mail.items() if letter.value is not None}

    def _mixed(self, server: str, model: Handle | None, came: Mapping[str, Handle]) -> Handle:
        """A server's model with those of its neighbours; where it has none, theirs alone."""
        weights = [self._weights[server][neighbour] for neighbour in came]
        if model is None:
            return self._session.lab.combine(list(came.values()), [weight / sum(weights) for weight in weights])
        return self._session.lab.combine([model, *came.values()], [1.0 - sum(weights), *weights])

    def _deliver(self, sender: str, receiver: str, model: Handle | None, t: int, exchange: int) -> Steps:
        """Brings a model to a neighbour; None where there is none, or it is lost."""
        size, came = self._session.world.workload.model_bytes, None
        if model is not None:
            came = yield from self._session.deliver(sender, receiver, model, size, Tag("model", t))
        self._letter(t, exchange, sender, receiver).succeed(came)

    def _letter(self, t: int, exchange: int, sender: str, receiver: str) -> simpy.Event:
        """Happens when a server has what another sent it in an exchange, with the model; None: it was lost."""
        return self._mail.setdefault((t, exchange, sender, receiver), self._session.env.event())
