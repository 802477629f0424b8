"""Random small worlds for properties: scenarios of every preset with every kind of fault, waiting and availability.

All kinds come from the registries, so a new one is drawn without a line here; where it has a required parameter of a name that
is not known, `parameters` fails and says which.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import simpy
from hypothesis import reject
from hypothesis import strategies as st

from emulator import yamlfile
from emulator.contracts.learning import MeasurementChoice
from emulator.errors import ScenarioError
from emulator.learning.distillation import DistillationParams
from emulator.learning.lab import Subject
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.private import PrivateMean
from emulator.learning.recipes import Distilled, Handle, LocalTraining, Trained, VectorFunction
from emulator.learning.timing import TimingLab
from emulator.learning.transmission import Transmission
from emulator.learning.vector_functions import Poisoned
from emulator.registry import Params, Registry
from emulator.rng import stream
from emulator.scenario import Loaded
from emulator.scenario.load import check
from emulator.scenario.presets import presets
from emulator.world.clock import Clock
from emulator.world.fleet import ClientRoutes, Leg
from emulator.world.network import Instants, Known, Network, Transfer

MOST_EVENTS = 1_000_000  # of a run in a small world: one with more counts as one that never ends
ROWS = tempfile.TemporaryDirectory()  # files of fleets and of moves
MEMO = Memo(None)  # facts of the model and of clients' data, which many worlds have in common


class TooLongError(Exception):
    """A run goes on and on, although its clock moves."""


class CountedClock(Clock):
    """A clock that ends a run after so many events, which no run in a small world has."""

    def __init__(self, clients: int) -> None:
        super().__init__(clients)
        self.events = 0

    def step(self) -> None:
        self.events += 1
        if self.events > MOST_EVENTS:
            raise TooLongError(f"{self.events} events, {self.now} s")
        super().step()


class BlindLab(TimingLab):
    """A `TimingLab` for methods that act on what is learned: they are told numbers that are drawn at random.

    So estimates, splits of clusters and choices of models are any that could be, and the time structure of every method can be
    played without training.
    """

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded.scenario, RunMemory(MEMO))
        self._rng = stream(loaded.scenario.seed, "blind")

    def measure(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> np.ndarray:
        return self.measure_all(measurement, [(models, client)])[0]

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        kind = measurement if isinstance(measurement, str) else measurement.kind
        classes, layers = self.clients.label_counts.shape[1], len(self.model_facts.layers)
        public = self._scenario.data.public * classes
        shapes: dict[str, Any] = {
            "class-scores": lambda models: (2, classes),
            "soft-labels": lambda models: (public, classes),
            "classifier-weights": lambda models: (5,),
            "fisher": lambda models: (5,),
            "length": lambda models: (1,),
            "cosines": lambda models: (len(models) - 1, 1 + layers),
            "trends": lambda models: (layers, 4),
            "fit": lambda models: (len(models), 2),
            "squared-loss": lambda models: (len(models),),
        }
        low = -1.0 if kind in ("cosines", "trends", "classifier-weights") else 0.01
        return [self._rng.uniform(low, 1.0, shapes[kind](models)) for models, _ in subjects]


class Work(NamedTuple):
    """What a handle stands for: a client's work in a round, asked for at an instant."""

    client: int
    round: int
    asked_s: float


class Use(NamedTuple):
    """Work whose result was used at an instant: by a server, or by another client (its number)."""

    work: Work
    used_s: float
    by: int | None


