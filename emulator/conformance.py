"""What a plug-in must be like to be registered: how its function is called, and what its author declares about it.

Whatever does not conform raises `InputError` with the plug-in and its place, when it registers and not when a run needs it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union

from emulator.errors import InputError, quote_all, suggestion

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the author of a plug-in declares about it. Slots that ask for more derive their own class.

    ``code`` is a function of the parameters that hashes further code of the user's that the plug-in calls (see `Plugin.code`).
    ``by_class``: it needs samples that have one label each, which names their class.
    Raises `InputError`, with the place of the call, where a fact is unknown or missing.
    """

    code: Callable[[Any], str] | None = None
    by_class: bool = False

    def __new__(cls, *values: object, **given: object) -> typing.Self:
        """Checks the names, which a dataclass would refuse without the place."""
        caller = sys._getframe(1)
        where = (
            f"{cls.__name__} ({at(caller.f_code.co_filename, caller.f_lineno, caller.f_globals.get('__name__', ''))})"
        )
        known = {field.name: field for field in dataclasses.fields(cls)}
        if values:
            raise InputError(f"{where}: facts are given by name, for example {next(iter(known))}=...")
        for name in given:
            if name not in known:
                raise InputError(f"{where}: there is no fact '{name}'; {suggestion(name, known)}")
        if missing := [name for name in required(cls) if name not in given]:
            raise InputError(f"{where}: {quote_all(missing)} must be given")
        return super().__new__(cls)


def required(facts: type[Facts]) -> list[str]:
    """The facts that have no default."""
    return [field.name for field in dataclasses.fields(facts) if field.default is dataclasses.MISSING]


def at(file: str, line: int, module: str) -> str:
    """``package/module.py:12``: a line of a module's file."""
    path, depth = Path(file), module.count(".") + 1
    return f"{Path(*path.parts[-depth - (path.name == '__init__.py') :]).as_posix()}:{line}"


def place_of(function: object) -> str:
    """``package/module.py:12``, where a function or a class begins; the name of its module where that is not known."""
    module = str(getattr(function, "__module__", ""))
    try:
        found: Any = inspect.unwrap(function)  # type: ignore[arg-type]  # it may be anything that somebody registers
        file = inspect.getsourcefile(found) or ""
        code = getattr(found, "__code__", None)
        line = inspect.getsourcelines(found)[1] if code is None else code.co_firstlineno
    except (OSError, TypeError):
        return module
    return at(file, line, module)


def check_function(function: object, contract: type, params: type) -> None:
    """Raises ``TypeError`` unless a function can be called as a contract is, with ``params`` of this class as the last.

    The names of its parameters are its own affair. It may have more of them, if these have defaults.
    """
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    try:
        takes = list(inspect.signature(function).parameters.values())
    except ValueError:  # one that is written in C does not tell
        return
    wanted = list(inspect.signature(contract.__call__).parameters)[1:]
    _check_count(takes, wanted)
    positional = [p for p in takes if p.kind in _POSITIONAL]
    if len(positional) < len(wanted):
        return  # *args takes the parameters
    last = positional[len(wanted) - 1]
    annotation = None if last.annotation is last.empty else _resolved(last.annotation, function)
    if isinstance(annotation, type) and annotation is not Any and not issubclass(params, annotation):
        raise TypeError(
            f"'{last.name}' is annotated with {annotation.__name__}, but it registers with {params.__name__}; "
            "they must be the same, or the first a base of the second"
        )


def _check_count(takes: list[inspect.Parameter], wanted: list[str]) -> None:
    """Raises ``TypeError`` unless parameters take as many positional arguments as are wanted, and need no others."""
    positional = [p for p in takes if p.kind in _POSITIONAL]
    needed = [p for p in positional if p.default is p.empty]
    many = any(p.kind is p.VAR_POSITIONAL for p in takes)
    if len(needed) > len(wanted) or (len(positional) < len(wanted) and not many):
        given = f"{len(wanted)} argument{'' if len(wanted) == 1 else 's'} ({', '.join(wanted)})"
        raise TypeError(f"it is called with {given}, and takes ({', '.join(map(str, takes))})")
    if named := [p.name for p in takes if p.kind is p.KEYWORD_ONLY and p.default is p.empty]:
        raise TypeError(f"it is called with positional arguments alone; give {quote_all(named)} a default")


def _resolved(annotation: object, function: object) -> object:
    """What an annotation of a function means; None where that cannot be told, as of names that only type checkers import."""
    inner = inspect.unwrap(function) if callable(function) else function
    names = getattr(inner, "__globals__", None) or vars(sys.modules.get(getattr(inner, "__module__", ""), types))
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=names).get("it")
    except Exception:  # noqa: BLE001 (whatever evaluating a text raises)
        return None


def check_facts(facts: Facts) -> None:
    """Raises ``TypeError`` where a fact is not of the type that its field says."""
    for name, hint in _hints(type(facts)).items():
        value = getattr(facts, name)
        if (wrong := _misfit(value, hint)) is not None:
            raise TypeError(f"{name} {wrong}")


def _hints(facts: type[Facts]) -> dict[str, Any]:
    """The types of the fields; names that only type checkers import stand for anything."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(facts, localns=unknown)
        except NameError as error:
            if error.name is None or error.name in unknown:
                raise
            unknown[error.name] = Any


def _misfit(value: object, hint: Any) -> str | None:
    """What is wrong with a value that should be of this type: ``must be ...``; None where nothing is."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        found = [_misfit(value, each) for each in inner]
        # Of several alternatives, what a value that is given comes nearest to is the one that is not None.
        return (
            None if None in found else next(f for f, each in zip(found, inner, strict=True) if each is not type(None))
        )
    if origin is Literal:
        return None if value in inner else f"must be one of {quote_all(map(str, inner))}, not {value!r}"
    if origin is tuple:
        return _misfit_tuple(value, inner[0])
    if origin is collections.abc.Callable:
        return _misfit_function(value, inner[0])
    wanted = origin or hint
    if wanted is Any or (isinstance(value, wanted) and not (isinstance(value, bool) and wanted is int)):
        return None
    return f"must be {'a class' if wanted is type else _A.get(wanted, wanted.__name__)}, not {value!r}"


_A = {bool: "True or False", int: "a whole number", str: "a text"}


def _misfit_tuple(value: object, each: Any) -> str | None:
    if isinstance(value, tuple) and all(_misfit(v, each) is None for v in value):
        return None
    if each is str:
        return f"must be a tuple of names: {(value,) if isinstance(value, str) else ('label-counts',)}"
    return f"must be a tuple of {'whole numbers' if each is int else 'values'}, not {value!r}"


def _misfit_function(value: object, takes: Any) -> str | None:
    if not callable(value):
        return f"must be a function, not {value!r}"
    try:
        given = list(inspect.signature(value).parameters.values())
    except ValueError:
        return None
    wanted = ["params" if each is Any else getattr(each, "__name__", str(each)) for each in takes]
    try:
        _check_count(given, wanted)
    except TypeError as error:
        return f"is no such function: {error}"
    return None
