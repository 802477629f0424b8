"""Commands that train nothing, and plug-ins: what ``hfl`` prints and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from emulator import __version__, plugins, yamlfile
from emulator.cli import listing
from emulator.contracts.learning import models
from emulator.registry import Registry
from emulator.scenario import load
from emulator.scenario.json_schema import json_schema

from .command import TINY, Done, ended, hfl, started

PLUGIN = '''
from emulator.contracts.learning import models
from emulator.registry import Params

class TinyParams(Params):
    width: int = 3

@models.register("tiny", TinyParams)
def tiny(shape, classes, params):
    """A model from outside."""
    from torch import nn
    return nn.Sequential(nn.Flatten(), nn.Linear(64, params.width), nn.ReLU(), nn.Linear(params.width, classes))
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small scenario."""
    path = tmp_path / "s.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def no_plugins_after() -> Iterator[None]:
    """Forgets what a test registers."""
    names, modules, loaded = models.names(), set(sys.modules), list(plugins.loaded)
    yield
    plugins.loaded[:] = loaded
    for name in set(models.names()) - set(names):
        del models._plugins[name]
    for name in set(sys.modules) - modules:
        if name in ("plug", "plugs"):
            del sys.modules[name]


def test_version_and_help() -> None:
    assert hfl("--version") == Done(0, f"hfl-emulator {__version__}\n", "")
    for arguments in (["--help"], ["run", "--help"], ["compare", "--help"]):
        done = hfl(*arguments)
        assert done.code == 0
        assert "Usage:" in done.out


@pytest.mark.parametrize(
    "arguments", [["runn"], ["run"], ["compare"], ["validate", "quickstart", "--nope"], ["run", "x", "--seed", "y"]]
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str]) -> None:
    done = hfl(*arguments)
    assert done.code == 2
    assert "Usage:" in done.err


def test_validate_says_what_a_scenario_describes(file: Path) -> None:
    assert hfl("validate", file) == Done(
        0, f"{file}: valid: 'tiny', hierfavg with mlp on synthetic, 8 clients, 2 edges, seed 3\n", ""
    )
    assert ", 6 clients, " in hfl("validate", file, "--set", "topology.clients=6").out


@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_broken_scenario_ends_with_2_and_every_message(tmp_path: Path, command: str) -> None:
    broken = tmp_path / "[b].yaml"
    broken.write_text(TINY.replace("seed: 3", "sede: 3").replace("up: 8 Mbit/s", "up: 8 Mb/s"))
    assert hfl(command, broken, "--set", "stop.rounds=0") == Done(
        2,
        "",
        "error: --set stop.rounds=0: stop.rounds: must be at least 1 (it is 0)\n"
        f"{broken}:3:1: sede: unknown key; did you mean 'seed'?\n"
        f"{broken}:12:18: topology.links.access.up: unknown unit 'Mb/s' of bandwidth; "
        "say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)\n",
    )
    assert not (tmp_path / "runs").exists()


def test_an_unknown_scenario_gives_a_hint() -> None:
    done = hfl("run", "quickstrat")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("did you mean 'quickstart'?\n")


