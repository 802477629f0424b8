"""Runs the ``hfl`` command for tests, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

from emulator import plugins
from emulator.cli import main
from emulator.files import read_json

ROOT = Path(__file__).resolve().parents[2]
TINY = """
name: tiny
seed: 3
data:
  set: synthetic
  partition: {kind: dirichlet, alpha: 0.3, samples_per_client: 12}
model: {kind: mlp, hidden: [8]}
topology:
  edges: 2
  clients: 8
  links:
    access: {up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms}
method:
  preset: hierfavg
  group_rounds: 2
  local: {batch_size: 4, learning_rate: 0.1}
stop: {rounds: 2}
"""


_started: list[subprocess.Popen[str]] = []


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.out + self.err


def hfl(*arguments: str | Path) -> Done:
    """Runs the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv, list(sys.path), signal.getsignal(signal.SIGTERM), dict(os.environ)
    imported, named = list(plugins.loaded), dict(plugins.named)
    sys.argv = ["hfl", *map(str, arguments)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv, sys.path[:] = before[:2]
        plugins.loaded[:] = imported
        plugins.named.clear()
        plugins.named.update(named)
        signal.signal(signal.SIGTERM, before[2])
        os.environ.clear()
        os.environ.update(before[3])
    return Done(code, out.getvalue(), err.getvalue())


def started(folder: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    """Starts the command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator", *map(str, arguments)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _started.append(process)
    return process


def ended(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=PATIENCE_S)
    return Done(process.returncode, out, err)


def script(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of the user's own, in a folder of its own."""
    (folder / "script.py").write_text(textwrap.dedent(code))
    own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    given = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}  # which our command sets
    return subprocess.run(
        [sys.executable, "script.py", *words], cwd=folder, env=given | own, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def stated(folder: Path) -> dict[str, Any]:
    """What a run's summary says, without the checksums."""
    summary = read_json(folder / "summary.json")
    assert summary is not None
    del summary["files"]
    return summary


def end_all() -> None:
    """Ends the commands that were started and are still at work."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PATIENCE_S)
