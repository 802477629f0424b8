"""``--plugin``: every command that looks up names knows those of the user's plug-ins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from scenario.command import hfl

from emulator.cli import app

WITHOUT = {
    "init": "writes the bundled quickstart",
    "sample-data": "its formats are modules of the emulator",
    "calibrate secure-aggregation": "measures the emulator's own protocol",
    "calibrate links": "measures a path",
    "memo stats": "knows keys alone",
    "memo clear": "knows keys alone",
    "memo gc": "knows keys alone",
    "prepared stats": "knows folders alone",
    "prepared clear": "knows folders alone",
}
PLUGIN = '''
from pydantic import Field

from analysis.printed import Printed
from analysis.texttable import TextTable
from emulator.contracts.files import printed_tables
from emulator.contracts.learning import models
from emulator.registry import Params

@printed_tables.register("labels")
def labels(given, target, params):
    """What the runs are called."""
    import pandas as pd

    names = [each.label for each in given]
    return Printed(pd.DataFrame({"label": names}), (TextTable("Runs", ("label",), tuple((n,) for n in names), (False,)),))

class Wide(Params):
    """Its width."""

    width: int = Field(description="numbers in it")

@models.register("wide", Wide)
def wide(shape, classes, params):
    """A model of a width."""
'''


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands of the application, with their words."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(words), command
        return
    for name, each in below.items():
        yield from commands(each, (*words, name))


def test_every_command_takes_plug_ins_or_says_why_not() -> None:
    found = dict(commands(typer.main.get_command(app)))
    assert set(WITHOUT) <= set(found)
    for words, command in found.items():
        takes = any("--plugin" in parameter.opts for parameter in command.params)
        assert takes != (words in WITHOUT), words


def test_tables_and_models_of_a_plug_in(plugin_home: Path) -> None:
    (plugin_home / "own.py").write_text(PLUGIN)
    assert hfl("run", "s.yaml", "--no-training", "--no-memo", "--out", "out").code == 0
    assert "unknown table 'labels'" in hfl("table", "labels", "out").err
    assert "hierfavg" in hfl("table", "labels", "out", "--plugin", "own.py").out
    assert "What the runs are called." in hfl("list", "tables", "--plugin", "own.py").out
    words = ("calibrate", "device", "--model", "wide", "--power-of", "laptop", "--slowdown", "1", "--plugin", "own.py")
    assert "model 'wide' needs parameters" in hfl(*words).err
