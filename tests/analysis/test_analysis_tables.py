from __future__ import annotations

import io
import math

import numpy as np
import pandas as pd
import pytest
from analysis_samples import make_run, metrics

from analysis.runs import Run
from analysis.tables import as_csv, as_markdown, as_text, at_budget, common_target, compare, first_reach
from emulator.errors import InputError

# Falls back after its best evaluation, and meets 0.5 exactly, twice.
UNEVEN = metrics([0.1, 0.5, 0.5, 0.7, 0.6])


def test_first_reach_is_the_first_evaluation_that_is_good_enough() -> None:
    assert first_reach(UNEVEN, 0.5) == {
        "round": 1,
        "time_s": 10,
        "bytes_total": 1000,
        "cost_s": 100,
        "energy_j": 5,
    }
    assert first_reach(UNEVEN, 0.51) == {
        "round": 3,
        "time_s": 30,
        "bytes_total": 3000,
        "cost_s": 300,
        "energy_j": 15,
    }
    assert first_reach(UNEVEN, 0.7) == first_reach(UNEVEN, 0.51)
    start = first_reach(UNEVEN, 0.0)
    assert start is not None
    assert start["round"] == 0
    assert first_reach(UNEVEN, 0.7001) is None


def test_first_reach_goes_by_position_not_by_index() -> None:
    later = UNEVEN.iloc[2:]
    reach = first_reach(later, 0.5)
    assert reach is not None
    assert (reach["round"], reach["time_s"]) == (2, 20)


@pytest.mark.parametrize(
    ("axis", "budget", "expected"),
    [
        ("time", 0, 0.1), ("time", 9.999, 0.1), ("time", 10, 0.5), ("time", 30, 0.7), ("time", 1e9, 0.7),
        ("bytes", 2999, 0.5), ("bytes", 3000, 0.7),
        ("cost", 99, 0.1), ("cost", 100, 0.5), ("cost", math.inf, 0.7),
        ("round", 2, 0.5), ("round", 3, 0.7), ("round", 4, 0.7),
    ],
)  # fmt: skip
def test_a_budget_buys_the_best_evaluation_within_it(axis: str, budget: float, expected: float) -> None:
    assert at_budget(UNEVEN, axis, budget) == expected


def test_a_budget_that_the_set_up_exceeds_buys_nothing() -> None:
    assert math.isnan(at_budget(metrics([0.1, 0.5], time_s=[60, 70]), "time", 59))


def test_values_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="unknown axis 'tiem'; did you mean 'time'"):
        at_budget(UNEVEN, "tiem", 1)
    for budget in (-1, math.nan):
        with pytest.raises(InputError, match="a budget of cost is a number from 0 up"):
            at_budget(UNEVEN, "cost", budget)
    with pytest.raises(InputError, match=r"a share from 0 to 1, not 80; for 80 per cent write 0\.8"):
        first_reach(UNEVEN, 80)
    with pytest.raises(InputError, match="a share from 0 to 1, not nan"):
        first_reach(UNEVEN, math.nan)
    with pytest.raises(InputError, match="at least one run"):
        compare([])
    with pytest.raises(InputError, match=r"not -0\.1"):
        compare([make_run(UNEVEN)], target=-0.1)
    with pytest.raises(InputError, match="unknown axis"):
        compare([make_run(UNEVEN)], budget={"happiness": 1})


@pytest.mark.parametrize(("best", "target"), [(0.29, 0.29), (0.2999, 0.29), (0.58, 0.58), (1.0, 1.0), (0.005, 0.0)])
def test_the_common_target_is_a_whole_per_cent_that_all_reach(best: float, target: float) -> None:
    runs = [make_run(metrics([0.0, best, 0.0])), make_run(metrics([0.0, 1.0]))]
    assert common_target(runs) == target
    assert all(first_reach(run.metrics, target) is not None for run in runs)


def two_runs() -> list[Run]:
    long = make_run(UNEVEN, "long", seed=1)
    short = make_run(
        metrics(
            [0.1, 0.3, 0.558],
            time_s=[5, 25, 45],
            bytes_total=[0, 200, 400],
            cost_s=[0, 60, 120],
            energy_j=[math.nan] * 3,
        ),
        "short",
        seed=None,
        status="interrupted",
    )
    return [long, short]


def test_compare_by_default_takes_what_all_runs_reached_and_spent() -> None:
    table = compare(two_runs())
    expected = pd.DataFrame(
        {
            "label": ["long", "short"],
            "seed": pd.array([1, None], dtype="Int64"),
            "status": ["complete", "interrupted"],
            "final_accuracy": [0.6, 0.558],
            "best_accuracy": [0.7, 0.558],
            "accuracy_last_rounds": [math.nan, math.nan],
            "target_accuracy": [0.55, 0.55],
            "round_to_target": pd.array([3, 2], dtype="Int64"),
            "time_to_target_s": [30.0, 45.0],
            "bytes_to_target": [3000.0, 400.0],
            "cost_to_target_s": [300.0, 120.0],
            "energy_to_target_j": [15.0, math.nan],
            "accuracy_at_cost": [0.5, 0.558],
            "budget_cost_s": [120.0, 120.0],
            "accuracy_at_time": [0.7, 0.3],
            "budget_time_s": [40.0, 40.0],
            "accuracy_at_bytes": [0.1, 0.558],
            "budget_bytes": [400.0, 400.0],
        }
    )
    pd.testing.assert_frame_equal(table, expected)


