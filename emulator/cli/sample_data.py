"""``hfl sample-data``: small made-up data sets as files, in the formats of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from emulator.cli.app import app, out
from emulator.errors import InputError, suggestion
from emulator.files import new_folder
from emulator.learning.data.generated import KINDS, GeneratedParams, write


@app.command("sample-data")
def sample_data(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"The format: {', '.join(KINDS)}.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write; it must be new or empty.")],
    owners: Annotated[
        int | None, typer.Option(min=2, max=5000, help="People with training samples. (default: suits the kind)")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Samples of each, on average; of usc-had, trials of each activity."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other data.")] = 0,
) -> None:
    """Write a small made-up data set whose samples belong to people, in the format of a published one."""
    if kind not in KINDS:
        raise InputError(f"unknown kind of sample data '{kind}'; {suggestion(kind, KINDS)}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder")
    params = GeneratedParams(owners=owners, samples=samples, seed=seed)
    with new_folder(folder.resolve()) as aside:
        write(kind, aside, params)
        if folder.is_dir():
            folder.resolve().rmdir()  # it is empty; not every system renames over a folder that is there
    files = sum(path.is_file() for path in folder.rglob("*"))
    people, each = params.sizes(kind)
    text = f"wrote {folder}: {files:,} files, {people:,} people to train, about {each:,} {KINDS[kind].what} a person"
    out.print(escape(text))