def test_schema_is_printed_or_written(tmp_path: Path) -> None:
    assert json.loads(hfl("schema").out) == json_schema()
    new = tmp_path / "new" / "schema.json"
    assert hfl("schema", new) == Done(0, "", "")
    assert json.loads(new.read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("category", listing.categories())
def test_list_shows_every_name_of_a_category(category: str) -> None:
    done = hfl("list", category)
    assert (done.code, done.err) == (0, "")
    words = done.out.split()
    names = [name for name, _, _ in listing.entries(category)]
    assert names
    assert set(names) <= set(words)


def test_list_shows_every_category() -> None:
    done = hfl("list")
    assert done.code == 0
    assert set(listing.categories()) <= set(done.out.split())
    titles = (
        "presets methods estimators distances formations schedules samplings trainings local aggregations waiting "
        "group-operations models data partitions devices faults attacks trace-formats trace-generators trace-samples "
        "figures plots secure-aggregation scenarios studies"
    )
    assert set(titles.split()) <= set(listing.categories())
    assert {registry.listed for registry in Registry.by_slot.values()} <= set(listing.categories())
    assert hfl("list", "preset") == Done(2, "", "error: unknown list 'preset'; did you mean 'presets'?\n")


def test_a_registry_of_a_plug_in_is_listed_by_itself(plugin_home: Path) -> None:
    text = """
from typing import Any, Protocol
from emulator.conformance import Facts
from emulator.registry import Chosen, Params, Registry
class Shape(Protocol):
    def __call__(self, params: Any, /) -> None: ...
class ShapeChoice(Chosen[Params, Shape, Facts]):
    slot = "funny shape"
shapes = Registry(ShapeChoice)
@shapes.register("round")
def round_(params):
    \"\"\"A circle.\"\"\"
"""
    (plugin_home / "shapes.py").write_text(text)
    assert "unknown list 'funny-shapes'" in hfl("list", "funny-shapes").err
    assert "A circle." in hfl("list", "funny-shapes", "--plugin", "shapes.py").out
    assert "funny-shapes" in hfl("list", "--plugin", "shapes.py").out


def test_init_writes_a_scenario_that_is_valid_and_never_replaces_one(tmp_path: Path) -> None:
    new = tmp_path / "My first one.yaml"
    done = hfl("init", new)
    assert done == Done(0, f"wrote {new}; run it with: hfl run {new}\n", "")
    assert load(new).scenario.name == "my-first-one"
    assert hfl("validate", new).code == 0
    assert new.read_text(encoding="utf-8").count("#") > 10  # the comments are the point
    before = new.read_bytes()
    assert hfl("init", new) == Done(2, "", f"error: {new} exists already\n")
    assert new.read_bytes() == before


@pytest.mark.usefixtures("no_plugins_after")
def test_a_plug_in_in_a_file_is_as_good_as_ours(file: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plug.py"
    plugin.write_text(PLUGIN)
    assert "unknown model 'tiny'" in hfl("validate", file, "--set", "model=tiny").err
    assert "tiny" not in hfl("list", "models").out.split()
    assert " with tiny on " in hfl("validate", file, "--set", "model=tiny", "--plugin", plugin).out
    assert {"tiny", "width"} <= set(hfl("list", "models", "--plugin", plugin).out.split())
    assert '"const": "tiny"' in hfl("schema", "--plugin", plugin).out
    changes = ["--set", "model={kind: tiny, width: 5}", "--set", "output.plot=false", "--set", "stop.rounds=1"]
    done = hfl("run", file, "--out", tmp_path / "run", "--no-memo", *changes, "--plugin", plugin)
    assert done.code == 0, done.err
    stored = yamlfile.load(tmp_path / "run" / "scenario.yaml").data
    assert stored["model"] == {"kind": "tiny", "width": 5}
    sizes = pd.read_csv(tmp_path / "run" / "metrics.csv")["bytes_cloud_edge"]
    assert sizes[1] == 2 * 4 * (64 * 5 + 5 + 5 * 10 + 10)  # two edges, four bytes a parameter


@pytest.mark.usefixtures("no_plugins_after")
def test_a_plug_in_may_be_a_module_in_the_current_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugs.py").write_text(PLUGIN)
    monkeypatch.chdir(tmp_path)
    assert hfl("validate", file, "--set", "model=tiny", "--plugin", "plugs").code == 0


@pytest.mark.usefixtures("no_plugins_after")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\nraise RuntimeError('boom [red]')", "RuntimeError: boom [red] (PLUGIN:2)\n"),
        ("def x(:", "SyntaxError: invalid syntax (PLUGIN:1)\n"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module' (PLUGIN:1)\n"),
        ("raise SystemExit", "SystemExit: no message (PLUGIN:1)\n"),
        ("class Own(BaseException): ...\nraise Own('end')", "Own: end (PLUGIN:2)\n"),
        ("import json\njson.loads('[')", "JSONDecodeError: Expecting value: line 1 column 2 (char 1) (PLUGIN:2)\n"),
        ("import sys\nsys.exit(0)", "SystemExit: 0 (PLUGIN:2)\n"),
        (PLUGIN.replace('"tiny"', '"mlp"'), "model 'mlp' is registered twice, in "),
        (None, "FileNotFoundError: "),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named(file: Path, tmp_path: Path, text: str | None, said: str) -> None:
    plugin = tmp_path / "plug.py"
    if text is not None:
        plugin.write_text(text)
    models.names()
    done = hfl("validate", file, "--plugin", plugin)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: --plugin {plugin}: {said.replace('PLUGIN', str(plugin))}")


def test_a_plug_in_that_takes_a_name_of_ours_before_we_do_is_named_as_well(file: Path) -> None:
    (file.parent / "taker.py").write_text(PLUGIN.replace('"tiny"', '"mlp"'))
    done = ended(started(file.parent, "validate", "s.yaml", "--plugin", "taker.py"))
    assert done == Done(
        2,
        "",
        "error: model 'mlp' is registered twice, in taker and emulator.learning.models.plain; give one another name\n",
    )
