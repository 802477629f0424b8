"""The what-if of a study: which finished runs are replayed, in which worlds; checked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from emulator import yamlfile
from emulator.errors import InputError, Problem, ScenarioError
from emulator.files import read_json
from emulator.scenario import dump
from emulator.scenario.load import Loaded
from emulator.study.checking import columns_of as columns_of_runs
from emulator.study.checking import playable, with_runs, wrong_grid, wrong_keys
from emulator.study.expand import WORLD, World, covers, worlds_of
from emulator.study.schema import MOST_RUNS, Study
from emulator.yamlfile import Document, Path_

SOURCE = "source"  # the column of the names of given run folders

NOT_HERE = {
    "seed": "another seed is another run; replays are of finished runs",
    "output.against": "a replay is of one run",
}


def columns_of(study: Study) -> tuple[str, ...]:
    """What the replays of a study differ in, beside the seed: what its runs do, or their names, and what its worlds do."""
    whatif = study.whatif
    if whatif is None:
        return ()
    runs = columns_of_runs(study)
    if whatif.runs:
        runs = (SOURCE,) if len(whatif.runs) > 1 or "*" in whatif.runs[0] else ()
    return (*runs, *([WORLD] if whatif.worlds else []), *whatif.grid)


def misplaced(study: Study, document: Document) -> Iterator[Problem]:
    """What is wrong with the worlds before they meet a scenario."""
    whatif = study.whatif
    if whatif is None:
        return
    if not whatif.grid and not whatif.worlds and ("whatif", "grid") not in document.keys:
        yield document.problem(("whatif",), "there is no world to replay; give 'grid' or 'worlds'", at_key=True)
    places: list[tuple[Path_, str]] = [(("whatif", "set", key), key) for key in whatif.set]
    for name, changes in (whatif.worlds or {}).items():
        places += [(("whatif", "worlds", name, key), key) for key in changes]
    places += [(("whatif", "grid", key), key) for key in whatif.grid]
    yield from wrong_keys(document, places, NOT_HERE)
    yield from wrong_grid(document, ("whatif", "grid"), whatif.grid)
    if not whatif.runs:
        varied = [*study.grid, *(key for changes in (study.variants or {}).values() for key in changes)]
        varied += [] if study.tune is None else [study.tune.key]
        for path, key in places:
            undone = next((other for other in varied if covers(key, other)), "")
            if undone:
                yield document.problem(path, f"the study itself varies '{undone}'", at_key=True)
    count = len(whatif.worlds or [0]) * math.prod(len(values) for values in whatif.grid.values())
    if count > MOST_RUNS:
        yield document.problem(("whatif",), f"these would be {count:,} worlds; there are at most {MOST_RUNS:,}")
    for i, target in enumerate(whatif.targets):
        if target in whatif.targets[:i]:
            yield document.problem(("whatif", "targets", i), f"the target {target:g} stands twice")


def sources_of(study: Study, document: Document) -> tuple[Path, ...]:
    """The run folders that a study names. Raises `ScenarioError` where one cannot be replayed, or is named twice."""
    from emulator.replay import open_source

    found: dict[Path, Path] = {}  # by what they really are
    problems: list[Problem] = []
    for i, text in enumerate(study.whatif.runs if study.whatif else ()):
        beside = Path(document.file).parent
        single = isinstance(document.data["whatif"]["runs"], str)
        place: Path_ = ("whatif", "runs") if single else ("whatif", "runs", i)
        pattern = "*" in text and not Path(text).is_absolute()
        folders = sorted(p.parent for p in beside.glob(f"{text}/scenario.yaml")) if pattern else [beside / text]
        if not folders:
            problems.append(document.problem(place, f"no run folder is called '{text}' in {beside}"))
        for folder in folders:
            if folder.resolve() in found and not pattern:
                problems.append(document.problem(place, f"the run folder '{folder}' is given twice"))
            elif folder.resolve() not in found:
                try:
                    found[folder.resolve()] = open_source(folder).folder
                except InputError as error:
                    problems.append(document.problem(place, error.message))
    if problems:
        raise ScenarioError(tuple(problems))
    return tuple(found.values())


def source_names(folders: Sequence[Path]) -> list[str]:
    """A different name for each run folder: as much of the end of its path as it takes."""
    parts = [folder.resolve().parts[1:] for folder in folders]
    for depth in range(1, max((len(p) for p in parts), default=0) + 1):
        names = ["/".join(p[-depth:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]


def checked_worlds(
    study: Study, document: Document, sources: Sequence[Path], runs: Sequence[Loaded]
) -> tuple[World, ...]:
    """The worlds of a study, each checked with a run of every variant, or with the first of the given runs.

    Raises one `ScenarioError` with the problems of all, each once.
    """
    from emulator.replay import open_source

    if study.whatif is None:
        return ()
    worlds = tuple(worlds_of(study.whatif, document))
    bases = [(yamlfile.parse(dump(run.scenario), "scenario.yaml"), run.training) for run in runs]
    if sources:
        first = open_source(sources[0])
        bases = [(first.document, first.training)]
    found: dict[Problem, list[str]] = {}
    for world in worlds:
        for base, training in bases:
            try:
                playable(world.document(base), training)
            except ScenarioError as error:
                for problem in error.problems:
                    names = found.setdefault(problem, [])
                    if world.name not in names:
                        names.append(world.name)
    if found:
        every = sorted(found, key=lambda p: (p.file, p.line, p.column, p.key))
        raise ScenarioError(tuple(with_runs(problem, found[problem], len(worlds), "world") for problem in every))
    return worlds


Entry = tuple[str, Mapping[str, float | str]]  # the name of something, and what it has in the columns


def combined(runs: Sequence[Entry], worlds: Sequence[World]) -> list[Entry]:
    """Every run in every world."""
    return [(f"{name} in {world.name}", {**values, **world.values}) for name, values in runs for world in worlds]


def about(folders: Sequence[Path]) -> list[Entry]:
    """The names of given run folders, which `sources_of` found complete, with their methods and seeds."""
    found: list[Entry] = []
    for name, folder in zip(source_names(folders), folders, strict=True):
        said = read_json(folder / "summary.json") or {}
        found.append((name, {SOURCE: name, "method": str(said["label"]), "seed": int(said["seed"])}))
    return found
