"""Plug-ins of run folders: what a run's manifest says of the user's code, and that code for whoever reads the folder again.

A manifest names every module that the run had of the user's: those of ``--plugin``, those that its plug-ins stand in, and those
that its scenario names (``model.factory``). Whoever goes on with a run, replays it or reads it gets the same ones.

Importing a module runs it. So code that only a manifest names is imported from nowhere but the recorded place, and only where
its files have the recorded SHA-256: who sends a folder cannot make other code run than what stands there already. Code that is
not as it was is never imported on behalf of a folder. Modules that a plug-in imports by itself are not recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from emulator import plugins
from emulator.errors import InputError
from emulator.files import read_json
from emulator.origins import Source, source_of
from emulator.processes import MAIN
from emulator.registry import choices, is_ours

MANIFEST, KEY = "manifest.json", "plugins"
ADVICE = "give --plugin PATH"

log = logging.getLogger(__name__)
_told: set[str] = set()  # warnings that were given


@dataclass(frozen=True)
class _Found:
    """What is to be done about recorded code: ``load`` is what to import, ``wrong`` why nothing is; neither: it is there.

    ``replaced``: another module of the same name was loaded in its place.
    """

    load: str = ""
    wrong: str = ""
    replaced: bool = False


def sources_of(scenario: Any) -> list[Source]:
    """All code of the user's that a run of a scenario has in this process, each module once."""
    found = [source for name in plugins.loaded if (source := plugins.sources.get(name)) is not None]
    tops = {_top(source.name) for source in found}
    for name, factory in _modules_of(scenario).items():
        source = source_of(name) if _top(name) not in tops else None
        if source is not None:
            tops.add(_top(name))
            found.append(replace(source, factory=factory))
    return found


def as_json(scenario: Any) -> list[dict[str, Any]]:
    """What the manifest of a run of a scenario says of `sources_of`."""
    return [asdict(source) for source in sources_of(scenario)]


def recorded_in(folder: Path) -> list[Source]:
    """The code that a run folder's manifest names; nothing where there is no manifest, or a damaged one."""
    try:
        stated = (read_json(folder / MANIFEST) or {}).get(KEY, ())
        texts = [field.name for field in fields(Source) if field.name != "factory"]
        return [Source(**{name: str(each[name]) for name in texts}, factory=bool(each["factory"])) for each in stated]
    except (OSError, InputError, KeyError, TypeError):
        return []


def load_to_replay(folder: Path) -> None:
    """Imports the code that a run folder names, where it is not there already (see the top of this file).

    Raises `InputError` that names folder and plug-in where one is not to be found, or is not as it was.
    """
    for source in recorded_in(folder):
        found = _look(source)
        if found.wrong:
            raise InputError(f"the run in '{folder}' {found.wrong}")
        _load(found)


def load_to_go_on(folders: Iterable[Path]) -> None:
    """As `load_to_replay`, before runs in folders are gone on with or taken as complete (`changed_since` then says which are).

    A module that the user has loaded counts in place of the recorded one of its name.
    """
    for folder in folders:
        for source in recorded_in(folder):
            found = _look(source)
            if found.wrong and not found.replaced:
                raise InputError(f"the run in '{folder}' {found.wrong}")
            _load(found)


def load_to_read(folder: Path) -> None:
    """As `load_to_replay`, for whoever only reads results: what is missing or has changed is left out with a warning.

    Modules with a model's factory are not imported, nor is a script missed: results need neither.
    """
    for source in recorded_in(folder):
        if source.factory or source.name == MAIN:
            continue
        found = _look(source)
        try:
            _load(found)
        except InputError as error:
            found = _Found(wrong=f"has a plug-in that fails: {error}")
        if found.wrong and found.wrong not in _told:
            _told.add(found.wrong)
            log.warning("the run in '%s' %s", folder, found.wrong)


def changed_since(folder: Path, scenario: Any) -> str:
    """What a plug-in was given as that is other code now than in the run in a folder; "" where none is, or none is recorded."""
    recorded = recorded_in(folder)
    digests = {source.sha256 for source in recorded}
    tops = {_top(name) for name in (*(source.name for source in recorded), *_modules_of(scenario))}
    now = sources_of(scenario) if recorded else []
    return next((s.given for s in now if s.sha256 not in digests and _top(s.name) in tops), "")


def _look(source: Source) -> _Found:
    here = [known for name in plugins.loaded if (known := plugins.sources.get(name)) is not None]
    if any(known.sha256 == source.sha256 for known in here):
        return _Found()
    other = next((known for known in here if known.name == source.name), None)
    if other is not None:
        what = f"was made with another plug-in '{source.name}' than {other.file}, which has changed since"
        return _Found(wrong=f"{what}; {ADVICE} of the code as it was", replaced=True)
    if source.name == MAIN:
        now = source_of(MAIN)
        if now is not None and now.sha256 == source.sha256:
            return _Found()
        return _Found(wrong=f"has a plug-in of the script {source.file}; put it into a file of its own, and {ADVICE}")
    by_file = source.given.endswith(".py")
    for place in (source.file,) if by_file else (source.given, source.file):
        now = source_of(place)
        if now is not None and now.sha256 == source.sha256:
            return _Found(load=place)
        if now is not None:
            what = f"was made with a plug-in '{source.name}' that has changed since ({now.file})"
            return _Found(wrong=f"{what}; {ADVICE} of the code as it was")
    return _Found(wrong=f"needs the plug-in '{source.name}', and there is no {source.file} any more; {ADVICE}")


def _load(found: _Found) -> None:
    if found.load:
        plugins.load([found.load])


def _modules_of(scenario: Any) -> dict[str, bool]:
    """The modules of the user's that a scenario needs, and whether each is there for a model's factory alone."""
    found: dict[str, bool] = {}
    for name, factory in _named_by(scenario):
        if name and not is_ours(name):
            found[name] = factory and found.get(name, True)
    return found


def _named_by(scenario: Any) -> Iterator[tuple[str, bool]]:
    for _, chosen in choices(scenario):
        yield chosen.plugin.function.__module__, False
        yield str(getattr(chosen.params, "factory", "")).partition(":")[0], True


def _top(module: str) -> str:
    """The package that a module belongs to: its code counts as a whole."""
    return module.partition(".")[0]
