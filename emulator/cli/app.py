"""The application object, and what all commands share: consoles, options, small helpers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from emulator import cluster, plugins, recorded
from emulator.cluster import Backend
from emulator.compute import Compute
from emulator.errors import InputError
from emulator.files import slug
from emulator.scenario.schema import name_of
from emulator.yamlfile import Document

app = typer.Typer(
    name="hfl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Emulates hierarchical federated learning: real training on an emulated clock.",
)
out = Console(highlight=False, soft_wrap=True, emoji=False)  # ':x:' in a message is no picture
err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)

LONGEST_NAME = 80  # of a scenario; a longer one is refused when it is checked
AXES = ("cost", "time", "bytes", "round")

ScenarioArgument = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a bundled scenario.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, for example stop.rounds=20, or those in a YAML file: @FILE. Repeatable.",
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="MODULE", help="Import a module or a .py file with plug-ins. Repeatable."),
]
MemoOption = Annotated[
    Path | None,
    typer.Option("--memo", metavar="FILE", help="Where results are remembered. (default: in the user's cache folder)"),
]
NoMemoOption = Annotated[bool, typer.Option("--no-memo", help="Remember no results beyond the run folder.")]
NoTrainingOption = Annotated[
    bool, typer.Option("--no-training", help="Play it on the clock alone: no accuracy, and a fleet of any size.")
]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Training processes. (default: the number of cores)")
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help="Where models are computed: auto, cpu, cuda (all GPUs) or cuda:N. (default: what the scenario says)",
    ),
]
BackendOption = Annotated[
    Backend,
    typer.Option(help="Where to train: in processes of this machine, or as tasks on a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDR",
        help="The Ray cluster: HOST:PORT, or auto on one of its machines. (default: a Ray instance of this machine)",
    ),
]


def backend_joined(backend: Backend, address: str | None, workers: int | None) -> AbstractContextManager[None]:
    """A block in which the backend is there. Raises `InputError` where it cannot be."""
    if backend == "ray":
        return cluster.joined(address, workers)
    if address is not None:
        raise InputError("--address names a Ray cluster; it goes with --backend ray")
    return nullcontext()


def with_device(changes: list[str] | None, device: str | None) -> list[str]:
    """Changes to a scenario, and the device as one of them. Raises `InputError` where there is no such device here."""
    if device is None:
        return changes or []
    try:
        given = Compute(device=device)
    except ValidationError as error:
        raise InputError(f"--device: {error.errors()[0]['msg']}") from None
    if given.kind != "cpu":
        from emulator.learning.device import check_there

        check_there(given)
    return [*(changes or []), f"compute.device={given.device}"]


def import_plugins(names: list[str] | None) -> None:
    """Imports the user's plug-ins."""
    plugins.load(names or [])


def go_on_with(folder: Path) -> None:
    """Imports the plug-ins that the runs in a folder name, before these are gone on with. Raises `InputError` as that does."""
    from analysis.folders import run_folders

    recorded.load_to_go_on(run_folders([folder]))


def stated_name(document: Document) -> str:
    """The name of a scenario or a study that was read and not checked, as it stands in the names of folders."""
    said = document.data.get("name") if isinstance(document.data, dict) else None
    return slug(said if isinstance(said, str) and len(said) <= LONGEST_NAME else name_of(document.file))
