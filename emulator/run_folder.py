"""The folder of a run: what it may hold, how far its run is, and who may write it.

``summary.json`` is written last. It says whether the run is complete, and holds the SHA-256 of every result file and of itself:
whoever reads the folder notices a file that was changed afterwards. Pictures and reports are drawn from results and never read
back, so they are not among them. ``manifest.json`` differs from run to run and holds its own SHA-256.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from emulator import checkpoint, kept, recorded
from emulator.errors import InputError, quote_all
from emulator.files import LOCK, changed_files, digest_of, held, read_json
from emulator.priced import PRICED
from emulator.registry import Params
from emulator.scenario import Scenario, dump
from emulator.scenario.inputs import changed_inputs

SUMMARY, MANIFEST, SCENARIO, METRICS = "summary.json", "manifest.json", "scenario.yaml", "metrics.csv"
GROUPS, GROUPINGS, TOPOLOGY, IMAGES = "groups.csv", "groupings.csv", "topology.csv", "recovered.npy"
LEDGER, ENERGY, FLEET = "ledger.parquet", "energy.csv", "fleet.json"

# Results that any run may have; the tables that its method and its attack declare come to them (`tables_in`).
RESULTS = (METRICS, GROUPS, GROUPINGS, TOPOLOGY, IMAGES, LEDGER, ENERGY, FLEET, kept.INDEX, checkpoint.MEMORY, SCENARIO)
# What any run folder may hold. The summary comes first: without it the rest counts as unfinished while it is deleted.
FILES = (
    SUMMARY, "accuracy.png", "measure.png", "report.html", PRICED, checkpoint.VALUES, *RESULTS[:-1], MANIFEST, SCENARIO,
)  # fmt: skip

_HALF_WRITTEN = ".*.part*"  # by a process that was killed while it wrote

log = logging.getLogger(__name__)

COMPLETE, INTERRUPTED, FAILED = "complete", "interrupted", "failed"
MEASURED = "measured"  # the clock of a run on the testbed, in its manifest


def prepare(folder: Path, scenario: Params, overwrite: bool = False, training: bool = True) -> bool:
    """Makes a folder ready for a run, with training or without. False: it already holds this run, complete.

    Raises `InputError` where the folder holds anything else than an earlier part of the same run, where a file of a complete
    run or a plug-in of it was changed, and where another process is at work in the folder. A run that is not complete goes on
    with changed plug-ins: all that they do is done again.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; --out must name a folder")
    stored = folder / SCENARIO
    of_scenario = scenario if isinstance(scenario, Scenario) else None  # else it has no data set of ours
    if not stored.is_file():
        # A run that was stopped before it wrote anything, or while it wrote its first file.
        if {path.name for path in folder.iterdir()} <= {LOCK, *(path.name for path in folder.glob(_HALF_WRITTEN))}:
            with held(folder):
                _clear_half_written(folder)
            return True
        raise InputError(f"{folder} is not empty and is no run folder; choose another --out")
    with held(folder):
        if overwrite:
            for name in files_of(folder):
                (folder / name).unlink(missing_ok=True)
            return True
        if measured(folder):
            raise InputError(
                f"{folder} holds a run that was measured on the testbed, which cannot be gone on with; "
                "choose another --out, or replace it with --overwrite"
            )
        complete = status_of(folder) == COMPLETE
        if complete:
            check_unchanged(folder, "restore it, or do the run again with --overwrite")
        if stored.read_bytes() != dump(scenario).encode():
            raise InputError(
                f"{folder} holds a run of another scenario; choose another --out, or replace it with --overwrite"
            )
        if trained_in(folder) not in (training, None):
            raise InputError(
                f"{folder} holds a run of this scenario {'without' if training else 'with'} training; "
                "choose another --out, or replace it with --overwrite"
            )
        if complete and (given := recorded.changed_since(folder, scenario)):
            raise InputError(
                f"{folder} holds this run, complete, but the plug-in '{given}' has changed since; "
                "choose another --out, or do the run again with --overwrite"
            )
        if complete and (changed := changed_inputs(_stated(folder / MANIFEST).get("inputs"), of_scenario)):
            raise InputError(
                f"{folder} holds this run, complete, but {quote_all(changed)} changed since; "
                "choose another --out, or do the run again with --overwrite"
            )
        if not complete and (given := recorded.changed_since(folder, scenario)):
            log.warning(
                "the plug-in '%s' has changed since the run in %s was cut off; it goes on with the new one",
                given,
                folder,
            )
        _clear_half_written(folder)
        if (folder / SUMMARY).exists() and not status_of(folder):
            log.warning("%s is damaged, or of another version; the run is played again", folder / SUMMARY)
        return not complete


