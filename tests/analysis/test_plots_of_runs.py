"""What the pictures of run folders show: numbers in what is drawn, texts, and that nothing lies on anything else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis_samples import make_run, metrics
from ledger_samples import row, write_run
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch
from matplotlib.text import Text

from analysis.figures import draw_folders
from analysis.plots import breakdown, cost_accuracy, groups, pareto, stragglers, timeline
from analysis.plots.style import COLUMN_INCHES, PAGE_INCHES, PART_COLOURS, look
from analysis.series import Series, as_series
from emulator.errors import InputError
from emulator.ledger import CLIENT_SERVER, COMPUTE, EDGE_CLOUD, TRANSFER


def texts(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.findobj(Text) if isinstance(t, Text) and t.get_text().strip()]


def legend(figure: Figure) -> list[str]:
    return [t.get_text() for t in figure.legends[0].get_texts()]


def check_layout(figure: Figure) -> None:
    """Panels, legend and title stand apart and inside the page; every axis with numbers has a label; text is legible."""
    for panel in figure.axes:
        area = panel.get_tightbbox()
        assert area is not None
        assert area.x0 >= -0.5
        assert area.y0 >= -0.5
        assert area.x1 <= figure.bbox.width + 0.5
        assert area.y1 <= figure.bbox.height + 0.5
        for other in [*figure.axes, *figure.legends]:
            box = other.get_tightbbox() if isinstance(other, Axes) else other.get_window_extent()
            assert box is not None
            assert other is panel or not area.overlaps(box)
        labels = [t.get_window_extent() for t in panel.get_xticklabels() if t.get_text() and t.get_visible()]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(labels))
        labels = sorted(
            (t.get_window_extent() for t in panel.get_yticklabels() if t.get_text()), key=lambda b: float(b.y0)
        )
        assert all(a.y1 <= b.y0 + 1.5 for a, b in itertools.pairwise(labels))  # 1.5 px of 200 dpi: descenders
    for text in figure.findobj(Text):
        assert not isinstance(text, Text) or not text.get_text().strip() or float(text.get_fontsize()) >= 8


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two seeds of one method, one of another that takes twice as long."""
    slow = [(*r[:3], 2 * r[3], 2 * r[4], *r[5:]) for r in write_run.__defaults__[0]]  # type: ignore[index]
    return [
        write_run(tmp_path / "a0"),
        write_run(tmp_path / "a1", seed=1, accuracy=(0.1, 0.5, 0.8)),
        write_run(tmp_path / "b0", slow, label="hierfavg", accuracy=(0.1, 0.2, 0.9)),
    ]


def test_runs_that_differ_in_their_seed_alone_are_one_series(folders: list[Path], tmp_path: Path) -> None:
    series = as_series(folders)
    assert [(s.label, [r.seed for r in s.runs]) for s in series] == [("fedavg", [0, 1]), ("hierfavg", [0])]
    assert series[0].title == "fedavg (seed 0)"
    other = write_run(tmp_path / "c0", scenario={"data": {"set": {"kind": "mnist"}}})
    named = as_series([*folders, other])
    assert [s.label for s in named] == ["fedavg (a0)", "hierfavg", "fedavg (c0)"]
    again = write_run(tmp_path / "d0")
    assert [len(s.runs) for s in as_series([folders[0], again])] == [1, 1]
    cut = write_run(tmp_path / "e1", seed=5, status="interrupted")
    assert as_series([cut])[0].label == "fedavg [interrupted]"
    with pytest.raises(InputError, match="given twice"):
        as_series([folders[0], folders[0]])
    with pytest.raises(InputError, match="at least one run"):
        as_series([])


def test_the_breakdown_shows_means_over_seeds_and_shares(folders: list[Path]) -> None:
    figure = breakdown.plot(folders)
    left, right = figure.axes
    widths = [[bar.get_width() for bar in part] for part in left.containers]  # by part: of fedavg, of hierfavg
    assert widths == [[6, 12], [2, 4], [5, 10], [3, 6], [2, 4], [10, 20]]
    assert [to_hex(part[0].get_facecolor()).upper() for part in left.containers] == list(PART_COLOURS.values())
    assert [bar.get_x() for bar in [part[0] for part in left.containers]] == [0, 6, 8, 13, 16, 18]
    shares = np.array([[bar.get_width() for bar in part] for part in right.containers])
    np.testing.assert_allclose(shares.sum(axis=0), [100, 100])
    assert shares[5].tolist() == pytest.approx([1000 / 28, 1000 / 28])
    assert left.get_xlabel() == "Time of the clients (client-seconds)"
    assert right.get_xlabel() == "Share (%)"
    assert [t.get_text() for t in left.get_yticklabels()] == ["fedavg", "hierfavg"]
    assert legend(figure)[3:] == ["up (client to server)", "down (server to client)", "waiting"]
    assert figure.legends[0].get_title().get_text() == "Mean of 1 to 2 seeds."
    assert figure.get_figwidth() == PAGE_INCHES
    check_layout(figure)
    narrow = breakdown.plot(folders, narrow=True)
    assert narrow.get_figwidth() == COLUMN_INCHES
    check_layout(narrow)


