"""The lab: models as lazy, content-addressed handles.

``lab.train(training)`` does not train. It returns handles whose keys are hashes of everything that determines the result.
Values are computed when somebody needs them, and then all trainings that are ready run together as one wave, those that are
still under way on the clock among them. Small results (evaluations, measurements, facts) are remembered by key, so what was
computed once, by any run, is not computed again. A value is freed when nothing refers to its handle any more.

This module does not import torch: a run whose every result is remembered never needs it.
"""

from __future__ import annotations

import gc
import importlib.metadata
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

import numpy as np

from emulator.cluster import Backend
from emulator.contracts.learning import LocalRule, LocalRuleChoice, MeasurementChoice, measurements
from emulator.learning import mixtures
from emulator.learning.facts import FACTS_VERSION, ClientFacts, Evaluation, ModelFacts
from emulator.learning.keys import Keys, content_key, from_npy, text_key, to_npy
from emulator.learning.memo import RunMemory
from emulator.learning.recipes import (
    Announced,
    Apply,
    Combine,
    Distil,
    Distilled,
    Handle,
    Initial,
    LocalTraining,
    Pending,
    Pretrained,
    Recipe,
    Swaps,
    Train,
    Trained,
    Trainee,
    VectorFunction,
    Zeros,
    all_before,
    is_simple,
    lacking,
    value_of,
)  # fmt: skip
from emulator.registry import choices
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.learning.clients import ClientData
    from emulator.learning.distillation import DistillationParams
    from emulator.learning.engine import Engine
    from emulator.learning.probe import ProbeParams

NUMERICS = 4  # raise it whenever a change to our own arithmetic may change a result
MEASURED_BYTES = 2**29  # of models whose values are computed before the first of them is measured, at most
BEGINNINGS = ("initial", "zeros")  # kinds of keys

Subject = tuple[Sequence["Handle"], int | None]  # what is measured: models, and whose samples (None: no client's)


def keys_of(scenario: Scenario) -> Keys:
    """The keys of what a scenario learns from, as this version computes it."""
    return Keys(scenario, [NUMERICS, importlib.metadata.version("torch"), *scenario.compute.identity()])


