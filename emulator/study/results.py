"""Which replays a study's what-if consists of, and the files that hold what came of each.

A replay's result is ``whatif/RUN/WORLD.json`` in the study's folder. It counts as long as run and world are the same as when it
was made. A world that was trained is a run folder ``whatif/RUN/WORLD`` beside it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator import __version__
from emulator.errors import InputError
from emulator.files import read_json, write_json
from emulator.study.expand import World
from emulator.study.folder import stated
from emulator.study.load import LoadedStudy, Planned
from emulator.study.names import file_names
from emulator.study.whatif import about, columns_of

if TYPE_CHECKING:
    from emulator.replay import Replay

FOLDER = "whatif"
KNOWN, TRAINED, NEEDS_TRAINING = "replayed", "trained", "needs training"


@dataclass(frozen=True)
class WorldReplay:
    """A finished run in a world.

    ``values`` is what it has in the columns of the what-if, ``method`` and ``seed``; ``key`` tells results apart.
    """

    run: str
    source: Path
    world: World
    values: dict[str, float | str]
    file: Path
    key: str

    @property
    def name(self) -> str:
        """The names of the run and of the world."""
        return f"{self.run} in {self.world.name}"

    @property
    def folder(self) -> Path:
        """The run folder for this world, should it have to be trained."""
        return self.file.with_name(self.file.name.removesuffix(".json"))


@dataclass(frozen=True)
class _Source:
    name: str
    folder: Path
    values: Mapping[str, float | str]


def plan(loaded: LoadedStudy, folder: Path) -> list[WorldReplay]:
    """All replays of a study whose runs are complete, run by run. ``folder`` is that of the study."""
    from emulator.run_folder import COMPLETE, status_of

    if loaded.sources:
        sources = [_Source(n, p, values) for (n, values), p in zip(about(loaded.sources), loaded.sources, strict=True)]
    else:
        done = [run for run in loaded.runs if status_of(folder / run.name) == COMPLETE]
        sources = [_Source(run.name, folder / run.name, run.values) for run in done]
    names = [source.name for source in sources]
    places = file_names(names) if loaded.sources else dict(zip(names, names, strict=True))
    replays = []
    for source in sources:
        identity = _digest(source.folder)
        for world in loaded.worlds:
            file = folder / FOLDER / places[source.name] / f"{world.name}.json"
            replays.append(
                WorldReplay(
                    source.name, source.folder, world, {**source.values, **world.values}, file, _key(identity, world)
                )
            )
    return replays


def _digest(folder: Path) -> str:
    """What tells finished runs apart: their scenario and their measurements."""
    parts = [(folder / name).read_bytes() for name in ("scenario.yaml", "metrics.csv")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _key(source: str, world: World) -> str:
    changes = [[change.key, change.given.data] for change in world.changes]
    text = json.dumps([__version__, source, changes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def as_json(result: Replay) -> dict[str, Any]:
    """What a replay's file says beside its key."""
    return {
        "status": KNOWN if result.known else NEEDS_TRAINING,
        "trainings": {"asked": result.asked, "missing": result.missing, "trained": 0, "to_the_end": result.to_the_end},
        "summary": result.summary,
        "metrics": [
            {name: None if math.isnan(value) else value for name, value in row.items()} for row in result.metrics
        ],
    }


def result_of(replay: WorldReplay) -> dict[str, Any] | None:
    """What came of a replay; None where there is nothing yet, something else, or something damaged."""
    try:
        said = read_json(replay.file)
    except (OSError, InputError):
        return None
    return said if said is not None and said.get("key") == replay.key else None


def left_of(replays: Iterable[WorldReplay]) -> list[WorldReplay]:
    """Those that have no result yet, or one that says that training is needed."""
    done = (KNOWN, TRAINED)
    return [r for r in replays if (said := result_of(r)) is None or said["status"] not in done]


def to_train(replays: Iterable[WorldReplay], folder: Path) -> list[Planned]:
    """The runs that training worlds amounts to, for those replays whose result says that it is needed.

    Their names are their places in the study's ``folder``.
    """
    from emulator.replay import open_source

    runs = []
    for each in replays:
        said = result_of(each)
        if said is not None and said["status"] == NEEDS_TRAINING:
            scenario = open_source(each.source).changed(each.world.changes).loaded
            name = each.folder.relative_to(folder).as_posix()
            runs.append(Planned(name, each.run, dict(each.world.point), scenario, each.source))
    return runs


def take_trained(replays: Sequence[WorldReplay], folder: Path, names: Iterable[str]) -> None:
    """Writes the results of worlds that were trained as runs of these names."""
    from emulator.run_folder import MANIFEST, SUMMARY, check_unchanged

    wanted = set(names)
    for each in replays:
        if each.folder.relative_to(folder).as_posix() in wanted:
            check_unchanged(each.folder, "run it again with --overwrite")
            summary = read_json(each.folder / SUMMARY) or {}
            manifest = read_json(each.folder / MANIFEST) or {}
            asked, computed = manifest["trainings"]["asked"], manifest["trainings"]["computed"]
            counts = {"asked": asked, "missing": 0, "trained": computed, "to_the_end": True}
            said = {"key": each.key, "status": TRAINED, "trainings": counts, "summary": summary}
            with (each.folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
                rows = [
                    {name: float(cell) if cell else None for name, cell in row.items()} for row in csv.DictReader(file)
                ]
            write_json(each.file, said | {"metrics": rows})


def index_of(loaded: LoadedStudy, replays: Sequence[WorldReplay], folder: Path) -> dict[str, Any]:
    """What ``study.json`` says of the what-if: enough to read the results without the study's file."""
    whatif = loaded.study.whatif
    assert whatif is not None
    entries = [
        {
            "run": r.run, "source": _shown(r.source, folder), "world": r.world.name, "values": r.values,
            "file": r.file.relative_to(folder).as_posix(), "key": r.key,
        }
        for r in replays
    ]  # fmt: skip
    said = {"claims": stated(whatif.claims)} if whatif.claims else {}
    return {"columns": list(columns_of(loaded.study)), "targets": list(whatif.targets), "replays": entries, **said}


def _shown(source: Path, folder: Path) -> str:
    return source.relative_to(folder).as_posix() if source.is_relative_to(folder) else str(source.resolve())
