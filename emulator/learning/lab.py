"""The lab: models as lazy, content-addressed handles.

``lab.train(model, client, ...)`` does not train. It returns handles whose keys are hashes of everything that determines the
result. Values are computed when somebody needs them, and then all trainings that are ready run together as one wave. Small
results (evaluations, facts) are remembered by key, so what was computed once, by any run, is not computed again. A value
is freed when nothing refers to its handle any more.

This module does not import torch: a run whose every result is remembered never needs it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

import numpy as np

from emulator.learning.facts import ModelFacts
from emulator.learning.memo import RunMemory
from emulator.registry import Chosen
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.learning.engine import Engine

NUMERICS = 3  # raise it whenever a change to our own arithmetic may change a result


class Handle:
    """A vector of the model's size that exists, or could be computed. ``recipe`` says how, until ``value`` is there."""

    __slots__ = ("__weakref__", "key", "recipe", "value")

    def __init__(self, key: str) -> None:
        self.key = key
        self.recipe: Recipe | None = None
        self.value: Tensor | None = None


class Recipe:
    """How to compute the values of one or more handles from those of its parents."""

    def __init__(self, *parents: Handle) -> None:
        self.parents = parents
        self.outputs: list[ref[Handle]] = []

    def needs(self) -> list[Recipe]:
        """The recipes that must be followed before this one."""
        return list(dict.fromkeys(p.recipe for p in self.parents if p.recipe is not None))


class Initial(Recipe):
    """The untrained model."""


class Zeros(Recipe):
    """A vector of zeros."""


class Combine(Recipe):
    """The weighted sum of its parents."""

    def __init__(self, parents: Sequence[Handle], weights: tuple[float, ...]) -> None:
        super().__init__(*parents)
        self.weights = weights


class Train(Recipe):
    """A local training. Parents: the model; for rules with memory also the shared and the client's own state."""

    def __init__(self, parents: Sequence[Handle], client: int, rule: Chosen, round: int, first_epoch: int) -> None:  # noqa: A002
        super().__init__(*parents)
        self.client = client
        self.rule = rule
        self.round = round
        self.first_epoch = first_epoch


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the test set; nan where that was not measured."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class ClientFacts:
    """What is known of the clients' data without seeing a sample: int64 ``label_counts`` [clients, classes]."""

    label_counts: np.ndarray

    @cached_property
    def samples(self) -> np.ndarray:
        """Samples of each client."""
        return np.asarray(self.label_counts.sum(axis=1))


def content_key(kind: str, *parts: Any) -> str:
    """A hash of plain data (numbers, texts, lists, mappings); floats count with every bit."""
    return _hash(kind, json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), default=_plain))


def _hash(kind: str, text: str) -> str:
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a content key")


class Keys:
    """Content keys of what a scenario learns from: its data set divided between so many clients, and its model."""

    def __init__(self, scenario: Scenario) -> None:
        versions = [NUMERICS, importlib.metadata.version("torch")]
        chosen = scenario.data.set
        self._scenario = scenario
        self._set = content_key("set", chosen.identity(), chosen.plugin.facts["fingerprint"](chosen.params), versions)
        self.model = content_key("model", self._set, scenario.model.identity(), scenario.seed, versions)

    def data(self, clients: int) -> str:
        """The key of the set, divided between so many clients."""
        data = self._scenario.data
        return content_key("data", self._set, data.partition.identity(), data.public, clients, self._scenario.seed)


