"""From a file to a checked scenario: YAML, ``--set`` overrides, presets, types, cross-checks; all problems at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from emulator import yamlfile
from emulator.errors import InputError, Problem, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.scenario import checks, presets
from emulator.scenario.schema import Scenario
from emulator.yamlfile import Document, Mark, Path_


@dataclass(frozen=True)
class Loaded:
    """A scenario and the document it was read from, which knows where everything stands."""

    scenario: Scenario
    document: Document

    def locate(self, error: InputError) -> InputError:
        """The same error with file, line and column, where it names a key of the scenario."""
        if isinstance(error, ScenarioError) or not error.key:
            return error
        return ScenarioError((self.document.problem(tuple(error.key.split(".")), error.message),))

    def against(self, preset: str) -> Loaded:
        """The same scenario with another preset's method (see `presets.against`)."""
        document = Document(
            self.document.file, self.document.data, dict(self.document.keys), dict(self.document.values)
        )
        method = presets.against(document.data["method"], preset)
        document.data = {**document.data, "method": method, "output": {"plot": self.scenario.output.plot}}
        return check(document)


def bundled() -> dict[str, Path]:
    """The ready scenarios by name (their path under ``emulator/scenarios`` without the ending)."""
    root = Path(str(files("emulator") / "scenarios"))
    return {str(p.relative_to(root).with_suffix("")): p for p in sorted(root.rglob("*.yaml"))}


def find(name: str) -> Path:
    """The file that the user means: a path, or the name of a bundled scenario."""
    path = Path(name)
    known = bundled()
    if name in known and not path.exists():
        return known[name]
    if not path.exists() and not path.suffix and "/" not in name:
        hint = suggestion(name, known, "bundled scenarios")
        raise ScenarioError((Problem(name, 0, 0, "", f"there is no such file and no such bundled scenario; {hint}"),))
    return path


def load(name: str | Path, overrides: Sequence[str] = ()) -> Loaded:
    """Reads and checks a scenario file or a bundled scenario; raises `ScenarioError` with everything that is wrong."""
    document = yamlfile.load(find(str(name)))
    for text in overrides:
        override(document, text)
    return check(document)


def loads(text: str, file: str = "<text>") -> Loaded:
    """As `load`, from YAML text."""
    return check(yamlfile.parse(text, file))


def check(document: Document) -> Loaded:
    """Presets, types and cross-checks of a document that was read."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        raise ScenarioError(
            (document.problem((), f"{what}; a scenario has the keys {quote_all(Scenario.model_fields)}"),)
        )
    source = Document(document.file, document.data, document.keys, document.values)
    problems: list[Problem] = []
    unknown_preset = presets.expand(document)
    if unknown_preset:
        where: Path_ = ("method", "preset") if ("method", "preset") in document.values else ("method",)
        problems.append(document.problem(where, unknown_preset))
    scenario = None
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        problems += [
            p for p in explain(document, error.errors(include_url=False), Scenario)
            if not (unknown_preset and p.key.startswith("method"))
        ]  # fmt: skip
    if scenario is not None and not problems:
        problems += [document.problem(path, message) for path, message in checks.problems(scenario)]
        problems += [
            document.problem(("output", "against", i), f"unknown preset '{name[:60]}'; {suggestion(name, presets.presets())}")
            for i, name in enumerate(scenario.output.against) if name not in presets.presets()
        ]  # fmt: skip
    if problems or scenario is None:
        raise ScenarioError(tuple(sorted(set(problems), key=lambda p: (p.file, p.line, p.column, p.key))))
    return Loaded(scenario, source)


def override(document: Document, text: str) -> None:
    """Applies ``key.path=value`` to a document; raises `ScenarioError` where that is not of this form or has no place."""
    option = f"--set {text}"
    key, equals, raw = text.partition("=")
    parts = tuple(int(p) if p.isdigit() else p for p in key.strip().split("."))
    if not equals or not all(str(p) for p in parts):
        raise ScenarioError(
            (Problem(option, 0, 0, "", "write it as key.path=value, for example --set stop.rounds=20"),)
        )
    value = yamlfile.parse(raw, option).data
    if not isinstance(document.data, dict):
        document.data = {}
    place: Any = document.data
    for depth, part in enumerate(parts):
        if isinstance(place, list):
            if not isinstance(part, int) or part >= len(place):
                message = f"there is no entry '{part}' in this list"
                raise ScenarioError((Problem(option, 0, 0, yamlfile.dotted(parts), message),))
        elif not isinstance(place, dict):
            message = f"'{yamlfile.dotted(parts[:depth])}' is no section"
            raise ScenarioError((Problem(option, 0, 0, yamlfile.dotted(parts), message),))
        key_here: Any = part if isinstance(place, list) else str(part)
        if depth == len(parts) - 1:
            place[key_here] = value
            break
        below = place[key_here] if isinstance(place, list) else place.get(key_here)
        if below is None or isinstance(below, str):
            # A name stands for a mapping: `partition: dirichlet` and then --set data.partition.alpha=0.1.
            word = "preset" if parts[: depth + 1] == ("method",) else "kind"
            below = place[key_here] = {} if below is None else {word: below}
        place = below
    for table in (document.keys, document.values):
        for path in [p for p in table if p[: len(parts)] == parts]:
            del table[path]
    document.keys[parts] = document.values[parts] = Mark(option, 0, 0)


def dump(scenario: Scenario) -> str:
    """The scenario as YAML with every default written out; `loads` reads the same scenario from it."""
    return yaml.safe_dump(_plain(scenario.model_dump()), sort_keys=False, allow_unicode=True, width=100)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
