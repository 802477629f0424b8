"""Studies' results: tables and intervals against figures worked out by hand, and what is drawn of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_samples import metrics, write_folder
from matplotlib.figure import Figure

from analysis import studies
from analysis.plots import grid_table as grid_plot
from analysis.plots.cost_accuracy import CostAccuracy, cost_accuracy, plot_means
from analysis.plots.grid_table import GridTable, grid_table
from analysis.quantities import AXES
from analysis.seeds import mean_and_interval, mean_curve
from analysis.studies import load_study, per_run, summarise
from emulator.errors import InputError
from emulator.files import write_json

ALPHA = "data.partition.alpha"
# The 97.5 % points of Student's t in closed form, for one and for two degrees of freedom.
T1 = math.tan(0.475 * math.pi)  # 12.706
T2 = 0.95 * math.sqrt(2 / (4 * 0.975 * 0.025))  # 4.303


def make_study(folder: Path, target: float | None = 0.5, missing: Sequence[str] = ()) -> Path:
    """Two variants, two values of alpha, three seeds: accuracies that are easy to average."""
    runs = []
    for variant, start in (("A", 0.5), ("B", 0.3)):
        for alpha, more in ((0.1, 0.0), (1.0, 0.2)):
            for seed in range(3):
                name = f"{variant.lower()}_alpha-{alpha:g}_seed-{seed}"
                last = start + more + 0.1 * seed
                table = metrics([0.1, last + 0.05, last], time_s=[0, 10 + seed, 20 + 2 * seed])
                if name not in missing:
                    write_folder(folder / name, table, label=f"method-{variant.lower()}", seed=seed)
                identity = {"run": name, "variant": variant, "method": f"method-{variant.lower()}", "seed": seed}
                runs.append({**identity, "point": {ALPHA: alpha}})
    about = {"name": "made up", "notes": "", "columns": ["variant", ALPHA], "target": target, "runs": runs}
    folder.mkdir(exist_ok=True)
    write_json(folder / "study.json", about)
    return folder


# Means and intervals.


def test_an_interval_is_students_t_by_hand() -> None:
    mean, half = mean_and_interval([0.70, 0.72, 0.77])
    # Mean 0.73; deviations -0.03, -0.01, 0.04; variance 0.0026 / 2.
    assert mean == pytest.approx(0.73, abs=1e-15)
    assert half == pytest.approx(T2 * math.sqrt(0.0013) / math.sqrt(3), rel=1e-12)
    # Two values: the standard error is half their distance.
    assert mean_and_interval([1.0, 3.0]) == (2.0, pytest.approx(T1, rel=1e-12))
    assert mean_and_interval([5.0] * 4) == (5.0, 0.0)


def test_an_interval_needs_two_values_and_a_mean_one() -> None:
    mean, half = mean_and_interval([0.4, math.nan])
    assert mean == 0.4
    assert math.isnan(half)
    assert all(math.isnan(v) for v in mean_and_interval([math.nan]))
    assert all(math.isnan(v) for v in mean_and_interval([]))


def test_a_mean_curve_is_the_mean_of_the_lines_as_they_are_drawn() -> None:
    first = metrics([0.0, 0.4, 0.8], time_s=[0, 10, 20])
    second = metrics([0.0, 0.2, 0.2], time_s=[0, 20, 40])
    curve = mean_curve([first, second], AXES["time"], "range")
    # Evaluations stand at 0, 15 and 30 on average; the first seed ends at 20.
    assert curve.x.tolist() == [0, 15, 20]
    assert curve.y == pytest.approx([0, (0.6 + 0.15) / 2, (0.8 + 0.2) / 2])
    assert curve.low == pytest.approx([0, 0.15, 0.2])
    assert curve.high == pytest.approx([0, 0.6, 0.8])
    interval = mean_curve([first, second], AXES["time"])
    assert interval.high is not None
    assert interval.low is not None
    assert (interval.low[-1], interval.high[-1]) == (0, 1)  # an accuracy is a share, however unsure
    assert mean_curve([first, second], AXES["time"], "none").low is None


def test_seeds_that_are_tested_in_the_same_rounds_meet_without_interpolation() -> None:
    seeds = [metrics([0.1, 0.3 + 0.01 * s, 0.7 - 0.02 * s]) for s in range(3)]
    curve = mean_curve(seeds, AXES["round"])
    assert curve.x.tolist() == [0, 1, 2]
    for k, column in enumerate(zip(*(m["accuracy"] for m in seeds), strict=True)):
        mean, half = mean_and_interval(column)
        assert curve.y[k] == pytest.approx(mean, rel=1e-12)
        assert curve.low is not None
        assert curve.low[k] == pytest.approx(mean - half, rel=1e-9)


def test_one_seed_is_its_own_curve_and_what_stands_still_counts_last() -> None:
    one = metrics([0.1, 0.3, 0.2])
    curve = mean_curve([one], AXES["cost"])
    assert (curve.y.tolist(), curve.low) == ([0.1, 0.3, 0.2], None)
    still = metrics([0.1, 0.3, 0.5], time_s=[0, 0, 10])
    assert mean_curve([still, still], AXES["time"]).y.tolist() == [0.3, 0.5]


# Tables.


def test_results_have_a_row_for_each_evaluation_of_each_complete_run(tmp_path: Path) -> None:
    results = load_study(make_study(tmp_path / "s", missing=["b_alpha-1_seed-2"]))
    assert results.missing == ("b_alpha-1_seed-2",)
    assert list(results.table.columns[:6]) == ["run", "variant", ALPHA, "method", "seed", "round"]
    assert len(results.table) == 11 * 3
    row = results.table[results.table["run"] == "a_alpha-0.1_seed-1"].iloc[1]
    assert (row["variant"], row[ALPHA], row["seed"], row["round"]) == ("A", 0.1, 1, 1)
    assert (row["accuracy"], row["time_s"]) == (pytest.approx(0.65), 11.0)


def test_a_run_that_is_not_complete_does_not_count(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s")
    path = folder / "a_alpha-0.1_seed-0" / "summary.json"
    write_json(path, {**json.loads(path.read_text()), "status": "interrupted"})
    assert load_study(folder).missing == ("a_alpha-0.1_seed-0",)


def test_a_summary_by_hand(tmp_path: Path) -> None:
    results = load_study(make_study(tmp_path / "s"))
    summary = summarise(results)
    assert list(summary["variant"]) == ["A", "A", "B", "B"]
    assert list(summary[ALPHA]) == [0.1, 1.0, 0.1, 1.0]
    assert list(summary["seeds"]) == [3] * 4
    # Final accuracies of B at 0.1: 0.3, 0.4, 0.5. Deviation 0.1.
    b = summary.iloc[2]
    assert b["final_accuracy_mean"] == pytest.approx(0.4)
    assert b["final_accuracy_ci95"] == pytest.approx(T2 * 0.1 / math.sqrt(3))
    assert b["best_accuracy_mean"] == pytest.approx(0.45)
    assert b["time_s_mean"] == pytest.approx(22)
    assert b["bytes_total_mean"] == 2000
    assert b["bytes_total_ci95"] == 0
    assert b["cost_s_mean"] == 200
    # At round 1 the seeds have 0.35, 0.45 and 0.55: one reaches a half, after 12 s.
    assert (b["reached"], b["target_accuracy"]) == (1, 0.5)
    assert b["time_to_target_s_mean"] == 12
    assert math.isnan(b["time_to_target_s_ci95"])
    assert (b["bytes_to_target_mean"], b["cost_to_target_s_mean"], b["round_to_target_mean"]) == (1000, 100, 1)
    assert summary.iloc[0]["reached"] == 3
    assert summary.iloc[0]["time_to_target_s_mean"] == 11


def test_per_run_and_without_a_target(tmp_path: Path) -> None:
    results = load_study(make_study(tmp_path / "s", target=None))
    runs = per_run(results)
    assert len(runs) == 12
    assert "time_to_target_s" not in runs
    assert "reached" not in summarise(results)
    assert runs.iloc[1]["final_accuracy"] == pytest.approx(0.6)


def test_the_summary_as_text(tmp_path: Path) -> None:
    folder = make_study(tmp_path / "s", missing=["b_alpha-0.1_seed-2"])
    results = load_study(folder)
    lines = studies.as_text(summarise(results), results.columns).split("\n")
    assert lines[2].split() == [
        "variant", "alpha", "seeds", "final", "accuracy", "best", "accuracy", "time", "data", "cost",
    ]  # fmt: skip
    assert "60.0 ± 24.8 %" in lines[4]
    assert "22 ± 4.97 s" in lines[4]
    assert "2 ± 0 kB" not in lines[4]  # zero has another unit: it is not hidden
    assert "2 kB ± 0 B" in lines[4]
    below = [line for line in lines if line.startswith("B") and "of" in line]
    assert below[0].split()[:5] == ["B", "0.1", "0", "of", "2"]
    assert below[0].count("not reached") == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "is not the folder of a study: it has no study.json"),
        ("{", "is damaged"),
        ({}, "was written by another version"),
        ({"columns": [], "target": None, "name": "x", "runs": []}, "no run of the study in"),
    ],
)
def test_folders_that_are_no_studies(tmp_path: Path, text: str | dict[str, Any] | None, said: str) -> None:
    if isinstance(text, dict):
        write_json(tmp_path / "study.json", text)
    elif text is not None:
        (tmp_path / "study.json").write_text(text)
    with pytest.raises(InputError, match=said):
        load_study(tmp_path)


# Figures.


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved."""
    found: list[Figure] = []
    monkeypatch.setattr("analysis.plots.style.save", lambda figure, path: found.append(figure))
    return found


