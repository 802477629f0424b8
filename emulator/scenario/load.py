"""From a file to a checked scenario: YAML, ``--set`` overrides, presets, types, cross-checks; all problems at once."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from emulator import plugins, yamlfile
from emulator.errors import InputError, Problem, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.registry import Params
from emulator.scenario import checks, presets
from emulator.scenario.prices import read_list
from emulator.scenario.schema import Scenario, name_of
from emulator.yamlfile import Document, Mark, Path_

SET = "--set"  # what places of changes begin with


@dataclass(frozen=True)
class Loaded:
    """A scenario and the document it was read from, which knows where everything stands.

    ``training`` says whether it is to be run with training, or for its times alone.
    """

    scenario: Scenario
    document: Document
    training: bool = True

    def locate(self, error: InputError) -> InputError:
        """The same error with file, line and column, where it names a key of the scenario."""
        if isinstance(error, ScenarioError) or not error.key:
            return error
        return ScenarioError((self.document.problem(tuple(error.key.split(".")), error.message),))

    @contextlib.contextmanager
    def locating(self) -> Iterator[None]:
        """Within the block errors about keys get their places, and those of a user's code say whose they are."""
        try:
            with plugins.blaming():
                yield
        except InputError as error:
            raise self.locate(error) from error

    def changed(self, changes: Iterable[tuple[str, Document]]) -> Loaded:
        """The same scenario with changes by dotted key. Raises `ScenarioError` with everything that is wrong with it."""
        return check(with_changes(self.document, changes), self.training)

    def against(self, preset: str) -> Loaded:
        """The same scenario with another preset's method (see `presets.against`)."""
        given = self.document
        method = presets.against(self.scenario.method.dump(), preset)
        data = {**given.data, "method": method, "output": {"plot": self.scenario.output.plot}}

        def kept(marks: dict[Path_, Mark]) -> dict[Path_, Mark]:
            # The other method's slots stand nowhere in the file.
            return {
                p: m for p, m in marks.items() if p[:1] != ("method",) or len(p) == 1 or p[1] in presets.CARRIED_OVER
            }

        return check(Document(given.file, data, kept(given.keys), kept(given.values)), self.training)


def ready() -> dict[str, Path]:
    """The ready scenarios and studies by name (their path under ``emulator/scenarios`` without the ending)."""
    root = Path(str(files("emulator") / "scenarios"))
    return {p.relative_to(root).with_suffix("").as_posix(): p for p in sorted(root.rglob("*.yaml"))}


def is_study(path: Path) -> bool:
    """Whether a file is a study: it names the scenario that it starts from, or runs to replay, which no scenario does."""
    try:
        with path.open("rb") as file:
            text = file.read(yamlfile.MAX_BYTES)
    except (OSError, ValueError):
        return False  # whoever reads it will say what is wrong with it
    return re.search(rb"^(scenario|whatif)[ \t]*:", text, re.MULTILINE) is not None


def bundled() -> dict[str, Path]:
    """The ready scenarios by name."""
    return {name: path for name, path in ready().items() if not is_study(path)}


def find(name: str, known: Mapping[str, Path] | None = None, what: str = "scenario") -> Path:
    """The file that the user means: a path, or one of the ``known`` names (of bundled scenarios, unless they are given).

    Raises `ScenarioError` if it is neither.
    """
    path, known = Path(name), bundled() if known is None else known
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError):
        return path  # whoever opens it will say what is wrong with it
    named = known.get(name) or ready().get(name)  # who reads a study for a scenario, or the reverse, says so
    if named is not None and (mode is None or stat.S_ISDIR(mode)):
        return named
    if mode is not None:
        return path
    many = what[:-1] + "ies" if what.endswith("y") else f"{what}s"
    hint = suggestion(name.removesuffix(".yaml"), known, f"bundled {many}")
    raise ScenarioError((Problem(name, 0, 0, "", f"there is no such file and no such bundled {what}; {hint}"),))


def load(name: str | Path, overrides: Sequence[str] = (), training: bool = True) -> Loaded:
    """Reads and checks a scenario file or a bundled scenario; raises `ScenarioError` with everything that is wrong."""
    return check(read(name, overrides), training)


