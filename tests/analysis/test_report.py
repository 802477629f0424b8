"""The report: one page that needs nothing else, says what happened, and takes no text for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ledger_samples import write_run

from analysis.report import report
from emulator.errors import InputError
from emulator.files import write_json

EVIL = '<script>alert("x")</script> & <img src=x onerror=y>'
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Which elements there are, whether they are closed, and the texts of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def write_study(folder: Path, failures: dict[str, str] | None = None, name: str = "my study", notes: str = "") -> Path:
    """Two variants of two seeds; the second seed of 'B' is missing."""
    runs = []
    for variant, seed in (("A", 0), ("A", 1), ("B", 0), ("B", 1)):
        run = f"{variant.lower()}_seed-{seed}"
        label = "fedavg" if variant == "A" else "hierfavg"
        runs.append({"run": run, "variant": variant, "method": label, "point": {}, "seed": seed})
        if run != "b_seed-1":
            write_run(folder / run, label=label, seed=seed)
    about = {"name": name, "notes": notes, "columns": ["variant"], "target": 0.5, "runs": runs}
    write_json(folder / "study.json", about)
    if failures:
        write_json(folder / "failures.json", failures)
    return folder


def test_the_report_of_a_run_has_everything_and_needs_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", stopped_by="rounds")
    manifest = {
        "hfl_emulator": "0.1.0",
        "python": "3.11",
        "packages": {"torch": "2.6"},
        "command": ["hfl", "run", "a b.yaml"],
    }
    write_json(folder / "manifest.json", manifest | {"host": {"name": "secret-host"}})
    text = report([folder])
    page = Page(text)
    assert page.open == []
    assert page.tags.count("svg") == 5 + 3 + 1 + 1 + 1  # curves, breakdowns, time line, stragglers, groups
    assert [link for link in page.links if not link.startswith("#")] == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "url(http" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert len(page.ids) == len(set(page.ids))  # pictures do not take each other's names
    named = set(re.findall(r"url\(#([^)]+)\)", text)) | {link[1:] for link in page.links}
    assert named <= set(page.ids)
    for expected in (
        "60.0 %",
        "20 s",
        "2 kB",
        "200 client-s",
        "10 J",
        "complete",
        "hfl run 'a b.yaml'",
        "torch",
        "2.6",
    ):
        assert any(expected in each for each in page.texts), expected
    assert "secret-host" not in text
    assert 'name="viewport"' in text
    assert "@media print" in text
    assert report([folder]) == text


def write_fleet(folder: Path, device: str = "laptop") -> None:
    """Two clients behind an edge."""
    clients = {"name": "client-0\nclient-1", "parent": "edge-0\nedge-0", "device": f"{device}\n{device}"}
    servers = {"name": "edge-0", "parent": "cloud", "tier": "edge", "up": "1 Gbit/s"}
    write_json(folder / "fleet.json", {"clients": clients, "servers": servers, "links": {}})


def fleet_part(page: str) -> str:
    """The section about fleets."""
    return page[page.index('<section id="fleet">') : page.index('<section id="scenario">')]


def test_the_fleet_of_a_run_is_drawn_and_listed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", scenario={"topology": {"links": {"access": {"trace": {"file": "lte-like"}}}}})
    assert "has no fleet.json" in fleet_part(report([folder]))
    write_fleet(folder, EVIL)
    part = fleet_part(report([folder]))
    page = Page(part)
    assert page.tags.count("svg") == 1
    assert not {"script", "img"} & set(page.tags)
    titles = [text for text in page.texts if text in ("Servers", "Kinds of clients", "Clients")]
    assert titles == ["Servers", "Kinds of clients", "Clients"]
    assert page.texts.count("client-1") == 1
    assert "clients' links: lte-like" in "".join(page.texts)


def test_a_study_shows_each_different_fleet_once_and_who_has_it(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s")
    for run in ("a_seed-0", "a_seed-1", "b_seed-0"):
        write_fleet(study / run)
    part = fleet_part(report([study]))
    assert Page(part).tags.count("svg") == 1
    assert "A (seed 0), B: servers by tier" in part
    assert "differ by seed" not in part
    write_fleet(study / "b_seed-0", "jetson-nano")
    part = fleet_part(report([study]))
    assert Page(part).tags.count("svg") == 2
    assert "Kinds of clients, A (seed 0)" in part
    assert "Kinds of clients, B" in part
    write_fleet(study / "a_seed-1", "android-mid")
    part = fleet_part(report([study]))
    assert Page(part).tags.count("svg") == 2
    assert "Fleets differ by seed: shown is that of the first one." in part


def test_what_stands_in_names_and_notes_is_escaped(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", label=EVIL, name=EVIL, scenario={"notes": EVIL, "name": EVIL})
    (folder / "energy.csv").write_text((folder / "energy.csv").read_text().replace("pi-0", '"<b>bold</b>"'))
    write_json(folder / "manifest.json", {"command": ["hfl", EVIL], "packages": {EVIL: EVIL}})
    study = write_study(tmp_path / "study", {"b_seed-1": f"it broke: {EVIL}"}, EVIL, EVIL)
    for folders in ([folder], [study]):
        text = report(folders)
        page = Page(text)
        assert page.open == []
        assert "script" not in page.tags
        assert "img" not in page.tags
        assert "b" not in page.tags
        assert EVIL in "".join(page.texts)


def test_the_report_of_a_study_says_which_runs_failed_and_why(tmp_path: Path) -> None:
    page = Page(report([write_study(tmp_path / "s", {"b_seed-1": "data.set: no such file 'x.npz'"})]))
    said = "\n".join(page.texts)
    assert "1 of 4 runs are not complete, 1 of them failed. Means are over the runs that are." in said
    assert "failed: data.set: no such file 'x.npz'" in said
    assert page.tags.count("svg") == 5 + 4 + 3 + 2 + 2 + 2  # with a Pareto front; two methods
    assert "To reach 50 % test accuracy" in said
    assert "In what the methods differ" in said
    assert "method.preset" in page.texts
    whole = "\n".join(Page(report([write_study(tmp_path / "t")])).texts)
    assert "not begun" in whole


def test_runs_that_were_cut_off_or_failed_by_themselves(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s")
    (study / "b_seed-1").mkdir()
    assert "cut off; the same 'hfl study' goes on with it" in "\n".join(Page(report([study])).texts)
    failed = write_run(tmp_path / "failed", status="failed", error="the disk is full")
    said = "\n".join(Page(report([failed])).texts)
    assert "This run is not complete: failed: the disk is full" in said
    for name in ("summary.json", "ledger.parquet", "energy.csv", "groups.csv"):
        (failed / name).unlink()
    page = Page(report([failed]))
    said = "\n".join(page.texts)
    assert "This run is not complete: unfinished." in said
    assert "has no ledger.parquet: it is unfinished" in said
    assert page.tags.count("svg") == 5 + 1  # curves and bytes are in metrics.csv


def test_a_run_without_training_has_no_curves(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", training=False)
    table = (folder / "metrics.csv").read_text().splitlines()
    rows = [line.split(",") for line in table]
    (folder / "metrics.csv").write_text(
        "\n".join(",".join([*r[:2], "", "", *r[4:]]) if i else table[0] for i, r in enumerate(rows)) + "\n"
    )
    page = Page(report([folder]))
    said = "\n".join(page.texts)
    assert "Runs without training, or of apps that report none: there is no accuracy." in said
    assert "Final accuracy" not in said
    assert page.tags.count("svg") == 3 + 1 + 1 + 1


def test_studies_and_folders_that_cannot_be_reported(tmp_path: Path) -> None:
    study = write_study(tmp_path / "s", {"a_seed-0": "no power", "a_seed-1": "no power"})
    with pytest.raises(InputError, match="is the folder of a study: give it alone"):
        report([study, study / "a_seed-0"])
    for name in ("a_seed-0", "a_seed-1", "b_seed-0"):
        (study / name / "summary.json").unlink()
    with pytest.raises(InputError, match=r"no run of the study in .* is complete\n  a_seed-0: failed: no power\n"):
        report([study])
    write_json(study / "study.json", {"name": "x"})
    with pytest.raises(InputError, match="was written by another version"):
        report([study])
    (study / "study.json").unlink()  # then it is a folder with runs, as that of a comparison
    assert "<h1>" in report([study])
    other = write_run(tmp_path / "other")
    (other / "metrics.csv").write_text("round,accuracy\n0,0.1\n")
    with pytest.raises(InputError, match="was written by another version: it has no column 'time_s'"):
        report([other])
