"""The page about data: every kind is on it with an example, and the examples are sound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.contracts.learning import data_sets
from emulator.learning.data.generated import KINDS
from emulator.scenario.schema import Data
from emulator.yamlfile import parse

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
EXAMPLES = [parse(block, "data.md").data["data"] for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_are_sound(example: object) -> None:
    Data.model_validate(example)


def test_every_kind_of_data_set_is_described() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE.partition("## Natural")[0], re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(.*?)`", row)) == data_sets.names()


def test_every_kind_of_sample_data_is_described_with_its_usual_sizes() -> None:
    rows = re.findall(
        r"^\| `(.*?)` \|.*\| (\d+) \| (\d+) ([^|]*) \|$", PAGE.partition("## Sample data")[2], re.MULTILINE
    )
    assert rows == [
        (n, str(k.owners), str(k.samples), k.what.replace("windows of text", "windows")) for n, k in KINDS.items()
    ]
