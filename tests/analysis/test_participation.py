"""Who trains how often, how evenly, and how stale updates are: figures by hand, tables, and what the pictures show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_samples import ROWS, row, write_run
from matplotlib.axes import Axes
from matplotlib.patches import StepPatch

from analysis.figures import draw_folders
from analysis.participation import figures, jain, trainings
from analysis.plots import participation, staleness
from analysis.printed import table
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.ledger import BROKEN, COMPUTE
from tests.analysis.test_plots_of_runs import check_layout, legend

# client-0 trains twice and client-1 once, client-2 never; what is cut off or computed by a server is no training.
CUT = row(COMPUTE, "client-2", 12, 13, round=2, status=BROKEN)
ARRIVALS = """round,time_s,group,client,from_round,staleness,weight,used
1,1.0,0,0,0,0,0.5,1
2,2.0,1,1,0,1,0.25,1
4,4.0,0,0,2,1,0.25,1
5,10.0,2,,0,4,0.0,0
"""
SELECTIONS = """round,time_s,group,client,chosen,statistical,system,utility,tier
1,0.0,0,0,1,1.0,1.0,1.0,0
1,0.0,0,1,0,1.0,1.0,1.0,0
2,5.0,0,1,0,1.0,1.0,1.0,0
2,5.0,0,2,0,,,,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = write_run(tmp_path / "a", [*ROWS, CUT])
    (found / "arrivals.csv").write_text(ARRIVALS)
    return found


def steps(box: Axes, label: str = "") -> list[np.ndarray]:
    """The heights of what was drawn in steps."""
    found = [patch for patch in box.patches if isinstance(patch, StepPatch)]
    return [np.asarray(patch.get_data()[0]) for patch in found if label in ("", patch.get_label())]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30).filter(any), st.integers(2, 9))
def test_jains_index_is_1_for_equal_shares_and_the_share_of_those_who_have_all(counts: list[int], times: int) -> None:
    found = jain(np.array(counts))
    assert 1 / len(counts) - 1e-12 <= found <= 1 + 1e-12
    assert jain(times * np.array(counts)) == pytest.approx(found)  # whatever the unit
    n = len(counts)
    assert jain(np.array([7] * n + [0] * (times - 1) * n)) == pytest.approx(1 / times)


def test_trainings_that_were_ended_count(folder: Path) -> None:
    counted = trainings(load_run(folder))
    assert counted["trainings"].tolist() == [2, 1, 0]
    assert counted["device"].tolist() == ["pi-0", "pi-1", "pi-0"]
    assert "passed_over" not in counted
    (folder / "selections.csv").write_text(SELECTIONS)
    assert trainings(load_run(folder))["passed_over"].tolist() == [0, 2, 1]
    assert figures(load_run(folder)) == pytest.approx({
        "jain": 9 / (3 * 5), "least": 0, "median": 1, "most": 2, "never": 1 / 3,
        "staleness_mean": 1.5, "staleness_p95": 1 + 0.85 * 3, "staleness_max": 4, "dropped": 0.25,
    })  # fmt: skip


def test_the_table_has_means_over_seeds_and_no_staleness_where_nobody_knows_of_any(
    folder: Path, tmp_path: Path
) -> None:
    made = table("participation", [folder])
    assert made.sections[0].rows == (
        ("fedavg", "0.600", "0", "1", "2", "33.3 %", "1.5", "3.55", "4", "25.0 %"),
    )  # fmt: skip
    other = write_run(tmp_path / "b", label="hierfavg")
    both = table("participation", [folder, other])
    assert both.sections[0].rows[1][-4:] == ("–", "–", "–", "–")
    assert "mean staleness" not in table("participation", [other]).text()
    seed = write_run(tmp_path / "c", [*ROWS, row(COMPUTE, "client-2", 12, 13, round=2)], label="hierfavg", seed=1)
    assert table("participation", [other, seed]).data["jain_mean"].tolist() == pytest.approx([(0.6 + 16 / 18) / 2])


