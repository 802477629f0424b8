"""README and docs: what they show can be typed and read as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from emulator import yamlfile
from emulator.cli.app import app
from emulator.scenario import load, loads
from emulator.scenario.load import ready
from emulator.study import load as study

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    page.name: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
COMMAND = typer.main.get_command(app)
# A scenario with room for whatever a page shows of one.
BASE = """
data: {set: {kind: synthetic, train_samples: 90000}, partition: {kind: dirichlet, alpha: 0.5}, public: 10}
model: {kind: mlp, hidden: [8]}
topology: {edges: 3, clients: 100, links: {access: {up: 10 Mbit/s, down: 50 Mbit/s}, peer: {bandwidth: 10 Mbit/s}}}
method: {preset: group-fel, sampling: {groups: 4}}
stop: {rounds: 2}
"""
FILES = {
    "flash/benchmark2score.json": '{"a": 1, "b": 2}',
    "flash/real2benchmark.json": '{"x": "a", "y": "b"}',
    "latencies.txt": "\n".join(",".join("5" for _ in range(12)) for _ in range(12)),
}


def blocks(kind: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{name}-{number}")
        for name, text in PAGES.items()
        for number, block in enumerate(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL))
        if not block.startswith("# file: ")  # tests/extending runs those
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the files that the pages name."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", blocks("yaml"))
def test_yaml_is_a_scenario_a_study_or_sections_of_one(folder: Path, block: str) -> None:
    shown = yamlfile.parse(block, "page").data
    (folder / "page.yaml").write_text(block, encoding="utf-8")
    if "scenario" in shown:
        assert study.load(folder / "page.yaml").runs
    elif {"data", "model", "topology", "method", "stop"} <= shown.keys():
        assert load(folder / "page.yaml").scenario.name == "page"
    else:
        data = yamlfile.parse(BASE, "base").data
        for section, given in shown.items():
            whole = section == "method" and not given.keys().isdisjoint(("preset", "kind"))
            data[section] = given if whole or section not in data else {**data[section], **given}
        loads(yamlfile.dump(data), "page")


def commands() -> list[Any]:
    """The lines of the pages that begin with a command of ours, without comments."""
    found = {}
    for name, text in PAGES.items():
        for line in re.sub(r" \\\n *", " ", text).splitlines():
            if match := re.match(r"    (?:[a-z ]+\$ +)?(?:\./dev )?(hfl .*)", line):
                found.setdefault(match[1].partition(" #")[0].strip(), name)
        for line in re.findall(r"`(?:\./dev )?(hfl [^`]*)`", text):
            if not line.startswith("hfl ..."):
                found.setdefault(line, name)
    return [pytest.param(line, id=f"{name}: {line[:50]}") for line, name in found.items()]


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str) -> None:
    """Every command, option and ready scenario there is; what stands for something of the reader's is taken as it is."""
    words = shlex.split(re.sub(r"[\[\]]|\.\.\.", "", line).replace("STUDY", "x").replace("|", " ").replace("RUN", "x"))
    words = [re.sub(r"\b(N|SHARE)\b", "1", word) for word in words[1:]]
    command: Any = COMMAND
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    used = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--help"]
    assert [word for word in used if word not in options] == []
    if words and re.fullmatch(r"(visit|group-fel|hicfl|fedseq|hfldd)/[a-z0-9-]+", words[0]):
        assert words[0] in ready()
