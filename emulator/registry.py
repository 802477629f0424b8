"""Plug-ins: a name, a parameter model, and a function; and the slots that they fill.

A plug-in registers itself where it is written::

    class CovParams(Params):
        max_cov: float = 0.5

    @formations.register("cov", CovParams, FormationFacts(needs=("label-counts",), smallest=lambda params: 2))
    def cov(clients, rng, params): ...

The slots, and what their plug-ins must be like, stand in `emulator.contracts`. Everything that needs to know which plug-ins
exist asks the slot's `Registry`: the scenario language, the messages about misspelt names, ``hfl list``, the JSON schema. A
registry imports the modules of its room when it is first asked, so adding a plug-in means adding a file (or a function to a
file) in that room and nothing else. Modules that register plug-ins must not import torch at their top: validating a scenario
reads them all.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from emulator.conformance import Facts, check_facts, check_function, place_of, required
from emulator.default_kinds import default_kinds, kind_optional, with_kind
from emulator.errors import HflError, InputError, quote_all, suggestion
from emulator.modules import code_hash

F = TypeVar("F", bound=Callable[..., Any])  # how the plug-ins of a slot are called
X = TypeVar("X", bound=Facts)  # what they declare
F_co = TypeVar("F_co", bound=Callable[..., Any], covariant=True)
X_co = TypeVar("X_co", bound=Facts, covariant=True)

OURS = ("emulator", "traces", "devices", "analysis")  # the packages of the emulator


@dataclass(frozen=True)
class Scale:
    """How large everything in a scenario is, for checks that no single section can make."""

    clients: int
    edges: int
    smallest_edge: int  # clients of the edge that has fewest (all clients where there are no edges)
    classes: int | None  # None: known only when the data set is read
    train_samples: int | None  # that the clients can share, so without the public ones
    public: int = 0  # public samples of each class
    own_public: bool = True  # whether those are of the clients' own data set
    shape: tuple[int, ...] | None = None  # of a sample
    owners: bool = True  # whether samples may belong to somebody
    clusters: bool = False  # whether clients belong to true clusters
    tiers: Mapping[str, Sequence[int]] = field(default_factory=dict)  # clients below each server of every tier
    neighbourhoods: Mapping[str, int] = field(default_factory=dict)  # parts into which direct links join a tier
    moving: bool = False  # whether clients move between servers

    @property
    def largest_edge(self) -> int:
        """Clients of the edge that has most (all clients where there are no edges)."""
        return max(self.tiers.get("edge", (-(-self.clients // max(self.edges, 1)),)))

    def servers_of(self, tier: str) -> int:
        """How many servers of a tier there are."""
        return len(self.tiers.get(tier, ())) or (self.edges if tier == "edge" else 0)

    def below(self, tier: str) -> Sequence[int]:
        """How many clients there are below each server of a tier; all below the cloud."""
        if tier in self.tiers:
            return self.tiers[tier]
        return (self.smallest_edge, self.largest_edge) if tier == "edge" and self.edges else (self.clients,)


class Params(BaseModel):
    """The parameters of a plug-in, or a section of a scenario: frozen, strictly typed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: Any) -> Any:
        # YAML has only lists, and strict validation does not take a list for a tuple.
        if not isinstance(given, dict):
            return given
        tuples = {name for name, field in cls.model_fields.items() if _is_tuple(field.annotation)}
        kinds = default_kinds(cls.model_fields, Choice)
        return {
            key: tuple(value) if isinstance(value, list) and key in tuples else with_kind(value, kinds.get(key))
            for key, value in given.items()
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the model; a choice with a default needs no ``kind``."""
        described = handler(schema)
        fields = handler.resolve_ref_schema(described).get("properties", {})
        for name, kind in default_kinds(cls.model_fields, Choice).items():
            fields[name] = kind_optional(fields[name], kind)
        return described

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """What is wrong with these values in a fleet of this scale: pairs of a key (``""`` for the whole) and a message."""
        return ()


def _is_tuple(annotation: Any) -> bool:
    """Whether a type is a tuple, or a union with one."""
    return any(typing.get_origin(each) is tuple for each in (annotation, *typing.get_args(annotation)))


class NoParams(Params):
    """For plug-ins without parameters."""


P_co = TypeVar("P_co", bound=Params, covariant=True)  # the base of the parameters of a slot's plug-ins


@dataclass(frozen=True)
class Plugin(Generic[F_co, X_co]):
    """One registered choice. ``facts`` are what its author declared about it (for example what a rule needs to know)."""

    name: str
    params: type[Params]
    function: F_co
    facts: X_co

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def ours(self) -> bool:
        """Whether it is part of the emulator."""
        return is_ours(self.function.__module__)

    def code(self, params: Params) -> str:
        """A hash of the code behind a plug-in of the user's own; "" for ours, whose changes count as a new version.

        A plug-in that calls further code of the user's declares a fact ``code``, a function of its parameters.
        """
        own = "" if self.ours else code_hash(self.function.__module__)
        return own if self.facts.code is None else own + self.facts.code(params)


def is_ours(module: str) -> bool:
    """Whether a module is part of the emulator."""
    return module.partition(".")[0] in OURS


class Registry(Generic[F, X]):
    """All the choices for one slot, found in ``rooms`` (packages or modules) on first use.

    ``hfl list`` shows them under the name ``listed``, by default the plural of the slot's.
    ``choice`` is the slot's class of choices, which says what its plug-ins are called with (F), what they declare (X) and from
    which class their parameters derive.
    """

    by_slot: ClassVar[dict[str, Registry[Any, Any]]] = {}

    def __init__(self, choice: type[Chosen[Params, F, X]], *rooms: str, listed: str = "") -> None:
        self.slot = choice.slot
        self.choice = choice
        self.listed = listed or f"{self.slot.replace(' ', '-')}s"
        self._rooms = rooms
        self._plugins: dict[str, Plugin[F, X]] = {}
        self._searched = False
        params, self._contract, self._facts = choice.contract()
        self._base = params if isinstance(params, type) else Params  # a name, where only type checkers import the class
        self._default = NoParams if self._base is Params else self._base
        Registry.by_slot[self.slot] = self

    def register(self, name: str, params: type[Params] | None = None, facts: X | None = None) -> Callable[[F], F]:
        """A decorator that adds a function under ``name``, with the model of its parameters and what is true of it.

        Without a model it has those parameters that all plug-ins of the slot have: most often none.
        Raises `InputError` where the function, its parameters or its facts are not what the slot asks for, or where another
        module has taken the name.
        """

        def add(function: F) -> F:
            model = self._default if params is None else params
            try:
                plugin = Plugin(name, model, function, self._checked(function, model, facts))
            except TypeError as error:
                raise InputError(f"{self.slot} '{name}' ({place_of(function)}): {error}") from error
            known = self._plugins.get(name)
            if known is not None and known.function.__module__ != function.__module__:
                modules = f"{known.function.__module__} and {function.__module__}"
                raise InputError(f"{self.slot} '{name}' is registered twice, in {modules}; give one another name")
            self._plugins[name] = plugin
            return function

        return add

    def _checked(self, function: F, params: type[Params], facts: X | None) -> X:
        """The facts, or those of a slot that asks for none; raises ``TypeError`` where something does not conform."""
        if not isinstance(params, type) or not issubclass(params, self._base):
            given = params.__name__ if isinstance(params, type) else repr(params)
            raise TypeError(f"its parameters must be a class that derives from {self._base.__name__}, not {given}")
        check_function(function, self._contract, params)
        if facts is None and (missing := required(self._facts)):
            wanted = ", ".join(f"{name}=..." for name in missing)
            raise TypeError(f"it must say what is true of it: {self._facts.__name__}({wanted})")
        declared: X = self._facts() if facts is None else facts
        if not isinstance(declared, self._facts):
            raise TypeError(f"its facts must be {self._facts.__name__}(...), not {declared!r}")
        check_facts(declared)
        self.choice.check(function, declared)
        return declared

    def names(self) -> list[str]:
        """The registered names, sorted."""
        self._search()
        return sorted(self._plugins)

    def registered(self) -> list[Plugin[F, X]]:
        """What has registered itself so far."""
        return list(self._plugins.values())

    def __getitem__(self, name: str) -> Plugin[F, X]:
        self._search()
        if name not in self._plugins:
            raise InputError(f"unknown {self.slot} '{name[:60]}'; {suggestion(name, self._plugins)}")
        return self._plugins[name]

    def _search(self) -> None:
        if self._searched:
            return
        self._searched = True  # at once: a module of the room may ask while it is imported
        try:
            for room in self._rooms:
                module = importlib.import_module(room)
                for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
                    importlib.import_module(f"{room}.{info.name}")
        except BaseException:
            self._searched = False
            raise


@dataclass(frozen=True)
class Chosen(Generic[P_co, F_co, X_co]):
    """A choice as it stands in a scenario: which plug-in of a slot, with its validated parameters.

    Every slot derives its own class. Its ``__call__`` is the one place where the slot's plug-ins are called; it checks what they
    give back.
    """

    slot: ClassVar[str]

    kind: str
    params: P_co

    @classmethod
    def contract(cls) -> tuple[Any, Any, Any]:
        """The base of the parameters, the protocol of the functions and the class of the facts, as the class states them."""
        params, function, facts = typing.get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        return params, function, facts

    @classmethod
    def check(cls, function: Callable[..., Any], facts: Any) -> None:
        """Raises ``TypeError`` where a plug-in's facts ask more of its function than the slot does."""

    @property
    def plugin(self) -> Plugin[F_co, X_co]:
        """The plug-in that was chosen."""
        return Registry.by_slot[self.slot][self.kind]

    def with_params(self, params: Params) -> typing.Self:
        """The same choice with other parameters."""
        return replace(self, params=params)  # type: ignore[arg-type]

    def broken(self, what: str) -> Exception:
        """An error about a plug-in that does not do what its slot asks of it: an `HflError`, unless it is one of ours."""
        function = self.plugin.function
        message = f"{self.slot} '{self.kind}' ({place_of(function)}): {what}"
        return RuntimeError(message) if self.plugin.ours else HflError(message)

    def dump(self) -> dict[str, Any]:
        """Plain data from which the same choice can be read again."""
        return {"kind": self.kind, **self.params.model_dump()}

    def identity(self) -> dict[str, Any]:
        """What determines the results of this choice: `dump`, and the plug-in's code where it is not part of the emulator."""
        return {**self.dump(), "code": self.plugin.code(self.params)}


AnyChosen: TypeAlias = Chosen[Params, Any, Facts]


def choices(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], AnyChosen]]:
    """All the choices within a scenario or a part of it, with their paths; one that holds others stands before these."""
    if isinstance(value, Chosen):
        yield path, value
        yield from choices(value.params, path)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from choices(getattr(value, name), (*path, name))
    elif isinstance(value, tuple | list):
        for i, entry in enumerate(value):
            yield from choices(entry, (*path, i))