def test_one_run_has_a_bar_for_each_client(folder: Path) -> None:
    (folder / "selections.csv").write_text(SELECTIONS)
    figure = participation.plot([folder])
    [box] = figure.axes
    assert [steps(box, kind)[0].tolist() for kind in ("pi-0", "pi-1")] == [[2, 0, 0], [0, 1, 0]]
    assert steps(box, "passed over, although there")[0].tolist() == [2, 3, 1]
    assert "3 clients, most often first; 1 never trained\nJain's fairness index 0.600" in box.get_xlabel()
    assert legend(figure) == ["pi-0", "pi-1", "passed over, although there", "mean: 1"]
    check_layout(figure)
    upside = write_run(folder.parent / "b", [*ROWS, *[row(COMPUTE, "client-2", t, t + 1) for t in (20, 22, 24)]])
    counts = [steps(participation.plot([upside], order).axes[0], "pi-0")[0].tolist() for order in ("count", "fleet")]
    assert counts == [[3, 2, 0], [2, 0, 3]]


def test_several_runs_are_lines_of_their_clients_shares(folder: Path, tmp_path: Path) -> None:
    seeds = [write_run(tmp_path / f"b{s}", label="hierfavg", seed=s) for s in (0, 1)]
    figure = participation.plot([folder, *seeds])
    [box] = figure.axes
    assert [line.tolist() for line in steps(box)] == [[2, 1, 0], [2, 1, 0]]
    assert legend(figure) == ["fedavg: J = 0.600", "hierfavg: J = 0.600 ± 0.000", "all alike"]
    check_layout(figure)


def test_staleness_by_run_and_over_time(folder: Path, tmp_path: Path) -> None:
    figure = staleness.plot([folder])
    shares, over_time = figure.axes
    assert steps(shares)[0].tolist() == [25, 75, 75, 75, 100]
    assert legend(figure) == ["fedavg: mean 1.5, 25 % dropped", "pi-0", "pi-1", "group 2"]
    drawn = [np.column_stack(line.get_data()).tolist() for line in over_time.lines]
    assert sorted(drawn) == [[[1, 0], [4, 1]], [[2, 1]], [[10, 4]]]
    check_layout(figure)
    assert legend(staleness.plot([folder], "group"))[1:] == ["group 0", "group 1", "group 2"]
    many = [f"{k + 1},{k + 1}.0,{k},,0,{k},0.1,1" for k in range(20)]
    other = write_run(tmp_path / "b", label="fedbuff")
    (other / "arrivals.csv").write_text("\n".join([ARRIVALS.split("\n")[0], *many, ""]))
    both = staleness.plot([folder, other])
    assert len(both.axes) == 3
    assert legend(both)[:2] == ["fedavg: mean 1.5, 25 % dropped", "fedbuff: mean 9.5"]
    assert legend(both)[-1] == "others"
    assert len(legend(both)) == 2 + staleness.MOST
    check_layout(both)


def test_what_a_run_does_not_know_is_said(folder: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "b", [r for r in ROWS if r[0] != COMPUTE])
    with pytest.raises(InputError, match=r"has no arrivals\.csv: its method is not asynchronous"):
        draw_folders("staleness", [other], tmp_path / "x.png")
    assert legend(staleness.plot([folder, other]))[1:2] == ["fedavg (b): waits for all it asks"]
    of_groups = ARRIVALS.replace("from_round", "group_round")
    (other / "group_arrivals.csv").write_text(of_groups)
    assert legend(staleness.plot([other]))[0].endswith("mean 1.5, 25 % dropped")
    with pytest.raises(InputError, match="no client trained in the run in"):
        draw_folders("participation", [other], tmp_path / "x.png")
    (folder / "energy.csv").unlink()
    with pytest.raises(InputError, match=r"has no energy\.csv"):
        draw_folders("participation", [folder], tmp_path / "x.png")
    draw_folders("staleness", [folder], tmp_path / "y.svg", over_time="group", title="A title")
    assert (tmp_path / "y.svg").read_text().count("A title") == 1
