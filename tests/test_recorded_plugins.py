"""Plug-ins that run folders name: recorded, imported again, and never when they are other code than they were."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenario.command import hfl, script

import emulator
from emulator import plugins, recorded
from emulator.contracts.files import figures
from emulator.contracts.methods import methods
from emulator.errors import InputError
from emulator.files import read_json, write_json
from emulator.origins import source_of

PLUGIN = '''
from emulator.extend import Field, FigureParams, MethodParams, figures, methods

class Idle(MethodParams):
    """How long."""
    wait_s: float = Field(1.0, description="seconds a round")

@methods.register("idle", Idle)
def idle(session, params):
    """Waits."""
    model = session.lab.initial()
    session.begin(model)
    for t in range(1, 10):
        yield session.env.timeout(params.wait_s)
        if session.end_round(t, model):
            return

@figures.register("nothing", FigureParams)
def nothing(results, paths, params):
    """An empty file."""
    for path in paths:
        path.write_text("")
'''
RUN = ("run", "s.yaml", "--set", "method={kind: idle}", "--set", "output.plot=false", "--out", "out", "--no-memo")
WHATIF = ("whatif", "out", "--set", "topology.links.access.up=1 Mbit/s", "--no-memo")


@pytest.fixture
def home(plugin_home: Path) -> Iterator[Path]:
    """A folder with a plug-in, and a run of it; nothing of the plug-in is imported any more."""
    (plugin_home / "own.py").write_text(PLUGIN)
    assert hfl(*RUN, "--plugin", "own.py").code == 0
    forget()
    yield plugin_home
    forget()


def forget() -> None:
    """As a new process has it."""
    for registry in (methods, figures):
        for name in ("idle", "nothing"):
            registry._plugins.pop(name, None)
    sys.modules.pop("own", None)
    plugins.loaded.clear()
    recorded._told.clear()


def plugins_in(folder: Path) -> list[dict[str, Any]]:
    stated = read_json(folder / "manifest.json")
    assert stated is not None
    return list(stated["plugins"])


def test_the_manifest_names_code_its_place_and_its_hash(home: Path) -> None:
    digest = hashlib.sha256(PLUGIN.encode()).hexdigest()
    file = str(home.resolve() / "own.py")
    assert plugins_in(home / "out") == [
        {"name": "own", "given": "own.py", "file": file, "distribution": "", "sha256": digest, "factory": False}
    ]
    assert hfl(*RUN[:3], "method=fedavg", "--out", "plain", "--no-memo", "--no-training").code == 0
    assert plugins_in(home / "plain") == []


def test_every_command_finds_the_plug_ins_of_a_run_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    commands: list[tuple[str | Path, ...]] = [
        ("run", home / "s.yaml", *RUN[2:6], "--out", home / "out"),
        ("whatif", home / "out", *WHATIF[2:]),
        ("plot", "nothing", home / "out", "--out", "picture.png"),
        *((word, home / "out") for word in ("compare", "energy", "report")),
        ("table", "totals", home / "out"),
        ("export", home / "out", "--csv", "csv"),
    ]
    for words in commands:
        done = hfl(*words)
        assert (done.code, done.err.replace("idle: started\n", "")) == (0, ""), words
        assert "idle" in methods.names(), words
        forget()
    assert (home / "elsewhere" / "picture.png").exists()
    assert plugins_in(next((home / "out").glob("whatif-*")))[0]["name"] == "own"


def test_the_api_finds_them_too(home: Path) -> None:
    run = emulator.what_if("out", {"topology.links.access.up": "1 Mbit/s"}, memo=False, progress=False)
    assert run.manifest["plugins"][0]["name"] == "own"
    forget()
    assert emulator.load_run("out").label == "idle"
    assert "idle" in methods.names()
    forget()
    with pytest.raises(InputError, match="unknown method"):
        emulator.load_scenario("out/scenario.yaml")
    assert emulator.run_scenario("out/scenario.yaml", "out", progress=False).label == "idle"


def test_a_run_whose_plug_in_changed_is_not_complete_and_not_replayed(home: Path, caplog: Any) -> None:
    (home / "own.py").write_text(PLUGIN + "\nprint('imported')\n")
    done = hfl(*RUN, "--plugin", "own.py")
    assert done.code == 2
    assert "out holds this run, complete, but the plug-in 'own.py' has changed since" in done.err
    assert "--overwrite" in done.err
    forget()
    for words in (RUN, WHATIF):
        done = hfl(*words)
        assert (done.code, "imported" in done.out) == (2, False)
        assert "the run in 'out' was made with a plug-in 'own' that has changed since" in done.err
        assert "give --plugin PATH" in done.err
    done = hfl(*WHATIF, "--plugin", "own.py")
    assert done.code == 2
    assert "was made with another plug-in 'own' than" in done.err
    forget()
    for words in (("compare", "out"), ("report", "out"), ("table", "totals", "out")):
        recorded._told.clear()
        caplog.clear()
        assert hfl(*words).code == 0
        assert "was made with a plug-in 'own' that has changed since" in caplog.text
        assert "idle" not in methods.names()
    assert "unknown figure 'nothing'" in hfl("plot", "nothing", "out").err
    assert hfl(*RUN, "--plugin", "own.py", "--overwrite").code == 0
    assert hfl(*WHATIF, "--plugin", "own.py").code == 0


def test_a_plug_in_that_is_gone_is_named_and_may_be_given(home: Path, caplog: Any) -> None:
    (home / "new").mkdir()
    (home / "own.py").rename(home / "new" / "moved.py")
    for words in (RUN, WHATIF):
        done = hfl(*words)
        assert done.code == 2
        assert "the run in 'out' needs the plug-in 'own', and there is no" in done.err
        assert "give --plugin PATH" in done.err
    assert hfl("compare", "out").code == 0
    assert "needs the plug-in 'own'" in caplog.text
    assert hfl(*WHATIF, "--plugin", "new/moved.py").code == 0
    assert "holds this run already, complete" in hfl(*RUN, "--plugin", "new/moved.py").out


def test_a_run_that_failed_goes_on_with_a_plug_in_that_was_mended(home: Path) -> None:
    (home / "own.py").write_text(PLUGIN.replace("for t in", "raise KeyError(1)\n    for t in"))
    words = (*RUN[:-3], "--out", "failed", "--no-memo", "--plugin", "own.py")
    assert hfl(*words).code == 1
    (home / "own.py").write_text(PLUGIN)
    assert hfl(*words).code == 0


def test_a_folder_cannot_make_other_code_run(home: Path) -> None:
    stated = read_json(home / "out" / "manifest.json")
    assert stated is not None
    (home / "evil.py").write_text("raise SystemExit('run')")
    stated["plugins"][0]["file"] = str(home / "evil.py")
    write_json(home / "out" / "manifest.json", stated)
    done = hfl(*WHATIF)
    assert done.code == 2
    assert "has changed since" in done.err
    assert "evil" not in sys.modules


def test_modules_and_packages_are_known_by_name_and_all_their_files(plugin_home: Path) -> None:
    package = plugin_home / "lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("")
    (plugin_home / "space" / "deep").mkdir(parents=True)
    (plugin_home / "space" / "deep" / "mod.py").write_text("")
    path = list(sys.path)
    first, deep = source_of("lab.part"), source_of("space.deep.mod")
    assert sys.path == path
    assert first is not None
    assert (first.name, first.file, first.distribution) == ("lab.part", str(package.resolve() / "__init__.py"), "")
    assert deep is not None
    assert deep.sha256 == hashlib.sha256(b"").hexdigest()
    (package / "part.py").write_text("x = 1")
    assert source_of("lab.part") != first
    assert source_of("lab") is not None
    assert "lab" not in sys.modules
    installed = source_of("pydantic")
    assert installed is not None
    assert installed.distribution.startswith("pydantic ")
    assert source_of("no_such_module") is source_of("sys") is None


def test_a_study_finds_the_plug_ins_of_its_runs(plugin_home: Path) -> None:
    (plugin_home / "own.py").write_text(PLUGIN)
    (plugin_home / "study.yaml").write_text("name: waits\nscenario: s.yaml\nset: {method: {kind: idle}}\n")
    words = ("study", "study.yaml", "--no-memo", "--jobs", "1")
    assert hfl(*words, "--plugin", "own").code == 0
    [folder] = [path.parent for path in (plugin_home / "studies" / "waits").glob("*/manifest.json")]
    assert plugins_in(folder)[0]["given"] == "own"
    forget()
    assert "1 of 1 runs are complete already" in hfl(*words).out
    forget()


def test_what_a_script_imports_is_recorded_by_its_name(plugin_home: Path) -> None:
    (plugin_home / "own.py").write_text(PLUGIN)
    code = """
    import emulator
    import own
    scenario = emulator.load_scenario("s.yaml", {"method": {"kind": "idle"}}, training=False)
    run = emulator.run_scenario(scenario, "out", progress=False)
    assert [p["given"] for p in run.manifest["plugins"]] == ["own"], run.manifest
    """
    done = script(plugin_home, code)
    assert done.returncode == 0, done.stderr
    assert hfl("energy", "out").code == 0
    assert "idle" in methods.names()
    forget()