def _clear_half_written(folder: Path) -> None:
    for path in folder.glob(_HALF_WRITTEN):
        path.unlink()


def status_of(folder: Path) -> str:
    """The status that a run folder's summary states; "" where there is none, or one that was changed."""
    return str(_stated(folder / SUMMARY).get("status", ""))


def measured(folder: Path) -> bool:
    """Whether the run in a folder was measured on the testbed: what it did no emulation does again."""
    return {**_stated(folder / SUMMARY), **_stated(folder / MANIFEST)}.get("clock") == MEASURED


def trained_in(folder: Path) -> bool | None:
    """Whether the run in a folder is one with training; None where no file of it says so."""
    said = {**_stated(folder / MANIFEST), **_stated(folder / SUMMARY)}.get("training")
    return None if said is None else bool(said)


def finished(folder: Path) -> dict[str, Any]:
    """The summary of the finished run in a folder.

    Raises `InputError` where the folder holds none, or where a file of it was changed after the run ended.
    """
    if not folder.is_dir():
        there = folder.exists()
        raise InputError(f"'{folder}' is a file, no run folder" if there else f"there is no folder '{folder}'")
    if not (folder / SCENARIO).is_file():
        raise InputError(f"'{folder}' is not a run folder: it has no {SCENARIO}")
    summary = read_json(folder / SUMMARY)
    if summary is None or summary.get("status") != COMPLETE:
        how = f"it has no {SUMMARY}" if summary is None else f"its status is '{summary.get('status')}'"
        raise InputError(f"the run in '{folder}' is not complete ({how}); finish it with 'hfl run'")
    check_unchanged(folder, "restore it, or do the run again with 'hfl run --overwrite'")
    return summary


def check_inputs(folder: Path) -> None:
    """Raises `InputError` that names the files beside the scenario that have changed since the run in a folder was made."""
    changed = changed_inputs(_stated(folder / MANIFEST).get("inputs"))
    if changed:
        raise InputError(
            f"the run in '{folder}' was made with {quote_all(changed)} as it was then; restore it, or do the run again with "
            "'hfl run --overwrite'"
        )


def check_unchanged(folder: Path, advice: str) -> None:
    """Raises `InputError` that names the result files that were changed after the run in a folder ended."""
    changed = changed_files(folder, _stated(folder / SUMMARY))
    if changed:
        raise InputError(f"{quote_all(changed)} in {folder} changed after the run ended; {advice}")


def tables_in(folder: Path) -> tuple[str, ...]:
    """Names of files for the tables that the method and the attack of the run in a folder declared, sorted.

    As its manifest names them, and its summary, where these are as they were written. The files need not be there.
    """
    stated = {f"{name}.csv" for name in _stated(folder / MANIFEST).get("tables", ())}
    stated |= {name for name in _stated(folder / SUMMARY).get("files", ()) if name.endswith(".csv")}
    return tuple(sorted(name for name in stated - set(FILES) if Path(name).name == name))


def files_of(folder: Path) -> tuple[str, ...]:
    """Names of all files that the run in a folder may hold. The summary comes first, manifest and scenario come last."""
    return (*FILES[:-2], *tables_in(folder), *kept.kept_in(folder).values(), *FILES[-2:])


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every result file in a folder, by name."""
    names = sorted((*RESULTS, *tables_in(folder), *kept.kept_in(folder).values()))
    return {name: digest_of(folder / name) for name in names if (folder / name).is_file()}


def _stated(file: Path) -> dict[str, Any]:
    """The content of a JSON file; nothing where it is missing or damaged."""
    try:
        return read_json(file) or {}
    except (OSError, InputError):
        return {}