def test_the_breakdown_of_bytes_and_of_energy(folders: list[Path]) -> None:
    left, _ = breakdown.plot(folders, "bytes").axes
    # The samples send 0.4, 0.4, 0, 0.1 and 0.1 of 2,000 bytes over the five hops: nothing from client to client.
    assert [part[0].get_width() for part in left.containers] == pytest.approx([0.8, 0.8, 0.2, 0.2])
    assert left.get_xlabel() == "Data over all links (kB)"
    left, _ = breakdown.plot(folders[:1], "energy").axes
    assert [part[0].get_width() for part in left.containers] == [30, 60, 90, 120]
    with pytest.raises(InputError, match="unknown quantity 'tim'; did you mean 'time'"):
        breakdown.plot(folders, "tim")


def test_stragglers_are_bars_from_quick_to_slow(folders: list[Path]) -> None:
    figure = stragglers.plot(folders)
    first, second = figure.axes
    parts = {patch.get_label(): patch for patch in first.patches if isinstance(patch, StepPatch)}
    values, _, baseline = parts["waiting"].get_data()
    np.testing.assert_allclose(values, [4, 7, 5.5])  # client-2, client-1, client-0: as long as their group rounds
    np.testing.assert_allclose(np.asarray(baseline), [3, 4, 5.5])
    assert np.asarray(first.lines[0].get_ydata()).tolist() == [4, 4]  # the median of 3, 4 and 5.5
    assert first.get_ylabel() == "Mean of a group round (s)"
    assert first.get_ylim() == second.get_ylim()
    assert second.get_ylim()[1] >= 14
    assert "slowest: client-0, pi-0" in first.get_xlabel()
    assert "busy 1.38 times as long as the median" in first.get_xlabel()
    assert [first.get_title(), second.get_title()] == ["fedavg (seed 0)", "hierfavg"]
    check_layout(figure)


def boxes_of(panel: Axes, part: str) -> list[tuple[float, float, float]]:
    """Start, end and lane of the bars of a part."""
    found = []
    for each in panel.collections:
        if isinstance(each, PolyCollection) and each.get_label() == part:
            for path in each.get_paths():
                (x0, y0), (x1, y1) = path.get_extents().get_points()
                found.append((float(x0), float(x1), float(np.floor((y0 + y1) / 2 + 0.5))))
    return sorted(found)


def test_the_time_line_has_a_lane_for_each_client_and_link(folders: list[Path]) -> None:
    figure = timeline.plot(folders[:1])
    (panel,) = figure.axes
    assert [t.get_text() for t in panel.get_yticklabels()] == ["edge-0 – cloud", "client-0", "client-1"]
    assert boxes_of(panel, "compute") == [(2, 3, 2), (2, 5, 1)]
    assert boxes_of(panel, "group operation") == [(5, 6, 1), (5, 6, 2)]
    assert boxes_of(panel, "up") == [(6, 7, 2), (6, 8, 1), (8, 10, 0)]
    assert boxes_of(panel, "down") == [(0, 1, 0), (1, 2, 1), (1, 2, 2)]
    assert boxes_of(panel, "waiting") == [(0, 10, 1), (0, 10, 2)]
    assert panel.get_xlabel() == "Time since round 1 began (s)"
    assert panel.get_xlim() == (0, 10)
    assert "group 0" in texts(figure)
    assert legend(figure) == ["compute", "group operation", "up", "down", "waiting"]
    check_layout(figure)


def test_another_round_what_was_cut_off_and_several_runs(folders: list[Path]) -> None:
    figure = timeline.plot(folders[:1], round=2)
    (panel,) = figure.axes
    assert boxes_of(panel, "compute") == [(0, 2, 0)]
    assert boxes_of(panel, "client to client") == [(1, 4, 0), (1, 4, 1)]
    assert legend(figure)[-1] == "cut off"
    both = timeline.plot(folders)
    assert [a.get_title() for a in both.axes] == ["fedavg (seed 0)", "hierfavg"]
    assert both.axes[0].get_xlim() == both.axes[1].get_xlim() == (0, 20)
    check_layout(both)
    with pytest.raises(InputError, match=r"no client did anything in round 7 .*; its last round is 2"):
        timeline.plot(folders[:1], round=7)


