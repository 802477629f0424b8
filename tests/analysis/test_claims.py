"""Verdicts on claims: against direct computation, on data whose truth is known, and of runs that never reach a target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analysis_samples import metrics, write_folder
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis import report as reporting
from analysis.claims import CONTRADICTED, LEVEL, NOT_MEASURED, SHOWN, TOO_FEW, UNDECIDED, table_of, verdict_of
from analysis.figures import draw_folders
from analysis.seeds import detectable, mean_and_interval, sign_test
from analysis.studies import StudyResults, load_study, write_tables
from emulator.files import read_json, write_json

SWAPPED = {SHOWN: CONTRADICTED, CONTRADICTED: SHOWN}
Curves = Mapping[str, Sequence[Sequence[float]]]  # accuracies of each seed, by variant


def make_study(folder: Path, curves: Curves, claims: Sequence[Mapping[str, Any]], **about: Any) -> StudyResults:
    """A study of variants whose seeds have these accuracies; None for a run that is missing."""
    runs = []
    for variant, seeds in curves.items():
        for seed, accuracies in enumerate(seeds):
            name = f"{variant}_seed-{seed}"
            if accuracies is not None:
                write_folder(folder / name, metrics(accuracies), label=variant, seed=seed)
            runs.append({"run": name, "variant": variant, "method": variant, "point": {}, "seed": seed})
    said = {"name": "s", "notes": "", "columns": ["variant"], "target": None, "runs": runs, "claims": claims}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "study.json", said | about)
    return load_study(folder)


advantages = st.lists(st.floats(-1, 1).map(lambda x: round(x, 4)), min_size=3, max_size=12)


@given(advantages, st.floats(0, 0.5))
def test_a_verdict_is_that_of_a_direct_computation(values: list[float], by: float) -> None:
    n, mean = len(values), float(np.mean(values))
    half = stats.t.ppf(0.975, n - 1) * stats.sem(values)
    edges = [mean - half - by, mean + half + by, mean - half + by, mean + half - by]
    assume(min(abs(edge) for edge in edges) > 1e-9)
    expected = SHOWN if mean - half > by else CONTRADICTED if mean + half < -by else UNDECIDED
    if expected == UNDECIDED and -by <= mean - half and mean + half <= by:
        expected = LEVEL
    assert verdict_of(values, by) == expected
    assert verdict_of([-v for v in values], by) == SWAPPED.get(expected, expected)


def test_equal_pairs_are_level_and_what_matters_least_adds_to_what_can_be_detected(tmp_path: Path) -> None:
    assert verdict_of([0.0, 0.0, 0.0]) == LEVEL
    curves = {"A": [[0.1, a] for a in (0.5, 0.6, 0.4)], "B": [[0.1, b] for b in (0.4, 0.56, 0.41)]}
    claims = [{"better": "A", "than": "B", "in": "accuracy", "by": by} for by in (0, 0.1)]
    small, large = make_study(tmp_path / "s", curves, claims).claims["detectable"]
    assert large == pytest.approx(small + 0.1)


def test_a_target_that_the_untrained_model_reaches_is_reached_at_once(tmp_path: Path) -> None:
    curves = {"A": [[0.3, 0.5]] * 3, "B": [[0.1, 0.5]] * 3}
    claims = [
        {"better": "A", "than": "B", "in": quantity, "target": 0.2}
        for quantity in ("rounds-to-target", "time-to-target")
    ]
    found = make_study(tmp_path / "s", curves, claims).claims
    assert found["verdict"].to_list() == [SHOWN, SHOWN]
    assert found["better_reached"].to_list() == [3, 3]
    assert found["advantage"][0] == 1


def test_runs_that_wait_for_tuning_do_not_count(tmp_path: Path) -> None:
    claims = [{"better": "A", "than": "B", "in": "accuracy"}]
    make_study(tmp_path / "s", {"A": [[0.1, 0.5]] * 3, "B": [[0.1, 0.4]] * 3}, claims)
    about = read_json(tmp_path / "s" / "study.json") or {}
    for run in about["runs"]:
        run |= {"tuned": 0.1} if run["variant"] == "A" else {}
    write_json(tmp_path / "s" / "study.json", about | {"tune": {"key": "method.local.learning_rate"}})
    results = load_study(tmp_path / "s")
    assert results.missing == ("B_seed-0", "B_seed-1", "B_seed-2")
    assert results.claims["verdict"].to_list() == [NOT_MEASURED]


def test_fewer_than_three_pairs_say_nothing() -> None:
    assert verdict_of([0.5, 0.6]) == TOO_FEW
    assert verdict_of([0.5, 0.5, 0.5]) == SHOWN


def test_the_interval_covers_the_truth_in_95_of_100_studies() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        mean, half = mean_and_interval(rng.normal(0.3, 2.0, 5).tolist())
        covered += mean - half <= 0.3 <= mean + half
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("n", [3, 5, 10, 30])
def test_the_detectable_difference_is_found_in_80_of_100_studies(n: int) -> None:
    unit = np.linspace(-1, 1, n)
    shift = detectable((unit / unit.std(ddof=1)).tolist())  # the deviation of the pairs is 1
    critical = stats.t.ppf(0.975, n - 1)
    power = stats.nct.sf(critical, n - 1, shift * math.sqrt(n)) + stats.nct.cdf(-critical, n - 1, shift * math.sqrt(n))
    assert power == pytest.approx(0.8, abs=1e-6)
    assert detectable([0.2] * n) == pytest.approx(0, abs=1e-12)


@given(st.integers(0, 20), st.integers(0, 20))
def test_the_sign_test_is_the_exact_binomial_one(wins: int, losses: int) -> None:
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


# Studies.


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(*[st.floats(0.2, 0.9).map(lambda x: round(x, 3))] * 2), min_size=3, max_size=6))
def test_a_claim_is_judged_on_pairs_and_swapped_sides_swap_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[float, float]]
) -> None:
    curves = {"A": [[0.1, a] for a, _ in pairs], "B": [[0.1, b] for _, b in pairs]}
    claims = [{"better": "A", "than": "B", "in": "accuracy"}, {"better": "B", "than": "A", "in": "accuracy"}]
    one, other = make_study(tmp_path_factory.mktemp("s") / "s", curves, claims).claims.to_dict("records")
    difference = [a - b for a, b in pairs]
    mean, half = mean_and_interval(difference)
    assert one["advantage"] == pytest.approx(mean)
    assert (one["low"], one["high"]) == (pytest.approx(mean - half), pytest.approx(mean + half))
    assert one["verdict"] == verdict_of(difference)
    assert other["verdict"] == SWAPPED.get(one["verdict"], one["verdict"])
    assert (other["low"], other["high"]) == (pytest.approx(-one["high"]), pytest.approx(-one["low"]))


def test_less_is_better_of_what_is_spent(tmp_path: Path) -> None:
    quick, slow = [[0.1, 0.6, 0.7]] * 3, [[0.1, 0.3, 0.65, 0.7]] * 3
    claims = [
        {"better": "quick", "than": "slow", "in": q, "target": 0.6} for q in ("rounds-to-target", "time-to-target")
    ]
    claims += [{"better": "quick", "than": "slow", "in": q} for q in ("time", "bytes", "cost", "energy")]
    found = make_study(tmp_path / "s", {"quick": quick, "slow": slow}, claims).claims
    assert found["advantage"].to_list() == pytest.approx([1, 10, 10, 1000, 100, 5])
    assert set(found["verdict"]) == {SHOWN}


def test_a_run_that_never_reaches_the_target_is_worse_than_any_that_does(tmp_path: Path) -> None:
    claim = {"better": "A", "than": "B", "in": "rounds-to-target"}
    never, late, soon = [0.1, 0.2, 0.3], [0.1, 0.2, 0.9], [0.1, 0.9, 0.9]
    six = make_study(tmp_path / "six", {"A": [late] * 6, "B": [never] * 6}, [claim], target=0.8).claims.iloc[0]
    assert (six["verdict"], six["test"], six["wins"], six["losses"]) == (SHOWN, "sign", 6, 0)
    assert (six["better_reached"], six["than_reached"]) == (6, 0)
    assert six["p"] == pytest.approx(2 / 2**6)
    assert math.isnan(six["advantage"])
    # Five pairs cannot decide, and pairs of which neither got there count for nobody.
    mixed = [never, late, soon, late, never]
    five = make_study(tmp_path / "five", {"A": mixed, "B": [never] * 5}, [claim], target=0.8).claims.iloc[0]
    assert (five["verdict"], five["wins"], five["losses"], five["pairs"]) == (UNDECIDED, 3, 0, 5)


def test_runs_that_are_missing_leave_their_pairs_out(tmp_path: Path) -> None:
    curves: Any = {"A": [[0.1, 0.5]] * 4, "B": [[0.1, 0.4]] * 3 + [None], "C": [None] * 4}
    claims = [{"better": "A", "than": v, "in": "accuracy"} for v in ("B", "C")]
    claims.append({"better": "A", "than": "B", "in": "clustering-rounds"})
    found = make_study(tmp_path / "s", curves, claims).claims
    assert found["pairs"].to_list() == [3, 0, 0]
    assert found["verdict"].to_list() == [SHOWN, NOT_MEASURED, NOT_MEASURED]


def test_accuracy_at_the_budget_is_that_of_the_last_evaluation_within_it(tmp_path: Path) -> None:
    curves = {"A": [[0.1, 0.5, 0.4, 0.9]] * 3, "B": [[0.1, 0.2, 0.45, 0.3]] * 3}  # 100 client-seconds a round
    claims = [
        {"better": "B", "than": "A", "in": "accuracy-at-budget"},
        {"better": "A", "than": "B", "in": "accuracy-at-budget", "budget": {"time": "15 s"}},
    ]
    results = make_study(tmp_path / "s", curves, claims, budget={"cost": "250 client-s"})
    assert results.summary["accuracy_at_budget_mean"].to_list() == pytest.approx([0.4, 0.45])
    assert results.summary["accuracy_at_budget_ci95"].to_list() == pytest.approx([0, 0], abs=1e-12)
    assert results.claims["advantage"].to_list() == pytest.approx([0.05, 0.3])


def test_claims_are_written_drawn_and_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    curves = {
        v: [[0.1, float(a)] for a in rng.normal(mean, 0.03, 5)] for v, mean in (("A", 0.7), ("B", 0.5), ("C", 0.69))
    }
    claims = [
        {"better": "A", "than": "B", "in": "accuracy", "source": "Table 2 <of a paper>"},
        {"better": "A", "than": "C", "in": "accuracy"},
        {"better": "A", "than": "C", "in": "accuracy", "by": 0.2},
        {"better": "A", "than": "B", "in": "rounds-to-target", "target": 0.6},
    ]
    results = make_study(tmp_path / "s", curves, claims)
    assert "claims.csv" in write_tables(results)
    assert (tmp_path / "s" / "claims.csv").read_text().count("\n") == 5
    assert results.claims["verdict"].to_list()[:3] == [SHOWN, UNDECIDED, LEVEL]
    text = table_of(results.claims).text()
    assert "detectable" in text
    assert "reached by" in text
    draw_folders("claims", [tmp_path / "s"], tmp_path / "claims.svg")
    drawn = (tmp_path / "claims.svg").read_text()
    assert all(part in drawn for part in ("A over B", "shown", "undecided", "level", "per cent points"))
    page = reporting.report([tmp_path / "s"])
    assert "Table 2 &lt;of a paper&gt;" in page
    assert "A better than B in accuracy" in page


def test_one_seed_is_no_mean(tmp_path: Path) -> None:
    from analysis.studies import as_text

    single = make_study(tmp_path / "one", {"A": [[0.1, 0.5]], "B": [[0.1, 0.6]]}, [])
    assert as_text(single.summary, single.columns).startswith("One seed each: single runs, no means\n")
    mixed: Any = {"A": [[0.1, 0.5], [0.1, 0.6]], "B": [[0.1, 0.6], None]}
    some = make_study(tmp_path / "some", mixed, [])
    text = as_text(some.summary, some.columns)
    assert text.startswith("Mean over seeds")
    assert "60.0 % (one seed)" in text
