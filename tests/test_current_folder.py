"""No code is run that merely lies in the current folder; what is named there comes behind all that is installed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from scenario.command import ROOT, TINY

# Names of packages and of modules of Python itself that some process of ours imports, be it at its very start.
NAMES = (
    "torch", "numpy", "matplotlib", "simpy", "yaml", "pandas", "bokeh", "ray", "pydantic",
    "json", "struct", "pickle", "socket", "tempfile", "selectors", "random",
)  # fmt: skip
POISON = "open(__file__ + '.executed', 'w').close()\n"
MINE = """
import math, os
import numpy, yaml
from torch import nn
open(f"imported-{os.getpid()}", "w").close()
def linear(shape, classes):
    return nn.Sequential(nn.Flatten(), Linear(math.prod(shape), classes))
class Linear(nn.Linear):
    pass
"""
HFL = """
from emulator.cli import main
if __name__ == "__main__":
    main()
"""
# The same, but training goes to worker processes as soon as there are two trainings.
AT_ONCE = HFL.replace(
    "    main()", "    from emulator.learning import engine\n    engine.WORKERS_AFTER_S = 0\n    main()"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scenario, a study and traps: modules that would tell if they were executed."""
    folder = tmp_path_factory.mktemp("current")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "study.yaml").write_text("name: s\nscenario: tiny.yaml\nseeds: [1]\nfigures: [breakdown]\n")
    (folder / "mine.py").write_text(MINE)
    for name in NAMES:
        (folder / f"{name}.py").write_text(POISON)
    (folder / "scripts").mkdir()
    (folder / "scripts" / "hfl").write_text(HFL)
    (folder / "scripts" / "at-once").write_text(AT_ONCE)
    done = hfl(folder, "run", "tiny.yaml", "--out", "done", "--workers", "2", script="at-once")
    assert done.returncode == 0, done.stderr
    return folder


def hfl(folder: Path, *words: str, script: str = "hfl") -> subprocess.CompletedProcess[str]:
    """The command as pip installs it: a script in a folder of scripts."""
    own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"} | own
    command = [sys.executable, *(["-m", "emulator"] if script == "-m" else [f"scripts/{script}"]), *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def executed(folder: Path) -> list[str]:
    """The traps that somebody stepped into."""
    return [path.name for path in folder.glob("*.executed")]


@pytest.mark.parametrize(
    "words",
    [
        ("study", "study.yaml", "--out", "study", "--no-memo"),
        ("validate", "tiny.yaml"),
        ("validate", "study.yaml", "--plugin", "mine.py"),
        ("whatif", "done", "--set", "topology.links.access.up=1 Mbit/s", "--no-memo"),
        ("plot", "breakdown", "done"),
        ("report", "done"),
        ("explore", "done", "--no-browser", "--port"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_nothing_in_the_current_folder_is_executed(folder: Path, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        explored = words[0] == "explore"  # it ends when all is imported: its port is taken
        done = hfl(folder, *words, *([str(taken.getsockname()[1])] if explored else []))
    assert done.returncode == (2 if explored else 0), done.stderr
    assert ("cannot be used" in done.stderr) == explored
    assert executed(folder) == []


def test_python_m_looks_there_last_as_well(folder: Path) -> None:
    assert hfl(folder, "validate", "tiny.yaml", script="-m").returncode == 0
    assert executed(folder) == []


def test_modules_that_are_named_come_after_all_that_is_installed_and_in_every_worker(folder: Path) -> None:
    model = "model={kind: module, factory: 'mine:linear'}"
    words = ("run", "tiny.yaml", "--out", "own", "--no-memo", "--workers", "2", "--set", model, "--plugin", "mine")
    done = hfl(folder, *words, script="at-once")
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("imported-*"))) >= 3  # the command and two workers; a test before may have added one
    assert executed(folder) == []


def test_a_file_that_has_the_name_of_another_module_is_no_plug_in(folder: Path) -> None:
    done = hfl(folder, "validate", "tiny.yaml", "--plugin", "torch.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --plugin torch.py: ImportError: 'torch' is the name of another module")
    assert executed(folder) == []
