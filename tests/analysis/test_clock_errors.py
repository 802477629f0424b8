"""The errors of one run's clock against another's: closed forms, orders against brute force, and what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_samples import ROWS, Entry, row, write_run
from scenario.command import TINY, hfl

from analysis import activity, clock_errors, clock_table
from analysis.plots import clock
from analysis.report import report
from analysis.runs import Run, load_run
from emulator.errors import InputError
from emulator.files import write_json
from emulator.ledger import BROKEN, CLIENT_SERVER, COMPUTE, TRANSFER


def stretched(rows: Sequence[Entry], factor: float) -> list[Entry]:
    return [(*r[:3], r[3] * factor, r[4] * factor, *r[5:]) for r in rows]


def pair(folder: Path, first: Sequence[Entry], second: Sequence[Entry], measured: bool = True) -> tuple[Run, Run]:
    write_run(folder / "emulated", first)
    write_run(folder / "measured", second)
    if measured:
        write_json(folder / "measured" / "manifest.json", {"clock": "measured"})
    return load_run(folder / "emulated"), load_run(folder / "measured")


def test_a_clock_that_is_slower_by_a_factor_is_off_by_it_everywhere(tmp_path: Path) -> None:
    errors = clock_errors.compare(*pair(tmp_path, stretched(ROWS, 0.8), ROWS))
    assert errors.names == ("emulated", "measured")
    phases = errors.phases.set_index("phase")
    assert set(phases.index) == {
        "compute", "group operation", "client to client", "up", "down", "cloud to edge", "edge to cloud", "servers compute",
        "waiting",
    }  # fmt: skip
    assert phases["error"].to_numpy() == pytest.approx(-0.2)
    assert phases["absolute"].to_numpy() == pytest.approx(0.2)
    assert (phases[["only_first", "only_second"]] == 0).all(axis=None)
    assert phases.loc["compute", "second_s"] == pytest.approx((1 + 3 + 2) / 3)
    assert phases.loc["up", "first_s"] == pytest.approx(0.8 * 1.5)
    assert errors.rounds["second_s"].tolist() == pytest.approx([10, 4])
    assert errors.round_error == (pytest.approx(-0.2), pytest.approx(0, abs=1e-12), pytest.approx(0.2))
    totals = errors.totals.set_index("what")
    assert totals.loc["time", "error"] == pytest.approx(-0.2)
    assert totals.loc["cost", "second"] == pytest.approx(1 + 3 + 2 + 1 + 1)
    assert totals.loc["data", "error"] == 0
    assert clock_errors.largest_difference(errors.first, errors.second) == (3, 0.0)


def test_a_run_agrees_with_itself(tmp_path: Path) -> None:
    errors = clock_errors.compare(*pair(tmp_path, ROWS, ROWS))
    assert (errors.phases["error"] == 0).all()
    assert (errors.totals["error"] == 0).all()
    assert errors.arrivals[["pairs", "same", "swapped", "tied", "same_first"]].to_numpy().tolist() == [[1, 1, 0, 0, 1]]


def test_what_is_in_one_run_alone_is_counted(tmp_path: Path) -> None:
    lost = row(TRANSFER, "client-1", 6, 6.5, "edge-0", CLIENT_SERVER, status=BROKEN)
    again = row(COMPUTE, "client-0", 12, 13, round=2)
    second = [lost if (r[1], r[5]) == ("client-1", CLIENT_SERVER) else r for r in ROWS] + [again]
    errors = clock_errors.compare(*pair(tmp_path, ROWS, second))
    phases = errors.phases.set_index("phase")
    counted = phases[["matched", "only_first", "only_second"]]
    assert counted.loc["up"].tolist() == [1, 1, 1]  # done in one, cut off in the other
    assert counted.loc["compute"].tolist() == [3, 0, 0]  # what comes in two rows is one activity
    assert phases.loc["compute", ["rows_first", "rows_second"]].tolist() == [3, 4]
    assert phases.loc["compute", "error"] == pytest.approx(6 / 7 - 1)
    assert errors.arrivals[["matched", "only_first", "only_second"]].to_numpy().tolist() == [[1, 1, 0]]
    for column in ("matched", "only_first", "only_second"):
        assert f"{counted[column]['up']}" in clock_table.printed(errors).text()


def test_rounds_in_one_run_alone_are_counted(tmp_path: Path) -> None:
    errors = clock_errors.compare(*pair(tmp_path, [r for r in ROWS if r[6] < 2], ROWS))
    assert errors.rounds["error"].isna().tolist() == [False, True]
    line = clock_table.printed(errors).data.query("section == 'rounds'").iloc[0]
    assert (line["matched"], line["only_first"], line["only_second"]) == (1, 0, 1)


times = st.lists(st.integers(0, 6), min_size=0, max_size=9)


@given(times.flatmap(lambda a: st.tuples(st.just(a), st.lists(st.integers(0, 6), min_size=len(a), max_size=len(a)))))
def test_orders_agree_as_counting_every_pair_says(both: tuple[list[int], list[int]]) -> None:
    one, other = (np.array(each, dtype=float) for each in both)
    signs = [
        (np.sign(one[i] - one[j]), np.sign(other[i] - other[j])) for i, j in itertools.combinations(range(len(one)), 2)
    ]
    same = sum(a * b > 0 for a, b in signs)
    swapped = sum(a * b < 0 for a, b in signs)
    first_too = int(bool(len(one)) and bool(((one == one.min()) & (other == other.min())).any()))
    expected = (len(signs), same, swapped, sum(a == 0 for a, _ in signs), sum(b == 0 for _, b in signs), first_too)
    assert clock_errors.order(one, other) == expected


def test_orders_are_turned_round_and_shifted(tmp_path: Path) -> None:
    arriving = [(COMPUTE, "client-0", "", 0.0, 1.0, "", 1, 0, 0, "done")]
    ups = lambda ends: [row(TRANSFER, f"client-{c}", 1, end, "edge-0", CLIENT_SERVER) for c, end in enumerate(ends)]  # noqa: E731
    errors = clock_errors.compare(*pair(tmp_path, [*arriving, *ups([2, 3, 4])], [*arriving, *ups([9, 8, 7])]))
    assert errors.arrivals["tau"].tolist() == [-1.0]
    assert errors.arrivals["same_first"].tolist() == [0]


def test_the_parts_of_a_client_by_round_add_up_to_the_rounds(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run"))
    table = activity.by_round(run)
    lengths = table["round"].map({1: 10.0, 2: 4.0})
    assert table[list(activity.COLUMNS.values())].sum(axis=1).tolist() == pytest.approx(lengths.tolist())
    summed = table.groupby("client")[list(activity.COLUMNS.values())].sum().to_numpy()
    assert summed == pytest.approx(activity.by_client(run)[list(activity.COLUMNS.values())].to_numpy())


def test_other_methods_seeds_clients_and_scenarios_are_refused(tmp_path: Path) -> None:
    first = load_run(write_run(tmp_path / "a"))
    others = {
        "one method": write_run(tmp_path / "b", label="fedprox"),
        "of one seed, not of 0 and 5": write_run(tmp_path / "c", seed=5),
        "'data.set.kind' is digits in": write_run(tmp_path / "d", scenario={"data": {"set": {"kind": "cifar10"}}}),
    }
    energy = write_run(tmp_path / "e") / "energy.csv"
    energy.write_text(energy.read_text().rsplit("client-2", 1)[0])
    others["same clients: "] = tmp_path / "e"
    for words, folder in others.items():
        with pytest.raises(InputError, match=words):
            clock_errors.compare(first, load_run(folder))
    emulated, measured = pair(tmp_path, ROWS, ROWS)
    with pytest.raises(InputError, match="give the emulated one first"):
        clock_errors.compare(measured, emulated)
    assert clock_errors.names(measured, measured) == ("measured again", "measured")


def test_only_the_world_may_differ(tmp_path: Path) -> None:
    first = load_run(write_run(tmp_path / "a"))
    other = load_run(write_run(tmp_path / "b", scenario={"topology": {"clients": 3}, "stop": {"rounds": 9}}))
    assert not clock_errors.compare(first, other).phases.empty


def test_the_command_the_picture_and_the_report(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TINY)
    for name, up in (("one", "8 Mbit/s"), ("two", "6 Mbit/s")):
        done = hfl(
            "run",
            tmp_path / "s.yaml",
            "--no-training",
            "--out",
            tmp_path / name,
            "--set",
            f"topology.links.access.up={up}",
        )
        assert done.code == 0, done.err
    folders = (tmp_path / "one", tmp_path / "two")
    for form in ("text", "csv", "markdown", "latex"):
        done = hfl("compare", "--clock", *folders, "--format", form, "--out", tmp_path / form)
        assert done.code == 0, done.err
        assert "Kendall" in done.out or form == "csv"
    table = pd.read_csv(tmp_path / "csv" / "clock.csv")
    assert tuple(table.columns) == clock_table.COLUMNS
    up = table.query("section == 'phase' and what == 'up'").iloc[0]
    assert up["error"] < 0
    assert up["matched"] > 0 == up["only_first"] == up["only_second"]
    assert table.query("section == 'phase' and what == 'compute'")["error"].tolist() == pytest.approx([0])
    assert (tmp_path / "text" / "clock.png").stat().st_size > 10_000
    assert hfl("table", "clock", *folders).code == 0
    assert hfl("plot", "clock", *folders, "--set", "round=2", "--out", tmp_path / "p.svg").code == 0
    assert "Clock" not in report(folders).split("Summary")[0]
    assert "the first clock is too fast" in report(folders, clock=True)
    figure = clock.plot(clock_errors.compare(*map(load_run, folders)))
    above = figure.subfigs[0].axes
    lanes = [[t.get_text() for t in box.get_yticklabels()] for box in above]
    assert lanes[0] == lanes[1]
    assert above[0].get_xlim() == above[1].get_xlim()


def test_a_measured_run_brings_its_clock_into_the_report(tmp_path: Path) -> None:
    emulated, measured = pair(tmp_path, stretched(ROWS, 0.5), ROWS)
    page = report([emulated.folder, measured.folder])
    assert "the emulated clock is too fast" in page
    assert "(emulated - measured) / measured" in page


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--clock", "one"], "two runs"),
        (["--clock", "one", "two", "three"], "two runs"),
        (["--clock", "one", "two", "--target", "0.5"], "without --target"),
        (["--clock", "one", "two", "--format", "cvs"], "did you mean 'csv'"),
        (["one", "two", "--format", "csv"], "--format goes with --clock"),
        (["--clock", "one", "nothing"], "there is no folder"),
    ],
)
def test_bad_words_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two", "three"):
        write_run(tmp_path / name)
    done = hfl("compare", *words)
    assert done.code == 2
    assert says in done.err


def test_nothing_divides_by_nothing() -> None:
    assert clock_errors.off(0.0, 0.0) == 0
    assert math.isnan(clock_errors.off(1.0, 0.0))
    assert clock_errors.off(3.0, 2.0) == 0.5