class Lab:
    """Models, data and what is known about them, for one scenario.

    ``restored`` are values of an earlier part of the same run, by key: a handle with such a key has its value from the start.
    ``on_trained(done, waiting)`` is told after every local training of a wave how far the wave is.
    """

    def __init__(
        self,
        scenario: Scenario,
        memory: RunMemory,
        on_trained: Callable[[int, int], None] | None = None,
        restored: Mapping[str, Tensor] | None = None,
        max_workers: int | None = None,
    ) -> None:
        self.memory = memory
        self.asked = 0  # local trainings that methods asked for
        self.trained = 0  # and those that had to be computed
        self._scenario = scenario
        self._on_trained = on_trained
        self._restored = restored or {}
        self._max_workers = max_workers
        self._rule_keys: dict[int, tuple[Chosen, str]] = {}  # a run has few rules and asks for their keys very often
        self._live: WeakValueDictionary[str, Handle] = WeakValueDictionary()
        keys = Keys(scenario)
        self._data_key = keys.data(scenario.topology.clients)
        self._model_key = keys.model

    @cached_property
    def _engine(self) -> Engine:
        from emulator.learning.clients import ClientData
        from emulator.learning.engine import Engine

        return Engine(self._scenario, ClientData(self._scenario), self._max_workers)

    def close(self) -> None:
        """Ends what was started for training."""
        if "_engine" in vars(self):
            self._engine.close()

    @cached_property
    def clients(self) -> ClientFacts:
        """What is known of the clients' data."""

        def compute() -> bytes:
            file = io.BytesIO()
            np.save(file, self._engine.data.label_counts, allow_pickle=False)
            return file.getvalue()

        raw = self.memory.recall(content_key("clients", self._data_key), compute)
        return ClientFacts(np.load(io.BytesIO(raw), allow_pickle=False))

    @cached_property
    def model_facts(self) -> ModelFacts:
        """Size and arithmetic of the model."""
        raw = self.memory.recall(content_key("facts", self._model_key), lambda: _to_json(asdict(self._engine.facts)))
        return ModelFacts(**json.loads(raw))

    def initial(self) -> Handle:
        """The untrained model, drawn from the scenario's seed."""
        return self._handle(content_key("initial", self._model_key), Initial())

    def zeros(self) -> Handle:
        """A vector of zeros of the model's size: the first state of rules with memory."""
        return self._handle(content_key("zeros", self._model_key), Zeros())

    def train(
        self,
        model: Handle,
        client: int,
        rule: Chosen,
        round: int,  # noqa: A002
        first_epoch: int = 0,
        memory: tuple[Handle, Handle] | None = None,
    ) -> tuple[Handle, Handle | None]:
        """The model after a client's local training, and the client's new state where the rule has memory.

        ``memory`` is what such a rule starts from: the shared state and the client's own. The order of the batches of an epoch
        depends on seed, client, round and the epoch's number in the round alone, so two trainings of E epochs in a row
        equal one of 2E.
        """
        self.asked += 1
        parents = (model, *(memory or ()))
        recipe = Train(parents, client, rule, round, first_epoch)
        place = f"{client}:{round}:{first_epoch}"
        key = _hash("train", "|".join((self._data_key, self._rule_key(rule), place, *(p.key for p in parents))))
        return self._handle(key, recipe), None if memory is None else self._handle(f"{key}:own", recipe)

    def _rule_key(self, rule: Chosen) -> str:
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

    def evaluate(self, model: Handle) -> Evaluation:
        """Accuracy and loss on the test set; trains whatever is missing for it."""

        def compute() -> bytes:
            accuracy, loss = self._engine.evaluate(self.value(model))
            return _to_json({"accuracy": accuracy, "loss": loss})

        limit = self._scenario.evaluate.samples
        return Evaluation(**json.loads(self.memory.recall(content_key("evaluation", model.key, limit), compute)))

    def value(self, handle: Handle) -> Tensor:
        """The vector itself, computed now if need be: wave by wave, each wave all the trainings that are ready."""
        pending = _Pending(handle)
        while handle.value is None:
            while simple := pending.pop_ready(trainings=False):
                for recipe in simple:
                    pending.done(recipe, self._simple(recipe))
            self._wave(pending, pending.pop_ready(trainings=True))
        return handle.value

    def values(self) -> dict[str, Tensor]:
        """The values of all handles that anybody still refers to, by key."""
        return {key: handle.value for key, handle in sorted(self._live.items()) if handle.value is not None}

    def _handle(self, key: str, recipe: Recipe) -> Handle:
        """The live handle with this key, or a new one."""
        known = self._live.get(key)
        if known is not None:
            return known
        handle = self._live[key] = Handle(key)
        handle.value = self._restored.get(key)
        if handle.value is None:
            handle.recipe = recipe
            recipe.outputs.append(ref(handle))
        return handle

    def _wave(self, pending: _Pending, recipes: list[Recipe]) -> None:
        from emulator.learning.trainer import TrainJob

        trainings = [r for r in recipes if isinstance(r, Train)]
        jobs = [
            TrainJob(
                _known(r.parents[0]), r.client, r.rule, r.round, r.first_epoch, *(_known(p) for p in r.parents[1:])
            )
            for r in trainings
        ]
        if not jobs:
            return
        for count, (number, result) in enumerate(self._engine.train(jobs), 1):
            pending.done(trainings[number], result.state, result.own)
            self.trained += 1
            if self._on_trained is not None:
                self._on_trained(count, len(jobs))

    def _simple(self, recipe: Recipe) -> Tensor:
        if isinstance(recipe, Combine):
            return self._engine.combine([_known(p) for p in recipe.parents], recipe.weights)
        return self._engine.initial() if isinstance(recipe, Initial) else self._engine.zeros()


class _Pending:
    """The recipes that a handle's value still needs, by what they wait for.

    A handle gives up its recipe as soon as its value is there; from then on only those who use the value keep it alive.
    """

    def __init__(self, target: Handle) -> None:
        self._missing: dict[Recipe, int] = {}
        self._children: dict[Recipe, list[Recipe]] = {}
        self._simple: list[Recipe] = []
        self._trainings: list[Recipe] = []
        stack = [target.recipe] if target.recipe is not None else []
        while stack:
            recipe = stack.pop()
            if recipe in self._missing:
                continue
            needed = recipe.needs()
            self._missing[recipe] = len(needed)
            for parent in needed:
                self._children.setdefault(parent, []).append(recipe)
            stack.extend(needed)
            if not needed:
                self._enqueue(recipe)

    def pop_ready(self, trainings: bool) -> list[Recipe]:
        """The trainings (or everything else) whose parents are all there."""
        ready = self._trainings if trainings else self._simple
        result = list(ready)
        ready.clear()
        return result

    def done(self, recipe: Recipe, *values: Tensor | None) -> None:
        """Notes that a recipe's values are there."""
        for output in recipe.outputs:
            handle = output()
            if handle is not None:
                handle.value = values[1] if handle.key.endswith(":own") else values[0]
                handle.recipe = None
        del self._missing[recipe]
        for child in self._children.pop(recipe, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                self._enqueue(child)

    def _enqueue(self, recipe: Recipe) -> None:
        (self._trainings if isinstance(recipe, Train) else self._simple).append(recipe)


def _known(handle: Handle) -> Tensor:
    assert handle.value is not None
    return handle.value


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()