class WitnessLab(BlindLab):
    """A `BlindLab` that tells every model from every other, and notes whose results are used and when (``uses``).

    ``now`` is the clock.
    """

    def __init__(self, loaded: Loaded) -> None:
        super().__init__(loaded)
        self.now: Callable[[], float] = float
        self.uses: list[Use] = []
        self._made: dict[Handle, Work] = {}

    def train(self, training: LocalTraining) -> Trained:
        super().train(training)
        client = training.client
        if not isinstance(client, int):  # the server trains
            return Trained(Handle("server"), None)
        self._use([training.model, *(training.memory or ()), *(h for block in training.extra for h in block)], client)
        model, own = self._make(client, training.round), self._make(client, training.round)
        return Trained(model, None if training.memory is None else own)

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        handle = self._make(client, -1)
        return Distilled(handle, handle)

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        self._use(vectors, None)
        return vectors[0] if len(vectors) == 1 else Handle("combined")

    def apply(self, function: VectorFunction, vectors: Sequence[Handle]) -> tuple[Handle, ...]:
        own = self._own(function, vectors)
        if own is not None:
            sent, *others = (Handle("work") for _ in range(function.outputs))
            self._made |= {sent: self._made[own]} if own in self._made else {}
            return (sent, *others)
        self._use(vectors, None)
        return tuple(Handle("applied") for _ in range(function.outputs))

    def _own(self, function: VectorFunction, vectors: Sequence[Handle]) -> Handle | None:
        """The work that is made into something else on its way, by who did it or as it is encoded; None: others' work is used."""
        if isinstance(function, Transmission):
            return vectors[0]
        alone = isinstance(function, PrivateMean) and len(vectors) == 2
        return vectors[1] if alone or isinstance(function, Poisoned) else None

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        def looked_at() -> Iterator[Subject]:
            for models, client in subjects:
                for model in models:  # a client may read something off its own model, and send no more than that
                    self._use([model], self._made[model].client if model in self._made else None)
                yield models, client

        return super().measure_all(measurement, looked_at())

    def _make(self, client: int, round: int) -> Handle:  # noqa: A002
        handle = Handle("work")
        self._made[handle] = Work(client, round, self.now())
        return handle

    def _use(self, handles: Iterable[Handle], by: int | None) -> None:
        self.uses += [Use(self._made[h], self.now(), by) for h in handles if h in self._made]


