"""What clients do and how long they wait: against a ledger worked out by hand, sums that must hold, and a run's own cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_samples import ROWS, row, write_run
from scenario.command import TINY, hfl

from analysis import activity
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.ledger import COMPUTE, EVALUATION


def test_every_second_of_a_client_in_its_rounds_counts_once(tmp_path: Path) -> None:
    table = activity.by_client(load_run(write_run(tmp_path / "a"))).set_index("client")
    # client-0: 10 s of round 1 and 4 s of round 2. In round 2 it computes and sends at once from 11 to 12 s: compute counts.
    assert table.loc[0].to_dict() == {
        "compute_s": 5, "group_operation_s": 1, "client_to_client_s": 2, "up_s": 2, "down_s": 1, "waiting_s": 3, "rounds": 2,
    }  # fmt: skip
    assert table.loc[1].to_dict() == {
        "compute_s": 1, "group_operation_s": 1, "client_to_client_s": 0, "up_s": 1, "down_s": 1, "waiting_s": 6, "rounds": 1,
    }  # fmt: skip
    assert table.loc[2].to_dict() == {
        "compute_s": 0, "group_operation_s": 0, "client_to_client_s": 3, "up_s": 0, "down_s": 0, "waiting_s": 1, "rounds": 1,
    }  # fmt: skip
    assert activity.totals(load_run(tmp_path / "a")) == {
        "compute": 6, "group operation": 2, "client to client": 5, "up": 3, "down": 2, "waiting": 10,
    }  # fmt: skip


SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(activity.KINDS), st.integers(0, 20), st.integers(0, 9)), max_size=30
)


@given(SPANS, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), max_size=6))
def test_parts_are_those_of_a_count_second_by_second(
    spans: list[tuple[int, str, int, int]], present: list[tuple[int, int, int]]
) -> None:
    rows = [(w, k, s, s + d) for w, k, s, d in spans]
    table = pd.DataFrame(rows, columns=["whose", "kind", "start_s", "end_s"])
    whose, start_s, end_s = (np.array([p[i] for p in present], dtype=np.int64) for i in range(3))
    found = activity.divided(
        table["whose"].to_numpy(dtype=np.int64),
        table,
        (whose, start_s.astype(float), (start_s + end_s).astype(float)),
        3,
    )
    counted = {part: np.zeros(3) for part in activity.PARTS}
    for owner in range(3):
        for second in range(30):
            kinds = [k for w, k, s, e in rows if w == owner and s <= second < e]
            if kinds:
                counted[min(kinds, key=activity.KINDS.index)][owner] += 1
            elif any(w == owner and s <= second < s + d for w, s, d in present):
                counted["waiting"][owner] += 1
    for part in activity.PARTS:
        assert found[part].tolist() == counted[part].tolist()


def test_stragglers_by_group_round(tmp_path: Path) -> None:
    table = activity.stragglers(load_run(write_run(tmp_path / "a"))).set_index("client")
    # Of the group round, 1 to 8 s, client-1 is busy 4 s; that of round 2 lasts from 10 to 14 s.
    assert table.index.tolist() == [2, 1, 0]
    assert (table.loc[1, "own_s"], table.loc[1, "waiting_s"]) == (4, 3)
    assert (table.loc[0, "own_s"], table.loc[0, "waiting_s"]) == ((7 + 4) / 2, 0)
    assert table["turns"].to_dict() == {2: 1, 1: 1, 0: 2}
    assert table["slowest"].to_dict() == {2: 0, 1: 0, 0: 2}
    assert table["device"].to_dict() == {2: "pi-0", 1: "pi-1", 0: "pi-0"}
    (tmp_path / "a" / "energy.csv").unlink()
    assert set(activity.stragglers(load_run(tmp_path / "a"))["device"]) == {""}


def test_a_run_in_which_nothing_happens(tmp_path: Path) -> None:
    still = load_run(write_run(tmp_path / "a", ROWS[:2]))
    with pytest.raises(InputError, match="no client did anything"):
        activity.by_client(still)
    before = load_run(write_run(tmp_path / "b", [row(COMPUTE, "client-0", 0, 1, round=0)]))
    assert activity.totals(before)["compute"] == 1
    with pytest.raises(InputError, match="has no round"):
        activity.stragglers(before)


def test_compute_and_operations_are_the_cost_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TINY)
    assert (
        hfl("run", tmp_path / "s.yaml", "--out", tmp_path / "run", "--no-memo", "--set", "output.plot=false").code == 0
    )
    run = load_run(tmp_path / "run")
    totals, last = activity.totals(run), run.metrics.iloc[-1]
    assert totals["compute"] == pytest.approx(last["cost_training_s"])
    assert totals["group operation"] == pytest.approx(last["cost_group_s"])
    # All eight clients take part in both rounds, which follow one another: together as long as the run.
    lasted_s = run.ledger[run.ledger["kind"] != EVALUATION].groupby("round")["end_s"].max().max()
    assert sum(totals.values()) == pytest.approx(8 * lasted_s)
    assert lasted_s == pytest.approx(last["time_s"])
