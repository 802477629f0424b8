"""Modules of the user's that register plug-ins: imported by name or from a file, in this process and in its workers.

Whatever comes out of such code says whose it is, and where: see `blamed`.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from emulator import modules
from emulator.conformance import Facts, at
from emulator.errors import HflError, InputError
from emulator.origins import Source, source_of
from emulator.processes import MAIN
from emulator.registry import OURS, Chosen, Plugin, Registry, choices, is_ours

loaded: list[str] = []  # what was imported here, so that worker processes can do the same
sources: dict[str, Source] = {}  # by what stands in `loaded`: the code as it was when it was imported
named: dict[str, str] = {}  # modules that scenarios name, and what each is there for

_OURS = tuple(Path(__file__).parents[1] / package for package in OURS)
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def load(names: Sequence[str]) -> None:
    """Imports modules by name, or files by path (ending in ``.py``); raises `InputError` where that fails."""
    for name in names:
        named.setdefault(Path(name).stem if name.endswith(".py") else name, "")
        with modules.refusing(f"--plugin {name}"):
            source = source_of(name)
            if name.endswith(".py"):
                modules.load_file(Path(name).resolve())
            else:
                modules.find(name)
        whole = str(Path(name).resolve()) if name.endswith(".py") else name  # workers may have another current folder
        if source is not None:
            sources[whole] = source
        if whole not in loaded:
            loaded.append(whole)


def import_named(module: str, purpose: str) -> ModuleType:
    """Imports a module of the user's that a scenario names; errors that come out of it are said to be those of ``purpose``."""
    named[module] = purpose
    return modules.find(module)


def present() -> bool:
    """Whether there is any code of the user's."""
    return bool(named or _foreign())


def modules_of(scenario: Any) -> list[str]:
    """What another process loads before it reads a scenario: what was loaded here, and modules that its plug-ins stand in."""
    imported = {chosen.plugin.function.__module__ for _, chosen in choices(scenario) if not chosen.plugin.ours}
    return [*loaded, *sorted(imported - {MAIN, *modules.from_files, *loaded})]


def only_here(scenario: Any) -> str:
    """What of a scenario no other process finds, because the script or notebook itself defines it; nothing where all is found."""
    for path, chosen in choices(scenario):
        factory = str(getattr(chosen.params, "factory", ""))
        if chosen.plugin.function.__module__ == MAIN or factory.partition(":")[0] == MAIN:
            return f"{'.'.join(map(str, path))}: {chosen.slot} '{factory or chosen.kind}' is defined in the script or notebook"
    return ""


@contextlib.contextmanager
def blaming(owner: str = "plug-in") -> Iterator[None]:
    """Within the block, what a user's code raises becomes an `HflError` that says whose code it is, and where.

    ``owner`` is what to call it where the code itself does not tell. Errors of ours and interruptions pass as they are, and so
    does what came out of our own code.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        found = blamed(error, owner)
        if found is None:
            raise
        raise found from error


@contextlib.contextmanager
def asking(what: str, key: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception) -> Iterator[None]:
    """Within the block, errors of these kinds become an `InputError` about a key, unless they come out of a user's code.

    Those say more with their place in it (see `blaming`).
    """
    try:
        yield
    except kinds as error:
        if isinstance(error, HflError) or blamed(error) is not None:
            raise
        raise InputError(f"{what}: {said(error)}", key) from error


def said(error: BaseException) -> str:
    """An error in a line: ``ValueError: text``."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (an error of the user's may not even be able to say what it is)
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def blamed(error: BaseException, owner: str = "plug-in") -> HflError | None:
    """``formation 'mine' (mine.py:12, in form): ValueError: text`` for what came out of a user's code; None for all else.

    The place is the innermost line of the user's. Where our own code raised the error when it was called from there, its place
    is added.
    """
    if isinstance(error, HflError | KeyboardInterrupt) or is_ours(type(error).__module__):
        return None
    for each in _chain(error):
        place = _place_in(each)
        if place is None:
            continue
        last, line = list(traceback.walk_tb(each.__traceback__))[-1]
        within = f" (raised in {_at(last, line)})" if _is_ours(last) else ""
        frame, line = place
        function = frame.f_code.co_qualname.replace("<locals>.", "")
        return HflError(f"{_owner(each) or owner} ({_at(frame, line)}, in {function}): {said(each)}{within}")
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes. SimPy raises copies of errors, with what was copied as their cause: it stands before them."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        same = found and type(each) is type(error) and each.args == error.args
        found.insert(0 if same else len(found), each)
        each = each.__cause__
    return found


def _place_in(error: BaseException) -> tuple[FrameType, int] | None:
    """The innermost frame of the user's code in an error's traceback, and its line; None where there is none.

    The user's are the modules that were loaded, named or have registered something, and whatever these call that is neither
    ours nor one of Python's libraries.
    """
    theirs = {name.partition(".")[0] for name in (*named, *(plugin.function.__module__ for _, plugin in _foreign()))}
    theirs -= sys.stdlib_module_names
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _module(frame).partition(".")[0] in theirs:
            if not _is_ours(frame):
                found = frame, line
        elif found is not None and not _is_ours(frame) and not _stands_in(frame, _LIBRARIES):
            found = frame, line
    return found


def _owner(error: BaseException) -> str:
    """What to call the user's code in an error's traceback: the plug-in whose function it is, or the only one of its module.

    Nothing where there are several and it is none of their functions.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][::-1]
    modules = {_module(frame) for frame in frames}
    held = [frame.f_locals.get("self") for frame in frames]
    called = [chosen for chosen in held if isinstance(chosen, Chosen)]
    here = [(slot, plugin) for slot, plugin in _foreign() if plugin.function.__module__ in modules]
    for frame in frames:
        fitting = [(slot, plugin.name) for slot, plugin in here if _is_inside(frame, plugin.function)]
        if fitting:  # one function may serve several
            slot, name = next(((c.slot, c.kind) for c in called if (c.slot, c.kind) in fitting), fitting[0])
            return f"{slot} '{name}'"
    if len(here) == 1:
        return f"{here[0][0]} '{here[0][1].name}'"
    return next((named[module] for module in modules if named.get(module)), "")


def _is_inside(frame: FrameType, function: Any) -> bool:
    """Whether a frame is that of a function, of one within it, or of a method where it is a class."""
    whole = f"{getattr(function, '__qualname__', '')}."
    return function.__module__ == _module(frame) and f"{frame.f_code.co_qualname}.".startswith(whole)


def _foreign() -> list[tuple[str, Plugin[Any, Facts]]]:
    """The plug-ins that are not part of the emulator, with their slots."""
    every = [(slot, plugin) for slot, registry in Registry.by_slot.items() for plugin in registry.registered()]
    return [(slot, plugin) for slot, plugin in every if not plugin.ours]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _at(frame: FrameType, line: int) -> str:
    """``package/module.py:12``."""
    return at(frame.f_code.co_filename, line, _module(frame))


def _is_ours(frame: FrameType) -> bool:
    return _stands_in(frame, _OURS)


def _stands_in(frame: FrameType, folders: Sequence[Path]) -> bool:
    """Whether a frame's file stands in one of these folders, or is no file at all."""
    file = Path(frame.f_code.co_filename)
    return not file.is_absolute() or any(file.is_relative_to(folder) for folder in folders)
