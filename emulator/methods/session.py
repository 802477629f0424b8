"""What a method works with: clients that do what they are asked, and a place to say that a round has ended.

A method asks for a client's work once, with one of the calls of `Session` that stand under "Work of clients". Each is a part of a
SimPy process (``result = yield from session.train(...)``): it takes its time on the clock, queues on the client's device, is
charged, and returns the result, or None where the work was lost. The lab learns what is to be trained when the device begins
with it, so that all that is under way can be trained together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import simpy

from devices.compute import PASSES, dense_flops
from emulator.accounting import Meter
from emulator.contracts.learning import LocalRule, MeasurementChoice
from emulator.errors import quote_all
from emulator.grouping.diagnostics import Grouping
from emulator.grouping.topology import Place
from emulator.learning.distillation import DistillationParams
from emulator.learning.interface import AnyLab
from emulator.learning.recipes import Distilled, Handle, LocalTraining, Trained
from emulator.ledger import EVALUATION, HOPS, Tag, bytes_column
from emulator.measures import Measure
from emulator.methods.attacks import Attack
from emulator.methods.cluster_models import CLUSTER_METRICS, Clusters, cluster_metrics, one_cluster
from emulator.methods.memory import RuleMemory
from emulator.methods.personal import PERSONAL_METRICS, personal_metrics
from emulator.methods.privacy import Privacy, privacy_of
from emulator.methods.wire import Wire
from emulator.priced import CARBON, MONEY
from emulator.scenario.declared import metrics_columns_of, tables_of
from emulator.scenario.schema import Scenario
from emulator.standing import EPSILON, SPENT
from emulator.tables import check_columns
from emulator.world.device_queues import Begun
from emulator.world.fleet import CLOUD
from emulator.world.simpy_internals import happens_at
from emulator.world.world import StepsTo, World

if TYPE_CHECKING:
    from emulator.methods.selecting import Selecting

# Columns of metrics.csv; before the loss stand the measures of the task.
BEGUN = ("round", "time_s")
CHARGED = (
    *map(bytes_column, HOPS), "bytes_total",
    "bytes_wasted", "cost_training_s", "cost_group_s", "cost_s", "cost_wasted_s", "energy_j",
)  # fmt: skip

NOBODY_LEFT = "nobody left"  # why a run stopped

T = TypeVar("T")

Models = Handle | Clusters  # the global model, or those that stand in its place
# One row of metrics.csv: a value for each of `Session.usual_columns`, for the bytes of further hops that the topology has, MONEY
# and CARBON where there are prices, CLUSTER_METRICS where clusters are judged, EPSILON where there is privacy, PERSONAL_METRICS
# where clients fine-tune, and for each column that the method declares; nan where it was not measured.
Metrics = dict[str, float]


@dataclass(frozen=True)
class ReceivedData:
    """Distilled data that a client was sent: whose, how many images, and the images."""

    client: int
    samples: int
    data: Distilled


@dataclass
class Session:
    """One run of one method. Methods call `begin` once and `end_round` after every global round."""

    scenario: Scenario
    world: World
    lab: AnyLab
    meter: Meter
    on_round: Callable[[int, Metrics], None] = lambda _round, _totals: None  # told after every round, evaluated or not
    on_models: Callable[[int, Sequence[Handle]], None] = lambda _round, _models: None  # and of its global models, first
    metrics: list[Metrics] = field(default_factory=list)
    groupings: list[Grouping] = field(default_factory=list)  # every formation of groups, in the order of rounds
    tables: dict[str, list[dict[str, Any]]] = field(init=False)  # rows by the name of a table that was declared
    places: list[Place] = field(default_factory=list)  # who stands where, in groups that have headers
    attack: Attack | None = None
    selecting: Selecting | None = None  # who takes part in rounds, in methods that choose clients
    privacy: Privacy | None = field(init=False)  # where clients' updates are differentially private
    wire: Wire = field(init=False)
    images: list[np.ndarray] = field(
        default_factory=list
    )  # those of each row of the table "recovered", and what they are like
    stopped_by: str = ""
    rounds: int = 0

    def __post_init__(self) -> None:
        self.wire = Wire(self)
        self._declared = tables_of(self.scenario)
        self.tables = {name: [] for name in self._declared}
        self._columns = metrics_columns_of(self.scenario)
        self.privacy = privacy_of(self.scenario, self.world, self.lab)
        known = (*self.usual_columns, *CLUSTER_METRICS, *PERSONAL_METRICS, EPSILON, MONEY, CARBON)
        check_columns(f"method '{self.scenario.method.kind}'", self._columns, known)

    @cached_property
    def usual_columns(self) -> tuple[str, ...]:
        """The columns of metrics.csv that every run with such a task has."""
        return (*BEGUN, *(measure.name for measure in self.measures), "loss", *CHARGED)

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """What is measured of models, the primary measure first."""
        return self.scenario.objective.measures

    @property
    def seed(self) -> int:
        """The scenario's seed, for naming random streams."""
        return self.scenario.seed

    @property
    def env(self) -> simpy.Environment:
        """The clock."""
        return self.world.env

    def begin(self, model: Models) -> None:
        """Evaluates the model with which the run begins, as round 0."""
        self._evaluate(0, model)

    def end_round(self, round: int, model: Models, /, **measured: float) -> bool:  # noqa: A002
        """Says that a global round is over and ``model`` is the global model now. True: the run is to stop.

        ``measured`` are values of columns of ``metrics.csv`` that the method declares (the fact ``columns``); one that is not
        given is nan. Raises `ValueError` for a name that is not declared, before `begin`, after the end of the run, and where
        rounds do not count up.
        """
        unknown = [name for name in measured if name not in self._columns]
        if unknown:
            how = f"declare it where the method is registered: MethodFacts(columns=({unknown[0]!r},))"
            raise ValueError(f"metrics.csv has no column {quote_all(unknown)} of this method; {how}")
        if not self.metrics:
            raise ValueError("call session.begin(model) before the first round ends")
        if self.stopped_by:
            raise ValueError(
                f"the run is over (stopped by {self.stopped_by}): return where 'end_round' or 'wait' gives True"
            )
        if round <= self.rounds:
            raise ValueError(f"round {round} cannot end after round {self.rounds}; rounds count up from 1")
        every = self.scenario.evaluate.every
        due = round // every > self.rounds // every  # a method may end several rounds at once
        self.rounds = round
        totals = self._totals(round)
        self.stopped_by = self._reached(totals)
        if self.stopped_by or due:
            row = self._evaluate(round, model, measured)
            goals = self.scenario.stop.goals
            reached = (m.name for m in self.measures if m.name in goals and m.reached(row[m.name], goals[m.name]))
            self.stopped_by = self.stopped_by or next(reached, "")
            totals = row
        self.on_models(round, [model] if isinstance(model, Handle) else model.models)
        self.on_round(round, totals)
        return bool(self.stopped_by)

    def end_early(self, reason: str, model: Models) -> None:
        """Ends a run between two rounds, ``model`` being the global model now."""
        self.stopped_by = reason
        last = self.metrics[-1]
        if (last["round"], last["time_s"]) != (self.rounds, self.world.now):
            self._evaluate(self.rounds, model)

    def wait(self, event: simpy.Event, model: Models) -> StepsTo[bool]:
        """Waits for something between two rounds. True: the run's time is over before it happens, and the run is to stop."""
        limit_s = self.scenario.stop.time
        if limit_s is None:
            yield event
            return False
        yield event | happens_at(self.env, max(limit_s, self.world.now))
        if event.processed:
            return False
        self.end_early("time", model)
        return True

    @property
    def judges_clusters(self) -> bool:
        """Whether accuracies by cluster and by client are measured too."""
        wanted, partition = self.scenario.evaluate.clusters, self.scenario.data.partition
        makes = partition.plugin.facts.clusters or self.scenario.method.plugin.facts.clusters
        return bool(makes and self.scenario.objective.by_class) if wanted is None else wanted

    def note(self, table: str, row: dict[str, Any]) -> None:
        """Adds a row to a table that the method or the attack declares (`emulator.tables.Table`, in the fact ``tables``).

        Raises `ValueError` where no such table is declared, or the row has not exactly its columns.
        """
        if table not in self._declared:
            known = f"; declared: {quote_all(self._declared)}" if self._declared else ""
            how = f"MethodFacts(tables=(Table({table!r}, {tuple(row)}),))"
            raise ValueError(
                f"table '{table}' is not declared{known}; declare it where the method (or the attack) is registered: {how}"
            )
        self.tables[table].append(self._declared[table].row(row))

    def keep_images(self, recovered: np.ndarray, nearest: np.ndarray) -> None:
        """Keeps images that an attacker made [n, ...] and the private ones that are nearest to them, for the run folder."""
        self.images.append(np.stack([recovered, nearest]))

    def note_groups(self, grouping: Grouping) -> None:
        """Keeps the diagnostics of groups that were formed, for the run folder."""
        self.groupings.append(grouping)

    def note_places(self, places: Iterable[Place]) -> None:
        """Keeps who stands where in a group that has a header, for the run folder."""
        self.places += places

    # Work of clients.

    def work(self, ask: Callable[[Begun], simpy.Event], begin: Callable[[], T]) -> StepsTo[T | None]:
        """Any computation on a client's device: ``ask`` asks the world for its time, ``begin`` the lab for its result.

        ``ask`` gets a function that is to be called when the device begins, which `World.train`, `predict` and `compute` do.
        """
        begun: list[T] = []
        done = yield ask(lambda: begun.append(begin()))
        return begun[0] if done else None

    def train(
        self,
        client: int,
        model: Handle,
        local: LocalRule,
        tag: Tag,
        turn: int = 0,
        memory: RuleMemory | None = None,
        received: Sequence[ReceivedData] = (),
    ) -> StepsTo[Trained | None]:
        """Local training on a client's device, on its own samples and on those that it was sent.

        The round is the tag's. ``turn`` tells several trainings of a client in one round apart (see `LocalTraining`).
        ``memory`` is that of a rule with memory, which keeps the client's new state when somebody calls `RuleMemory.keep`.
        """
        rule, how = local() if memory is None else memory.rule, local.params
        samples = int(self.lab.clients.samples[client]) + sum(one.samples for one in received)

        def begin() -> Trained:
            state = None if memory is None else memory.of(client)
            extra = tuple(one.data for one in received)
            trained = self.lab.train(LocalTraining(model, client, local, tag.round, turn, state, extra))
            return trained if private is None else private.sent(trained, model, client, tag.round, turn)

        private = self.privacy
        beside = 0.0 if private is None else private.device_flops
        return self.work(
            lambda begun: self.world.train(
                client, samples, how.epochs, how.batch_size, tag, rule.step_flops, begun, beside
            ),
            begin,
        )

    def deliver(
        self,
        sender: str,
        receiver: str,
        model: Handle,
        size_bytes: int,
        tag: Tag,
        via: str = CLOUD,
        beside_bytes: int = 0,
    ) -> StepsTo[Handle | None]:
        """Sends a model of so many bytes; returns it as it arrives, None where it is lost.

        Where the method has `encodings` for this link it is encoded: both ends compute for that, and what was written travels.
        ``beside_bytes`` go along with it as they are.
        """
        wire = self.wire if self.wire.used else None
        steps = (
            wire.deliver(sender, receiver, model, tag, via, beside_bytes) if wire is not None and size_bytes else None
        )
        if steps is not None:
            return (yield from steps)
        if not (yield self.world.send(sender, receiver, size_bytes + beside_bytes, tag, via, model.key)):
            return None
        if wire is not None:
            wire.took(sender, receiver, model)
        return model

    def sent(self, round: int, turn: int, client: int, before: Handle, after: Handle) -> Handle:  # noqa: A002
        """What a client hands in or on that got a model and trained it: that model, unless an attack has it send another.

        ``turn`` tells several trainings of a client in one round apart.
        """
        return after if self.attack is None else self.attack.trained(round, turn, client, before, after)

    def round_trip(
        self,
        client: int,
        server: str,
        work: StepsTo[T | None],
        tag: Tag,
        down_bytes: int | None = None,
        up_bytes: int | None = None,
    ) -> StepsTo[T | None]:
        """A server sends bytes to a client, which then works, and sends the result back; without numbers, a model either way.

        Returns the result once it has arrived.
        """
        world, name, size = self.world, self.world.fleet.client_names[client], self.world.workload.model_bytes
        if not (yield world.send(server, name, size if down_bytes is None else down_bytes, tag)):
            return None
        result = yield from work
        if result is None or not (yield world.send(name, server, size if up_bytes is None else up_bytes, tag)):
            return None
        return result

    def measure(
        self,
        ask: Callable[[Begun], simpy.Event],
        measurement: MeasurementChoice | str,
        models: Sequence[Handle],
        client: int | None = None,
    ) -> StepsTo[np.ndarray | None]:
        """What a client reads off models that it has, with its own samples where it is named; ``ask`` as in `work`."""
        asked = yield from self.work(ask, lambda: self.lab.announce(measurement, models, client))
        return None if asked is None else self.lab.measure(measurement, models, client)

    def distil(self, client: int, params: DistillationParams, flops: float, tag: Tag) -> StepsTo[ReceivedData | None]:
        """A client distils its data to a few images, with so many floating-point operations; in no time where they are 0."""
        held = int(self.lab.clients.samples[client])

        def begin() -> ReceivedData:
            return ReceivedData(client, params.count(held), self.lab.distil(client, params))

        if not flops:
            return begin()
        return (yield from self.work(lambda begun: self.world.compute(client, flops, held, tag, begun), begin))

    def train_at_server(
        self, server: str, model: Handle, clients: Sequence[int], local: LocalRule, tag: Tag
    ) -> StepsTo[Trained]:
        """Training on a server's device, on the samples of these clients, which it has."""
        how, samples = local.params, int(self.lab.clients.samples[list(clients)].sum())
        work = self.world.workload.training(how.batch_size, local().step_flops)
        flops = PASSES * dense_flops(self.world.fleet.device(server), work)
        trained = self.lab.train(LocalTraining(model, tuple(clients), local, tag.round))
        yield self.world.serve(server, flops * how.epochs * samples, tag)
        return trained

    def _reached(self, totals: Metrics) -> str:
        stop = self.scenario.stop
        limits = stop.budget if stop.rounds is None else {"rounds": stop.rounds, **stop.budget}
        return next((name for name, limit in limits.items() if totals[SPENT[name]] >= limit), "")

    def _evaluate(self, round: int, model: Models, measured: Mapping[str, float] | None = None) -> Metrics:  # noqa: A002
        clusters = one_cluster(model, self.scenario.topology.client_count) if isinstance(model, Handle) else model
        row = self._totals(round) | self.tested(round, clusters)
        bill = self.meter.bill(self.world.now)
        self.world.ledger.add(EVALUATION, "cloud", self.world.now, self.world.now, Tag("evaluation", round))
        row = {name: row[name] for name in (*self.usual_columns, *map(bytes_column, self.world.fleet.hops))}
        row |= bill
        if self.privacy is not None:
            row[EPSILON] = self.privacy.epsilon()
        if self.judges_clusters:
            row |= cluster_metrics(self.lab, clusters)
        if (personal := self.scenario.evaluate.personal) is not None:
            row |= personal_metrics(self.lab, self.scenario, personal, clusters, round)
        row |= {name: float((measured or {}).get(name, math.nan)) for name in self._columns}
        self.metrics.append(row)
        if self.attack is not None:
            self.attack.evaluated(round, clusters, row[self.measures[0].name])
        return row

    def tested(self, round: int, clusters: Clusters) -> Metrics:  # noqa: A002
        """What the task measures of the global models after a round, and their loss: means over clients."""
        shares = [(each, share) for each, share in clusters.shares() if share]
        tested = self.lab.evaluate_all([each for each, _ in shares])
        results = [(result, share) for result, (_, share) in zip(tested, shares, strict=True)]
        return {
            name: sum(share * result.values.get(name, math.nan) for result, share in results)
            for name in (*(measure.name for measure in self.measures), "loss")
        }

    def _totals(self, round: int) -> Metrics:  # noqa: A002
        totals, now = self.meter.totals(), self.world.now
        row: dict[str, Any] = {"round": round, "time_s": now}
        row |= {bytes_column(hop): count for hop, count in totals.bytes_by_hop.items()}
        row |= {
            "bytes_total": totals.bytes_total,
            "bytes_wasted": totals.bytes_wasted,
            "cost_training_s": totals.cost_training_s,
            "cost_group_s": totals.cost_group_s,
            "cost_s": totals.cost_s,
            "cost_wasted_s": totals.cost_wasted_s,
            "energy_j": self.meter.energy_j(now),
        }
        if self.scenario.stop.epsilon is not None and self.privacy is not None:
            row[EPSILON] = self.privacy.epsilon()
        return row
