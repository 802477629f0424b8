"""The folder of a study: its runs' folders, and ``study.json``, which says which runs they are and how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emulator.errors import InputError
from emulator.files import HeldError, write_json
from emulator.run_folder import COMPLETE, INTERRUPTED, prepare, status_of
from emulator.study.load import LoadedStudy, Planned
from emulator.study.schema import Claim

INDEX = "study.json"
SHOWN = 5  # folders that a message names


def prepare_all(folder: Path, runs: Sequence[Planned], overwrite: bool = False) -> list[Planned]:
    """Makes the run folders of a study ready; returns the runs that are still to be done, or to be finished.

    ``overwrite`` replaces runs of other scenarios, and no others. Raises `InputError` that names the folders where one holds
    another scenario, or something else than a run.
    """
    left: list[Planned] = []
    replaced: list[Planned] = []
    refused: list[str] = []
    for run in runs:
        try:
            if prepare(folder / run.name, run.loaded.scenario):
                left.append(run)
        except InputError as error:
            if overwrite and (folder / run.name / "scenario.yaml").is_file():
                left.append(run)
                replaced.append(run)
            else:
                refused.append(error.message)
    if refused:
        more = f"\n... and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
        raise InputError("\n".join(refused[:SHOWN]) + more)
    for run in replaced:  # only now: where anything is refused, nothing is deleted
        prepare(folder / run.name, run.loaded.scenario, overwrite=True)
    return left


def state_of(folder: Path, run: Planned) -> str:
    """How far a run is, for a list: ``complete``, ``begun``, ``at work``, ``failed``, ``to do``, ``holds something else``."""
    place = folder / run.name
    try:
        if not prepare(place, run.loaded.scenario):
            return COMPLETE
    except HeldError:
        return "at work"
    except InputError:
        return "holds something else"
    status = status_of(place)
    return "begun" if status == INTERRUPTED or (not status and place.exists()) else status or "to do"


def stated(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Claims as ``study.json`` keeps them."""
    return [claim.model_dump(by_alias=True, exclude_unset=True) for claim in claims]


def write_index(folder: Path, loaded: LoadedStudy, whatif: dict[str, Any] | None = None) -> None:
    """Writes ``study.json``. ``whatif`` is what it says of replays (see `emulator.study.results.index_of`)."""
    study = loaded.study
    runs = [
        {"run": r.name, "variant": r.variant, "method": r.method, "point": r.point, "seed": r.seed}
        | ({} if r.tuned is None else {"tuned": r.tuned})
        for r in loaded.runs
    ]
    about: dict[str, Any] = {
        "name": study.name,
        "notes": study.notes,
        "columns": list(loaded.columns),
        "target": study.target,
    }
    about |= {"baseline": study.baseline} if study.baseline else {}
    about |= study.model_dump(include={"budget"}, exclude_none=True)
    about |= {"claims": stated(study.claims)} if study.claims else {}
    about |= {} if study.tune is None else {"tune": study.tune.model_dump()}
    about |= {} if study.uncertain is None else {"uncertain": study.uncertain.model_dump()}
    write_json(folder / INDEX, {**about, "runs": runs, **({} if whatif is None else {"whatif": whatif})})
