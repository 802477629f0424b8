"""A plug-in for each slot, as a user would write it: a file that imports from `emulator.extend` and from libraries alone."""

from __future__ import annotations

# By slot: the file, and what chooses its plug-in "own" in a scenario. Where there is nothing to choose, commands use it.
PLUGINS: dict[str, tuple[str, str]] = {
    "data set": (
        '''
import numpy as np
from emulator.extend import ArraySet, DataSetFacts, NoParams, data_sets, stream

@data_sets.register(
    "own", facts=DataSetFacts(classes=2, train_samples=200, shape=(1, 2, 2), fingerprint=lambda params: "own-1")
)
def own(params: NoParams) -> ArraySet:
    """Two clouds of points."""
    rng = stream(0, "own")
    y = np.arange(240) % 2
    x = (rng.standard_normal((240, 1, 2, 2)) + 2 * y[:, None, None, None]).astype(np.float32)
    return ArraySet(x[:200], y[:200], x[200:], y[200:], classes=2)
''',
        "data.set=own",
    ),
    "partition": (
        '''
import numpy as np
from emulator.extend import NoParams, partitions

@partitions.register("own")
def own(labels: np.ndarray, clients: int, classes: int, rng: np.random.Generator, params: NoParams) -> list[np.ndarray]:
    """Every so manieth sample."""
    return [np.arange(c, len(labels), clients)[:12] for c in range(clients)]
''',
        "data.partition=own",
    ),
    "model": (
        '''
from emulator.extend import Count, Field, Params, models

class Own(Params):
    """How wide."""

    width: Count = Field(4, description="hidden units")

@models.register("own", Own)
def own(shape, classes, params: Own):
    """One hidden layer."""
    import math
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), params.width), nn.ReLU(), nn.Linear(params.width, classes))
''',
        "model={kind: own, width: 5}",
    ),
    "local update": (
        '''
from emulator.extend import LocalParams, Rule, local_rules

@local_rules.register("own", LocalParams)
def own(params: LocalParams) -> Rule:
    """Half of the gradient."""
    return Rule(lambda gradient, weights, anchor, shared, own: 0.5 * gradient, step_flops=1)
''',
        "method.local={kind: own, epochs: 2}",
    ),
    "measurement": (
        '''
from __future__ import annotations
from typing import TYPE_CHECKING
import numpy as np
from emulator.extend import (
    MeasurementFacts, MethodFacts, MethodParams, NoParams, Session, Steps, Table, measurements, methods,
)

if TYPE_CHECKING:
    from emulator.extend import MeasuredModels

@measurements.register("own", facts=MeasurementFacts(on="test", version=1))
def own(measured: MeasuredModels, params: NoParams) -> np.ndarray:
    """The largest score of the first samples."""
    return measured.scores(measured.states[0])[:3].max(1).values.numpy()

@methods.register("measuring", MethodParams, MethodFacts(tables=(Table("scores", ("round", "score")),)))
def measuring(session: Session, params: MethodParams) -> Steps:
    """Measures the initial model."""
    model = session.lab.initial()
    session.begin(model)
    yield session.env.timeout(1)
    for score in session.lab.measure("own", [model]):
        session.note("scores", {"round": 1, "score": float(score)})
    session.end_early("measured", model)
''',
        "method={kind: measuring}",
    ),
    "estimator": (
        '''
import numpy as np
from emulator.extend import CLOUD, Enquiry, NoParams, Session, Steps, Tag, ask_everybody, estimators

@estimators.register("own")
def own(session: Session, enquiry: Enquiry, params: NoParams) -> Steps:
    """How many samples a client has, which it tells the cloud."""
    world = session.world

    def tell(client: int) -> Steps:
        return (yield world.send(world.fleet.client_names[client], CLOUD, 8, Tag("own")))

    yield from ask_everybody(session, tell)
    return session.lab.clients.samples[:, None].astype(np.float64)
''',
        "method={kind: grouped, estimator: own, formation: {kind: kmeans-spread, size: 2}}",
    ),
    "distance": (
        '''
import numpy as np
from emulator.extend import Floats, NoParams, distances

@distances.register("own")
def own(a: Floats, b: Floats, params: NoParams) -> Floats:
    """The largest difference."""
    return np.abs(a[:, None] - b[None]).max(2)
''',
        "method={kind: grouped, formation: {kind: greedy-distant, size: 2, distance: own}}",
    ),
    "formation": (
        '''
import numpy as np
from emulator.extend import ClientView, EqualSizes, FormationFacts, formations

@formations.register("own", EqualSizes, FormationFacts(smallest=lambda params: params.size))
def own(clients: ClientView, rng: np.random.Generator, params: EqualSizes) -> list[list[int]]:
    """By number."""
    return [part.tolist() for part in np.array_split(np.arange(len(clients.samples)), len(clients.samples) // params.size)]
''',
        "method.formation={kind: own, size: 2}",
    ),
    "sampling": (
        '''
import numpy as np
from emulator.extend import Floats, GroupView, SamplingParams, samplings

@samplings.register("own", SamplingParams)
def own(groups: GroupView, params: SamplingParams) -> Floats:
    """By samples."""
    return np.log(groups.samples)
''',
        "method.sampling={kind: own, groups: 1}",
    ),
    "aggregation": (
        '''
import numpy as np
from emulator.extend import Floats, NoParams, SampledGroups, aggregations

@aggregations.register("own")
def own(groups: SampledGroups, params: NoParams) -> Floats:
    """All alike."""
    return np.full(len(groups.samples), 1 / len(groups.samples))
''',
        "method.aggregation=own",
    ),
    "schedule": (
        '''
from emulator.extend import NoParams, schedules

@schedules.register("own")
def own(round_index: int, clients: int, params: NoParams) -> bool:
    """Before every second round."""
    return round_index % 2 == 0
''',
        "method.schedule=own",
    ),
    "in-group training": (
        '''
from emulator.extend import (
    Group, GroupResult, GroupRound, Handle, NoParams, Session, Steps, Waits, averaged, train_members, trainings,
)

@trainings.register("own")
def own(session: Session, group: Group, model: Handle, at: GroupRound, waits: Waits, params: NoParams) -> Steps:
    """Side by side."""
    trained = yield from train_members(session, group, model, at, waits)
    if trained is None:
        return None
    samples = session.lab.clients.samples[list(trained)]
    return GroupResult(averaged(session, trained, samples), tuple(trained), int(samples.sum()))
''',
        "method.training=own",
    ),
    "group operation": (
        '''
from emulator.extend import Field, Meeting, OperationCost, Params, Seconds, group_operations

class Own(Params):
    """How long."""

    each: Seconds = Field("2 s", validate_default=True, description="for each member")

@group_operations.register("own", Own)
def own(at: Meeting, params: Own) -> OperationCost:
    """A fixed time for each member."""
    return OperationCost(params.each * at.size, 10, 10)
''',
        "method.group_operation={kind: own, each: 1 s}",
    ),
    "waiting": (
        '''
from emulator.extend import NoParams, Patience, waitings

@waitings.register("own")
def own(asked: int, wanted: int, params: NoParams) -> Patience:
    """For all but one."""
    return Patience(max(1, asked - 1))
''',
        "method.wait_for_members=own",
    ),
    "split time": (
        '''
from emulator.extend import NoParams, Reading, Watch, split_times

@split_times.register("own")
def own(watch: Watch, params: NoParams) -> Reading:
    """At once."""
    return Reading(ripe=True)
''',
        "method={kind: clustered, split_time: own}",
    ),
    "bipartition": (
        '''
import numpy as np
from emulator.extend import Halves, NoParams, Reading, Watch, bipartitions

@bipartitions.register("own")
def own(watch: Watch, reading: Reading, insist: bool, rng: np.random.Generator, params: NoParams) -> Halves:
    """In the middle."""
    known = watch.known
    return Halves(known[: len(known) // 2], known[len(known) // 2 :], None, 0, 0.0)
''',
        "method={kind: clustered, bipartition: own, split_time: {kind: convergence}}",
    ),
    "fault": (
        '''
from emulator.extend import FaultEffect, FleetSize, OfClients, RngOf, Spells, client_name, faults

@faults.register("own", OfClients)
def own(fleet: FleetSize, rng_of: RngOf, params: OfClients) -> FaultEffect:
    """Clients are away."""
    chosen = params.chosen(fleet.clients, rng_of("choice"))
    return FaultEffect(nodes={client_name(c): Spells(params.spells(rng_of(client_name(c)))) for c in chosen})
''',
        "faults=[{kind: own, clients: [0], at: [1 s], lasts: 1 s}]",
    ),
    "method": (
        '''
from emulator.extend import (
    CLOUD, LocalRule, MethodFacts, MethodParams, Session, Steps, Tag, Table, averaged, chosen_by_default, methods,
)

class Own(MethodParams):
    """How clients train."""

    local: LocalRule = chosen_by_default("sgd", "what a client does with a gradient")

@methods.register("own", Own, MethodFacts(tables=(Table("turns", ("round", "client", "time_s")),), columns=("turns",)))
def own(session: Session, params: Own) -> Steps:
    """One client after another, straight from the cloud."""
    model, t = session.lab.initial(), 0
    session.begin(model)
    while True:
        t += 1
        tag, models = Tag("model", t), {}
        for client in range(session.scenario.topology.clients):
            work = session.train(client, model, params.local, tag.with_purpose("training"))
            trained = yield from session.round_trip(client, CLOUD, work, tag)
            if trained is not None:
                models[client] = trained.model
                session.note("turns", {"round": t, "client": client, "time_s": session.world.now})
        model = averaged(session, models)
        if session.end_round(t, model, turns=len(models)):
            return
''',
        "method={kind: own, local: {epochs: 1, batch_size: 4}}",
    ),
    "attack": (
        '''
from emulator.extend import Attack, AttackFacts, Clusters, NoParams, Session, Table, attacks

@attacks.register("own", facts=AttackFacts(tables=(Table("seen", ("round", "accuracy")),)))
class Own(Attack):
    """Listens."""

    def __init__(self, session: Session, params: NoParams) -> None:
        self._session = session

    def evaluated(self, round: int, clusters: Clusters, accuracy: float) -> None:
        self._session.note("seen", {"round": round, "accuracy": accuracy})
''',
        "attacks=own",
    ),
    "trace format": (
        '''
from pathlib import Path
from emulator.extend import Head, NoParams, StepFunction, Trace, TraceFormatFacts, lines, number, trace_formats

@trace_formats.register("own", facts=TraceFormatFacts(gives=Trace, fits=lambda head: head.raw.startswith(b"OWN")))
def own(path: Path, params: NoParams) -> Trace:
    """A bandwidth in every line but the first, a second each."""
    rates = [number(path, line, text, "bandwidth") for line, text in lines(path) if line > 1]
    return Trace({("bandwidth", ""): StepFunction.of(list(range(len(rates))), rates, len(rates))})
''',
        "",
    ),
    "trace generator": (
        '''
import numpy as np
from emulator.extend import NoParams, StepFunction, TraceGeneratorFacts, trace_generators

@trace_generators.register("own", facts=TraceGeneratorFacts(column="availability [1]"))
def own(duration_s: float, rng: np.random.Generator, params: NoParams) -> StepFunction:
    """Always there."""
    return StepFunction.of([0.0], [1.0], duration_s)
''',
        "topology.availability={generator: own}",
    ),
    "figure": (
        '''
from collections.abc import Sequence
from pathlib import Path
from emulator.extend import (
    SeriesFigure, StudyResults, curve, figures, legend_below, panels, save_all, series_of, settle, style, title_above,
)

@figures.register("own", SeriesFigure)
def own(results: StudyResults, paths: Sequence[Path], params: SeriesFigure) -> None:
    """Loss by round."""
    with style():
        figure, [box] = panels(1)
        found = series_of(results, params)
        handles = [curve(box, s.first.metrics["round"], s.first.metrics["cost_s"], i) for i, s in enumerate(found)]
        legend_below(figure, handles, [s.label for s in found])
        title_above(figure, params.title or "Mine")
        settle(figure)
    save_all(figure, paths)
''',
        "",
    ),
    "table": (
        '''
from collections.abc import Sequence
from emulator.extend import Given, NoParams, Printed, TextTable, as_series, printed_tables

@printed_tables.register("own")
def own(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """Rounds of each run."""
    import pandas as pd

    rows = [(each.label, str(len(each.first.metrics))) for each in as_series(given)]
    shown = TextTable("Mine", ("label", "rows"), tuple(rows), (False, True))
    return Printed(pd.DataFrame(rows, columns=["label", "rows"]), (shown,))
''',
        "",
    ),
}
