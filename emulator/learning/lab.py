"""The lab: models as lazy, content-addressed handles.

``lab.train(model, client, ...)`` does not train. It returns a `Handle` whose key is a hash of everything that determines the
result. Values are computed when somebody needs them, and then all trainings that are ready run together as one wave.
Small results (evaluations, facts) are remembered in a memo by key, so what was computed once, by any run, is not computed
again. A value is freed when nothing refers to its handle any more.

This module does not import torch: a run whose every result is remembered never needs it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator.learning.facts import ModelFacts
from emulator.learning.memo import Memo
from emulator.registry import Chosen
from emulator.scenario.schema import Scenario

if TYPE_CHECKING:
    from torch import Tensor

    from emulator.learning.engine import Engine, TrainJob

NUMERICS = 1  # raise it whenever a change to our own arithmetic may change a result


class Handle:
    """A model that exists, or one that could be computed. ``recipe`` says how, until ``value`` is there."""

    __slots__ = ("__weakref__", "key", "recipe", "value")

    def __init__(self, key: str, recipe: Recipe) -> None:
        self.key = key
        self.recipe: Recipe | None = recipe
        self.value: Tensor | None = None


@dataclass(frozen=True)
class Initial:
    """The untrained model."""

    parents: tuple[Handle, ...] = ()


@dataclass(frozen=True)
class Train:
    """A local training of a client, from the one parent."""

    parents: tuple[Handle, ...]
    client: int
    rule: Chosen
    round: int
    first_epoch: int


@dataclass(frozen=True)
class Average:
    """A weighted sum of its parents."""

    parents: tuple[Handle, ...]
    weights: tuple[float, ...]


Recipe = Initial | Train | Average


@dataclass(frozen=True)
class Evaluation:
    """How good a model is on the test set."""

    accuracy: float
    loss: float


@dataclass(frozen=True)
class ClientFacts:
    """What is known of the clients' data without seeing a sample: int64 ``label_counts`` [clients, classes]."""

    label_counts: np.ndarray

    @property
    def samples(self) -> np.ndarray:
        """Samples of each client."""
        return np.asarray(self.label_counts.sum(axis=1))


def content_key(kind: str, *parts: Any) -> str:
    """A hash of plain data (numbers, texts, lists, mappings); floats count with every bit."""
    text = json.dumps([kind, parts], sort_keys=True, separators=(",", ":"), default=_plain)
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a content key")


