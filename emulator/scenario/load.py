"""From a file to a checked scenario: YAML, ``--set`` overrides, presets, types, cross-checks; all problems at once."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from emulator import yamlfile
from emulator.errors import InputError, Problem, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.scenario import checks, presets
from emulator.scenario.schema import Scenario
from emulator.yamlfile import Document, Mark, Path_


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


def bundled() -> dict[str, Path]:
    """The ready scenarios by name (their path under ``emulator/scenarios`` without the ending)."""
    root = Path(str(files("emulator") / "scenarios"))
    return {p.relative_to(root).with_suffix("").as_posix(): p for p in sorted(root.rglob("*.yaml"))}


def find(name: str) -> Path:
    """The file that the user means: a path, or the name of a bundled scenario. Raises `ScenarioError` if it is neither."""
    path, known = Path(name), bundled()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError):
        return path  # whoever opens it will say what is wrong with it
    if name in known and (mode is None or stat.S_ISDIR(mode)):
        return known[name]
    if mode is not None:
        return path
    hint = suggestion(name.removesuffix(".yaml"), known, "bundled scenarios")
    raise ScenarioError((Problem(name, 0, 0, "", f"there is no such file and no such bundled scenario; {hint}"),))


def load(name: str | Path, overrides: Sequence[str] = (), training: bool = True) -> Loaded:
    """Reads and checks a scenario file or a bundled scenario; raises `ScenarioError` with everything that is wrong."""
    document = yamlfile.load(find(str(name)))
    for text in overrides:
        override(document, text)
    return check(document, training)


def loads(text: str, file: str = "<text>") -> Loaded:
    """As `load`, from YAML text."""
    return check(yamlfile.parse(text, file))


def check(document: Document, training: bool = True) -> Loaded:
    """Presets, types and cross-checks of a document that was read; without ``training``, for a run that trains nothing."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        raise ScenarioError(
            (document.problem((), f"{what}; a scenario has the keys {quote_all(Scenario.model_fields)}"),)
        )
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
            document.problem(("output", "against", i), f"unknown preset '{name[:60]}'; {suggestion(name, presets.presets())}")
            for i, name in enumerate(scenario.output.against) if name not in presets.presets()
        ]  # fmt: skip
    if problems or scenario is None:
        found = dict.fromkeys(problems)  # each once; of those in one place, the first found comes first
        raise ScenarioError(tuple(sorted(found, key=lambda p: (p.file, p.line, p.column, p.key))))
    return Loaded(scenario, source, training)


def override(document: Document, text: str) -> None:
    """Applies ``key.path=value`` to a document; raises `ScenarioError` where that is not of this form or has no place."""
    option = f"--set {text}"
    key, equals, raw = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise _misplaced(option, "", "write it as key.path=value, for example --set stop.rounds=20")
    value = yamlfile.parse(raw, option).data
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
                raise _misplaced(option, key, f"'{yamlfile.dotted(path)}' is a list and has no entry '{part}'")
            here = numbers[part]
        elif not isinstance(place, dict):
            raise _misplaced(option, key, f"'{yamlfile.dotted(path)}' is no section")
        path = (*path, here)
        if depth == len(parts) - 1:
            place[here] = value
            break
        below = place[here] if isinstance(place, list) else place.get(here)
        if below is None:
            below = place[here] = {}
            document.keys[path] = document.values[path] = Mark(option, 0, 0)
        elif isinstance(below, str):
            below = place[here] = _spelt_out(path, below)
        place = below
    for table in (document.keys, document.values):
        for old in [p for p in table if p[: len(path)] == path]:
            del table[old]
    document.keys[path] = document.values[path] = Mark(option, 0, 0)


def _misplaced(option: str, key: str, message: str) -> ScenarioError:
    return ScenarioError((Problem(option, 0, 0, key.strip(), message),))


def _spelt_out(path: Path_, name: str) -> dict[str, Any]:
    """The mapping that a name stands for: ``partition: dirichlet`` and then ``--set data.partition.alpha=0.1``."""
    if path == ("topology", "devices"):
        return {name: 1.0}
    return {"preset" if path == ("method",) else "kind": name}


def _written(data: Any, path: Path_) -> Path_:
    """The part of a path that stands in the data: it ends at a name that stands for a mapping."""
    for end, part in enumerate(path):
        if isinstance(data, str):
            return path[:end]
        data = data.get(part) if isinstance(data, dict) else None
    return path


def dump(scenario: Scenario) -> str:
    """The scenario as YAML with every default written out; `loads` reads the same scenario from it."""
    return yamlfile.dump(_plain(scenario.model_dump()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
