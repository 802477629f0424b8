"""Pictures of headers and their members, and bars of what targets took."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_samples import metrics, write_folder
from matplotlib.text import Text

from analysis.plots import to_target as bars
from analysis.plots.style import COLUMN_INCHES, PAGE_INCHES
from analysis.plots.to_target import ToTarget, to_target
from analysis.plots.topology import COLUMNS, Topology, plot, read_topology, topology
from analysis.studies import load_study
from emulator.errors import InputError
from emulator.files import write_json
from emulator.grouping.topology import Place, topology_csv


def places(groups: int = 3, size: int = 4, kind: int | None = None) -> list[Place]:
    """Clusters of clients 0, 1, 2, ..., of which the first is the header and the last was left out."""
    return [
        Place(1, g, g * size + i, g * size, i if kind is None else kind, (i + g) % 10, 30, 5 * (0 < i < size - 1))
        for g in range(groups)
        for i in range(size)
    ]


def written(folder: Path, rows: list[Place]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "topology.csv").write_text(topology_csv(rows))
    return folder


def test_the_file_holds_the_places_and_the_first_headers_are_drawn(tmp_path: Path) -> None:
    assert Place._fields == COLUMNS
    later = [p._replace(round=4, header=p.header + 1) for p in places()]
    table = read_topology(written(tmp_path, [*places(), *later]))
    assert [tuple(row) for row in table.itertuples(index=False)] == places()


def test_headers_are_around_the_server_and_members_around_their_headers(tmp_path: Path) -> None:
    table = read_topology(written(tmp_path, places()))
    figure = plot({"": table}, tmp_path / "x.png")
    box, inset = figure.axes[0], figure.axes[0].child_axes[0]
    dots = [line for line in box.lines if line.get_marker() == "o"]
    squares = [line for line in box.lines if line.get_marker() == "s"]
    lines = [line for line in box.lines if len(np.asarray(line.get_xdata())) == 2]
    assert (len(squares), len(dots)) == (3, 9)
    assert len(lines) == 3 + 3 * 2  # headers to the server, and members but for the one that was left out
    for square in squares:
        x, y = float(np.asarray(square.get_xdata())[0]), float(np.asarray(square.get_ydata())[0])
        assert math.hypot(x, y) == pytest.approx(1)
    everywhere = [
        (round(float(np.asarray(d.get_xdata())[0]), 6), round(float(np.asarray(d.get_ydata())[0]), 6)) for d in dots
    ]
    assert len(set(everywhere)) == 9
    assert len(inset.lines) == 12
    assert len({str(line.get_color()) for line in inset.lines}) == 4  # the kinds
    assert (tmp_path / "x.png").stat().st_size > 1000
    assert figure.get_figwidth() == COLUMN_INCHES
    assert plot({"a": table, "b": table}).get_figwidth() == PAGE_INCHES


def test_without_kinds_the_colours_are_labels(tmp_path: Path) -> None:
    table = read_topology(written(tmp_path, places(kind=-1)))
    figure = plot({"": table})
    assert "colours: the label held most" in [t.get_text() for t in figure.legends[0].get_texts()]
    assert len({str(line.get_color()) for line in figure.axes[0].child_axes[0].lines}) == 6  # labels 0 to 5


def test_what_is_no_topology_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no topology\.csv: only methods with headers"):
        read_topology(tmp_path)
    (tmp_path / "topology.csv").write_text("round,group\n1,2\n")
    with pytest.raises(InputError, match="was written by another version: it has no column 'client'"):
        read_topology(tmp_path)
    with pytest.raises(InputError, match="at least one run"):
        plot({})


def make_study(folder: Path) -> Path:
    """Two methods in two settings, two seeds each; bytes are 1000 a round."""
    runs = []
    for variant, ends in (("HFLDD", 0.8), ("FedAvg", 0.4)):
        for classes in (1, 2):
            for seed in range(2):
                name = f"{variant.lower()}_classes-{classes}_seed-{seed}"
                table = metrics([0.1, ends / 2, ends - 0.15 * seed, ends])
                write_folder(folder / name, table, label=variant.lower(), seed=seed)
                if variant == "HFLDD":
                    written(folder / name, places(groups=2 + classes))
                identity = {"run": name, "variant": variant, "method": variant.lower(), "seed": seed}
                runs.append({**identity, "point": {"data.partition.classes": classes}})
    about: dict[str, Any] = {"name": "s", "notes": "", "columns": ["variant", "data.partition.classes"], "target": None}
    write_json(folder / "study.json", about | {"runs": runs})
    return folder


def test_bars_say_what_targets_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = bars.plot
    monkeypatch.setattr(bars, "plot", lambda *args: seen.append(args) or original(*args))
    results = load_study(make_study(tmp_path))
    params = ToTarget.model_validate({"targets": [0.3, 0.7], "by": "variant", "panels": "classes"})
    to_target(results, [tmp_path / "a.png", tmp_path / "a.svg"], params)
    by_panel, targets, axis = seen[0][:3]
    assert (targets, axis.name) == ((0.3, 0.7), "bytes")
    assert list(by_panel) == ["classes = 1", "classes = 2"]
    assert by_panel["classes = 1"]["HFLDD"] == [[1000, 1000], [2000, 3000]]
    fedavg = by_panel["classes = 2"]["FedAvg"]
    assert fedavg[0] == [2000, 3000]
    assert all(math.isnan(v) for v in fedavg[1])
    assert (tmp_path / "a.png").is_file()
    assert (tmp_path / "a.svg").is_file()
    to_target(results, [tmp_path / "b.svg"], ToTarget.model_validate({"targets": [0.3], "value": "round"}))
    assert "FedAvg, classes = 1" in (tmp_path / "b.svg").read_text()


def test_bars_are_means_on_a_logarithmic_axis_and_say_who_did_not_get_there() -> None:
    taken = {"A": [[1e6, 3e6], [4e7, math.nan]], "B": [[2e8, 2e8], [math.nan, math.nan]]}
    figure = bars.plot({"": taken}, [0.5, 0.9])
    (box,) = figure.axes
    assert box.get_yscale() == "log"
    assert box.get_ylabel() == "Data over all links (MB)"
    assert [bar.get_height() for bar in box.patches] == pytest.approx([2.0, 40.0, 200.0])  # type: ignore[attr-defined]
    low, high = box.get_ylim()
    assert low <= 1
    assert high >= 200
    said = [t.get_text() for t in box.findobj(Text) if isinstance(t, Text)]
    assert {"1/2", "not reached", "50 %", "90 %"} <= set(said)
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["A", "B"]
    assert min(float(t.get_fontsize()) for t in figure.findobj(Text) if isinstance(t, Text) and t.get_text()) >= 8


def test_bars_need_something_to_draw(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one run and one target"):
        bars.plot({"": {}}, [0.5])
    with pytest.raises(InputError, match="at least one run and one target"):
        bars.plot({"": {"A": []}}, [])
    with pytest.raises(InputError, match="unknown axis"):
        bars.plot({"": {"A": [[1.0]]}}, [0.5], "byte")
    nobody = bars.plot({"": {"A": [[math.nan]]}}, [0.5])
    assert "not reached" in [t.get_text() for t in nobody.axes[0].texts]


def test_a_study_draws_the_first_run_that_has_headers(tmp_path: Path) -> None:
    results = load_study(make_study(tmp_path))
    topology(
        results, [tmp_path / "t.svg"], Topology.model_validate({"panels": "classes", "where": {"variant": "HFLDD"}})
    )
    drawn = (tmp_path / "t.svg").read_text()
    assert "classes = 1" in drawn
    assert "classes = 2" in drawn
    topology(results, [tmp_path / "u.png"], Topology())
    with pytest.raises(InputError, match="has headers"):
        topology(results, [], Topology.model_validate({"where": {"variant": "FedAvg"}}))


def test_pictures_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    table = pd.DataFrame(places(), columns=list(COLUMNS))
    for name in ("a", "b"):
        plot({"": table}, tmp_path / f"{name}.svg")
        bars.plot({"": {"A": [[1.0, 2.0]]}}, [0.5], "bytes", tmp_path / f"{name}.pdf")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
