"""Apps of Flower and how tests run them. Needs Flower, which ``./dev test-flower`` installs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from analysis.runs import Run, load_run
from emulator.flower.app import App, find_app
from emulator.flower.replies import Replies
from emulator.flower.results import ready
from emulator.flower.run import How, execute
from emulator.flower.setting import FlowerScenario, setting_of
from emulator.scenario.load import override
from emulator.yamlfile import parse

APPS = Path(__file__).parent / "apps"
WORLD = """
name: world
seed: 1
topology:
  edges: 2
  clients: 4
  transport: fluid
  devices: raspberry-pi-4b
  links:
    access: {up: 8 Mbit/s, down: 16 Mbit/s, latency: 20 ms}
    backhaul: {up: 80 Mbit/s, down: 160 Mbit/s, latency: 5 ms}
"""


@dataclass(frozen=True)
class Played:
    """A run of an app: its summary, and its folder as the analysis reads it."""

    summary: dict[str, Any]
    folder: Path
    scenario: FlowerScenario

    @property
    def run(self) -> Run:
        return load_run(self.folder)


Play = Callable[..., Played]


def setting(app: App, changes: tuple[str, ...] = (), world: str = WORLD, **how: Any) -> FlowerScenario:
    document = parse(world, "world.yaml")
    for change in changes:
        override(document, change)
    return setting_of(document, app, how)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs an app in a world with changes; ``words`` are the app, ``config`` changes of its run configuration."""

    def run(
        words: list[str] | Path,
        *changes: str,
        config: tuple[str, ...] = (),
        world: str = WORLD,
        replies: Path | None = None,
        workers: int = 1,
        patience_s: float = 100.0,
        on_round: Callable[[int, Any], None] = lambda _round, _row: None,
        out: str = "",
        **how: Any,
    ) -> Played:
        app = find_app([str(words)] if isinstance(words, Path) else words, config)
        scenario = setting(app, changes, world, **how)
        folder = tmp_path / (out or f"run-{len(list(tmp_path.iterdir()))}")
        assert ready(folder, scenario)
        summary = execute(scenario, app, folder, How(Replies(replies), workers, patience_s, on_round))
        return Played(summary, folder, scenario)

    return run
