"""Every test has a time limit, and no test can go on behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

TESTS = Path(__file__).parent

HANGING = """
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario.command import started


left = []


@pytest.fixture
def cleaned():
    yield
    left.append("cleaned")


@pytest.mark.timeout(1)
def test_waits(cleaned, tmp_path):
    left.append(started(tmp_path, "run", "quickstart", "--out", tmp_path / "run"))
    time.sleep(1000)


def test_leaves_nothing():
    process, word = left
    assert word == "cleaned"
    assert process.returncode == -9


@pytest.mark.timeout(2)
@given(st.booleans())
def test_tries_again(_):
    time.sleep(1000)


def test_next():
    pass
"""


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) > PATIENCE_S
    for item in request.session.items:
        own = item.get_closest_marker("timeout")
        assert own is None or own.args[0] > 0, item.nodeid


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_tests_that_hang_fail_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(TESTS / "conftest.py")
    (tmp_path / "test_hanging.py").write_text(HANGING)
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ["-n", "1", "-c", str(TESTS.parent / "pyproject.toml"), "--basetemp", str(tmp_path / "tmp"), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=tmp_path, env=environment | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed" in done.stdout
    assert "Timeout (>1.0s)" in done.stdout
    assert "crashed while running" in done.stdout
    assert "Timeout (0:00:03)!" in done.stderr  # with the stacks of all threads
    assert "in test_tries_again" in done.stderr