class Lab:
    """Models, data and what is known about them, for one scenario."""

    def __init__(self, scenario: Scenario, memo: Memo, on_trained: Callable[[int, int], None] | None = None) -> None:
        """``on_trained(done, waiting)`` is told after every local training of a wave how far the wave is."""
        self.memo = memo
        self.trained = 0
        self._scenario = scenario
        self._on_trained = on_trained
        versions = [NUMERICS, importlib.metadata.version("torch")]
        data = scenario.data
        identity = data.set.plugin.facts["fingerprint"](data.set.params)
        self._set_key = content_key("set", data.set.dump(), identity, versions)
        self._data_key = content_key(
            "data", self._set_key, data.partition.dump(), data.public, scenario.topology.clients, scenario.seed
        )
        self._model_key = content_key("model", self._set_key, scenario.model.dump(), scenario.seed, versions)

    @cached_property
    def _engine(self) -> Engine:
        from emulator.learning.clients import ClientData
        from emulator.learning.engine import Engine

        return Engine(self._scenario, ClientData(self._scenario))

    @cached_property
    def clients(self) -> ClientFacts:
        """What is known of the clients' data."""

        def compute() -> bytes:
            file = io.BytesIO()
            np.save(file, self._engine.data.label_counts, allow_pickle=False)
            return file.getvalue()

        raw = self._remembered(content_key("clients", self._data_key), compute)
        return ClientFacts(np.load(io.BytesIO(raw), allow_pickle=False))

    @cached_property
    def model_facts(self) -> ModelFacts:
        """Size and arithmetic of the model."""
        raw = self._remembered(content_key("facts", self._model_key), lambda: _to_json(asdict(self._engine.facts())))
        return ModelFacts(**json.loads(raw))

    def initial(self) -> Handle:
        """The untrained model, drawn from the scenario's seed."""
        return Handle(content_key("initial", self._model_key), Initial())

    def train(self, model: Handle, client: int, rule: Chosen, round: int, first_epoch: int = 0) -> Handle:  # noqa: A002
        """The model after a client's local training.

        The order of the batches of an epoch depends on seed, client, round and the epoch's number in the round alone, so
        two trainings of E epochs in a row equal one of 2E.
        """
        key = content_key("train", model.key, self._data_key, client, rule.dump(), round, first_epoch)
        return Handle(key, Train((model,), client, rule, round, first_epoch))

    def average(self, models: Sequence[Handle], weights: Sequence[float]) -> Handle:
        """The weighted sum of models, in the given order. One model of weight 1 is itself."""
        if len(models) == 1 and weights[0] == 1.0:
            return models[0]
        shares = tuple(float(w) for w in weights)
        key = content_key("average", [m.key for m in models], [w.hex() for w in shares])
        return Handle(key, Average(tuple(models), shares))

    def evaluate(self, model: Handle) -> Evaluation:
        """Accuracy and loss on the test set; trains whatever is missing for it."""

        def compute() -> bytes:
            accuracy, loss = self._engine.evaluate(self.value(model))
            return _to_json({"accuracy": accuracy, "loss": loss})

        limit = self._scenario.evaluate.samples
        return Evaluation(**json.loads(self._remembered(content_key("evaluation", model.key, limit), compute)))

    def value(self, handle: Handle) -> Tensor:
        """The model's state, computed now if need be: wave by wave, each wave all the trainings that are ready."""
        waiting = _Pending(handle)
        while handle.value is None:
            while simple := waiting.pop_ready(trainings=False):
                for ready in simple:
                    ready.value = self._simple(ready.recipe)
                    waiting.done(ready)
            wave = waiting.pop_ready(trainings=True)
            for count, (ready, state) in enumerate(zip(wave, self._engine.train(_jobs(wave)), strict=True), 1):
                ready.value = state
                waiting.done(ready)
                self.trained += 1
                if self._on_trained is not None:
                    self._on_trained(count, len(wave))
        return handle.value

    def _simple(self, recipe: Recipe | None) -> Tensor:
        if isinstance(recipe, Average):
            return self._engine.average([_known(p) for p in recipe.parents], recipe.weights)
        return self._engine.initial()

    def _remembered(self, key: str, compute: Callable[[], bytes]) -> bytes:
        known = self.memo.get(key)
        if known is None:
            known = compute()
            self.memo.put(key, key.partition(":")[0], known)
        return known


class _Pending:
    """The recipes that a handle's value still needs, by what they wait for.

    A handle leaves as soon as its value is there, and gives up its recipe with it: from then on only those who
    use the value keep it alive.
    """

    def __init__(self, target: Handle) -> None:
        self._missing: dict[Handle, int] = {}
        self._children: dict[Handle, list[Handle]] = {}
        self._simple: list[Handle] = []
        self._trainings: list[Handle] = []
        stack = [target] if target.value is None else []
        while stack:
            handle = stack.pop()
            if handle in self._missing:
                continue
            parents = {p for p in _parents(handle) if p.value is None}
            self._missing[handle] = len(parents)
            for parent in parents:
                self._children.setdefault(parent, []).append(handle)
            stack.extend(parents)
            if not parents:
                self._enqueue(handle)

    def pop_ready(self, trainings: bool) -> list[Handle]:
        """The trainings (or everything else) whose parents are all there, in an order that depends on their keys alone."""
        ready = self._trainings if trainings else self._simple
        result = sorted(ready, key=lambda h: h.key)
        ready.clear()
        return result

    def done(self, handle: Handle) -> None:
        """Notes that a value is there."""
        handle.recipe = None
        del self._missing[handle]
        for child in self._children.pop(handle, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                self._enqueue(child)

    def _enqueue(self, handle: Handle) -> None:
        (self._trainings if isinstance(handle.recipe, Train) else self._simple).append(handle)


def _parents(handle: Handle) -> tuple[Handle, ...]:
    return handle.recipe.parents if handle.recipe is not None else ()


def _jobs(handles: Sequence[Handle]) -> list[TrainJob]:
    from emulator.learning.engine import TrainJob

    recipes = [h.recipe for h in handles if isinstance(h.recipe, Train)]
    return [TrainJob(_known(r.parents[0]), r.client, r.rule, r.round, r.first_epoch) for r in recipes]


def _known(handle: Handle) -> Tensor:
    assert handle.value is not None
    return handle.value


def _to_json(value: Any) -> bytes:
    return json.dumps(value).encode()