def test_the_time_line_of_a_large_fleet_is_cut_evenly(tmp_path: Path) -> None:
    rows = [row(COMPUTE, f"client-{c}", 0, 1 + (37 * c) % 200, group=c // 50) for c in range(200)]
    rows += [row(TRANSFER, f"client-{c}", 200, 201, f"edge-{c}", CLIENT_SERVER, group=c // 50) for c in range(20)]
    rows += [row(TRANSFER, f"edge-{e}", 201, 202, "cloud", EDGE_CLOUD) for e in range(20)]
    figure = timeline.plot([write_run(tmp_path / "a", rows)])
    (panel,) = figure.axes
    lanes = [t.get_text() for t in panel.get_yticklabels()]
    assert len([n for n in lanes if n.startswith("client-")]) == 40
    assert len([n for n in lanes if n.startswith("edge-")]) == 10
    assert lanes.index("edge-2 – cloud") < lanes.index("edge-9 – cloud")
    ends = sorted(end for _, end, _ in boxes_of(panel, "compute"))
    assert ends[0] * 60 <= 2  # the axis is in minutes; the first to finish is among them
    note = figure.legends[0].get_title().get_text().replace("\n", " ")
    assert note == (
        "In a lane of a client: its device above, its link below. "
        "Clients shown: 40 of 200, evenly from the first to the last to finish. Links to the cloud shown: 10 of 20."
    )
    assert figure.get_figheight() < 11  # it still fits a page
    check_layout(figure)


def point(panel: Axes, label: str) -> ErrorbarContainer:
    return next(c for c in panel.containers if isinstance(c, ErrorbarContainer) and c.get_label() == label)


def test_the_pareto_front(tmp_path: Path) -> None:
    cheap = make_run(metrics([0.1, 0.5], cost_s=[0, 10]), "cheap")
    middle = make_run(metrics([0.1, 0.4], cost_s=[0, 20]), "beaten")
    best = [
        make_run(metrics([0.1, y], cost_s=[0, x]), "best", seed=s) for s, (x, y) in enumerate([(25, 0.7), (35, 0.9)])
    ]
    given = [Series("cheap", (cheap,)), Series("beaten", (middle,)), Series("best", tuple(best))]
    figure = pareto.plot(given, ("cost",))
    (panel,) = figure.axes
    drawn = {name: point(panel, name).lines[0] for name in ("cheap", "beaten", "best")}
    assert [float(np.asarray(line.get_xdata())[0]) for line in drawn.values()] == [10, 20, 30]
    assert [float(np.asarray(line.get_ydata())[0]) for line in drawn.values()] == pytest.approx([50, 40, 80])
    assert drawn["beaten"].get_markerfacecolor() == "white"
    assert drawn["best"].get_markerfacecolor() == look(2).colour
    front = panel.lines[0]
    assert np.asarray(front.get_xdata()).tolist() == [10, 30]
    assert np.asarray(front.get_ydata()).tolist() == pytest.approx([50, 80])
    # Two seeds at 25 and 35: t(1, 97.5 %) = 12.706 times 7.07 / sqrt(2).
    assert pareto.points(given, "cost")[2].x_half == pytest.approx(12.7062 * 5, rel=1e-4)
    assert legend(figure) == ["cheap", "beaten", "best", "Pareto front", "not on the front"]
    assert panel.get_xlabel() == "Cost (client-seconds)"
    assert panel.get_ylabel() == "Final accuracy (%)"
    check_layout(figure)


def test_what_stands_on_the_front() -> None:
    def front(*pairs: tuple[float, float]) -> list[bool]:
        runs = [make_run(metrics([0.0, y], cost_s=[0, x]), f"m{i}") for i, (x, y) in enumerate(pairs)]
        return [p.front for p in pareto.points([Series(r.label, (r,)) for r in runs], "cost")]

    assert front((1, 0.5), (2, 0.4), (3, 0.6)) == [True, False, True]
    assert front((1, 0.5), (1, 0.5)) == [True, True]  # equals do not beat one another
    assert front((1, 0.5), (1, 0.6)) == [False, True]
    assert front((2, 0.5), (1, 0.5)) == [False, True]
    peak = make_run(metrics([0.1, 0.9, 0.3], cost_s=[0, 5, 9]), "m")
    best = pareto.points([Series("m", (peak,))], "cost", "best")[0]
    assert (best.x, best.accuracy) == (5, 0.9)
    with pytest.raises(InputError, match="without training"):
        pareto.plot([replace(peak, training=False)])


def test_points_far_apart_stand_on_a_logarithmic_axis() -> None:
    runs = [make_run(metrics([0.0, 0.5], cost_s=[0, x]), f"m{x}") for x in (1, 1000)]
    figure = pareto.plot([Series(r.label, (r,)) for r in runs], ("cost", "time"))
    assert [panel.get_xscale() for panel in figure.axes] == ["log", "linear"]


def test_groups_are_those_that_a_run_formed_last(folders: list[Path]) -> None:
    figure = groups.plot_series(folders[:1])
    (panel,) = figure.axes
    tops = [p.get_data().values.tolist() for p in panel.patches if isinstance(p, StepPatch)]
    assert tops == [[15, 8], [30, 8]]
    assert panel.get_title() == "fedavg: mean CoV 0.50"
    assert panel.get_xlabel() == "2 groups of 1.5 clients on average"
    assert groups.rule_groups(as_series(folders[:1])[0].first, "x", 1).label_counts.tolist() == [[10, 20]]
    assert groups.rule_groups(as_series(folders[:1])[0].first, "x").overhead_s == 1  # of a client in a group round
    check_layout(groups.plot_series(folders))
    (folders[0] / "groups.csv").unlink()
    with pytest.raises(InputError, match=r"has no groups\.csv: its method forms no groups"):
        groups.plot_series(folders[:1])


def test_curves_against_energy_with_a_band_and_on_a_logarithmic_axis(folders: list[Path]) -> None:
    figure = cost_accuracy.plot_series(folders, ("energy", "time"), target=0.5)
    panel = figure.axes[0]
    assert panel.get_xlabel() == "Energy of the clients (J)"
    mean = panel.lines[1]
    assert np.asarray(mean.get_xdata()).tolist() == [0, 5, 10]
    assert np.asarray(mean.get_ydata()).tolist() == pytest.approx([10, 45, 70])
    assert len(panel.collections) == 1  # a band for the method with two seeds
    assert legend(figure) == ["fedavg", "hierfavg", "target 50 %"]
    log = cost_accuracy.plot_series(folders, ("energy",), log=True, spread="range").axes[0]
    assert log.get_xscale() == "log"
    assert np.asarray(log.lines[0].get_xdata()).tolist() == [5, 10]
    assert 0 < log.get_xlim()[0] < 5
    unknown = make_run(metrics([0.1, 0.2], energy_j=[0, float("nan")]))
    with pytest.raises(InputError, match="nothing is known of the energy"):
        cost_accuracy.plot_series([unknown], ("energy",))


@pytest.mark.parametrize(
    "kind", ["breakdown", "stragglers", "timeline", "pareto", "groups", "cost-accuracy", "participation"]
)
def test_every_kind_draws_run_folders_to_every_format(folders: list[Path], tmp_path: Path, kind: str) -> None:
    paths = [tmp_path / f"x.{ending}" for ending in ("png", "svg", "pdf")]
    draw_folders(kind, folders, paths, title="A title")
    draw_folders(kind, folders, tmp_path / "again.svg", title="A title")
    assert [p.read_bytes()[:4] for p in paths] == [b"\x89PNG", b"<?xm", b"%PDF"]
    assert paths[1].read_bytes() == (tmp_path / "again.svg").read_bytes()
    with pytest.raises(InputError, match="unknown key; did you mean 'title'"):
        draw_folders(kind, folders, tmp_path / "y.png", titel="A title")


@pytest.mark.parametrize("kind", ["breakdown", "stragglers", "timeline", "participation"])
def test_what_needs_a_ledger_says_so(folders: list[Path], tmp_path: Path, kind: str) -> None:
    (folders[0] / "ledger.parquet").unlink()
    with pytest.raises(InputError, match=r"has no ledger\.parquet: it is of another version"):
        draw_folders(kind, folders[:1], tmp_path / "x.png")
    (folders[0] / "summary.json").unlink()
    with pytest.raises(InputError, match=r"has no ledger\.parquet: it is unfinished"):
        draw_folders(kind, folders[:1], tmp_path / "x.png")
    (folders[0] / "ledger.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match="is damaged"):
        draw_folders(kind, folders[:1], tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()
