"""The examples of ``docs/extending.md`` do what the page says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from examples import FILES, SECTIONS
from scenario.command import hfl

from analysis.runs import load_run

Check = Callable[[Path, list[str]], None]  # the folder, and what each command wrote


def how_it_works(home: Path, said: list[str]) -> None:
    assert "Deals clients out by their samples" in said[0]
    groups = load_run("dealt").groups
    assert groups["size"].tolist() == [2, 2, 2, 2]
    for _, there in groups.groupby("aggregator"):
        assert there["samples"].max() - there["samples"].min() <= 10
    assert load_run(next((home / "dealt").glob("whatif-*"))).manifest["plugins"][0]["name"] == "dealt"


CHECKS: dict[str, Check] = {"How it works": how_it_works}


def test_every_section_with_commands_is_checked() -> None:
    assert {title for title, section in SECTIONS.items() if section.commands} == set(CHECKS)


@pytest.mark.parametrize("title", CHECKS)
def test_the_examples_of_a_section_do_what_it_says(plugin_home: Path, title: str) -> None:
    for name, text in FILES.items():
        (plugin_home / name).write_text(text, encoding="utf-8")
    said = []
    for command in SECTIONS[title].commands:
        done = hfl(*command.words)
        assert (done.code, done.err if done.code else "") == ((2, f"{command.error}\n") if command.error else (0, "")), done.err
        said.append(done.out)
    CHECKS[title](plugin_home, said)