_describing: set[str] = set()  # slots whose JSON schema is being written
NESTED = (
    "nested"  # the type of a validation error that carries the errors of a plug-in's parameter model in its context
)


@dataclass(frozen=True)
class Choice:
    """Marks a field as a choice from a slot: a name, or a mapping with ``kind`` and the plug-in's parameters.

    Where the field has a default, a mapping without ``kind`` gives parameters of the default's kind.
    The plug-in's own model validates the mapping, and its errors travel inside one error of type `NESTED`, so that every
    one of them keeps its place.
    """

    slot: str

    def _read(self, given: Any) -> AnyChosen:
        if isinstance(given, Chosen):
            return given
        if isinstance(given, str):
            given = {"kind": given}
        registry = Registry.by_slot[self.slot]
        known = registry.names()  # what goes wrong in finding the plug-ins is not the scenario's fault
        name = f"the name of {'an' if self.slot[0] in 'aeiou' else 'a'} {self.slot}"
        if not isinstance(given, dict):
            raise _refusal("choice", f"expected {name} or a mapping with 'kind'")
        kind = given.get("kind")
        if not isinstance(kind, str):
            if "kind" in given:
                raise _refusal("choice_kind", f"expected {name}; known: {quote_all(known)}")
            raise _refusal("choice", f"needs a 'kind'; known: {quote_all(known)}")
        try:
            plugin = registry[kind]
        except InputError as error:
            raise _refusal("choice_kind", error.message) from None
        try:
            params = plugin.params.model_validate({k: v for k, v in given.items() if k != "kind"})
        except ValidationError as error:
            found = {"errors": error.errors(include_url=False), "model": plugin.params, "kind": kind}
            raise PydanticCustomError(NESTED, "invalid parameters", found) from None
        return registry.choice(kind, params)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A plain validator: which plug-ins there are is looked up when a scenario is read, not when this is imported."""
        return core_schema.no_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(Chosen.dump)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """One alternative for each plug-in that is known now; a name alone only where no parameter is required."""
        registry = Registry.by_slot[self.slot]
        if (
            self.slot in _describing
        ):  # a choice within a choice of the same slot: the schema says only that there is one
            return {
                "anyOf": [
                    {"enum": registry.names()},
                    {"type": "object", "properties": {"kind": {"enum": registry.names()}}, "required": ["kind"]},
                ]
            }
        _describing.add(self.slot)
        try:
            return self._alternatives(registry, handler)
        finally:
            _describing.discard(self.slot)

    def _alternatives(self, registry: Registry[Any, Any], handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        plugins = [registry[name] for name in registry.names()]
        alone = [p.name for p in plugins if not any(f.is_required() for f in p.params.model_fields.values())]
        options: list[dict[str, Any]] = [{"enum": alone}] if alone else []
        for plugin in plugins:
            # Through the handler, so that models inside the plug-in's own end up among the definitions of the whole.
            model = plugin.params
            option = handler.resolve_ref_schema(
                model.__get_pydantic_json_schema__(model.__pydantic_core_schema__, handler)
            )
            options.append(
                {
                    **option,
                    "properties": {"kind": {"const": plugin.name}, **option.get("properties", {})},
                    "required": ["kind", *option.get("required", [])],
                    "description": plugin.summary,
                }
            )
        return {"anyOf": options}


def _refusal(kind: str, message: str) -> PydanticCustomError:
    return PydanticCustomError(kind, "{text}", {"text": message})