def test_compare_with_a_target_and_budgets_of_ones_own() -> None:
    table = compare(two_runs(), target=0.7, budget={"round": 1, "time": 4})
    assert table["round_to_target"].isna().tolist() == [False, True]
    assert table["cost_to_target_s"].iloc[0] == 300
    assert math.isnan(table["cost_to_target_s"].iloc[1])
    assert table["accuracy_at_round"].tolist() == [0.5, 0.3]
    assert table["accuracy_at_time"].iloc[0] == 0.1
    assert math.isnan(table["accuracy_at_time"].iloc[1])
    assert "accuracy_at_cost" not in table.columns
    assert table["budget_round"].tolist() == [1.0, 1.0]


def test_rows_have_labels_of_their_own() -> None:
    runs = [make_run(UNEVEN, "a", seed=0), make_run(UNEVEN, "a", seed=1)]
    assert compare(runs)["label"].tolist() == ["a (seed 0)", "a (seed 1)"]


def test_text_for_the_terminal() -> None:
    assert as_text(compare(two_runs(), target=0.6)) == (
        "Accuracy\n"
        "\n"
        "run       seed  status        final    best\n"
        "-----  -------  -----------  ------  ------\n"
        "long         1  complete     60.0 %  70.0 %\n"
        "short  unknown  interrupted  55.8 %  55.8 %\n"
        "\n"
        "To reach 60 %\n"
        "\n"
        "run          round         time         data          cost       energy\n"
        "-----  -----------  -----------  -----------  ------------  -----------\n"
        "long             3         30 s         3 kB  300 client-s         15 J\n"
        "short  not reached  not reached  not reached   not reached  not reached\n"
        "\n"
        "Best accuracy within equal budgets\n"
        "\n"
        "run    120 client-s    40 s   400 B\n"
        "-----  ------------  ------  ------\n"
        "long         50.0 %  70.0 %  10.0 %\n"
        "short        55.8 %  30.0 %  55.8 %\n"
    )


def test_what_is_not_known_is_not_taken_for_not_reached() -> None:
    line = next(x for x in as_text(compare(two_runs())).splitlines() if x.startswith("short") and "45 s" in x)
    assert line.split() == ["short", "2", "45", "s", "400", "B", "120", "client-s", "unknown"]
    assert "no evaluation" in as_text(compare(two_runs(), budget={"time": 4}))
    assert "equal budgets" not in as_text(compare(two_runs(), budget={}))


def test_markdown() -> None:
    runs = [make_run(UNEVEN, "a|b"), make_run(metrics([0.1, 0.2]), "c")]
    lines = as_markdown(compare(runs, target=0.625, budget={"round": 1})).splitlines()
    assert lines == [
        "**Accuracy**",
        "",
        "| run | seed | status | final | best |",
        "|---|---:|---|---:|---:|",
        "| a\\|b | 0 | complete | 60.0 % | 70.0 % |",
        "| c | 0 | complete | 20.0 % | 20.0 % |",
        "",
        "**To reach 62.5 %**",
        "",
        "| run | round | time | data | cost | energy |",
        "|---|---:|---:|---:|---:|---:|",
        "| a\\|b | 3 | 30 s | 3 kB | 300 client-s | 15 J |",
        "| c | not reached | not reached | not reached | not reached | not reached |",
        "",
        "**Best accuracy within equal budgets**",
        "",
        "| run | round 1 |",
        "|---|---:|",
        "| a\\|b | 50.0 % |",
        "| c | 20.0 % |",
    ]


def test_csv_keeps_every_digit_and_says_what_was_not_reached() -> None:
    table = compare([make_run(metrics([0.1, 2 / 3], cost_s=[0, 0.1 + 0.2]), "a, b"), *two_runs()], target=0.6)
    text = as_csv(table)
    short = text.splitlines()[-1].split(",")
    assert short.count("not reached") == 5
    assert short[1] == ""
    back = pd.read_csv(io.StringIO(text), na_values="not reached", dtype=str)
    assert back["label"].tolist() == ["a, b", "long", "short"]
    assert list(back.columns) == list(table.columns)
    for column in table.columns.drop(["label", "status"]):
        np.testing.assert_array_equal(back[column].to_numpy(float), table[column].to_numpy(float, na_value=np.nan))
    unknown = as_csv(compare(two_runs())).splitlines()
    energy = unknown[0].split(",").index("energy_to_target_j")
    assert unknown[2].split(",")[energy] == ""
