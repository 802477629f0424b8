"""`emulator.extend` is all that a plug-in needs, whatever slot it fills."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenario.command import ROOT, hfl
from slot_plugins import PLUGINS

from analysis.runs import load_run
from emulator import extend
from emulator.registry import Registry

LIBRARIES = {"numpy", "torch", "pandas"}


def test_every_name_is_there_once_and_every_registry_among_them() -> None:
    assert len(set(extend.__all__)) == len(extend.__all__)
    found = [getattr(extend, name) for name in extend.__all__]
    assert all(any(each is registry for each in found) for registry in Registry.by_slot.values())


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, emulator.extend; print([m for m in ('torch', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE_S
    )
    assert done.stdout == "[]\n"


def test_plug_ins_of_all_slots_import_from_it_alone() -> None:
    assert set(PLUGINS) == set(Registry.by_slot)
    for slot, (text, _) in PLUGINS.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                assert name == "emulator.extend" or name.split(".")[0] in LIBRARIES | sys.stdlib_module_names, slot


@pytest.mark.parametrize("slot", [slot for slot, (_, choice) in PLUGINS.items() if choice])
def test_a_plug_in_of_a_slot_runs(plugin_home: Path, slot: str) -> None:
    text, choice = PLUGINS[slot]
    (plugin_home / "mine.py").write_text(text)
    words = ("--set", choice, "--set", "output.plot=false", "--no-memo", "--workers", "1", "--plugin", "mine.py")
    done = hfl("run", "s.yaml", "--out", "out", *words)
    assert done.code == 0, done.err
    run = load_run("out")
    assert "mine.py" in [plugin["given"] for plugin in run.manifest["plugins"]]
    if slot == "method":
        assert len(run.table("turns")) == 16
        assert run.metrics["turns"].tolist()[1:] == [8, 8]
    if slot == "attack":
        assert run.table("seen")["round"].tolist() == [0, 1, 2]
    if slot == "measurement":
        assert len(run.table("scores")) == 3


def test_plug_ins_of_commands(plugin_home: Path) -> None:
    for slot in ("trace format", "figure", "table"):
        (plugin_home / f"{slot.replace(' ', '_')}_mine.py").write_text(PLUGINS[slot][0])
    (plugin_home / "t.own").write_text("OWN\n1e6\n2e6\n")
    assert "own, 1 series" in hfl("traces", "inspect", "t.own", "--plugin", "trace_format_mine.py").out
    assert hfl("run", "s.yaml", "--no-training", "--no-memo", "--out", "out").code == 0
    assert "Mine" in hfl("table", "own", "out", "--plugin", "table_mine.py").out
    done = hfl("plot", "own", "out", "--out", "own.png", "--plugin", "figure_mine.py")
    assert done.code == 0, done.err
    assert (plugin_home / "own.png").read_bytes().startswith(b"\x89PNG")