def texts(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.findobj(lambda artist: hasattr(artist, "get_text"))]  # type: ignore[attr-defined]


def test_curves_by_variant_with_a_panel_for_each_value(tmp_path: Path, drawn: list[Figure]) -> None:
    results = load_study(make_study(tmp_path / "s"))
    params = CostAccuracy.model_validate({"x": "time", "by": "variant", "panels": "alpha"})
    cost_accuracy(results, [Path("x.png")], params)
    (figure,) = drawn
    assert [axes.get_title() for axes in figure.axes] == ["alpha = 0.1", "alpha = 1"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["A", "B", "target 50 %"]
    assert figure.legends[0].get_title().get_text().replace("\n", " ") == (
        "Lines: mean of 3 seeds. Bands: the 95 % interval of the mean (Student's t)."
    )
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    left = figure.axes[0].lines[1]  # after the target
    assert np.asarray(left.get_xdata()).tolist() == [0, 11, 20]  # seed 0 ends at 20 s
    assert np.asarray(left.get_ydata())[1] == pytest.approx(100 * (0.545 + 0.65 + (0.1 + 0.65 * 11 / 12)) / 3)
    assert len(figure.axes[0].collections) == 2  # the bands


def test_curves_of_everything_varied_and_of_some(tmp_path: Path, drawn: list[Figure]) -> None:
    results = load_study(make_study(tmp_path / "s", target=None))
    cost_accuracy(results, [Path("x.png")], CostAccuracy.model_validate({"x": ["cost", "round"], "band": "none"}))
    assert [t.get_text() for t in drawn[0].legends[0].get_texts()] == [
        "A, alpha = 0.1", "A, alpha = 1", "B, alpha = 0.1", "B, alpha = 1",
    ]  # fmt: skip
    assert [len(axes.collections) for axes in drawn[0].axes] == [0, 0]
    where = {"by": "method", "where": {"alpha": 1}, "band": "range"}
    cost_accuracy(results, [Path("x.png")], CostAccuracy.model_validate(where))
    assert [t.get_text() for t in drawn[1].legends[0].get_texts()] == ["method-a", "method-b"]
    assert "from the lowest to the highest" in drawn[1].legends[0].get_title().get_text().replace("\n", " ")
    with pytest.raises(InputError, match="no complete run is of these values"):
        cost_accuracy(results, [], CostAccuracy.model_validate({"where": {"alpha": 7}}))


def test_a_table_of_a_grid_says_means_intervals_and_who_reached_the_target(tmp_path: Path, drawn: list[Figure]) -> None:
    results = load_study(make_study(tmp_path / "s"))
    grid_table(results, [Path("x.png")], GridTable())
    said = texts(drawn[0])
    for expected in ("Final accuracy (%)", "A", "B", "0.1", "1", "alpha", "60.0\n± 24.8", "40.0\n± 24.8"):
        assert expected in said
    params = GridTable.model_validate({"rows": "alpha", "columns": "variant", "value": "time-to-target"})
    grid_table(results, [Path("x.png")], params)
    said = texts(drawn[1])
    assert "Emulated time to 50 % (s)" in said
    assert "11.0\n± 2.5" in said
    assert "12.0\n1 of 3" in said
    grid_table(results, [Path("x.png")], GridTable.model_validate({"columns": "alpha", "panels": "variant"}))
    assert [axes.get_title() for axes in drawn[2].axes] == ["A", "B"]
    untargeted = load_study(make_study(tmp_path / "t", target=None))
    with pytest.raises(InputError, match="'cost-to-target' needs a 'target' of the study"):
        grid_table(untargeted, [], GridTable.model_validate({"value": "cost-to-target"}))


def test_pictures_of_studies_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    lines: dict[str, dict[str, list[pd.DataFrame]]] = {"": {"a": [metrics([0.1, 0.5]), metrics([0.1, 0.7])]}}
    cells: Any = grid_plot.Grid.empty(1, 2)
    cells.means[0] = [1.5, 2.5]
    for name in ("a", "b"):
        plot_means(lines, path=tmp_path / f"{name}.svg")
        grid_plot.plot({"": cells}, ["r"], ["x", "y"], ("", "k"), "q", path=tmp_path / f"{name}.pdf", note="A note.")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
    with pytest.raises(InputError, match="unknown band"):
        plot_means(lines, spread="wide")
    with pytest.raises(InputError, match="at least one run"):
        plot_means({"": {}})
    with pytest.raises(InputError, match="nothing to show"):
        grid_plot.plot({"": grid_plot.Grid.empty(1, 1)}, ["r"], ["c"], ("", ""), "q")


# Drops against a baseline.


def with_baseline(folder: Path, baseline: dict[str, Any], missing: Sequence[str] = ()) -> Path:
    make_study(folder, missing=missing)
    about = json.loads((folder / "study.json").read_text())
    write_json(folder / "study.json", {**about, "baseline": baseline})
    return folder


def test_drops_are_taken_seed_by_seed_from_the_run_that_is_alike_in_all_else(tmp_path: Path) -> None:
    results = load_study(with_baseline(tmp_path / "s", {"alpha": 1.0}, missing=["b_alpha-1_seed-2"]))
    # Final accuracies at 1.0 are 0.2 above those at 0.1, in every seed: a drop without any spread.
    drops = per_run(results).set_index("run")["accuracy_drop"]
    assert drops["a_alpha-0.1_seed-1"] == pytest.approx(0.2)
    assert drops["a_alpha-1_seed-1"] == 0.0
    assert math.isnan(drops["b_alpha-0.1_seed-2"])
    summary = summarise(results)
    assert summary["accuracy_drop_mean"].to_list() == pytest.approx([0.2, 0.0, 0.2, 0.0])
    assert summary["accuracy_drop_ci95"].to_list() == pytest.approx([0.0] * 4, abs=1e-12)
    text = studies.as_text(summary, results.columns)
    assert "accuracy drop" in text
    first = next(line for line in text.splitlines() if line.split()[:2] == ["A", "0.1"])
    assert "20.0 ± 0.0 %" in first


def test_drops_may_be_against_a_variant_and_may_be_gains(tmp_path: Path) -> None:
    results = load_study(with_baseline(tmp_path / "s", {"variant": "B"}))
    assert per_run(results)["accuracy_drop"].to_list() == pytest.approx([-0.2] * 6 + [0.0] * 6)


def test_a_table_of_drops_needs_a_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = GridTable.model_validate({"rows": "variant", "columns": "alpha", "value": "accuracy-drop"})
    with pytest.raises(InputError, match="needs a 'baseline' of the study"):
        grid_table(load_study(make_study(tmp_path / "without")), [], params)
    drawn: list[Any] = []
    monkeypatch.setattr(grid_plot, "plot", lambda grids, *_, **__: drawn.append(grids) or Figure())
    filtered = GridTable.model_validate({"rows": "variant", "value": "accuracy-drop", "where": {"alpha": 0.1}})
    grid_table(load_study(with_baseline(tmp_path / "with", {"alpha": 1.0})), [], filtered)
    assert drawn[0][""].means[:, 0] == pytest.approx(
        [20.0, 20.0]
    )  # the runs of the baseline need not be in the picture