def sharing(name: str | Path, overrides: Sequence[str], training: bool = True) -> list[str]:
    """The changes, where ``method=PRESET`` names no more than a preset spelt out as `Loaded.against` has it.

    So a command that changes the method of a file compares with others on that file. A file that is not complete without the
    change has no method to share anything with: the change stays as it is.
    """
    result: list[str] = []
    for text in overrides:
        key, _, value = text.partition("=")
        if key.strip() == "method" and value.strip() in presets.presets():
            with contextlib.suppress(InputError):
                own = load(name, result, training).scenario.method.dump()
                text = f"method={json.dumps(presets.against(own, value.strip()))}"
        result.append(text)
    return result


def read(name: str | Path, overrides: Sequence[str] = ()) -> Document:
    """A scenario file or a bundled scenario with its changes, unchecked; raises `ScenarioError` where it is no YAML."""
    document = yamlfile.load(find(str(name)))
    for text in overrides:
        override(document, text)
    return document


def loads(text: str, file: str = "<text>") -> Loaded:
    """As `load`, from YAML text."""
    return check(yamlfile.parse(text, file))


def check(document: Document, training: bool = True) -> Loaded:
    """Name, presets, types and cross-checks of a document that was read; without ``training``, for a run that trains nothing."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        raise ScenarioError(
            (document.problem((), f"{what}; a scenario has the keys {quote_all(Scenario.model_fields)}"),)
        )
    if not document.data.keys().isdisjoint(("scenario", "whatif")) and "topology" not in document.data:
        message = "this is a study, not a scenario; run it with 'hfl study', check it with 'hfl study --dry-run'"
        raise ScenarioError((document.problem((), message),))
    if "flower" in document.data and "method" not in document.data:
        message = "this is the run of a Flower app, which only 'hfl flower APP --world SCENARIO' runs"
        raise ScenarioError((document.problem(("flower",), message, at_key=True),))
    document.data = {"name": name_of(document.file), **document.data}
    if isinstance(given := document.data.get("prices"), str):
        try:
            put(document, "prices", read_list(given))
        except ScenarioError:
            raise
        except InputError as error:
            raise ScenarioError((document.problem(("prices",), error.message),)) from None
    source = Document(document.file, document.data, document.keys, document.values, document.notes)
    problems: list[Problem] = []
    no_method = presets.expand(document)
    if no_method:
        where: Path_ = ("method", "preset") if ("method", "preset") in document.values else ("method",)
        problems.append(document.problem(where, no_method))
    scenario = None
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        problems += [
            p for p in explain(document, error.errors(include_url=False), Scenario)
            if not (no_method and p.key.partition(".")[0] == "method")
        ]  # fmt: skip
    if scenario is not None and not problems:
        problems += [
            document.problem(_written(document.data, path), message)
            for path, message in checks.problems(scenario, training)
        ]
        problems += [
            document.problem(path, message)
            for path, message in checks.without_effect(scenario)
            if path in document.values and document.values[path].file.startswith(SET)
        ]
        problems += [
            document.problem(("output", "against", i), f"unknown preset '{name[:60]}'; {suggestion(name, presets.presets())}")
            for i, name in enumerate(scenario.output.against) if name not in presets.presets()
        ]  # fmt: skip
    if problems or scenario is None:
        found = dict.fromkeys(problems)  # each once; of those in one place, the first found comes first
        raise ScenarioError(tuple(sorted(found, key=lambda p: (p.file, p.line, p.column, p.key))))
    return Loaded(scenario, source, training)


def override(document: Document, text: str) -> None:
    """Applies ``key.path=value`` or ``@FILE`` to a document; raises `ScenarioError` where that is neither or has no place."""
    for key, given in parse_changes(text):
        put(document, key, given)


def parse_changes(text: str) -> list[tuple[str, Document]]:
    """The change of ``key.path=value``, or all those that a YAML file holds (``@FILE``): mappings merge, all else replaces.

    Raises `ScenarioError` where the text is not of this form, or the file cannot be read or is no mapping.
    """
    if not text.startswith("@"):
        return [parse_change(text)]
    document = yamlfile.load(Path(text[1:]))
    if not isinstance(document.data, dict):
        message = "is not a mapping of sections; write for example 'topology: {edges: 2}'"
        raise ScenarioError((document.problem((), message),))
    return list(_leaves(document, ()))


def _leaves(document: Document, path: Path_) -> Iterator[tuple[str, Document]]:
    here = document.below(path)
    if isinstance(here.data, dict) and here.data and not any("." in key for key in here.data):
        for key in here.data:
            yield from _leaves(document, (*path, key))
    else:
        yield yamlfile.dotted(path), here


def parse_change(text: str) -> tuple[str, Document]:
    """The key of ``key.path=value`` and its value; raises `ScenarioError` where the text is not of this form."""
    option = f"{SET} {text}"
    here = Mark(option, 0, 0)
    key, equals, raw = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise _misplaced(here, "", "write it as key.path=value, for example --set stop.rounds=20")
    return key.strip(), Document(option, yamlfile.parse(raw, option).data, {(): here}, {(): here})


def alone(place: str) -> list[tuple[str, Document]]:
    """Changes to a scenario that is run among others: it is one run, and draws nothing by itself. ``place`` is for messages."""
    return [(key, yamlfile.from_data(value, place)) for key, value in (("output.against", []), ("output.plot", False))]


def with_changes(given: Document, changes: Iterable[tuple[str, Document]]) -> Document:
    """A copy of a document in which `put` was done for each of the changes."""
    document = Document(given.file, copy.deepcopy(given.data), dict(given.keys), dict(given.values), dict(given.notes))
    for key, value in changes:
        put(document, key, value)
    return document


def put(document: Document, key: str, given: Document) -> None:
    """Puts what ``given`` holds, with its places, at a dotted key; raises `ScenarioError` where that has no place."""
    mark = given.values[()]
    parts = key.split(".")
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        return  # `check` says what a scenario is
    place: Any = document.data
    path: Path_ = ()
    for depth, part in enumerate(parts):
        here: Any = part
        if isinstance(place, list):
            numbers = {str(i): i for i in range(len(place))}
            if part not in numbers:
                raise _misplaced(mark, key, f"'{yamlfile.dotted(path)}' is a list and has no entry '{part}'")
            here = numbers[part]
        elif not isinstance(place, dict):
            raise _misplaced(mark, key, f"'{yamlfile.dotted(path)}' is no section")
        path = (*path, here)
        if depth == len(parts) - 1:
            place[here] = copy.deepcopy(given.data)  # a later change may go into it
            break
        below = place[here] if isinstance(place, list) else place.get(here)
        if below is None:
            below = place[here] = {}
            document.keys[path] = document.values[path] = given.keys.get((), mark)
        elif isinstance(below, str):
            below = place[here] = _spelt_out(path, below)
        place = below
    for table, places in ((document.keys, given.keys), (document.values, given.values)):
        for old in [p for p in table if p[: len(path)] == path]:
            del table[old]
        table.update({(*path, *p): m for p, m in places.items()})


def _misplaced(mark: Mark, key: str, message: str) -> ScenarioError:
    return ScenarioError((Problem(mark.file, mark.line, mark.column, key, message),))


def _spelt_out(path: Path_, name: str) -> dict[str, Any]:
    """The mapping that a name stands for: ``partition: dirichlet`` and then ``--set data.partition.alpha=0.1``."""
    if path == ("topology", "devices"):
        return {name: 1.0}
    if path == ("prices",):
        return dict(read_list(name).data)
    return {"preset" if path == ("method",) else "kind": name}


def _written(data: Any, path: Path_) -> Path_:
    """The part of a path that stands in the data: it ends at a name that stands for a mapping."""
    for end, part in enumerate(path):
        if isinstance(data, str):
            return path[:end]
        data = data.get(part) if isinstance(data, dict) else None
    return path


def dump(scenario: Params) -> str:
    """The scenario as YAML with every default written out; `loads` reads the same scenario from it."""
    plain = _plain(scenario.model_dump())
    if plain["prices"] is None:
        del plain["prices"]  # a scenario without prices reads as it did before there were any
    return yamlfile.dump(plain)


def fingerprint(scenario: Scenario) -> str:
    """Eight digits that tell a scenario from others, for names of folders."""
    return hashlib.sha256(dump(scenario).encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
