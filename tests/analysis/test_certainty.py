"""How sure a ranking is: shares of worlds and their intervals, what decides, regions, against closed forms and simulations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from certificate_samples import (
    BANDWIDTH,
    BYTES,
    DEVICE,
    OVERHEAD,
    TIME,
    linear_a,
    linear_b,
    noisy,
    two_lines,
    write_certificate,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from analysis.certainty.certificate import WRITTEN, load
from analysis.certainty.deciding import correlation_ratios, deciding, saltelli
from analysis.certainty.probability import share, with_seeds
from analysis.certainty.regions import best_by_world, quarters, tree
from analysis.certainty.verdict import verdict
from analysis.certainty.worldwise import compare


def test_p_of_two_lines_is_the_closed_form(tmp_path: Path) -> None:
    # A is better above 4 Mbit/s; the bandwidth is uniform from 1 to 9: in 5 of 8 worlds.
    certificate = load(two_lines(tmp_path, worlds=2000))
    side = certificate.against("A", "B", certificate.measures[0])
    assert side.better.low < 5 / 8 < side.better.high
    assert side.better.value == pytest.approx(5 / 8, abs=0.03)
    assert side.better.value + side.worse.value == 1
    bandwidth = certificate.drawn["bandwidth"].to_numpy()
    assert np.array_equal(side.sign == 1, bandwidth > 4e6)
    # The ratio falls with the bandwidth, so its quantiles are those of the bandwidth, from the other end.
    exact = [(200 - 10 * x) / (120 + 10 * x) for x in (1 + 8 * 0.95, 5.0, 1 + 8 * 0.05)]
    assert side.ratio() == pytest.approx(exact, rel=0.05)
    written = certificate.against("A", "B", certificate.measures[0], WRITTEN)
    assert written.ratio()[1] == pytest.approx(150 / 170)  # at 5 Mbit/s


def test_all_seeds_alike_leave_the_interval_of_the_worlds_alone(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path))
    side = certificate.against("A", "B", certificate.measures[0])
    wins = int((side.sign == 1).sum())
    assert (side.better.low, side.better.high) == pytest.approx(
        tuple(binomtest(wins, 200).proportion_ci(0.95)), abs=1e-9
    )
    assert side.decided.all()


@pytest.mark.parametrize(("seeds", "least"), [(2, 0.90), (3, 0.93), (5, 0.93)])
@pytest.mark.parametrize(("mean", "worlds_sd", "seeds_sd", "rest"), [
    (-0.5, 1, 0.5, 0.1), (0, 1, 0.5, 0.1), (-0.5, 1, 0.05, 0), (-0.5, 0.3, 1, 0.1), (-2, 1, 0.3, 0.1),
])  # fmt: skip
def test_the_interval_covers_the_truth(
    mean: float, worlds_sd: float, seeds_sd: float, rest: float, seeds: int, least: float
) -> None:
    # The logarithm of the ratio is a sum of what the world, the seed and their interplay say, all normal.
    truth = norm.cdf(-mean / worlds_sd)
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        logarithms = rng.normal(mean, worlds_sd, (100, 1)) + rng.normal(0, seeds_sd, (1, seeds))
        logarithms += rng.normal(0, rest, (100, seeds)) if rest else 0
        better = compare(np.exp(logarithms), np.ones((100, seeds))).better
        covered += better.low <= truth <= better.high
    assert covered / 200 >= least


def test_seeds_widen_and_more_worlds_do_not_help() -> None:
    rng = np.random.default_rng(2)
    tilt = np.array([[-0.4, 0.1, 0.5]])
    widths = []
    for worlds in (100, 10_000):
        better = compare(np.exp(rng.normal(-0.3, 1, (worlds, 1)) + tilt), np.ones((worlds, 3))).better
        widths.append(better.high - better.low)
    assert widths[1] > 0.3
    assert widths[1] > 0.8 * widths[0]
    one = compare(np.exp(rng.normal(-0.3, 1, (10_000, 1))), np.ones((10_000, 1))).better
    assert one.high - one.low < 0.03  # of one seed nothing is known beyond the worlds


@given(st.integers(0, 60), st.integers(1, 60))
def test_share_is_the_exact_interval(found: int, of: int) -> None:
    found = min(found, of)
    made = share(found, of)
    exact = binomtest(found, of).proportion_ci(0.95, method="exact")
    assert (made.low, made.high) == pytest.approx((exact.low, exact.high), abs=1e-7)
    wider = with_seeds(made, 0.0, 1.0)
    assert 0 <= wider.low <= made.low <= made.value <= made.high <= wider.high <= 1


def test_no_worlds_have_no_share() -> None:
    assert math.isnan(share(0, 0).value)


@settings(max_examples=50)
@given(st.integers(1, 4), st.data())
def test_a_against_b_mirrors_b_against_a(seeds: int, data: st.DataObject) -> None:
    value = st.one_of(st.floats(0.1, 10), st.just(math.inf), st.just(math.nan))
    row = st.lists(value, min_size=seeds, max_size=seeds)
    a, b = (np.array(data.draw(st.lists(row, min_size=6, max_size=6))) for _ in range(2))
    one, other = compare(a, b), compare(b, a)
    assert np.array_equal(one.sign, -other.sign)
    assert np.array_equal(one.known, other.known)
    assert np.array_equal(one.decided, other.decided)
    assert one.better == other.worse
    if one.known.any():
        assert one.better.value + one.worse.value + one.neither == pytest.approx(1)
        assert one.better.low <= one.better.value <= one.better.high


def test_never_reached_counts_and_is_not_dropped() -> None:
    never = math.inf
    a = np.array([[1.0, 1.0], [never, never], [never, never], [1.0, never]])
    b = np.array([[never, never], [1.0, 1.0], [never, never], [2.0, 2.0]])
    side = compare(a, b)
    assert list(side.sign) == [1, -1, 0, 0]  # the last: one seed each
    assert side.known.all()
    assert (side.better.value, side.worse.value, side.neither) == (0.25, 0.25, 0.5)
    assert not side.decided[0]  # two seeds of two are no proof
    assert compare(np.ones((1, 6)), np.full((1, 6), never)).decided[0]  # six are
    assert list(side.values) == [0.0, never]


def test_a_world_that_is_unknown_for_one_seed_is_left_out() -> None:
    side = compare(np.array([[1.0, math.nan], [1.0, 1.0]]), np.full((2, 2), 2.0))
    assert list(side.known) == [False, True]
    assert side.better.value == 1


def test_higher_accuracies_are_better_and_are_compared_as_differences() -> None:
    side = compare(np.array([[0.8, 0.9]]), np.array([[0.7, 0.8]]), ratios=False, higher=True)
    assert side.sign[0] == 1
    assert side.advantage[0] == pytest.approx(0.1)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="common seed"):
        compare(np.ones((2, 2)), np.ones((2, 3)))


def ishigami(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0]))


# Ishigami and Homma (1990) with a = 7, b = 0.1: the variances in closed form.
_V1 = 0.5 * (1 + 0.1 * math.pi**4 / 5) ** 2
_V2, _V13 = 7**2 / 8, 0.1**2 * math.pi**8 * 8 / 225
_V = _V1 + _V2 + _V13
FIRST = [_V1 / _V, _V2 / _V, 0.0]
TOTAL = [(_V1 + _V13) / _V, _V2 / _V, _V13 / _V]


def test_sobol_indices_of_ishigamis_function() -> None:
    from SALib.sample import sobol

    problem = {"num_vars": 3, "names": ["a", "b", "c"], "bounds": [[-math.pi, math.pi]] * 3}
    points = sobol.sample(problem, 1024, calc_second_order=False, seed=1)
    found = saltelli(ishigami(points), ["a", "b", "c"])
    assert [each.first for each in found] == pytest.approx(FIRST, abs=0.03)
    assert [each.total for each in found] == pytest.approx(TOTAL, abs=0.03)
    for each, first, total in zip(found, FIRST, TOTAL, strict=True):
        assert abs(each.first - first) <= each.first_half
        assert abs(each.total - total) <= each.total_half


def test_correlation_ratios_of_ishigamis_function() -> None:
    import pandas as pd

    points = np.random.default_rng(3).uniform(-math.pi, math.pi, (4000, 3))
    found = correlation_ratios(ishigami(points), pd.DataFrame(points, columns=["a", "b", "c"]))
    assert [each.first for each in found] == pytest.approx(FIRST, abs=0.03)
    assert all(abs(each.first - first) <= each.first_half for each, first in zip(found, FIRST, strict=True))
    assert all(math.isnan(each.total) for each in found)


def test_correlation_ratios_of_nothing_are_nothing() -> None:
    import pandas as pd

    rng = np.random.default_rng(4)
    worlds = pd.DataFrame({"number": rng.random(500), "text": rng.choice(["x", "y", "z"], 500)})
    for each in correlation_ratios(rng.normal(size=500), worlds):
        assert abs(each.first) <= each.first_half


def test_what_decides_between_two_lines_is_the_bandwidth(tmp_path: Path) -> None:
    for base, estimator in ((64, "Saltelli"), (0, "correlation ratio")):
        certificate = load(two_lines(tmp_path / estimator, base=base))
        found = deciding(certificate, "A", "B", certificate.measures[0])
        assert (found.estimator, found.of) == (estimator, "ratio")
        assert [each.quantity for each in found.influences] == ["bandwidth", "overhead"]
        assert found.influences[0].weight == pytest.approx(1, abs=0.06)
        assert abs(found.influences[1].weight) < 0.05


def test_of_correlated_unknowns_only_first_order_indices_are_given(tmp_path: Path) -> None:
    linked = {"between": ["bandwidth", "overhead"], "value": 0.5}
    folder = two_lines(tmp_path, quantities=(BANDWIDTH, OVERHEAD, DEVICE), base=64, correlations=[linked])
    certificate = load(folder)
    assert certificate.correlated == {"bandwidth", "overhead"}
    found = {each.quantity: each for each in deciding(certificate, "A", "B", certificate.measures[0]).influences}
    assert math.isnan(found["bandwidth"].total)
    assert found["bandwidth"].first == pytest.approx(1, abs=0.05)
    assert found["device"].total == pytest.approx(0, abs=0.01)
    assert "first-order Sobol index" in verdict(certificate, "A", "B", certificate.measures[0]).sentence


def test_base_points_with_an_unknown_world_are_left_out(tmp_path: Path) -> None:
    folder = two_lines(
        tmp_path, base=64, status=lambda w, m, s: "order differs" if w["overhead"] > 1.97 else "replayed"
    )
    certificate = load(folder)
    found = deciding(certificate, "A", "B", certificate.measures[0])
    side = certificate.against("A", "B", certificate.measures[0], "saltelli")
    assert found.estimator == "Saltelli"
    assert 0 < found.worlds <= int(side.known.sum()) < 64 * 4
    few = two_lines(
        tmp_path / "few", base=64, status=lambda w, m, s: "order differs" if w["overhead"] > 1.3 else "replayed"
    )
    assert deciding(load(few), "A", "B", certificate.measures[0]).estimator == "correlation ratio"


def test_where_a_method_never_reaches_the_winner_is_what_varies(tmp_path: Path) -> None:
    def never(world: dict, seed: int) -> float:
        return math.inf if world["overhead"] > 1.5 else 1e-3

    folder = write_certificate(tmp_path, {"A": {"time_to_0.8_s": never}, "B": {"time_to_0.8_s": linear_b}}, base=64)
    certificate = load(folder)
    found = deciding(certificate, "A", "B", certificate.measures[0])
    assert found.of == "winner"
    assert found.influences[0].quantity == "overhead"
    assert found.influences[0].total == pytest.approx(1, abs=0.1)


def test_nothing_decides_where_nothing_varies(tmp_path: Path) -> None:
    rules = {"A": {"time_to_0.8_s": lambda w, s: 1.0 + 1e-15 * w["overhead"]}, "B": {"time_to_0.8_s": lambda w, s: 2.0}}
    for base in (32, 0):
        certificate = load(write_certificate(tmp_path / str(base), rules, base=base))
        found = deciding(certificate, "A", "B", certificate.measures[0])
        assert not found.influences
        assert found.why == "the ratio is the same in all worlds"


def test_regions_name_the_best(tmp_path: Path) -> None:
    certificate = load(two_lines(tmp_path, worlds=400, quantities=(BANDWIDTH, OVERHEAD, DEVICE)))
    by_quarter = quarters(certificate, certificate.measures[0])
    assert [each.quantity for each in by_quarter] == ["bandwidth"] * 4 + ["overhead"] * 4 + ["device"] * 2
    assert [each.best for each in by_quarter[:4]] == ["B", "A", "A", "A"]
    assert sum(each.worlds for each in by_quarter[:4]) == 400
    assert {each.where for each in by_quarter[-2:]} == {"pi3", "pi4"}
    grown = tree(certificate, certificate.measures[0])
    assert grown is not None
    assert grown.useful
    assert grown.right > 0.97
    assert [each.best for each in grown.regions] == ["B", "A"]
    assert grown.regions[0].where.startswith("bandwidth below ")
    assert float(grown.regions[0].where.split()[2]) == pytest.approx(4, abs=0.1)


def test_a_tree_over_a_choice_asks_for_its_values(tmp_path: Path) -> None:
    rules = {
        "A": {"time_to_0.8_s": lambda w, s: 1.0 if w["device"] == "pi4" else 3.0}, "B": {"time_to_0.8_s": lambda w, s: 2.0},
    }  # fmt: skip
    grown = tree(load(write_certificate(tmp_path, rules, quantities=(OVERHEAD, DEVICE))), load(tmp_path).measures[0])
    assert grown is not None
    assert {(each.where, each.best) for each in grown.regions} in (
        {("device is not pi4", "B"), ("device is pi4", "A")}, {("device is pi3", "B"), ("device is not pi3", "A")},
    )  # fmt: skip


def test_the_best_of_three_and_nobody(tmp_path: Path) -> None:
    rules = {
        "A": {"time_to_0.8_s": lambda w, s: math.inf if w["overhead"] > 1.5 else 1.0},
        "B": {"time_to_0.8_s": lambda w, s: math.inf if w["overhead"] > 1.2 or s == 3 else 0.1},
        "C": {"time_to_0.8_s": lambda w, s: math.inf if w["overhead"] > 1.8 else 2.0},
    }  # fmt: skip
    certificate = load(write_certificate(tmp_path, rules))
    best, known = best_by_world(certificate, certificate.measures[0])
    overhead = certificate.drawn["overhead"].to_numpy()
    wanted = np.where(overhead > 1.8, "", np.where(overhead > 1.5, "C", "A"))  # B misses a seed
    assert known.all()
    assert list(best) == list(wanted)


def test_pairs_take_the_seeds_that_both_have(tmp_path: Path) -> None:
    import yaml

    folder = write_certificate(
        tmp_path, {"A": {TIME["column"]: noisy(linear_a, 0.1, 1), BYTES["column"]: linear_b},
                   "B": {TIME["column"]: linear_b, BYTES["column"]: linear_a}}, measures=(TIME, BYTES),
    )  # fmt: skip
    about = yaml.safe_load((folder / "certificate.yaml").read_text())
    about["runs"] = [run for run in about["runs"] if (run["method"], run["seed"]) != ("B", 2)]
    (folder / "certificate.yaml").write_text(yaml.safe_dump(about))
    certificate = load(folder)
    assert certificate.seeds("A", "B") == (1, 3)
    assert certificate.against("A", "B", certificate.measures[0]).seeds == 2
