"""The application object, and what all commands share: consoles, options, small helpers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from emulator import plugins

app = typer.Typer(
    name="hfl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Emulates hierarchical federated learning: real training on an emulated clock.",
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

AXES = ("cost", "time", "bytes", "round")

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a bundled scenario.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, for example stop.rounds=20. Repeatable."),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE", help="Import a module or a .py file with plug-ins. Repeatable."),
]
MemoOption = Annotated[
    Path | None,
    typer.Option("--memo", metavar="FILE", help="Where results are remembered. (default: in the user's cache folder)"),
]
NoMemoOption = Annotated[bool, typer.Option("--no-memo", help="Remember nothing beyond the run folder.")]
NoTrainingOption = Annotated[
    bool, typer.Option("--no-training", help="Play it on the clock alone: no accuracy, and a fleet of any size.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Training processes. (default: the number of cores)")
]


def import_plugins(names: list[str] | None) -> None:
    """Imports the user's plug-ins; modules of the current folder are found by name."""
    sys.path.insert(0, str(Path.cwd()))
    plugins.load(names or [])
