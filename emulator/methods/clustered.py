"""Clusters that split as they learn: HiCFL (S3) and MTCFL (Sattler et al. 2021). The time structure of clustered learning.

All clients begin in one cluster with one model. In each of its rounds a cluster's members get its model, train it and send it
back; the server averages, looks at their updates and may split the cluster in two, each with the average of its own members'
models of that round (or that of the whole cluster). From then on the two go on by themselves: no cluster ever waits for another
(but see ``reorganise``).

So rounds are counted by cluster. Round t of the run is over when the slowest cluster has ended its round t; what is evaluated
then are the models that the clusters have at that instant, and some may be further on. No cluster goes beyond the last round of
the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from emulator.contracts.methods import Bipartition, Halves, MethodFacts, Reading, SplitTime, methods
from emulator.contracts.world import GroupOperationChoice
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.cluster_models import CLUSTERS, Clusters, cluster_row
from emulator.methods.forming import somebody
from emulator.methods.limits import check_deadline, check_trained
from emulator.methods.memory import RuleMemory
from emulator.methods.merging import clusters_to_merge
from emulator.methods.session import NOBODY_LEFT, Session
from emulator.methods.slots import OneServer, chosen_by_default
from emulator.methods.splitting import Record, Watch
from emulator.methods.training import Group, GroupRound, Waits, combined, train_members
from emulator.methods.updates import SIMILARITY, STABILITY, TRIALS, note_similarity, note_trial, note_updates
from emulator.registry import NoParams, Params, Scale
from emulator.rng import stream
from emulator.scenario.words import Count
from emulator.world.world import Steps, StepsTo

CLUSTERING = "clustering"  # what the server's computations are for


class Finer(Params):
    """Splitting on, although the members agree (S3 §V-C)."""

    after: Count = Field(
        description="the round from whose end on members that agree are split too, in two at the mean cosine"
    )
    levels: Count | None = Field(
        1, description="how often each of these clusters is split; null: until each client is alone"
    )


class Misplaced(Params):
    """A first split that goes wrong on purpose, to see whether it is mended (S3 Fig. 11)."""

    round: Count = Field(
        description="the round at whose end the first cluster is split, with half of the true clusters on each side"
    )
    share: Annotated[float, Field(ge=0, le=1)] = Field(
        description="share of the clients that are put on the wrong side"
    )


class ClusteredParams(OneServer):
    """The slots of clustered learning."""

    split_time: SplitTime = chosen_by_default("stability", "when a cluster is split")
    bipartition: Bipartition = chosen_by_default("reference", "how it is split")
    history: Literal["restart", "keep"] = Field(
        "restart",
        description="whether what the server has seen of members begins anew in a new cluster, or is kept; with 'keep', "
        "weights are selected anew by the latest two updates",
    )
    children: Literal["own", "parent"] = Field(
        "own",
        description="whether halves start from the average of their own members' models, or of all of the cluster",
    )
    finer: Finer | None = Field(None, description="splits clusters further whose members agree")
    reorganise: Count | None = Field(
        None, description="the round after which similar clusters are merged, once all of them have ended it"
    )
    misplaced: Misplaced | None = Field(None, description="puts clients into wrong clusters on purpose")
    trial: bool = Field(
        False, description="splits nothing, and writes down in every round how a cluster would have been split"
    )
    record_similarity: tuple[Count, ...] = Field(
        (), strict=False, description="rounds of which the similarity of all updates is written down, layer by layer"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What does not fit this fleet, or its data."""
        yield from super().problems(scale)
        if self.misplaced is not None and not scale.clusters:
            yield "misplaced", "needs a partition that makes clusters, such as 'label-blocks'"


