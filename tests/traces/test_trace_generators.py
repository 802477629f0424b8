"""Generators against the closed forms of what they generate."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from emulator.contracts.files import trace_generators
from emulator.errors import InputError
from emulator.rng import stream
from traces.step import StepFunction

NEEDED: dict[str, dict[str, Any]] = {
    "constant": {},
    "diurnal": {"low": 1.0, "high": 3.0},
    "markov": {"mean_on": "30 s", "mean_off": "90 s"},
    "gilbert-elliott": {"good": 10.0, "bad": 1.0, "good_to_bad": 0.05, "bad_to_good": 0.2},
    "random-walk": {"low": 2.0, "high": 50.0},
}


def make(kind: str, duration_s: float, seed: int = 0, **params: Any) -> StepFunction:
    plugin = trace_generators[kind]
    chosen = plugin.params.model_validate({**NEEDED[kind], **params})
    function = plugin.function(duration_s, stream(seed, "test", kind), chosen)
    assert isinstance(function, StepFunction)
    return function


def near(values: list[float], mean: float, variance: float, deviations: float = 4.0) -> bool:
    """Whether the mean of independent values is as near to its expectation as chance allows."""
    return abs(float(np.mean(values)) - mean) < deviations * math.sqrt(variance / len(values))


@pytest.mark.parametrize("kind", sorted(NEEDED))
@pytest.mark.parametrize("duration_s", [0.5, 1000.0, 3333.3])
def test_all_cover_the_duration_and_depend_on_the_seed_alone(kind: str, duration_s: float) -> None:
    one, same, other = make(kind, duration_s), make(kind, duration_s), make(kind, duration_s, seed=1)
    assert one.period_s == duration_s
    assert np.array_equal(one.times_s, same.times_s)
    assert np.array_equal(one.values, same.values)
    if duration_s > 1 and kind not in ("constant", "diurnal"):
        assert not np.array_equal(one.values[:5], other.values[:5]) or not np.array_equal(one.times_s, other.times_s)


def test_every_generator_is_tested_and_names_its_column() -> None:
    assert set(trace_generators.names()) >= set(NEEDED)
    for name in NEEDED:
        assert trace_generators[name].facts.column.endswith("]")


def test_constant() -> None:
    assert make("constant", 60, level=4.5).integrate(10, 130) == 4.5 * 120


@pytest.mark.parametrize("step", ["5 min", "7 min", "11 h"])
def test_diurnal_has_the_mean_of_its_wave_whatever_the_steps(step: str) -> None:
    f = make("diurnal", 86_400.0, step=step, peak="6 h")
    assert f.mean == pytest.approx(2.0, rel=1e-12)

    def area(a: float, b: float) -> float:  # under 2 + cos(turn (t - 6 h))
        turn = 2 * math.pi / 86_400
        return 2 * (b - a) + (math.sin(turn * (b - 21_600)) - math.sin(turn * (a - 21_600))) / turn

    times = f.times_s[:4]
    for a, b in itertools.pairwise(times):
        assert f.integrate(a, b) == pytest.approx(area(a, b), rel=1e-9)


def test_diurnal_peaks_where_it_should() -> None:
    f = make("diurnal", 86_400.0, peak="6 h", step="1 min")
    assert f.at(6 * 3600 + 1) == pytest.approx(3, abs=1e-5) == f.values.max()
    assert f.at(18 * 3600 + 1) == pytest.approx(1, abs=1e-5) == f.values.min()
    assert f.at(12 * 3600) == pytest.approx(2, abs=0.01)


def test_markov_is_on_for_its_share_of_the_time() -> None:
    on, off, duration_s = 30.0, 90.0, 4000.0
    share, relaxation = on / (on + off), on * off / (on + off)
    # The variance of a time average of a process whose covariance is p q exp(-t / relaxation).
    held = relaxation / duration_s
    variance = 2 * share * (1 - share) * held * (1 - held * (1 - math.exp(-1 / held)))
    shares = [make("markov", duration_s, seed).mean for seed in range(300)]
    assert near(shares, share, variance)
    assert np.var(shares) == pytest.approx(variance, rel=0.35)


def test_markov_stays_are_exponential_in_turn() -> None:
    f = make("markov", 200_000.0, on=5.0, off=2.0)
    assert set(f.values) == {5.0, 2.0}
    assert (np.diff(f.values) != 0).all()
    widths, values = np.diff(f.times_s), f.values[:-1]
    for level, mean in ((5.0, 30.0), (2.0, 90.0)):
        stays = widths[values == level].tolist()
        assert len(stays) > 1000
        assert near(stays, mean, mean**2)
        assert float(np.mean(np.array(stays) > mean)) == pytest.approx(math.exp(-1), abs=0.05)


def test_markov_forgets_how_it_started() -> None:
    relaxation = 30.0 * 90.0 / 120.0
    for start, at_first in (("on", 1.0), ("off", 0.0), ("stationary", 0.25)):
        runs = [make("markov", 1000.0, seed, start=start) for seed in range(800)]
        assert near([f.at(0) for f in runs], at_first, 0.25 * 0.75 + 1e-9)
        wanted = 0.25 + (at_first - 0.25) * math.exp(-1)
        assert near([f.at(relaxation) for f in runs], wanted, wanted * (1 - wanted))


def test_gilbert_elliott_is_bad_for_its_share_and_changes_only_at_steps() -> None:
    f = make("gilbert-elliott", 100_000.0, step="2 s")
    assert set(f.values) == {10.0, 1.0}
    assert np.array_equal(f.times_s % 2, np.zeros(len(f.times_s)))
    chain = f.sample(np.arange(1.0, 100_000, 2)) == 1.0
    share, memory = 0.05 / 0.25, 1 - 0.25
    # A chain with eigenvalue m: the variance of the mean of n states is p q (1 + m) / (1 - m) / n.
    assert near([float(chain.mean())], share, share * (1 - share) * (1 + memory) / (1 - memory) / len(chain))
    assert float(np.corrcoef(chain[:-1], chain[1:])[0, 1]) == pytest.approx(memory, abs=0.03)
    widths, values = np.diff(f.times_s), f.values[:-1]
    assert near(widths[values == 10.0].tolist(), 2 / 0.05, (2 / 0.05) ** 2 * 0.95)
    assert near(widths[values == 1.0].tolist(), 2 / 0.2, (2 / 0.2) ** 2 * 0.8)


def test_gilbert_elliott_may_change_at_every_step() -> None:
    f = make("gilbert-elliott", 100.0, good_to_bad=1.0, bad_to_good=1.0)
    assert np.array_equal(f.times_s, np.arange(100))
    assert (np.diff(f.values) != 0).all()


def test_random_walk_is_uniform_in_the_logarithm_in_the_long_run() -> None:
    ends = [make("random-walk", 40.0, seed, sigma=0.3).at(39.5) for seed in range(1500)]
    mean = 48 / math.log(25)  # of a number whose logarithm is uniform between those of 2 and 50
    square = (50**2 - 2**2) / (2 * math.log(25))
    assert near(ends, mean, square - mean**2)
    quarters = np.histogram(np.log(ends), np.linspace(math.log(2), math.log(50), 5))[0]
    assert quarters.sum() == 1500
    assert (np.abs(quarters - 375) < 4 * math.sqrt(375 * 0.75)).all()


def test_random_walk_takes_normal_steps_and_stays_inside() -> None:
    f = make("random-walk", 20_000.0, low=1e-6, high=1e6, sigma=0.05, start=1.0, step="0.5 s")
    moves = np.diff(np.log(f.values))
    assert f.at(0) == 1
    assert moves.std() == pytest.approx(0.05, rel=0.03)
    assert abs(moves.mean()) < 4 * 0.05 / math.sqrt(len(moves))
    tight = make("random-walk", 5000.0, low=3.0, high=3.3, sigma=2.0)
    assert tight.values.min() >= 3.0
    assert tight.values.max() <= 3.3
    assert set(make("random-walk", 50.0, low=3.0, high=3.0).values) == {3.0}


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("constant", {"level": -1.0}), ("constant", {"level": math.inf}), ("diurnal", {"low": 4.0}),
        ("diurnal", {"period": "0 s"}), ("markov", {"mean_on": 30}), ("markov", {"mean_on": "0 s"}),
        ("markov", {"start": "up"}), ("gilbert-elliott", {"good_to_bad": 0.0}), ("gilbert-elliott", {"bad_to_good": 1.1}),
        ("random-walk", {"low": 0.0}), ("random-walk", {"sigma": 0.0}), ("random-walk", {"start": 60.0}),
        ("random-walk", {"high": 1.0}), ("markov", {"on_time": "3 s"}),
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make(kind, 10.0, **params)


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("diurnal", {"step": "1 us"}),
        ("markov", {"mean_on": "1 us", "mean_off": "1 us"}),
        ("gilbert-elliott", {"step": "1 us"}),
        ("random-walk", {"step": "1 us"}),
    ],
)
def test_too_many_steps_are_refused(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="steps are too many; take longer steps or a shorter duration"):
        make(kind, 3600.0, **params)
