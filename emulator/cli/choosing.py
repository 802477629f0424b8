"""Commands about scenarios and what they can choose from: validate, schema, list, init."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from emulator import __version__, scenario
from emulator.cli import listing, studying
from emulator.cli.app import NoTrainingOption, PluginOption, ScenarioArgument, SetOption, app, import_plugins, out
from emulator.contracts.learning import DataSetChoice
from emulator.errors import InputError
from emulator.files import slug, write_text
from emulator.registry import choices
from emulator.scenario.load import Loaded, find, is_study, ready
from emulator.scenario.roster import describe
from emulator.study import load as study


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"hfl-emulator {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def validate(
    name: ScenarioArgument,
    changes: SetOption = None,
    no_training: NoTrainingOption = False,
    plugin: PluginOption = None,
) -> None:
    """Check a scenario (or a study with all its runs) and say what it describes, without running it."""
    import_plugins(plugin)
    if is_study(find(name, ready())):
        checked = study.load(name, changes or ())
        for run in {json.dumps(run.loaded.scenario.data.set.dump()): run for run in checked.runs}.values():
            _check_data(run.loaded)
        about = f"study '{escape(checked.study.name)}', {escape(studying.described(checked))}"
        out.print(f"{escape(checked.document.file)}: valid: {about}")
        return
    from emulator.world.endings import check

    changes = scenario.sharing(name, changes or (), training=not no_training)
    loaded = scenario.load(name, changes, training=not no_training)
    s = loaded.scenario
    try:
        check(s)
    except InputError as error:
        raise loaded.locate(error) from error
    _check_data(loaded)
    out.print(
        f"{escape(loaded.document.file)}: valid: '{escape(s.name)}', {s.label} with {s.model.kind} on {s.data.set.kind}, "
        f"{describe(s.topology)}, seed {s.seed}"
    )


def _check_data(loaded: Loaded) -> None:
    from emulator.learning import data
    from emulator.learning.public import about_set

    try:
        for path, chosen in choices(loaded.scenario):
            if isinstance(chosen, DataSetChoice):
                with about_set(".".join(map(str, path))):
                    data.check(chosen)
    except InputError as error:
        raise loaded.locate(error) from error


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="Write it here instead of printing it.")] = None,
    plugin: PluginOption = None,
) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import_plugins(plugin)
    from emulator.scenario.json_schema import json_schema

    text = json.dumps(json_schema(), indent=2) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        write_text(file, text)


@app.command("list")
def list_(
    category: Annotated[
        str | None, typer.Argument(help="What to list: " + ", ".join(listing.categories()) + ".")
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """List what there is to choose from."""
    import_plugins(plugin)
    if category is None:
        table = _table("list", "names")
        for each in listing.categories():
            table.add_row(each, ", ".join(name for name, _, _ in listing.entries(each)))
    else:
        table = _table("name", "what it is", "parameters")
        for row in listing.entries(category):
            table.add_row(*(escape(cell) for cell in row))
    out.print(table)


@app.command()
def init(file: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Write a commented scenario to start from."""
    if file.exists():
        raise InputError(f"{file} exists already")
    text = scenario.bundled()["quickstart"].read_text(encoding="utf-8")
    write_text(file, re.sub(r"^name: .*$", f"name: {slug(file.stem)}", text, count=1, flags=re.MULTILINE))
    out.print(f"wrote {escape(str(file))}; run it with: hfl run {escape(str(file))}")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "list"))
    return table
