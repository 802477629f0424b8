"""Two worlds that are one until an instant: what a run does in them before that must be the same, byte for byte.

A world is changed where its scenario has become functions of time: faults, availability, bandwidths, latencies, speeds and moves.
So whatever the scenario language can say of the time after an instant can be said here, and nothing before it is drawn anew.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import simpy

from emulator.assembly import assemble, network_of, play
from emulator.contracts.learning import MeasurementChoice
from emulator.errors import HflError
from emulator.grouping.diagnostics import Grouping
from emulator.grouping.topology import Place
from emulator.learning.distillation import DistillationParams
from emulator.learning.lab import Evaluation, Subject
from emulator.learning.probe import ProbeParams
from emulator.learning.recipes import Announced, Distilled, Handle, LocalTraining, Swaps, Trained, VectorFunction
from emulator.ledger import Ledger, Row
from emulator.methods.session import Models, Session
from emulator.rng import stream
from emulator.scenario import Loaded, Scenario
from emulator.scenario.roster import roster_of
from emulator.scenario.topology_schema import Topology
from emulator.world.clock import DeadEndError
from emulator.world.disturbances import Disturbances, disturbances
from emulator.world.fleet import ClientRoutes, Leg
from emulator.world.movements import Movements, Whereabouts, movements
from emulator.world.network import Instants, Known, Network, Transfer
from emulator.world.overtime import OverTime, Product
from emulator.world.played import DIRECTIONS, Played, played
from tests.methods.worlds import BlindLab, CountedClock
from traces.step import StepFunction

FAR_S = 1e3  # what is away or out for ever comes back then, so that nobody can know that it never does
WHAT = ("bandwidths", "latencies", "links", "speeds", "nodes", "sleepers", "moves")  # what may change
ROUNDING = 1e-13  # of an instant: who is woken at one may be a rounding early
SWIFTEST = 4.0  # times as good as ever before


class Future(NamedTuple):
    """What becomes of a world from an instant on: which functions of time change there, by a seed.

    Without an instant it is the world as its scenario has it, made of the same functions. ``for_ever``: who is away for ever
    stays away, and what goes out from ``at_s`` on may do so too.
    """

    what: frozenset[str]
    at_s: float = math.inf
    seed: int = 0
    for_ever: bool = False

    def rng(self, *place: object) -> np.random.Generator:
        """Chance for one function alone."""
        return stream(self.seed, "future", *map(str, place))


class _Until:
    """A factor as it is until an instant, and from then on 1."""

    def __init__(self, before: OverTime, end_s: float) -> None:
        self._before, self._end_s = before, end_s

    def at(self, t: float) -> float:
        return self._before.at(t) if t < self._end_s else 1.0

    def next_change(self, t: float) -> float:
        return min(self._before.next_change(t), self._end_s) if t < self._end_s else math.inf

    @property
    def peak(self) -> float:
        return max(self._before.peak, 1.0)


class _Steps:
    """``before`` until the first of some instants, and from each of them on the level that stands beside it.

    Whatever comes, ``peak`` is the same: it is a bound that scenarios give, and checks of them know.
    """

    def __init__(self, before: float, steps: Sequence[tuple[float, float]]) -> None:
        self._levels = [before, *(level for _, level in steps)]
        self._edges = [at for at, _ in steps]
        self.peak = SWIFTEST

    def at(self, t: float) -> float:
        return self._levels[sum(edge <= t for edge in self._edges)]

    def next_change(self, t: float) -> float:
        return next((edge for edge in self._edges if edge > t), math.inf)


def _steps(future: Future, place: Sequence[object], levels: Sequence[float], before: float = 1.0) -> _Steps:
    """A factor, or what is added: ``before``, from the instant on one level after another, and then ``before`` again."""
    rng = future.rng(*place)
    if future.at_s == math.inf or rng.random() < 0.3:
        return _Steps(before, [])
    lasts = 10.0 ** rng.uniform(-3, 2, rng.integers(1, 5))
    edges = [future.at_s, *(future.at_s + lasts.cumsum()).tolist()]
    chosen = [float(level) for level in rng.choice(levels, len(edges))]
    chosen[0] = float(rng.choice([level for level in levels if level != before]))
    if not future.for_ever or rng.random() < 0.5:
        chosen[-1] = before
    return _Steps(before, list(zip(edges, chosen, strict=True)))


def _leaf(future: Future, place: Sequence[object], value: OverTime) -> OverTime:
    """A factor as it is until the instant or, by chance, for longer; none lasts for ever, unless it may."""
    if isinstance(value, Product):
        return Product([_leaf(future, (*place, n), each) for n, each in enumerate(value.factors)])
    if isinstance(value, StepFunction) and value.least > 0:
        return value  # nobody is ever away: the world sees that at once
    ends = future.at_s < math.inf and future.rng(*place, "ends").random() < 0.5
    return _Until(value, min(future.at_s if ends else math.inf, math.inf if future.for_ever else FAR_S))


def _changed(future: Future, kind: str, name: object, value: OverTime | None, levels: Sequence[float]) -> OverTime:
    place = (kind, name)
    steps = _steps(future, place, levels)
    return steps if value is None else Product([_leaf(future, place, value), steps])


def _played(future: Future, topology: Topology, seed: int) -> Played:
    """Traces on links: those that the scenario has, and latencies that come after the instant."""
    found = played(topology, seed)
    if "bandwidths" not in future.what:
        return found
    spliced: dict[str, Any] = {
        name: Product([trace, _steps(future, ("bandwidth", name), (0.02, 0.3, SWIFTEST))])
        for name, trace in found.bandwidths.items()
    }
    return replace(found, bandwidths=spliced)


def _latencies(future: Future, found: Played, names: Iterable[str]) -> Played:
    if "latencies" not in future.what:
        return found
    latencies: dict[str, Any] = dict(found.latencies)
    for name in names:
        steps = _steps(future, ("latency", name), (0.001, 0.02, 0.3), 0.0 if name not in latencies else 1.0)
        latencies[name] = steps if name not in latencies else Product([latencies[name], steps])
    return replace(found, latencies=latencies)


def _disturbed(future: Future, scenario: Scenario, clients: Sequence[str], servers: Sequence[str]) -> Disturbances:
    """Who is away and what is out: as the scenario says until the instant, and then otherwise."""
    found = disturbances(scenario)
    nodes, sleepers, links, speeds = dict(found.nodes), dict(found.sleepers), dict(found.links), dict(found.speeds)
    away = (0.0, 1.0)
    if "nodes" in future.what:
        for name in (*clients, *servers):
            nodes[name] = _changed(future, "node", name, nodes.get(name), away)
    if "links" in future.what:
        for name in (f"{node}/{way}" for node in (*clients, *servers) for way in DIRECTIONS):
            links[name] = _changed(future, "link", name, links.get(name), (0.0, 0.05, 0.5, SWIFTEST))
    if "speeds" in future.what:
        for client in range(len(clients)):
            speeds[client] = _changed(future, "speed", client, speeds.get(client), (0.05, 0.3, SWIFTEST))
    if "sleepers" in future.what:
        for client, name in enumerate(clients):
            own = _changed(future, "sleeper", name, sleepers.get(name), away)
            sleepers[name] = own
            speeds[client] = Product([f for f in (own, speeds.get(client)) if f is not None])
            for link in (f"{name}/{way}" for way in DIRECTIONS):
                links[link] = Product([f for f in (own, links.get(link)) if f is not None])
    return replace(found, nodes=nodes, sleepers=sleepers, links=links, speeds=speeds)


def _moves(future: Future, found: Movements, servers: Sequence[str]) -> Movements:
    """The moves of those who move: their own until the instant, and then others."""
    if "moves" not in future.what or future.at_s == math.inf:
        return found

    def stays(client: int, path: Whereabouts) -> Iterator[tuple[float, str]]:
        since_s = 0.0
        while since_s < future.at_s:
            yield since_s, path.at(since_s)
            since_s = path.next_change(since_s)
        rng, at_s = future.rng("move", client), future.at_s
        for lasts_s in 10.0 ** rng.uniform(-2, 2, 20):
            yield at_s, str(rng.choice([*servers, ""]))
            at_s += float(lasts_s)
        yield at_s, servers[0]

    paths = {client: Whereabouts(path.at(0.0), stays(client, path)) for client, path in found.paths.items()}
    return Movements(paths, found.how)


@dataclass
class Chronicle:
    """What happened in a run.

    ``acts`` in the order in which they happened, each with its instant. ``facts`` are known before their instants or after:
    where nothing is cut off, what many clients do is worked out together. ``rows`` likewise: a row and when it was booked.
    ``never_s``: when somebody was told for the first time that somebody who is away, or something that is out, never comes back.
    """

    acts: list[tuple[float, str]] = field(default_factory=list)
    facts: list[tuple[float, str]] = field(default_factory=list)
    rows: list[tuple[float, Row]] = field(default_factory=list)
    never_s: float = math.inf
    end_s: float = 0.0
    stopped_by: str = ""
    env: Any = None

    def act(self, what: str, *parts: object) -> None:
        """Notes what somebody does now."""
        self.acts.append((float(self.env.now) if self.env is not None else 0.0, f"{what} {parts!r}"))

    def fact(self, at_s: float, what: str, *parts: object) -> None:
        """Notes what happens at an instant that is not now."""
        self.facts.append((at_s, f"{what} {parts!r}"))


class _Rows(Ledger):
    """A ledger that knows when its rows were booked."""

    def __init__(self, chronicle: Chronicle) -> None:
        super().__init__()
        self._chronicle = chronicle
        self._booked_s: list[float] = []

    def add_all(self, count: int, *args: Any, **named: Any) -> None:
        super().add_all(count, *args, **named)
        self._booked_s += [float(self._chronicle.env.now)] * count

    @property
    def booked(self) -> list[tuple[float, Row]]:
        """All rows, and when each was booked."""
        return list(zip(self._booked_s, self.rows, strict=True))


class _KeyedLab(BlindLab):
    """A `BlindLab` in which every model has a key of its own, as in the lab that trains, and that tells what it is asked."""

    def __init__(self, loaded: Loaded, chronicle: Chronicle) -> None:
        super().__init__(loaded)
        self._chronicle = chronicle

    def _made(self, what: str, *parts: object) -> Handle:
        self._chronicle.act(what, *parts)
        return self._named(what, *parts)

    def _named(self, *parts: object) -> Handle:
        return Handle(hashlib.sha256(repr(parts).encode()).hexdigest()[:12])

    def initial(self, number: int = 0) -> Handle:
        return self._made("initial", number)

    def pretrained(self, probe: ProbeParams) -> Handle:
        return self._made("pretrained", probe)

    def zeros(self) -> Handle:
        return self._made("zeros")

    def poison(self, swaps: Mapping[int, Swaps]) -> None:
        self._chronicle.act("poison", dict(swaps))

    def train(self, training: LocalTraining) -> Trained:
        memory, extra = _keys(training.memory or ()), _keys(h for block in training.extra for h in block)
        place = (training.client, _chosen(training.rule), training.round, training.turn)
        model = self._made("train", training.model.key, *place, memory, extra)
        return Trained(model, None if training.memory is None else self._named("own", model.key))

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        images = self._made("distil", client, params)
        return Distilled(images, self._named("labels", images.key))

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        return self._made("combine", _keys(vectors), [float(weight) for weight in weights])

    def apply(self, function: VectorFunction, vectors: Sequence[Handle]) -> tuple[Handle, ...]:
        one = self._made("apply", str(function.identity()), _keys(vectors))
        return tuple(self._named("output", one.key, n) for n in range(function.outputs))

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        self._chronicle.act("evaluate", _keys(models))
        return super().evaluate_all(models)

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        self._chronicle.act("evaluate", [(model.key, list(clients)) for model, clients in cases])
        return super().evaluate_each(cases)

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        self._chronicle.act("announce", _chosen(measurement), _keys(models), client)
        return super().announce(measurement, models, client)

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        some = [(list(models), client) for models, client in subjects]
        self._chronicle.act("measure", _chosen(measurement), [(_keys(models), client) for models, client in some])
        return super().measure_all(measurement, some)


def _chosen(of: Any) -> str:
    return of if isinstance(of, str) else f"{of.kind} {of.params!r}"


def _keys(handles: Iterable[Handle]) -> list[str]:
    return [handle.key for handle in handles]


class _Told:
    """A network that tells a chronicle what it is asked to carry, what arrives, and what is stopped on its way."""

    def __init__(self, network: Network, chronicle: Chronicle) -> None:
        self._network, self._chronicle = network, chronicle

    def _way(self, route: Sequence[Leg]) -> str:
        return " ".join(leg.link for leg in route)

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        way = self._way(route)
        self._chronicle.act("send", way, size_bytes)
        arrived = self._network.transfer(route, size_bytes)
        arrived.callbacks.append(lambda _: self._chronicle.act("arrived", way, size_bytes))
        return arrived

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        way = self._way(route)
        self._chronicle.act("send", way, size_bytes)
        inner = self._network.start(route, size_bytes)
        inner.arrived.callbacks.append(lambda _: self._chronicle.act("arrived", way, size_bytes))

        def stop() -> int:
            sent = inner.stop()
            self._chronicle.act("stopped", way, size_bytes, sent)
            return sent

        return Transfer(inner.arrived, stop)

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        instants = self._chronicle.env.now if starts_s is None else starts_s
        for at_s, route in zip(np.broadcast_to(instants, len(routes.clients)).tolist(), routes.each(), strict=True):
            self._chronicle.fact(at_s, "send", self._way(route), size_bytes)
        return self._network.transfer_all(routes, size_bytes, starts_s)

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        for route in routes.each():
            self._chronicle.act("send", self._way(route), size_bytes)
        self._network.transfer_each(routes, size_bytes, known)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def _listen(session: Session, chronicle: Chronicle) -> None:
    """Tells a chronicle what the method asks of its world, and what it notes."""
    world = session.world

    def telling(of: object, name: str, shown: Callable[..., object]) -> None:
        ask = getattr(of, name)

        def told(*args: Any, **named: Any) -> Any:
            chronicle.act(name, shown(*args, **named))
            return ask(*args, **named)

        setattr(of, name, told)

    def occupy(clients: np.ndarray, starts_s: Instants, seconds: np.ndarray) -> Any:
        began_s, ends_s = asked(clients, starts_s, seconds)
        each = zip(clients.tolist(), np.broadcast_to(began_s, len(clients)).tolist(), seconds.tolist(), strict=True)
        for client, at_s, lasts_s in each:
            chronicle.fact(at_s, "occupied", client, lasts_s)
        return began_s, ends_s

    def note_places(places: Iterable[Place]) -> None:
        chronicle.act("note_places", some := list(places))
        session.places += some

    session.note_places = note_places  # type: ignore[method-assign]
    asked, world.occupy = world.occupy, occupy  # type: ignore[method-assign]
    telling(
        world, "busy", lambda kind, client, seconds, tag, samples=0, begun=None: (kind, client, seconds, tag, samples)
    )
    telling(world, "occupied", lambda *args: args)
    for name in ("give_up", "give_up_group", "carry"):
        telling(world, name, lambda *args, **_named: args[:5])
    telling(session, "note", lambda table, row: (table, row))
    telling(session, "note_groups", _shown_grouping)
    telling(session, "keep_images", lambda recovered, nearest: (recovered.tolist(), nearest.tolist()))
    telling(session, "end_early", lambda reason, model: (reason, _shown(model)))
    telling(session, "end_round", lambda round, model, **measured: (round, _shown(model), measured))  # noqa: A006
    telling(session, "on_round", lambda round, totals: totals)  # noqa: A006


def _tell_of_never(session: Session, chronicle: Chronicle) -> None:
    """Notes when the world first says that somebody never comes back."""
    world = session.world

    def noting(name: str, never: object) -> None:
        ask = getattr(world, name)

        def noted(*args: int) -> Any:
            said = ask(*args)
            if said is never:
                chronicle.never_s = min(chronicle.never_s, world.now)
            return said

        setattr(world, name, noted)

    for name in ("until_back", "until_return", "until_way"):
        noting(name, None)
    noting("is_gone", True)


def _shown_grouping(grouping: Grouping) -> str:
    return repr(grouping)


def _shown(model: Models) -> object:
    return model.key if isinstance(model, Handle) else (_keys(model.models), model.of.tolist())


def changeable(scenario: Scenario) -> list[str]:
    """What may change in the worlds of a scenario. Dedicated links do not, and only those move who do so anyway."""
    topology = scenario.topology
    fit = {"bandwidths": bool(roster_of(topology).traces), "moves": topology.movement is not None}
    shared = topology.sharing != "dedicated"
    some = WHAT if shared else ("speeds", "nodes", "moves")
    return [name for name in some if fit.get(name, True)]


def chronicle(loaded: Loaded, future: Future) -> Chronicle:
    """All that happens in a run of a scenario in a world that has this future. Raises `InputError` where no run begins."""
    told = Chronicle()

    def network(scenario: Scenario, env: simpy.Environment, traces: Played, disturbed: Disturbances) -> _Told:
        return _Told(network_of(scenario, env, traces, disturbed), told)

    with pytest.MonkeyPatch.context() as patch:
        names = _names(loaded.scenario)
        here = [f"{node}/{way}" for node in (*names[0], *names[1]) for way in DIRECTIONS]
        patch.setattr("emulator.assembly.network_of", network)
        patch.setattr("emulator.assembly.new_clock", CountedClock)
        patch.setattr("emulator.assembly.played", lambda *of: _latencies(future, _played(future, *of), here))
        patch.setattr("emulator.assembly.disturbances", lambda scenario: _disturbed(future, scenario, *names))
        patch.setattr("emulator.assembly.movements", lambda *of: _moves(future, movements(*of), names[1]))
        patch.setattr("emulator.methods.forming.RETURNS", 1000)
        patch.setattr("emulator.world.handovers.MOVES", 10_000)
        rows = _Rows(told)
        session = assemble(loaded.scenario, _KeyedLab(loaded, told), rows)
        told.env = session.env
        _listen(session, told)
        _tell_of_never(session, told)
        try:
            play(session)
            told.stopped_by = session.stopped_by
        except HflError as error:
            told.stopped_by = str(error)
            if isinstance(error.__cause__, DeadEndError):
                told.never_s = min(told.never_s, session.world.now)
    told.end_s, told.rows = session.world.now, rows.booked
    told.act("end", told.stopped_by)
    return told


def _names(scenario: Scenario) -> tuple[Sequence[str], Sequence[str]]:
    """The clients, and the servers below the cloud."""
    roster = roster_of(scenario.topology)
    return roster.names, [server.name for server in roster.servers[1:]]


def diverges(before: Chronicle, after: Chronicle, at_s: float) -> str | None:
    """The first difference between two runs before an instant; None where all that was done, sent and learned is the same.

    Once somebody was told that somebody else never comes back, in a run that ends because nobody is left or before, nothing is
    compared any more.
    """
    until_s = min(at_s, before.never_s, after.never_s) * (1 - ROUNDING)
    for what, one, other in (
        ("acts", *(_until(told.acts, until_s) for told in (before, after))),
        ("facts", *(sorted(_until(told.facts, until_s)) for told in (before, after))),
        ("rows", *(_until(told.rows, until_s) for told in (before, after))),
    ):
        for mine, theirs in itertools.zip_longest(one, other):
            if mine != theirs:
                return f"{what} before {at_s!r} s:\n  {mine}\n  {theirs}"
    return _late(before, after, until_s)


def _until(log: Sequence[tuple[float, Any]], at_s: float) -> list[tuple[float, Any]]:
    return [entry for entry in log if entry[0] < at_s]


def _late(before: Chronicle, after: Chronicle, at_s: float) -> str | None:
    """The first row that ended before an instant and was booked later, of which the other run says that it ended otherwise.

    Rows of several who wait for one another are booked together; where a run ends before, it has none of them. Whether what was
    sent in parts arrives is known with the last part.
    """

    def ends(told: Chronicle) -> dict[Row, Counter[float]]:
        found: dict[Row, Counter[float]] = {}
        for booked_s, row in told.rows:
            if booked_s >= at_s and row.start_s < at_s:
                begun = row._replace(end_s=0.0, bytes=0, samples=0, status="")
                found.setdefault(begun, Counter())[row.end_s] += 1
        return found

    one, other = ends(before), ends(after)
    for begun in one.keys() & other.keys():
        mine, theirs = ({s: n for s, n in of[begun].items() if s < at_s} for of in (one, other))
        if mine != theirs and one[begun].total() == other[begun].total():
            return f"rows that ended before {at_s!r} s:\n  {begun}\n  {mine}\n  {theirs}"
    return None
