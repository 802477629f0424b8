"""A discrete-event emulator of hierarchical federated learning: real training on an emulated clock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.runs import Run

__version__ = "0.1.0"


def load_run(path: Path | str) -> Run:
    """Reads a run folder: ``metrics``, ``ledger``, ``energy``, ``groups`` and ``groupings`` are pandas tables.

    Raises `emulator.errors.InputError` if it is no run folder, or damaged. This package imports nothing by itself, so that its
    ground modules stay quick: the analysis is imported when this is called.
    """
    from analysis.runs import load_run as load

    return load(path)
