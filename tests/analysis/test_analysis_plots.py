from __future__ import annotations

import itertools
import os
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from analysis_samples import make_run, metrics, realistic
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from analysis.plots.cost_accuracy import plot
from analysis.plots.style import COLUMN_INCHES, PAGE_INCHES, look, save
from emulator.errors import InputError

RUNS = [
    realistic("group-fel", 0.71, 1.6),
    realistic("fedavg", 0.62, 1.0, round_cost_s=250, round_s=120),
    realistic("fedseq", 0.68, 1.2, rounds=60, round_s=240, round_bytes=12e6, status="interrupted"),
]


def texts_of_svg(path: Path) -> list[str]:
    return [e.text or "" for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_runs_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    axes = ("cost", "time")
    figure = plot(RUNS, axes, path=tmp_path / f"a.{ending}", target=0.6, title="t")
    plot(RUNS, axes, path=tmp_path / f"b.{ending}", target=0.6, title="t")
    save(figure, tmp_path / f"c.{ending}")
    first = (tmp_path / f"a.{ending}").read_bytes()
    assert first == (tmp_path / f"b.{ending}").read_bytes()
    assert first == (tmp_path / f"c.{ending}").read_bytes()
    for word in (b"CreationDate", b"dc:date", b"Software", b"matplotlib.org"):
        assert word not in first


def test_the_users_settings_change_nothing(tmp_path: Path) -> None:
    plot(RUNS, ("cost",), path=tmp_path / "a.png")
    with matplotlib.rc_context({"lines.linewidth": 9, "savefig.dpi": 30, "font.size": 20, "savefig.bbox": "tight"}):
        plot(RUNS, ("cost",), path=tmp_path / "b.png")
        assert matplotlib.rcParams["lines.linewidth"] == 9
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_labels_name_quantities_units_and_runs(tmp_path: Path) -> None:
    plot(RUNS, path=tmp_path / "a.svg", target=0.625, title="100 clients for $5 and $6")
    texts = texts_of_svg(tmp_path / "a.svg")
    for expected in (
        "Test accuracy (%)", "Cost (client-hours)", "Emulated time (h)",
        "Data over all links (GB)", "Global round",
        "group-fel", "fedavg", "fedseq [interrupted]", "target 62.5 %", "100 clients for $5 and $6",
    ):  # fmt: skip
        assert expected in texts
    plot([make_run(metrics([0.1, 0.2]))], path=tmp_path / "b.svg", axes=("time", "bytes"))
    texts = texts_of_svg(tmp_path / "b.svg")
    assert "Emulated time (s)" in texts
    assert "Data over all links (B)" in texts
    assert "fedavg" not in texts


def test_the_lines_are_the_data_in_the_units_of_the_axis() -> None:
    figure = plot(RUNS, axes=("time", "bytes", "cost", "round"))
    sizes = {"time_s": 3600, "bytes_total": 1e9, "cost_s": 3600, "round": 1}
    assert len(figure.axes) == 4
    for axes, (column, size) in zip(figure.axes, sizes.items(), strict=True):
        assert len(axes.lines) == 3
        assert axes.get_xlim()[0] == 0
        for line, run in zip(axes.lines, RUNS, strict=True):
            x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
            np.testing.assert_allclose(x, run.metrics[column] / size, rtol=1e-12)
            np.testing.assert_allclose(y, 100 * run.metrics["accuracy"], rtol=1e-12)
            assert x.max() <= axes.get_xlim()[1]
            assert axes.get_ylim()[0] <= y.min()
            assert y.max() <= axes.get_ylim()[1]


@pytest.mark.parametrize(
    ("accuracy", "limits"),
    [
        ([0.1, 0.634], (0, 70)),
        ([0.91, 0.94], (90, 100)),
        ([1.0], (90, 100)),
        ([0.0], (0, 10)),
        ([0.1, 0.7], (0, 80)),
    ],
)
def test_the_accuracy_axis_shows_whole_tens(accuracy: list[float], limits: tuple[float, float]) -> None:
    assert plot([make_run(metrics(accuracy))], axes=("time",)).axes[0].get_ylim() == limits


def test_the_target_is_inside_the_picture_and_on_every_panel() -> None:
    figure = plot([make_run(metrics([0.1, 0.3]))], axes=("time", "cost"), target=0.85)
    for axes in figure.axes:
        assert np.asarray(axes.lines[0].get_ydata()).tolist() == [85, 85]
        assert axes.get_ylim() == (0, 90)


def test_markers_stand_at_every_point_only_where_points_are_few() -> None:
    few = plot([make_run(metrics([0.1, 0.2, 0.3]))], axes=("time",)).axes[0].lines[0]
    assert (few.get_marker(), few.get_markevery()) == ("o", None)
    many = plot(RUNS[:1], axes=("time",)).axes[0].lines[0]
    assert many.get_marker() in ("", "None")
    both = plot(RUNS[:2], axes=("time",)).axes[0].lines
    assert [line.get_marker() for line in both] == ["o", "s"]
    assert all(line.get_markevery() is not None for line in both)


def test_many_runs_are_told_apart_without_colours_too() -> None:
    assert len({look(i) for i in range(315)}) == 315
    assert len({(look(i).dash, look(i).marker) for i in range(45)}) == 45


def visible_texts(figure: Figure) -> list[Text]:
    return [t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_visible() and t.get_text().strip()]


@pytest.mark.parametrize(
    "axes", [("cost",), ("cost", "time"), ("cost", "time", "bytes"), ("cost", "time", "bytes", "round")]
)
@pytest.mark.parametrize(
    "name", ["{}", "a method with quite a long name that goes on and on, until it is very long indeed {}"]
)
def test_text_is_legible_inside_the_page_and_apart_from_the_panels(axes: tuple[str, ...], name: str) -> None:
    runs = [make_run(run.metrics, name.format(i)) for i, run in enumerate(RUNS * 2)]
    figure = plot(runs, axes=axes, target=0.6, title="A title of some length that may have to be broken into lines")
    assert figure.get_figwidth() == (COLUMN_INCHES if len(axes) == 1 else PAGE_INCHES)
    texts = visible_texts(figure)
    assert min(float(t.get_fontsize()) for t in texts) >= 8
    width, height = figure.bbox.width, figure.bbox.height
    (legend,) = figure.legends
    title = figure.get_suptitle()
    drawn = [t for t in texts if t in legend.get_texts() or t.get_text() == title]
    assert len(drawn) == len(runs) + 2
    for text in drawn:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width
        assert box.y0 >= 0
        assert box.y1 <= height
    for panel in figure.axes:
        area = panel.get_tightbbox()
        assert area is not None
        assert not area.overlaps(legend.get_window_extent())
        assert panel.bbox.height > 1.3 * figure.dpi
        for other in figure.axes:
            other_area = other.get_tightbbox()
            assert other_area is not None
            assert other is panel or not area.overlaps(other_area)


def test_tick_labels_do_not_touch() -> None:
    figure = plot(RUNS, axes=("cost", "time", "bytes"))
    for axes in figure.axes:
        low, high = axes.get_xlim()
        boxes = [
            label.get_window_extent()
            for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
            if low <= place <= high
        ]
        assert len(boxes) >= 3
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def test_a_picture_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = plot(RUNS[:1], axes=("time",))
    target = tmp_path / "accuracy.png"
    assert save(figure, target) == target
    assert imread(target).shape[1] == int(COLUMN_INCHES * 200)
    before = target.read_bytes()

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        save(plot(RUNS, axes=("cost",)), target)
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["accuracy.png"]


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the name must end in one of '\.png', '\.svg', '\.pdf'"):
        plot(RUNS, path=tmp_path / "a.jpg")
    with pytest.raises(InputError, match="there is no folder"):
        plot(RUNS, path=tmp_path / "none" / "a.png")
    with pytest.raises(InputError, match="at least one run"):
        plot([])
    with pytest.raises(InputError, match="at least one axis"):
        plot(RUNS, axes=())
    with pytest.raises(InputError, match="unknown axis 'costs'; did you mean 'cost'"):
        plot(RUNS, axes=("costs",))
    with pytest.raises(InputError, match=r"for 60 per cent write 0\.6"):
        plot(RUNS, target=60)
    assert list(tmp_path.iterdir()) == []
