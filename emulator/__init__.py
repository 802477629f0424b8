"""A discrete-event emulator of hierarchical federated learning: real training on an emulated clock.

    import emulator

    scenario = emulator.load_scenario("quickstart", {"stop.rounds": 5})
    run = emulator.run_scenario(scenario)
    run.metrics, run.ledger, run.groups  # pandas tables

`emulator.api` has all of it. This package imports nothing by itself, so that its ground modules stay quick: what is named below
is imported when it is first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.api import compare, load_run, load_scenario, plot, run_scenario, sweep, what_if
    from emulator.errors import HflError, InputError

# Else MKL, with which torch computes matrix products on CPUs, rounds them by where in memory their factors stand. It reads this
# when it is first used.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__version__ = "0.1.0"
__all__ = [
    "HflError",
    "InputError",
    "compare",
    "load_run",
    "load_scenario",
    "plot",
    "run_scenario",
    "sweep",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found = getattr(importlib.import_module("emulator.errors" if name.endswith("Error") else "emulator.api"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
