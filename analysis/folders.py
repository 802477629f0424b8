"""Which runs people mean: run folders, or a folder that holds some, such as that of a comparison (``hfl run --against``)."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

from emulator.errors import InputError, quote_all
from emulator.files import slug

FILES = ("manifest.json", "metrics.csv", "summary.json")  # a run folder has at least one of them


def run_folders(given: Iterable[Path | str]) -> list[Path]:
    """These folders, but in place of one that only holds run folders, those, in the order of the comparison or by name.

    A folder that is no run folder and holds none stays, and whoever reads it says so.
    """
    found: list[Path] = []
    for folder in map(Path, given):
        found += [folder] if _is_run(folder) else _held(folder) or [folder]
    return found


def one_run(folder: Path) -> Path:
    """The one run folder that is meant; raises `InputError` where the folder holds several."""
    found = run_folders([folder])
    if len(found) > 1:
        names = quote_all(str(run) for run in found[:5]) + (", ..." if len(found) > 5 else "")
        raise InputError(f"'{folder}' holds {len(found)} runs, and this command takes one: give {names}")
    return found[0]


def _is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in FILES)


def _held(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = sorted(each for each in folder.iterdir() if not each.name.startswith(".") and _is_run(each))
    order = _compared(folder)
    return sorted(found, key=lambda run: order.index(run.name) if run.name in order else len(order))


def _compared(folder: Path) -> list[str]:
    """The names of the runs of a comparison in its order; none where it has no table that can be read."""
    try:
        with (folder / "comparison.csv").open(encoding="utf-8", newline="") as file:
            return [slug(row.get("label") or "") for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return []