class Books:
    """A network that counts, beside the ledger, the bytes that it carried over every kind of hop, all the way or in part."""

    def __init__(self, network: Network, env: simpy.Environment) -> None:
        self._network = network
        self._env = env
        self.carried: dict[str, int] = {}
        self.broken = 0
        self.sizes: list[tuple[int, int]] = []  # of transfers that were stopped: bytes sent, bytes asked for

    def _note(self, route: Sequence[Leg], size_bytes: int) -> None:
        for leg in route:
            if leg.hop:
                self.carried[leg.hop] = self.carried.get(leg.hop, 0) + size_bytes

    def transfer(self, route: Sequence[Leg], size_bytes: int) -> simpy.Event:
        arrived = self._network.transfer(route, size_bytes)
        arrived.callbacks.append(lambda _: self._note(route, size_bytes))
        return arrived

    def start(self, route: Sequence[Leg], size_bytes: int) -> Transfer:
        inner, stopped = self._network.start(route, size_bytes), []

        def stop() -> int:
            sent = inner.stop()
            stopped.append(sent)
            self.sizes.append((sent, size_bytes))
            self._note(route, sent)
            self.broken += sent * sum(1 for leg in route if leg.hop)
            return sent

        inner.arrived.callbacks.append(lambda _: None if stopped else self._note(route, size_bytes))
        return Transfer(inner.arrived, stop)

    def peak_bps(self, leg: Leg) -> float:
        return self._network.peak_bps(leg)

    def transfer_all(self, routes: ClientRoutes, size_bytes: int, starts_s: Instants | None = None) -> simpy.Event:
        arrived = self._network.transfer_all(routes, size_bytes, starts_s)
        arrived.callbacks.append(lambda _: self._note(routes.pattern.route, size_bytes * len(routes.clients)))
        return arrived

    def transfer_each(self, routes: ClientRoutes, size_bytes: int, known: Known) -> None:
        def noted(places: Any, instants_s: Instants) -> None:
            self._note(routes.pattern.route, size_bytes * len(np.arange(len(routes.clients))[places]))
            known(places, instants_s)

        self._network.transfer_each(routes, size_bytes, noted)

    def independent(self, routes: ClientRoutes) -> bool:
        return self._network.independent(routes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


# What scenarios are drawn from.

RATES = ("50 kbit/s", "1 Mbit/s", "8 Mbit/s", "100 Mbit/s")
LATENCIES = ("0 s", "2 ms", "150 ms")


def spans(*about_s: float) -> st.SearchStrategy[str]:
    return st.builds(lambda s, factor: f"{s * factor!r} s", st.sampled_from(about_s), st.floats(0.3, 3.0))


span, rarely = spans(0.003, 0.03, 0.3, 1.0, 5.0, 60.0, 1000.0), spans(1.0, 5.0, 60.0, 1000.0)


def parameters(model: type[Params], known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters of a plug-in: those of known names, all choices of literals, and defaults for the rest."""
    needed: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        values = typing.get_args(field.annotation) if typing.get_origin(field.annotation) is typing.Literal else ()
        if name not in known and not values:
            if field.is_required():
                pytest.fail(f"tests/methods/worlds.py does not know how to draw '{name}' of {model.__name__}")
            continue
        where = needed if field.is_required() else optional
        where[name] = known.get(name, st.sampled_from(values or (None,)))
    return st.fixed_dictionaries(needed, optional=optional)


def kind_of(slot: str, name: str, known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A choice of a kind from a slot."""
    model = Registry.by_slot[slot][name].params
    return parameters(model, known).map(lambda drawn: {"kind": name, **drawn})


@st.composite
def faults(draw: st.DrawFn, clients: int, tiers: Mapping[str, int], dedicated: bool) -> list[dict[str, Any]]:
    found = []
    edges = tiers["edge"]
    for name in Registry.by_slot["fault"].names():
        concerns = Registry.by_slot["fault"][name].params.model_fields
        if (not edges and "edges" in concerns) or not draw(st.booleans()):
            continue
        if dedicated and name == "backhaul-outage":  # needs links that change over time
            continue
        places: dict[str, st.SearchStrategy[Any]] = {"factor": st.floats(1.5, 50.0)}
        if "edges" in concerns:
            tier = draw(st.sampled_from(list(tiers)))
            places["tier"] = st.just(tier)
            places["edges"] = st.lists(st.integers(0, tiers[tier] - 1), min_size=1, unique=True)
        else:
            some = st.lists(st.integers(0, clients - 1), min_size=1, unique=True)
            places["clients"] = some | st.floats(0.1, 1.0)
        fault = draw(kind_of("fault", name, places))
        if "edges" in concerns:
            fault["tier"] = tier  # whose numbers they are
        if draw(st.booleans()):
            fault |= {"at": draw(st.lists(st.just("0 s") | span, min_size=1, max_size=3))}
            if draw(st.booleans()):
                fault |= {"lasts": draw(span)}
        else:
            fault |= {"every": draw(rarely), "lasts": draw(span)}
        found.append(fault)
    return found


@st.composite
def availability(draw: st.DrawFn, dedicated: bool) -> dict[str, Any] | None:
    names = Registry.by_slot["trace generator"].names()
    name = draw(st.sampled_from((None, "trace", *names)))
    if name is None:
        return None
    work = draw(st.sampled_from(("lost",) if dedicated else ("lost", "paused")))
    if name == "trace":
        return {"trace": {"file": "phone-availability"}, "work": work}
    level, zero = st.floats(0.1, 1.0), st.sampled_from((0.0, 0.05))
    known = {
        **dict.fromkeys(("mean_on", "mean_off", "period", "peak"), span),
        "step": st.sampled_from(("50 ms", "1 s", "20 s")),
        **dict.fromkeys(("good_to_bad", "bad_to_good"), st.floats(0.05, 1.0)),
        **dict.fromkeys(("high", "good", "on", "level"), level),
        **dict.fromkeys(("bad", "off"), zero),
        "low": st.just(0.05),
    }
    generator = draw(kind_of("trace generator", name, known))
    return {"generator": generator, "period": draw(st.sampled_from(("10 s", "300 s"))), "work": work}


@st.composite
def links(draw: st.DrawFn, dedicated: bool) -> dict[str, Any]:
    rate, latency = st.sampled_from(RATES), st.sampled_from(LATENCIES)
    jitter = st.fixed_dictionaries(
        {"kind": st.sampled_from(("exponential", "uniform", "normal")), "scale": st.just("10 ms")}
    )
    further = {"jitter": jitter, "loss": st.floats(0, 0.5), "overhead": st.just("3 ms"), "latency": latency}
    link = st.fixed_dictionaries({"up": rate, "down": rate}, optional=further)
    shared = st.fixed_dictionaries({"up": rate, "down": rate})
    peer = st.fixed_dictionaries({"bandwidth": rate}, optional=further)
    found = draw(
        st.fixed_dictionaries(
            {"access": link, "backhaul": link}, optional={"cell": shared, "cloud": shared, "peer": peer}
        )
    )
    if not dedicated and draw(st.integers(0, 3)) == 0:
        found["access"]["trace"] = {"file": "lte-like"}
    return found


@st.composite
def waiting(draw: st.DrawFn, most: int) -> dict[str, Any]:
    name = draw(st.sampled_from(Registry.by_slot["waiting"].names()))
    found = draw(kind_of("waiting", name, {"after": span, "count": st.integers(1, most), "share": st.floats(0.1, 1.0)}))
    if "count" in found:
        found.pop("share", None)
    return found


up = st.sampled_from(
    (
        ["float16"],
        ["delta", "error-feedback", "top-k"],
        ["delta", {"kind": "quantise", "bits": 3}, {"kind": "zstd", "ratio": 0.7}],
    )
)
encoded = st.fixed_dictionaries(
    {
        "client": st.fixed_dictionaries(
            {}, optional={"up": up, "down": st.just(["delta", "sign"]), "peer": st.just(["low-rank"])}
        )
    }
)


@st.composite
def method(draw: st.DrawFn, preset: str, clients: int, edges: int) -> dict[str, Any]:
    """A preset with sizes that fit a small fleet, and with ways to wait."""
    given = presets()[preset]
    fields = Registry.by_slot["method"][given["kind"]].params.model_fields
    here = clients // edges if given.get("aggregator") == "edge" else clients
    found: dict[str, Any] = {"preset": preset, "local": {"epochs": draw(st.integers(1, 2)), "batch_size": 4}}
    formation = given.get("formation")
    if isinstance(formation, dict):
        sizes = [key for key in ("size", "min_size", "clusters", "tiers") if key in formation]
        found["formation"] = {key: draw(st.integers(1, min(3, here))) for key in sizes}
    if formation is not None and "estimator" in fields and draw(st.integers(0, 4)) == 0:
        found["formation"] = {"kind": "speed-tiers", "tiers": draw(st.integers(1, min(3, here)))}
        timing = {"rounds": st.integers(1, 2), "timeout": span}
        found["estimator"] = draw(kind_of("estimator", "response-time", timing))
    elif "epochs" in given.get("estimator", {}):
        found["estimator"] = {"epochs": 1}
    if "dividing" in given:
        found["dividing"] = {"round": draw(st.integers(1, 3)), "clusters": draw(st.integers(1, min(3, clients)))}
    if "clusters" in given:
        found["clusters"] = draw(st.integers(1, min(4, clients)))
    if given.get("training", {}) == "sequential" and draw(st.booleans()):
        found["training"] = {"kind": "sequential", "loops": draw(st.integers(1, 2)), "ring": draw(st.booleans())}
    if isinstance(given.get("training"), dict) and "images" in given["training"]:
        found["training"] = {"images": 2}
    parallel = given.get("training", "parallel") == "parallel"
    optional: dict[str, st.SearchStrategy[Any]] = {
        "group_rounds": st.integers(1, 2),
        "min_members": st.integers(1, min(3, here)) if "training" not in given or parallel else st.just(1),
        "initial_model": st.sampled_from(("weights", "seed")),
        "wait_for_members": waiting(here),
        "wait_for_groups": waiting(max(1, edges)),
        "participation": st.sampled_from((0.3, 0.6) if "selection" in given else (0.3, 0.6, 1.0)),
        "window": st.integers(1, 3),
        "max_staleness": st.integers(0, 3),
        "staleness": st.sampled_from(Registry.by_slot["staleness"].names()).flatmap(
            lambda n: kind_of("staleness", n, {})
        ),
        "group_operation": st.sampled_from(("none", "secure-aggregation", "backdoor-detection")),
        "reorganise": st.integers(1, 2),
        "finer": st.fixed_dictionaries({"after": st.integers(1, 2), "levels": st.sampled_from((1, None))}),
        "encodings": encoded,
    }
    if preset in ("scaffold", "feddyn", "ifca"):
        del optional["encodings"]
    if not parallel:
        del optional["group_operation"], optional["wait_for_members"]
    known = {key: value for key, value in optional.items() if key in fields}
    if given["kind"] == "buffered":
        found |= draw(versions(given, clients, edges))
        if given["formation"] == "single":
            found |= {"formation": "single"}
            known = {key: value for key, value in known.items() if key not in ("participation", "min_members")}
        if found["update"] == "latest":
            known = {key: value for key, value in known.items() if key not in ("staleness", "max_staleness")}
    found |= draw(st.fixed_dictionaries({}, optional=known))
    if found.get("group_operation", given.get("group_operation", "none")) != "none" and "encodings" in found:
        found["encodings"] = {**found["encodings"], "client": {"up": ["delta", "random-k"]}}
    if "selection" in fields and found.get("participation", given.get("participation", 1.0)) < 1 and parallel:
        found |= draw(st.just({}) | selection(given).map(lambda drawn: {"selection": drawn}))
    return found | draw(combining(given, fields, found))


@st.composite
def versions(draw: st.DrawFn, given: Mapping[str, Any], clients: int, edges: int) -> dict[str, Any]:
    """When a new version of the model is made, and of what."""
    units = clients if given["formation"] == "single" else max(1, edges) if given["formation"] == "all" else 1
    at_work = draw(st.none() | st.integers(1, units))
    found: dict[str, Any] = {"update": draw(st.sampled_from(("mix", "add", "latest")))}
    if draw(st.booleans()):
        found |= {"every": draw(span), "buffer": None}
    else:
        found |= {"buffer": draw(st.integers(1, at_work or units)), "every": None}
    if found["update"] == "latest":
        return found | {"at_work": at_work, "rate": 1.0, "weights": "samples", "staleness": "constant"}
    return found | {"at_work": at_work, "rate": draw(st.sampled_from((0.5, 1.0)))}


@st.composite
def selection(draw: st.DrawFn, given: Mapping[str, Any]) -> dict[str, Any]:
    """Who takes part in a round: as the preset has it, with other parameters, or any other way."""
    own = given.get("selection", draw(st.sampled_from(Registry.by_slot["selection"].names())))
    small = {"most_rounds": st.integers(1, 2), "pacer_window": st.integers(1, 2), "tiers": st.integers(1, 2)}
    small |= {"interval": st.integers(1, 2), "credits": st.integers(1, 2), "adaptive": st.booleans()}
    spans = dict.fromkeys(("deadline", "timeout", "pacer_step"), span)
    return draw(kind_of("selection", own["kind"] if isinstance(own, dict) else own, {**small, **spans}))


@st.composite
def combining(
    draw: st.DrawFn, given: Mapping[str, Any], fields: Mapping[str, Any], found: Mapping[str, Any]
) -> dict[str, Any]:
    """How servers put models together, and what they make of the average, where the rest of the method lets them."""
    local = given.get("local")
    if (local["kind"] if isinstance(local, dict) else local) in ("scaffold", "feddyn") or draw(st.booleans()):
        return {}
    sums = found.get("group_operation", given.get("group_operation", "none")) == "secure-aggregation"
    able = {
        "combination": not sums and given.get("training", "parallel") == "parallel",
        "global_combination": True,
        "server_optimiser": "dividing" not in given,
        "edge_optimiser": given.get("aggregator") != "cloud",
    }
    chosen = {}
    for key in (key for key, fits in able.items() if fits and key in fields):
        slot = "server optimiser" if key.endswith("optimiser") else "combination"
        name = draw(st.sampled_from(Registry.by_slot[slot].names()))
        limits = {"attackers": st.just(0), "norm": st.floats(0.1, 10), "iterations": st.integers(1, 3)}
        chosen |= {key: draw(kind_of(slot, name, limits))} if draw(st.booleans()) else {}
    return chosen


@st.composite
def attacks(draw: st.DrawFn, fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """What malicious clients send, in methods in which clients train."""
    kinds = [name for name in Registry.by_slot["attack"].names() if Registry.by_slot["attack"][name].facts.models]
    kind = draw(st.sampled_from((None, None, *kinds)))
    if kind is None:
        return None
    share = st.floats(0.5, 1.0)
    if "formation" in fields and draw(st.booleans()):
        return {"kind": kind, "superclients": draw(share), "clients": draw(share)}
    return {"kind": kind, "share": draw(share)}


@st.composite
def averaging(draw: st.DrawFn, preset: str, tiers: Mapping[str, int]) -> dict[str, Any]:
    """Regions that average too, where there are some above the groups."""
    given = presets()[preset]
    if "region" not in tiers or given["kind"] != "grouped" or given.get("aggregator") != "edge" or "dividing" in given:
        return {}
    how = {"rounds": draw(st.integers(1, 2)), "group_operation": draw(st.sampled_from(("none", "secure-aggregation")))}
    return draw(st.sampled_from(({}, {"tiers": {"region": how}})))


@st.composite
def rows(draw: st.DrawFn, clients: int, edges: int, dedicated: bool) -> str:
    """A file with a row for each client: one in every block of so many behind each edge, the rest anywhere."""
    rate, blank = st.sampled_from(RATES), st.just("")
    cells = {
        "device": st.sampled_from(("", "laptop", "raspberry-pi-3b-plus")),
        "up": rate | blank,
        "down": rate | blank,
        "latency": st.sampled_from(LATENCIES) | blank,
        "jitter": st.sampled_from(("", "10 ms")),
        "loss": st.sampled_from(("", "0", "0.3")),
        "speed": st.sampled_from(("", "0.2", "3")),
        "samples": st.sampled_from(("", "5", "12")),
        "trace": blank if dedicated else st.sampled_from(("", "", "lte-like")),
        "availability": st.sampled_from(("", "", "phone-availability")),
    }
    chosen = {name: values for name, values in cells.items() if draw(st.booleans())}
    lines = [",".join(("name", "parent", *chosen))]
    for client in range(clients):
        home = client if client < edges else draw(st.integers(0, max(0, edges - 1)))
        parent = f"edge-{home}" if edges else "cloud"
        lines.append(",".join((f"client-{client}", parent, *(draw(values) for values in chosen.values()))))
    return _file("\n".join(lines) + "\n")


def _file(text: str) -> str:
    """The path of a file with this text."""
    file = Path(ROWS.name) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    file.write_text(text)
    return str(file)


@st.composite
def tree(draw: st.DrawFn, clients: int, edges: int, dedicated: bool) -> tuple[dict[str, Any], dict[str, int]]:
    """Who there is, and the servers of each tier: edges alone, gateways below them, regions above, kinds or rows of clients."""
    alone = {"clients": clients, "edges": edges}, {"edge": edges}
    shape = draw(st.sampled_from(("edges", "gateways", "regions", "kinds", "rows")))
    if shape == "rows":
        return {"fleet": draw(rows(clients, edges, dedicated)), "edges": edges}, {"edge": edges}
    if shape == "edges" or (not edges and shape != "kinds"):
        return alone
    link = {"latency": draw(st.sampled_from(LATENCIES)), "up": draw(st.sampled_from(RATES))}
    edge: dict[str, Any] = {"name": "edge", "count": edges}
    if shape == "gateways":
        gateways = draw(st.integers(edges, clients))
        cell = {"up": draw(st.sampled_from(RATES)), "down": draw(st.sampled_from(RATES))}
        below = {"name": "gateway", "count": gateways, "links": link, "cell": draw(st.sampled_from((None, cell)))}
        return {"clients": clients, "tiers": [edge, below]}, {"edge": edges, "gateway": gateways}
    if shape == "regions":
        regions = draw(st.integers(1, edges))
        above = {"name": "region", "count": regions, "links": link}
        return {"clients": clients, "tiers": [above, edge]}, {"edge": edges, "region": regions}
    some = draw(st.integers(1, clients - 1))
    kinds = [{"count": some, "links": link, "name": "own"}, {"count": clients - some, "speed": 0.5}]
    return {"clients": kinds, "edges": edges}, {"edge": edges}


@st.composite
def movement(draw: st.DrawFn, clients: int, edges: int) -> dict[str, Any]:
    """Clients that move between edges, in all ways."""
    name = draw(st.sampled_from(Registry.by_slot["movement"].names()))
    some = st.lists(st.integers(0, clients - 1), min_size=1, unique=True) | st.floats(0.1, 1.0)
    known: dict[str, st.SearchStrategy[Any]] = {
        "clients": some,
        "stay": rarely,
        "neighbours": st.sampled_from(("ring", "line", "all")),
        "width": st.just(1000),
        "height": st.just(500),
        "slowest": st.floats(1, 50),
        "fastest": st.floats(50, 500),
        "pause": st.just("0 s") | span,
        "reach": st.none() | st.floats(200, 800),
    }
    if name == "trace":
        names = [*(f"edge-{e}" for e in range(edges)), ""]
        who, rows = draw(st.lists(st.integers(0, clients - 1), min_size=1, unique=True)), list[str]()
        for client in who:
            times = sorted(draw(st.lists(st.floats(0, 5), min_size=1, max_size=5, unique=True)))
            places = [names[0], *(draw(st.sampled_from(names)) for _ in times[1:])]
            rows += [f"client-{client},{time!r},{place}" for time, place in zip(times, places, strict=True)]
        path = _file("client,time [s],parent\n" + "\n".join(rows) + "\n")
        how: dict[str, Any] = {"kind": "trace", "moves": str(path)}
        how |= {"repeat": "6 s"} if draw(st.booleans()) else {}
    else:
        how = draw(kind_of("movement", name, known))
    return {
        "path": how,
        "transfers": draw(st.sampled_from(("lost", "resumed", "carried"))),
        "groups": draw(st.sampled_from(("form", "leave"))),
        "interruption": draw(st.sampled_from(("0 s", "50 ms"))),
        "state": draw(st.sampled_from(("0 B", "10 kB"))),
        "model": draw(st.booleans()),
    }


@st.composite
def worlds(draw: st.DrawFn, preset: str) -> str:
    """A scenario: a small fleet that plays a preset for a few rounds, and what goes wrong in it."""
    given = presets()[preset]
    fields = Registry.by_slot["method"][given["kind"]].params.model_fields
    flat = given.get("aggregator", "cloud") == "cloud"
    clients = draw(st.integers(2, 12))
    gossips = presets()[preset]["kind"] == "gossip"
    edges = draw(st.integers(0 if flat else 2 if gossips else 1, min(4, clients)))
    dedicated = draw(st.sampled_from((False, False, True)))
    who, tiers = draw(tree(clients, edges, dedicated))
    topology: dict[str, Any] = {
        **who,
        "sharing": "dedicated" if dedicated else "max-min",
        "links": draw(links(dedicated)),
        "devices": {"raspberry-pi-4b": 0.5, "raspberry-pi-3b-plus": 0.5},
    }
    topology |= {key: value for key, value in {"availability": draw(availability(dedicated))}.items() if value}
    if edges > 1 and (gossips or draw(st.integers(0, 3)) == 0):
        shape, rate = draw(st.sampled_from(("ring", "line", "mesh"))), draw(st.sampled_from(RATES))
        direct = {"shape": shape, "bandwidth": rate, "latency": draw(st.sampled_from(LATENCIES))}
        topology["links"]["direct"] = [direct]
    if "fleet" in who or isinstance(who["clients"], int):
        some = [f"client-{n}" for n in draw(st.sets(st.integers(0, clients - 1), max_size=4))]
        beside = {"pairs": list(map(list, itertools.combinations(some, 2))), "bandwidth": draw(st.sampled_from(RATES))}
        topology["links"].setdefault("direct", []).extend([beside] if len(some) > 1 else [])
    plain = isinstance(who.get("clients"), int) and set(tiers) == {"edge"}
    if plain and edges > 1 and given.get("aggregator") != "any-edge" and draw(st.integers(0, 2)) == 0:
        topology["movement"] = draw(movement(clients, edges))
        if "trace" in topology.get("availability", {}):  # of days, in which clients would move a million times
            del topology["availability"]
    rounds, seconds = draw(st.integers(1, 4)), f"{draw(st.floats(0.2, 2.0))!r} s"
    stops: list[dict[str, Any]] = [{"rounds": rounds}, {"rounds": rounds, "time": seconds}]
    if presets()[preset]["kind"] != "centralized":  # whose rounds take microseconds
        stops.append({"time": seconds})
    data = {
        "name": "world",
        "seed": draw(st.integers(0, 1000)),
        "data": {
            "set": {"kind": "synthetic", "train_samples": 600, "test_samples": 20, "classes": 4, "shape": [1, 4, 4]},
            "partition": {"kind": "dirichlet", "alpha": 0.5, "samples_per_client": 12},
            "public": 2,
        },
        "model": {"kind": "mlp", "hidden": [8]},
        "topology": topology,
        "method": draw(method(preset, clients, edges)) | draw(averaging(preset, tiers)),
        "faults": draw(faults(clients, tiers, dedicated)),
        "attacks": None if given["kind"] == "centralized" else draw(attacks(fields)),
        "stop": draw(st.sampled_from(stops)),
        "evaluate": {"every": draw(st.integers(1, 2))},
    }
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.sampled_from(("client", "server", "distributed")))
        private = yamlfile.dump(data | {"privacy": {"at": at, "clip": 1.0, "noise_multiplier": 1.0}})
        if sound(private):
            return private
    return yamlfile.dump(data)


def sound(text: str) -> bool:
    """Whether everything in a scenario goes together."""
    try:
        check(yamlfile.parse(text, "world.yaml"), training=False)
    except ScenarioError:
        return False
    return True


def loaded(text: str) -> Loaded:
    """A scenario without training; what does not fit together is drawn again."""
    try:
        return check(yamlfile.parse(text, "world.yaml"), training=False)
    except ScenarioError:
        reject()