@methods.register(
    "clustered",
    ClusteredParams,
    MethodFacts(clusters=True, tables=(CLUSTERS, STABILITY, SIMILARITY, TRIALS), privacy=("client",)),
)
def clustered(session: Session, params: ClusteredParams) -> Steps:
    """Clusters that split as they learn, each with its own model and its own pace: HiCFL, MTCFL."""
    fleet = Tree(session, params)
    session.begin(fleet.now())
    fleet.plant()
    for t in itertools.count(1):
        while not fleet.ended(t):
            if not fleet.live:
                session.end_early(NOBODY_LEFT, fleet.now())
                return
            if (yield from session.wait(fleet.news, fleet.now())):
                return
        if session.end_round(t, fleet.now()):
            check_trained(session, fleet.trained, "wait_for_members")
            return


@dataclass
class Cluster:
    """One cluster: its model after so many rounds, and what the server has seen of its members."""

    number: int
    members: tuple[int, ...]
    model: Handle
    watch: Watch
    round: int = 0
    update: Handle | None = None  # of the model, in the latest round
    finer: int = 0  # how often it was split although its members agreed
    split: bool = False
    over: bool = False  # nobody will be there any more


class Tree:
    """All clusters of a run. ``news`` happens whenever one of them has ended a round, or ended for good."""

    def __init__(self, session: Session, params: ClusteredParams) -> None:
        self._session = session
        self._params = params
        self._all: list[Cluster] = []
        self._memory = RuleMemory(session.lab, params.local, session.scenario.topology.client_count)
        self._waiting: list[Cluster] = []  # for the others, to be merged
        self._reorganised = False
        self.server = params.server(session.world.fleet)
        self.news = session.env.event()
        self.trained = False  # whether any round gave a model so far
        if params.wait_for_members.kind != "all":
            session.world.watch()
            size = session.world.workload.model_bytes * self._memory.rule.vectors
            first_bytes = 0 if params.initial_model == "seed" else size
            check_deadline(
                session, "wait_for_members", params.wait_for_members, params.local, first_bytes, size, params.aggregator
            )

    @property
    def leaves(self) -> list[Cluster]:
        """The clusters that there are now."""
        return [c for c in self._all if not c.split]

    @property
    def live(self) -> bool:
        """Whether any cluster will go on."""
        return any(not c.over for c in self.leaves)

    def ended(self, t: int) -> bool:
        """Whether every cluster that goes on has ended its round ``t``."""
        return bool(self._all) and self.live and all(c.over or c.round >= t for c in self.leaves)

    def now(self) -> Clusters:
        """The models and members of the clusters that there are."""
        of = np.zeros(self._session.scenario.topology.client_count, dtype=np.int64)
        if not self._all:
            return Clusters((self._session.lab.initial(),), of)
        for number, cluster in enumerate(self.leaves):
            of[list(cluster.members)] = number
        return Clusters(tuple(c.model for c in self.leaves), of)

    def plant(self) -> None:
        """Starts with one cluster of all clients."""
        everybody = tuple(range(self._session.scenario.topology.client_count))
        self._grow("start", everybody, self._session.lab.initial(), 0, 0)

    def _grow(
        self,
        reason: str,
        members: Sequence[int],
        model: Handle,
        round: int,  # noqa: A002
        finer: int,
        parents: Sequence[Cluster] = (),
        layer: str = "",
        halves: Halves | None = None,
    ) -> None:
        """A new cluster, on its way."""
        watch = Watch(self._session.lab, {c: Record() for c in members})
        watch.largest = max((p.watch.largest for p in parents), default=0.0)
        if self._params.history == "keep":
            watch.records |= {
                c: record.kept() for p in parents for c, record in p.watch.records.items() if c in members
            }
        cluster = Cluster(len(self._all), tuple(members), model, watch, round, finer=finer)
        self._all.append(cluster)
        row = cluster_row(
            cluster.number,
            cluster.members,
            reason,
            round,
            self._session.world.now,
            [p.number for p in parents],
            layer,
            None if halves is None else halves.reference,
            None if halves is None else halves.cosines,
        )
        self._session.note(CLUSTERS.name, row)
        self._session.env.process(self._follow(cluster))

    def _tell(self) -> None:
        news, self.news = self.news, self._session.env.event()
        news.succeed()

    def _follow(self, cluster: Cluster) -> Steps:
        """A cluster's rounds, until it is split or the run is over."""
        last = self._session.scenario.stop.rounds
        while last is None or cluster.round < last:
            if cluster.round == self._params.reorganise and not self._reorganised:
                self._waiting.append(cluster)
                yield from self._reorganise()
                return
            least = min(self._params.min_members, len(cluster.members))
            group = yield from somebody(self._session, self.server, cluster.number, cluster.members, least)
            if group is None:
                cluster.over = True
                self._tell()
                yield from self._reorganise()
                return
            yield from self._round(cluster, group)
            self._tell()
            if cluster.split:
                return

    def _round(self, cluster: Cluster, group: Group) -> Steps:
        """One round of a cluster, at whose end it may be split."""
        session, params = self._session, self._params
        t, size = cluster.round + 1, session.world.workload.model_bytes * self._memory.rule.vectors
        first_bytes = 0 if params.initial_model == "seed" and t == 1 else size
        nothing = GroupOperationChoice("none", NoParams())
        at = GroupRound(t, 0, params.local, nothing, self._memory, first_bytes, size)
        waits = Waits(params.wait_for_members, len(group.members), min(params.min_members, len(cluster.members)))
        before = cluster.model
        trained = yield from train_members(session, group, before, at, waits)
        if trained is not None:
            self.trained = True
            updates = {c: _difference(session, model, before) for c, model in trained.items()}
            after = yield from self._combined(before, trained, Tag("model", t, cluster.number))
            cluster.watch.take(updates, params.local.params.step_size(t))
            reading: Reading = params.split_time(cluster.watch)
            note_updates(session, cluster.number, cluster.watch, reading, t)
            if t in params.record_similarity:
                note_similarity(session, cluster.number, cluster.watch, t)
            yield session.world.serve(group.aggregator, reading.flops, Tag(CLUSTERING, t, cluster.number))
            if params.trial:
                self._try(cluster, reading, t)
            else:
                yield from self._consider(cluster, reading, trained, after, t)
            cluster.model, cluster.update = after, _difference(session, after, before)
        cluster.round = t

    def _consider(self, cluster: Cluster, reading: Reading, trained: dict[int, Handle], after: Handle, t: int) -> Steps:
        """Splits a cluster if it is time, and if there is anything to split."""
        session, finer = self._session, self._params.finer
        if self._params.misplaced is not None and (cluster.number, t) == (0, self._params.misplaced.round):
            wrong = misplaced(session, self._params.misplaced)
            yield from self._split(cluster, wrong, "misplaced", "", trained, after, t, 0)
            return
        insist = finer is not None and t > finer.after and (finer.levels is None or cluster.finer < finer.levels)
        if not reading.ripe or len(cluster.watch.known) < 2 or (reading.agreed and not insist):
            return
        rng = stream(session.seed, "bipartition", t, cluster.number)
        pushes = (False, True) if insist and reading.judge is not None else (insist and reading.agreed,)
        for push, each in itertools.product(pushes, (reading, *reading.others)):
            halves: Halves = self._params.bipartition(cluster.watch, each, push, rng)
            agreed, flops = _judged(each, halves)
            yield session.world.serve(self.server, halves.flops + flops, Tag(CLUSTERING, t, cluster.number))
            if halves.like and halves.unlike and (push or not agreed):
                layer = "all" if each.layer is None else session.lab.model_facts.layers[each.layer][0]
                finer_now = cluster.finer + int(push)
                yield from self._split(cluster, halves, "split", layer, trained, after, t, finer_now)
                return

    def _split(
        self,
        cluster: Cluster,
        halves: Halves,
        reason: str,
        layer: str,
        trained: Mapping[int, Handle],
        after: Handle,
        t: int,
        finer: int,
    ) -> Steps:
        """Two clusters in place of one, each with the average of its own members' models, or of all.

        Who was never heard stays with the first.
        """
        cluster.split = True
        unheard = [c for c in cluster.members if c not in halves.like and c not in halves.unlike]
        begun: list[tuple[Sequence[int], Handle]] = []
        for side in ([*halves.like, *unheard], halves.unlike):
            own = {c: model for c, model in trained.items() if c in side and self._params.children == "own"}
            model = after
            if own:
                model = yield from self._combined(cluster.model, own, Tag("model", t, cluster.number))
            begun.append((sorted(side), model))
        for side, model in begun:
            self._grow(reason, side, model, t, finer, [cluster], layer, halves)

    def _combined(self, before: Handle, models: Mapping[int, Handle], tag: Tag) -> StepsTo[Handle]:
        """What the server makes of members' models."""
        return combined(self._session, self.server, self._params.combination, before, models, tag)

    def _try(self, cluster: Cluster, reading: Reading, t: int) -> None:
        """Notes how a cluster would be split now."""
        if len(cluster.watch.known) > 1:
            rng = stream(self._session.seed, "bipartition", t, cluster.number)
            halves = self._params.bipartition(cluster.watch, reading, False, rng)
            note_trial(self._session, cluster.number, replace(reading, agreed=_judged(reading, halves)[0]), halves, t)

    def _reorganise(self) -> Steps:
        """Merges similar clusters, where this one was the last for which the others waited."""
        going = [c for c in self.leaves if not c.over]
        if not self._waiting or any(c not in self._waiting for c in going):
            return
        waiting, self._waiting, self._reorganised = sorted(self._waiting, key=lambda c: c.number), [], True
        session, t = self._session, waiting[0].round
        known = [c for c in waiting if c.update is not None]  # the others have just been split
        facts, pairs = session.lab.model_facts, len(known) * (len(known) - 1) // 2
        yield session.world.serve(self.server, 6.0 * facts.parameters * pairs, Tag(CLUSTERING, t))
        similar = np.eye(len(known))
        updates = [c.update for c in known if c.update is not None]
        found = session.lab.measure_all("cosines", [(updates[i:], None) for i in range(len(known) - 1)])
        for i, rows in enumerate(found):
            similar[i, i + 1 :] = similar[i + 1 :, i] = rows[:, 0]
        together = [[known[i] for i in parts] for parts in clusters_to_merge(similar, [len(c.members) for c in known])]
        for chosen in (*together, *([c] for c in waiting if c.update is None)):
            for cluster in chosen:
                cluster.split = True
            members = sorted(m for c in chosen for m in c.members)
            reason = "merge" if len(chosen) > 1 else "kept"
            self._grow(reason, members, chosen[0].model, t, max(c.finer for c in chosen), chosen)
        self._tell()


def _judged(reading: Reading, halves: Halves) -> tuple[bool, float]:
    """Whether members agree, now that there are halves; and the arithmetic to know it."""
    if reading.judge is None or not halves.like or not halves.unlike:
        return reading.agreed, 0.0
    return reading.judge(halves)


def misplaced(session: Session, params: Misplaced) -> Halves:
    """The clients of half of the true clusters, and the others, but for a share of all that are on the wrong side."""
    truth = session.lab.clients.clusters
    assert truth is not None  # `ClusteredParams.problems` has seen to it
    first = np.isin(truth, np.unique(truth)[: max(1, len(np.unique(truth)) // 2)])
    wrong = stream(session.seed, "misplaced").choice(len(truth), int(params.share * len(truth) + 0.5), replace=False)
    first[wrong] = ~first[wrong]
    return Halves(np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist(), None, 0, 0.0)


def _difference(session: Session, after: Handle, before: Handle) -> Handle:
    """The update that led from one model to another."""
    return session.lab.combine([after, before], [1.0, -1.0])