class Lab:
    """Models, data and what is known about them, for one scenario.

    ``restored`` are values of an earlier part of the same run, by key: a handle with such a key has its value from the start.
    ``kept`` are values that were kept of this run or of another one, by key: they are read in place of being computed.
    ``on_trained(done, waiting)`` is told after every local training (and every distillation) of a wave how far the wave is.
    """

    def __init__(
        self,
        scenario: Scenario,
        memory: RunMemory,
        on_trained: Callable[[int, int], None] | None = None,
        restored: Mapping[str, Tensor] | None = None,
        max_workers: int | None = None,
        backend: Backend = "local",
        kept: Sequence[Mapping[str, Tensor]] = (),
    ) -> None:
        self.memory = memory
        self.asked = 0  # local trainings that methods asked for
        self.trained = 0  # and those that had to be computed
        self._scenario = scenario
        self._on_trained = on_trained
        self._restored = restored or {}
        self._kept = [values for values in kept if values]
        self._max_workers = max_workers
        self._backend: Backend = backend
        self._rule_keys: dict[int, tuple[LocalRule, str]] = {}  # a run has few rules and asks for their keys very often
        self._live: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        self._under_way: WeakValueDictionary[str, Handle] = WeakValueDictionary()  # trained models, oldest first
        self._announced: WeakValueDictionary[int, Announced] = WeakValueDictionary()
        self._count = itertools.count()
        self._swaps: dict[int, Swaps] = {}
        keys = keys_of(scenario)
        self._set_key, self._model_key, self._public_key = keys.set, keys.model, keys.public
        self._data_key = keys.data(scenario.topology.client_count)

    @cached_property
    def _data(self) -> ClientData:
        from emulator.learning.clients import ClientData

        return ClientData(self._scenario)

    @cached_property
    def _engine(self) -> Engine:
        from emulator.learning.engine import Engine

        return Engine(self._scenario, self._data, self._max_workers, self._backend)

    def close(self) -> None:
        """Ends what was started for training."""
        if "_engine" in vars(self):
            self._engine.close()

    @cached_property
    def clients(self) -> ClientFacts:
        """What is known of the clients' data."""

        raw = self.memory.recall(content_key("clients", self._data_key), lambda: to_npy(self._data.label_counts))
        facts = self._scenario.data.partition.plugin.facts
        if not facts.clusters:
            people = np.zeros(0)
            if facts.owners:
                key = content_key("people", self._data_key)
                people = from_npy(self.memory.recall(key, lambda: to_npy(self._data.people)))
            return ClientFacts(from_npy(raw), people=people if len(people) else None)
        truth = self.memory.recall(content_key("clusters", self._data_key), lambda: to_npy(self._data.truth))
        return ClientFacts(from_npy(raw), *from_npy(truth))

    @cached_property
    def model_facts(self) -> ModelFacts:
        """Size and arithmetic of the model."""
        key = content_key("facts", FACTS_VERSION, self._model_key)
        return ModelFacts.from_json(self.memory.recall(key, lambda: self._engine.facts.to_json()))

    @cached_property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors of the model's state, in its order."""
        raw = self.memory.recall(content_key("state-shapes", self._model_key), lambda: _to_json(self._engine.shapes))
        return tuple(map(tuple, json.loads(raw)))

    @cached_property
    def sample_shape(self) -> tuple[int, ...]:
        """Channels, height and width of a sample."""
        raw = self.memory.recall(content_key("shape", self._set_key), lambda: _to_json(self._engine.data.arrays.shape))
        return tuple(json.loads(raw))

    def try_out(self) -> None:
        """Tries the model and the local rules on a few samples, unless that was done before (see `Engine.try_out`)."""
        found = choices(self._scenario)
        rules = [(".".join(map(str, path)), chosen) for path, chosen in found if isinstance(chosen, LocalRuleChoice)]
        key = content_key("trial", 1, self._data_key, self._model_key, [self._rule_key(rule) for _, rule in rules])

        def compute() -> bytes:
            self._engine.try_out(rules)
            return b"passed"

        self.memory.recall(key, compute)

    def initial(self, number: int = 0) -> Handle:
        """The untrained model, drawn from the scenario's seed; other numbers are other draws."""
        parts = [number] if number else []
        return self._handle(content_key("initial", self._model_key, *parts), Initial(number))

    def pretrained(self, probe: ProbeParams) -> Handle:
        """The untrained model, but for its last layer trained on another data set (see `emulator.learning.probe`)."""
        return self._handle(content_key("pretrained", self._model_key, probe.key()), Pretrained(probe))

    def zeros(self) -> Handle:
        """A vector of zeros of the model's size: the first state of rules with memory."""
        return self._handle(content_key("zeros", self._model_key), Zeros())

    def poison(self, swaps: Mapping[int, Swaps]) -> None:
        """From now on these clients, by number, exchange these labels in the data on which they train, and only there."""
        self._swaps |= swaps

    def _swaps_of(self, client: Trainee) -> Swaps:
        return self._swaps.get(client, ()) if isinstance(client, int) else ()

    def train(self, training: LocalTraining) -> Trained:
        """What comes of a local training. From now on it is under way: it is computed when its result is needed, or before."""
        self.asked += 1
        swaps = self._swaps_of(training.client)
        recipe = Train(training, swaps)
        place = f"{training.client}:{training.round}:{training.first_epoch}" + (f":{swaps}" if swaps else "")
        parts = (self._data_key, self._rule_key(training.rule), place, *(p.key for p in recipe.parents))
        key = text_key("train", "|".join(parts))
        model = self._handle(key, recipe)
        self._under_way[key] = model
        return Trained(model, None if training.memory is None else self._handle(f"{key}:own", recipe, 1))

    def train_all(self, training: LocalTraining, clients: Sequence[int]) -> dict[int, Trained]:
        """What comes of the same training of each of these clients, in the place of the one that ``training`` names."""
        return {client: self.train(training._replace(client=client)) for client in clients}

    def distil(self, client: int, params: DistillationParams) -> Distilled:
        """A client's data, distilled to a few images.

        They are computed when a training on them is, and live as long as their handles do. They are too large for the memo
        (1.2 MB for 100 images of 3×32×32) and stand in the checkpoint instead; a run whose results are remembered never
        needs them.
        """
        recipe = Distil(client, params)
        key = content_key("distil", self._data_key, client, params.model_dump())
        return Distilled(self._handle(key, recipe), self._handle(f"{key}:labels", recipe, 1))

    def _rule_key(self, rule: LocalRule) -> str:
        known = self._rule_keys.get(id(rule))
        if known is None or known[0] is not rule:
            known = self._rule_keys[id(rule)] = (rule, content_key("rule", rule.identity()))
        return known[1]

    def combine(self, vectors: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """The weighted sum of vectors, in the given order. One vector of weight 1 is itself."""
        if len(vectors) == 1 and weights[0] == 1.0:
            return vectors[0]
        shares = tuple(float(w) for w in weights)
        key = content_key("combine", [v.key for v in vectors], [w.hex() for w in shares])
        return self._handle(key, Combine(vectors, shares))

    def apply(self, function: VectorFunction, vectors: Sequence[Handle]) -> tuple[Handle, ...]:
        """What a function gives for vectors, computed when it is needed."""
        key = content_key("apply", function.identity(), [v.key for v in vectors])
        recipe = Apply(function, vectors)
        return tuple(self._handle(f"{key}:{n}" if n else key, recipe, n) for n in range(function.outputs))

    def evaluate(self, model: Handle) -> Evaluation:
        """What the task measures, and the loss, on the test set; trains whatever is missing for it."""
        return self.evaluate_all([model])[0]

    def evaluate_all(self, models: Sequence[Handle]) -> list[Evaluation]:
        """`evaluate` for many models at once: what is missing is trained and then tested together."""
        limit, task = self._scenario.evaluate.samples, self._scenario.objective
        about = [] if task.ordinary else [task.identity()]
        keyed = [(content_key("evaluation", model.key, limit, *about), model) for model in models]
        known = {key: value for key, _ in keyed if (value := self.memory.get(key)) is not None}
        missing = {key: model for key, model in keyed if key not in known}
        if missing:
            self.compute(list(missing.values()))
            tested = self._engine.evaluate([value_of(model) for model in missing.values()])
            for key, values in zip(missing, tested, strict=True):
                known[key] = _to_json(values)
                self.memory.put(key, "evaluation", known[key])
        return [Evaluation(json.loads(known[key])) for key, _ in keyed]

    def evaluate_each(self, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
        """Each model on test data that is distributed as its clients' data together; trains whatever is missing for it."""
        return mixtures.evaluate_each(self, cases)

    def measure(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> np.ndarray:
        """What a measurement reads off models, with a client's samples where it wants them; trains whatever is missing for it.

        A measurement that has no parameters, or is to have its defaults, may be given by its name.
        """
        chosen, subject = _choice(measurement), (models, client)
        known = self.memory.get(self._measure_key(chosen, subject, {}))
        if known is not None:
            return from_npy(known)
        ahead = [(_choice(a.measurement), (a.models, a.client)) for a in self._announced.values()]
        self._announced.clear()
        return self.measure_each([(chosen, subject), *ahead[: self._at_once]])[0]

    def announce(
        self, measurement: MeasurementChoice | str, models: Sequence[Handle], client: int | None = None
    ) -> Announced:
        """Tells of a measurement that is under way on the clock; `measure` is asked for it when it has ended there.

        It is computed with the first measurement that is needed, unless nobody holds what this returns any more.
        """
        self._announced[next(self._count)] = announced = Announced(measurement, models, client)
        return announced

    def measure_all(self, measurement: MeasurementChoice | str, subjects: Iterable[Subject]) -> list[np.ndarray]:
        """`measure` for many subjects at once: what is missing is trained together and then measured.

        Takes as many subjects at a time as have room for their models. Where ``subjects`` makes its models as it goes and nobody
        else refers to them, those of thousands of clients are never there all together.
        """
        chosen = _choice(measurement)
        return self.measure_each((chosen, subject) for subject in subjects)

    def measure_each(self, asked: Iterable[tuple[MeasurementChoice, Subject]]) -> list[np.ndarray]:
        """`measure_all` for measurements that may differ."""
        results: list[np.ndarray] = []
        identities: dict[int, str] = {}  # of the few measurements that are asked for many times
        left = iter(asked)
        while together := list(itertools.islice(left, self._at_once)):
            keyed = [(self._measure_key(each, subject, identities), (each, *subject)) for each, subject in together]
            known = {key: value for key, _ in keyed if (value := self.memory.get(key)) is not None}
            missing = {key: job for key, job in keyed if key not in known}
            self.compute([model for _, models, _ in missing.values() for model in models])
            jobs = [(each, [value_of(m) for m in models], client) for each, models, client in missing.values()]
            keys = list(missing)
            for number, found in self._engine.measure(jobs) if jobs else ():
                known[keys[number]] = to_npy(found)
                self.memory.put(keys[number], "measure", known[keys[number]])
            results += [from_npy(known[key]) for key, _ in keyed]
        return results

    def _measure_key(self, measurement: MeasurementChoice, subject: Subject, identities: dict[int, str]) -> str:
        facts = measurement.plugin.facts
        if id(measurement) not in identities:
            identities[id(measurement)] = content_key("measurement", measurement.identity(), facts.version)
        return content_key("measure", identities[id(measurement)], *self._subject_key(facts.on, *subject))

    def _subject_key(self, on: str, models: Sequence[Handle], client: int | None) -> list[Any]:
        """What determines a measurement beside itself."""
        if (client is not None) != (on in ("client", "everybody")):
            raise ValueError(f"a measurement on {on} was given {'no client' if client is None else 'a client'}")
        data = {
            "client": [self._data_key, client],
            "everybody": [self._data_key, client],
            "public": [self._public_key],
            "test": [self._set_key, self._scenario.evaluate.samples],
            "nothing": [],
        }
        return [[m.key for m in models], data[on]]

    def value(self, handle: Handle) -> Tensor:
        """The vector itself, computed now if need be."""
        self.compute([handle])
        return value_of(handle)

    def compute(self, handles: Sequence[Handle]) -> None:
        """Computes the values of handles: wave by wave, each wave all the trainings that are ready."""
        if self._kept and any(handle.recipe is not None for handle in handles):
            self._take_kept(handles)
            while self._take_kept(self._last()):
                pass  # what led there nobody needs any more, and it is not trained along
        pending = Pending(handles)
        while pending:
            wave = self._trainings_of(pending)
            if any(isinstance(recipe, Train) for recipe in wave):
                pending.add(list(self._ready(set(wave), self._at_once - len(wave))))
                wave += self._trainings_of(pending)
            self._wave(pending, wave)

    def _take_kept(self, handles: Iterable[Handle]) -> int:
        """Reads the kept ones of the values that handles lack, as far as what is missing leads to them; returns how many."""
        count = 0
        for handle in lacking(handles):
            value = next((v for values in self._kept if (v := values.get(handle.key)) is not None), None)
            if value is not None:
                handle.value, handle.recipe = value, None
                count += 1
        return count

    def _trainings_of(self, pending: Pending) -> list[Recipe]:
        """The trainings that are ready, after all else that is."""
        while simple := pending.pop_ready(trainings=False):
            for recipe in simple:
                pending.done(recipe, *self._simple(recipe))
        return pending.pop_ready(trainings=True)

    @cached_property
    def _at_once(self) -> int:
        """How many models there is room for, beside those that somebody needs."""
        return max(1, MEASURED_BYTES // (4 * self.model_facts.state_size))

    def _ready(self, wave: Collection[Recipe], most: int) -> Iterator[Recipe]:
        """Trainings under way that could be computed with a wave, oldest first, because what they lack takes no training.

        There is room for so many models: results, those that are there already, and what is computed for their sake.
        """
        counted: set[Recipe] = set()
        known: dict[Recipe, bool] = {}
        for handle in list(self._under_way.values()):
            if most <= 0:
                return
            recipe = handle.recipe
            if recipe is None:
                most -= 1
            elif recipe not in wave and all(is_simple(each, known) for each in recipe.needs()):
                before = all_before(recipe, counted)
                room = 1 + sum(len(each.outputs) for each in before)
                if room <= most:
                    most -= room
                    counted |= before
                    yield recipe

    def values(self) -> dict[str, Tensor]:
        """The values of all handles that anybody still refers to, by key."""
        return {key: handle.value for key, handle in sorted(self._live.items()) if handle.value is not None}

    def settle(self) -> dict[str, Tensor]:
        """As `values`, when those that are still to be computed are there too: all that later computations may begin from.

        Without what everything begins from, untrained models and zeros: those are quickly made.
        What it gives depends on what was asked of the lab alone, not on what of it was computed before.
        """
        gc.collect()  # nobody refers to what stands in cycles, and when that is noticed is chance
        self.compute(self._last())
        return {key: value for key, value in self.values().items() if key.partition(":")[0] not in BEGINNINGS}

    def _last(self) -> list[Handle]:
        """The handles without a value on which no other handle depends."""
        missing = [handle for handle in list(self._live.values()) if handle.recipe is not None]
        below = {parent for handle in missing if handle.recipe is not None for parent in handle.recipe.parents}
        return sorted((handle for handle in missing if handle not in below), key=lambda handle: handle.key)

    def _handle(self, key: str, recipe: Recipe, output: int = 0) -> Handle:
        """The live handle with this key, or a new one for one of a recipe's values."""
        known = self._live.get(key)
        if known is not None:
            return known
        handle = self._live[key] = Handle(key, output)
        handle.value = self._restored.get(key)
        if handle.value is None:
            handle.recipe = recipe
            recipe.outputs.append(ref(handle))
        return handle

    def _wave(self, pending: Pending, recipes: list[Recipe]) -> None:
        self._distil(pending, [r for r in recipes if isinstance(r, Distil)])
        trainings = [r for r in recipes if isinstance(r, Train)]
        jobs = [recipe.job() for recipe in trainings]
        if not jobs:
            return
        for count, (number, result) in enumerate(self._engine.train(jobs), 1):
            pending.done(trainings[number], result.state, result.own)
            self.trained += 1
            if self._on_trained is not None:
                self._on_trained(count, len(jobs))

    def _distil(self, pending: Pending, recipes: list[Distil]) -> None:
        if not recipes:
            return
        for count, (number, block) in enumerate(self._engine.distil([(r.client, r.params) for r in recipes]), 1):
            pending.done(recipes[number], *block)
            if self._on_trained is not None:
                self._on_trained(count, len(recipes))

    def _simple(self, recipe: Recipe) -> Sequence[Tensor]:
        """The values of what is no training."""
        if isinstance(recipe, Apply):
            return recipe.function(*map(value_of, recipe.parents))
        if isinstance(recipe, Combine):
            return [self._engine.combine([value_of(p) for p in recipe.parents], recipe.weights)]
        if isinstance(recipe, Pretrained):
            return [self._engine.pretrained(recipe.probe)]
        return [self._engine.initial(recipe.number) if isinstance(recipe, Initial) else self._engine.zeros()]


def _choice(asked: MeasurementChoice | str) -> MeasurementChoice:
    return MeasurementChoice(asked, measurements[asked].params()) if isinstance(asked, str) else asked


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()
