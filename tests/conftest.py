"""Shared fixtures: scenarios small enough to run in a moment, and a cache folder of the test's own. Time limits of tests."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from scenario import command

from emulator import modules, plugins
from emulator.registry import Registry
from emulator.scenario import Loaded
from emulator.scenario.load import check, override
from emulator.yamlfile import parse

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run in as many processes as there are cores
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # begun in the background of a script: commands would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is; tests have time limits of their own.
hypothesis.settings.register_profile("quiet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("quiet")

STUDY_S = 1800  # the limit of studies and benchmarks that have none of their own
ERRORS = pytest.StashKey[int]()

SMALL = """
name: small
seed: 3
data:
  set: {kind: synthetic}
  partition: {kind: dirichlet, alpha: 0.3, samples_per_client: 12}
model: {kind: mlp, hidden: [8]}
topology:
  edges: 2
  clients: 8
  transport: fluid  # exact closed forms
  links:
    access: {up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms}
    backhaul: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 5 ms}
method:
  preset: hierfavg
  group_rounds: 2
  local: {epochs: 1, batch_size: 4, learning_rate: 0.1}
stop: {rounds: 2}
"""


def pytest_configure(config: pytest.Config) -> None:
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[ERRORS] = os.dup(2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        study = item.get_closest_marker("slow") or item.get_closest_marker("benchmark")
        if study and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(STUDY_S))


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """A second limit, behind the one of pytest-timeout.

    That one is a signal: the test fails, its fixtures clean up, and the next one runs. It does not reach a call into C that never
    returns, and Hypothesis tries the example that met it again. This one needs neither Python nor the test: it ends the process
    with all stacks, which is one failed test where xdist runs several.
    """
    faulthandler.dump_traceback_later(settings.timeout * 1.5, exit=True, file=item.config.stash[ERRORS])


def pytest_timeout_cancel_timer() -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def _own_children() -> Iterator[None]:
    """What a test started, and left behind when it failed, is ended with it."""
    yield
    command.end_all()


@pytest.fixture(autouse=True)
def _own_plugins() -> Iterator[None]:
    """Reading a run folder imports the plug-ins that it names: the next test knows nothing of them."""
    loaded, sources, named = list(plugins.loaded), dict(plugins.sources), dict(plugins.named)
    yield
    plugins.loaded[:] = loaded
    for kept, before in ((plugins.sources, sources), (plugins.named, named)):
        kept.clear()
        kept.update(before)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def plugin_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a tiny scenario in it; what plug-ins register during the test is forgotten afterwards."""
    for registry in list(Registry.by_slot.values()):  # reading one may import others
        registry.names()
        monkeypatch.setattr(registry, "_plugins", dict(registry._plugins))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(command.TINY)
    slots, imported, files = dict(Registry.by_slot), set(sys.modules), set(modules.from_files)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    Registry.by_slot.clear()
    Registry.by_slot.update(slots)
    for name in modules.from_files - files:
        sys.modules.pop(name, None)
    for name in set(sys.modules) - imported:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    modules.from_files.intersection_update(files)


@pytest.fixture
def small() -> Callable[..., Loaded]:
    """Makes a small scenario; words such as ``"stop.rounds=3"`` change it as ``--set`` would."""

    def make(*changes: str) -> Loaded:
        document = parse(SMALL, "small.yaml")
        for change in changes:
            override(document, change)
        return check(document)

    return make
