"""docs/papers.md: every table and figure of the papers has a line, and it names what comes with the emulator, all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator.scenario import bundled as bundled_scenarios
from emulator.study.load import bundled as bundled_studies

PAGE = Path(__file__).resolve().parents[2] / "docs" / "papers.md"
FOLDERS = ("visit", "group-fel", "hicfl", "fedseq", "hfldd")
NAME = rf"(?:{'|'.join(FOLDERS)})/[\w-]+"
COLUMNS = ["in the paper", "rows", "small", "small result", "published", "paper scale"]

# All that holds measurements; the rest are symbols and drawings.
TABLES = {
    "S1": ["I", "II"],
    "S2": ["1", "2"],
    "S3": ["I", "II", "III", "IV", "V", "VI"],
    "S4": ["2", "3", "4", "5", "6"],
    "S5": ["II", "III", "IV"],
}
FIGURES = {
    "S1": [2, 3, 4, 5],
    "S2": [2, *range(5, 16)],
    "S3": [1, 2, 4, *range(6, 16)],
    "S4": [6, 7, 8, 9, 10, 11],
    "S5": [3, 5, 6],
}


def rows_of(paper: str) -> list[list[str]]:
    """The cells of all rows of a paper's table on the page."""
    (section,) = re.findall(rf"^## [^\n]*\({paper}\)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert header == COLUMNS
    return rows


def numbers(cell: str, kind: str) -> list[str]:
    """The numbers of tables or figures in a cell such as 'Figs. 2(a) and 9'."""
    if not cell.startswith(kind):
        return []
    return re.findall(r"\b(?:[IVX]+|\d+)\b", re.sub(r"\([a-z]\)", "", cell))


@pytest.mark.parametrize("paper", TABLES)
def test_every_table_and_figure_of_a_paper_has_a_line(paper: str) -> None:
    rows = rows_of(paper)
    assert {n for row in rows for n in numbers(row[0], "Table")} == set(TABLES[paper])
    assert {int(n) for row in rows for n in numbers(row[0], "Fig")} == set(FIGURES[paper])


@pytest.mark.parametrize("paper", TABLES)
def test_no_cell_is_empty(paper: str) -> None:
    for row in rows_of(paper):
        assert len(row) == len(COLUMNS), row
        assert all(row), row
        assert "to come" not in " ".join(row), row


def test_what_the_page_names_exists_and_is_run_by_the_right_command() -> None:
    text = PAGE.read_text()
    studies, scenarios = set(bundled_studies()), set(bundled_scenarios())
    named = set(re.findall(rf"`(?:[^`]* )?({NAME})[^`]*`", text))
    assert len(named) > 50
    assert not named - studies - scenarios
    assert not set(re.findall(rf"`hfl study ({NAME})", text)) - studies
    assert not set(re.findall(rf"`hfl run ({NAME})", text)) - scenarios


def test_everything_that_is_bundled_for_the_papers_is_on_the_page() -> None:
    bundled = {n for n in {*bundled_studies(), *bundled_scenarios()} if n.split("/")[0] in FOLDERS}
    assert bundled - set(re.findall(NAME, PAGE.read_text())) == set()
