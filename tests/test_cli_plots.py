"""``hfl plot``, ``table``, ``report`` and ``export`` from outside: what they write, what they say, how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from scenario.command import TINY, Done, hfl, stated

from emulator.files import read_json, write_json

PLOT = """
from emulator.contracts.files import figures
from emulator.study.schema import FigureParams


@figures.register("my-plot", FigureParams)
def my_plot(results, paths, params):
    \"\"\"A plot of my own.\"\"\"
    for path in paths:
        path.write_text(f"{len(results.folders)} runs, {results.columns}")
"""
STUDY = """
name: small study
notes: "<i>notes</i> & more"
scenario: tiny.yaml
variants:
  good: {stop.rounds: 2}
  broken: {data.set: {kind: npz, path: absent.npz}}
seeds: 2
figures: [breakdown, {kind: pareto, x: time}, {kind: timeline, where: {variant: good}}]
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of one method."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "s.yaml").write_text(TINY)
    for seed in ("0", "1"):
        done = hfl("run", folder / "s.yaml", "--seed", seed, "--out", folder / seed, "--memo", folder / "memo")
        assert done.code == 0, done.err
    return [folder / "0", folder / "1"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A study of which half the runs fail, and what the command said."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "absent.npz").write_bytes(b"no archive")
    return folder / "out", hfl("study", folder / "study.yaml", "--out", folder / "out", "--jobs", "1", "--no-memo")


@pytest.mark.parametrize(
    "kind", ["breakdown", "cost-accuracy", "groups", "pareto", "participation", "stragglers", "timeline", "grid-table"]
)
def test_every_kind_is_one_command_away(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = hfl("plot", kind, *runs)
    assert (done.code, done.out, done.err) == (0, f"wrote {kind}.png\n", "")
    assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_options_title_and_several_files(runs: list[Path], tmp_path: Path) -> None:
    files = [tmp_path / "a.svg", tmp_path / "a.pdf"]
    words = ("--set", "x=[time, energy]", "--set", "log=true", "--title", "My title")
    done = hfl("plot", "cost-accuracy", *runs, *(w for f in files for w in ("--out", f)), *words)
    assert done.code == 0, done.err
    drawn = files[0].read_text()
    for text in ("My title", "Emulated time (s)", "Energy of the clients (J)", "Lines: mean of 2 seeds."):
        assert text in drawn
    assert files[1].read_bytes().startswith(b"%PDF")


def test_help_and_lists_name_the_kinds() -> None:
    said = hfl("plot", "--help").out
    for kind in ("breakdown", "cost-accuracy", "groups", "pareto", "stragglers", "timeline", "grid-table"):
        assert f"\n  {kind} " in said
    assert "Where clients' time goes by method" in said
    assert "cost-to-target  What reaching an accuracy took each method" in hfl("table", "--help").out
    assert "stragglers" in hfl("list", "plots").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["timelin", "{run}"], "unknown figure 'timelin'; did you mean 'timeline'?"),
        (["timeline", "{run}", "--set", "round=99"], "no client did anything in round 99"),
        (["timeline", "{run}", "--set", "round=x"], "--set round=x: round: expected a whole number, not 'x'"),
        (
            ["pareto", "{run}", "--set", "x=tim"],
            "x[0]: expected 'cost', 'time', 'bytes', 'energy', 'money', 'carbon', 'round' or 'epsilon', not 'tim'",
        ),
        (["pareto", "{run}", "--set", "zz=3"], "--set zz=3: zz: unknown key"),
        (["pareto", "{run}", "--set", "where={variant: other}"], "where: no complete run is of these values"),
        (["pareto", "{run}", "--set", "by=alpha"], "by: 'alpha' is nothing that this study varies"),
        (["pareto", "{run}", "--set", "file=a.png"], "name the files with --out"),
        (["pareto", "{run}", "--out", "a.jpg"], "the name must end in one of '.png', '.svg', '.pdf'"),
        (["pareto", "{run}", "{run}"], "is given twice"),
        (["pareto", "absent"], "there is no folder 'absent'"),
        (["pareto", "{run}", "{run}/.."], "is given twice"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_drawn(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = hfl("plot", *(a.replace("{run}", str(runs[0])) for a in arguments))
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_incomplete_and_foreign_run_folders(runs: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_json(folder / "manifest.json", {})
    for words in (["plot", "breakdown"], ["table", "totals"], ["report"], ["export", "--csv", str(tmp_path / "x")]):
        done = hfl(*words, folder)
        assert done.code == 2
        assert "has no metrics.csv: it ended before its first evaluation" in done.err
    (folder / "metrics.csv").write_bytes((runs[0] / "metrics.csv").read_bytes())
    done = hfl("plot", "breakdown", folder, "--out", tmp_path / "x.png")
    assert (done.code, "has no ledger.parquet: it is unfinished" in done.err) == (2, True)
    summary = json.loads((runs[0] / "summary.json").read_text()) | {"status": "done"}
    write_json(folder / "summary.json", summary)
    done = hfl("report", folder)
    assert (done.code, "was written by another version: 'status' is 'done'" in done.err) == (2, True)
    pd.DataFrame({"kind": ["compute"]}).to_parquet(folder / "ledger.parquet")
    write_json(folder / "summary.json", stated(runs[0]))
    done = hfl("plot", "timeline", folder, "--out", tmp_path / "x.png")
    assert (done.code, "was written by another version: it has no column 'who'" in done.err) == (2, True)


def test_a_plot_of_ones_own_is_one_file(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLOT)
    words = ("--plugin", tmp_path / "mine.py", "--out", tmp_path / "x.png")
    assert hfl("plot", "my-plot", *runs, *words).code == 0
    assert (tmp_path / "x.png").read_text() == "2 runs, ('variant',)"
    assert "A plot of my own." in hfl("list", "plots", "--plugin", tmp_path / "mine.py").out


def test_tables_in_four_formats(runs: list[Path], tmp_path: Path) -> None:
    words = ("table", "cost-to-target", *runs, "--target", "0.05", "--format")
    made = {form: hfl(*words, form) for form in ("text", "csv", "markdown", "latex")}
    assert {done.code for done in made.values()} == {0}
    assert "hierfavg   2 of 2" in made["text"].out
    assert "| hierfavg | 2 of 2 |" in made["markdown"].out
    assert "hierfavg & 2 of 2 &" in made["latex"].out
    assert made["csv"].out.splitlines()[1].startswith("hierfavg,0.05,2,2,0.0,")
    done = hfl("table", "totals", *runs, "--out", tmp_path / "t.txt")
    assert done.out == f"wrote {tmp_path / 't.txt'}\n"
    assert "Whole runs" in (tmp_path / "t.txt").read_text()
    assert "unknown format 'tex'; did you mean 'text'" in hfl("table", "totals", *runs, "--format", "tex").err
    assert hfl("table", "cost-to-target", *runs, "--target", "80").code == 2


def test_a_study_with_failed_runs_has_figures_and_a_report(study: tuple[Path, Done]) -> None:
    folder, done = study
    assert done.code == 1
    assert "2 of 4 runs failed" in done.err
    failures = read_json(folder / "failures.json") or {}
    assert set(failures) == {"broken_seed-0", "broken_seed-1"}
    assert all("absent.npz" in message for message in failures.values())
    for name in ("breakdown.png", "pareto.png", "timeline.png"):
        assert (folder / name).is_file()
    done = hfl("report", folder)
    assert (done.code, done.out) == (0, f"wrote {folder / 'report.html'}\n")
    page = (folder / "report.html").read_text()
    assert "2 of 4 runs are not complete, 2 of them failed." in page
    assert "broken_seed-0" in page
    assert "absent.npz" in page
    assert "&lt;i&gt;notes&lt;/i&gt; &amp; more" in page
    assert "<i>" not in page


def test_a_study_whose_runs_all_failed(study: tuple[Path, Done], tmp_path: Path) -> None:
    (tmp_path / "study.json").write_bytes((study[0] / "study.json").read_bytes())
    (tmp_path / "failures.json").write_bytes((study[0] / "failures.json").read_bytes())
    done = hfl("report", tmp_path)
    assert done.code == 2
    assert "is complete\n  good_seed-0: not begun\n" in done.err
    assert "broken_seed-0: failed: " in done.err
    assert hfl("plot", "breakdown", tmp_path).code == 2


def test_the_report_of_runs(runs: list[Path], tmp_path: Path) -> None:
    done = hfl("report", *runs, "--out", tmp_path / "both.html")
    assert (done.code, done.out) == (0, f"wrote {tmp_path / 'both.html'}\n")
    page = (tmp_path / "both.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "Mean of 2 seeds." in page
    assert "hfl run RUN" not in page


def test_exports(runs: list[Path], tmp_path: Path) -> None:
    done = hfl("export", runs[0], "--csv", tmp_path / "csv")
    assert done.code == 0
    assert {p.name for p in (tmp_path / "csv").iterdir()} == {
        "metrics.csv", "ledger.csv", "energy.csv", "groups.csv", "groupings.csv",
    }  # fmt: skip
    assert len(pd.read_csv(tmp_path / "csv" / "ledger.csv")) == len(pd.read_parquet(runs[0] / "ledger.parquet"))
    done = hfl("export", runs[0])
    assert (done.code, "say what to export to" in done.err) == (2, True)
