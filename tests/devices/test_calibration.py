from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from devices.calibration import (
    Misses,
    Speed,
    Timing,
    curve_data,
    fit_curve,
    fit_speed,
    host_cpu,
    host_memory_bytes,
    least_squares,
    profile_text,
    readable,
    time_pair,
    time_training,
)
from devices.profile import Curve, Power, Terms, find_profile
from devices.secagg.constants import Constants
from devices.secagg.cost import ProtocolGroup, operations, seconds_of
from devices.secagg.fit import Observation, fit_constants
from devices.secagg.steps import steps_of
from emulator.errors import HflError
from emulator.units import SIZE, TIME

POWER = Power(idle="1 W", compute="5 W", send="2 W", receive="1.5 W")


class Device:
    """A made-up device with a clock of its own: what it trains takes what its figures say, times some noise."""

    def __init__(self, speed: float, overhead_s: float, noise: float = 0.0) -> None:
        self.now = 0.0
        self._speed, self._overhead_s = speed, overhead_s
        self._noise, self._rng = noise, np.random.default_rng(2)

    def clock(self) -> float:
        return self.now

    def time(self, forward_flops: float, batch_size: int, span_s: float = 1.0, repeats: int = 3) -> Timing:
        def train(size: int, batches: int) -> None:
            exact = batches * (3 * forward_flops * size / self._speed + self._overhead_s)
            self.now += exact * (1 + self._noise * self._rng.random())

        return time_training(train, forward_flops, batch_size, span_s, repeats, self.clock)

    def timings(self) -> list[Timing]:
        return [self.time(f, b) for f, b in itertools.product((1e6, 8e6, 2e7), (8, 32, 128))]


def test_a_device_is_measured_as_it_is() -> None:
    speed = fit_speed(Device(40e9, 2e-3).timings())
    assert speed.effective_speed == pytest.approx(40e9)
    assert speed.batch_overhead_s == pytest.approx(2e-3)
    assert speed.misses.worst < 1e-9
    assert speed.seconds(40e9, 500) == pytest.approx(2.0)


def test_kinds_of_layers_are_told_apart() -> None:
    shares = {"depthwise": 0.05, "recurrent": 1.5}
    timings = []
    for flops, batches, depthwise, recurrent in itertools.product((1e9, 7e9), (10, 300), (0, 0.4), (0, 0.3)):
        by_kind = (("depthwise", depthwise * flops), ("recurrent", recurrent * flops))
        dense = flops * (1 - depthwise - recurrent)
        seconds = (dense + sum(some / shares[kind] for kind, some in by_kind)) / 40e9 + batches * 2e-3
        timings.append(Timing(flops, batches, seconds, by_kind))
    speed = fit_speed(timings)
    assert (speed.effective_speed, speed.batch_overhead_s) == pytest.approx((40e9, 2e-3))
    assert speed.efficiency == pytest.approx(shares)
    for timing in timings:
        assert speed.seconds(timing.flops, timing.batches, timing.by_kind) == pytest.approx(timing.seconds)


def test_a_kind_that_takes_no_time_gives_no_efficiency() -> None:
    quick = [Timing(f, 1, f / 4 / 40e9 + 1e-3, (("recurrent", f / 2),)) for f in (1e9, 2e9)]
    timings = [*quick, *Device(40e9, 1e-3).timings()]
    assert "recurrent" not in fit_speed(timings).efficiency


def test_noise_changes_the_figures_by_no_more_than_itself() -> None:
    speed = fit_speed(Device(40e9, 2e-3, noise=0.1).timings())
    assert speed.effective_speed == pytest.approx(40e9, rel=0.1)
    assert speed.batch_overhead_s == pytest.approx(2e-3, rel=0.1)
    assert 0 < speed.misses.mean < speed.misses.worst < 0.1


def test_the_shortest_of_several_spans_counts() -> None:
    times = iter([0.0, 0.1, *(10, 13), *(20, 22), *(30, 37)])  # one batch takes 0.1 s; then spans of 3, 2 and 7 s
    sizes = []
    timing = time_training(lambda size, batches: sizes.append((size, batches)), 1e6, 16, 2.0, 3, lambda: next(times))
    assert timing == Timing(flops=3 * 1e6 * 16 * 20, batches=20, seconds=2)
    assert sizes == [(16, 2), (16, 1), (16, 20), (16, 20), (16, 20)]


def test_at_least_one_batch_is_timed() -> None:
    assert Device(1e6, 0.0).time(1e6, 32, span_s=0.01).batches == 1


def test_times_that_do_not_grow_with_the_arithmetic_give_no_speed() -> None:
    with pytest.raises(HflError, match="give no speed; measure larger models"):
        fit_speed([Timing(1e9, 10, 1.0), Timing(5e9, 10, 0.9), Timing(9e9, 10, 0.8)])


def test_no_coefficient_is_negative() -> None:
    sizes = [2, 4, 8, 16]
    curve, found = fit_curve(sizes, [5 * n - 1 for n in sizes])  # exactly: a = -1, which no time can be
    assert min(found.coefficients) == curve.a == 0
    assert curve.b > 4
    assert found.misses.worst > 0


def test_a_curve_is_found_again() -> None:
    sizes = [2, 4, 8, 16, 32]
    true = Curve(a="100 ms", b="20 ms", c="3 ms")
    curve, found = fit_curve(sizes, [true.seconds(n) for n in sizes])
    assert (curve.a, curve.b, curve.c) == pytest.approx((0.1, 0.02, 0.003))
    assert found.misses.worst < 1e-9
    shorter = [0.01 * n + (true.seconds(n) - 0.01 * n) / 10 for n in sizes]  # 10 ms a member are not of the numbers
    scaling, _ = fit_curve(sizes, [true.seconds(n) for n in sizes], 1000, shorter)
    assert scaling.of(100).seconds(8) == pytest.approx(0.08 + (true.seconds(8) - 0.08) / 10)
    rng = np.random.default_rng(0)
    noisy, found = fit_curve(sizes, [true.seconds(n) * (1 + 0.02 * rng.standard_normal()) for n in sizes])
    assert [noisy.seconds(n) for n in sizes] == pytest.approx([true.seconds(n) for n in sizes], rel=0.05)
    assert 0 < found.misses.mean <= found.misses.worst < 0.05


def test_errors_are_relative() -> None:
    # A short and a long time count the same: a constant through 1 and 3 minimises (c - 1)² + (c/3 - 1)².
    found = least_squares(np.array([[1.0], [1.0]]), [1.0, 3.0])
    assert found.coefficients == pytest.approx((1.2,))
    assert found.misses == Misses(pytest.approx((0.2 + 0.6) / 2), pytest.approx(0.6))
    assert str(Misses(0.0684, 0.1234)) == "6.8 % in the mean and 12.3 % at most"


def test_a_column_of_zeros_gets_zero() -> None:
    assert least_squares(np.array([[1.0, 0.0], [2.0, 0.0]]), [3.0, 6.0]).coefficients == pytest.approx((3.0, 0.0))


@pytest.mark.parametrize("seconds", [[], [1.0], [1.0, 0.0], [1.0, -1.0], [1.0, float("nan")]])
def test_what_cannot_be_fitted(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match=r"one row for each time|greater than zero"):
        least_squares(np.ones((2, 1)), seconds)


# Constants of secure aggregation.

TRUE = Constants(
    step="20 us", key_pair="40 us", agreement="60 us", share_term="500 ns", seal="12 us", unseal="7 us",
    encode_element="14 ns", mask_element="2 ns", add_element="1.5 ns", entry="2 us", basis_term="1.6 us",
    secret_term="900 ns", sign="45 us", verify="110 us",
)  # fmt: skip
GROUPS = [
    ProtocolGroup(n, -(-2 * n // 3), dropped, length, adversary)
    for n in (4, 8, 16, 32, 64)
    for length in (1_000, 100_000)
    for dropped in (0, n // 4)
    for adversary in ("passive", "active")
]


def observed(noise: float, **how: bool) -> list[Observation]:
    rng = np.random.default_rng(1)
    return [
        Observation(
            party, (step,), g, seconds_of(operations(party, step, g, **how), TRUE) * (1 + noise * rng.standard_normal())
        )
        for g in GROUPS
        for party in ("client", "server")
        for step in steps_of(g.adversary)
    ]


@pytest.mark.parametrize("how", [{}, {"reuse_basis": False, "recover_all": True}])
def test_constants_are_found_again(how: dict[str, bool]) -> None:
    fitted = fit_constants(observed(0.0, **how), **how)
    for name in Constants.model_fields:
        assert getattr(fitted.constants, name) == pytest.approx(getattr(TRUE, name), rel=1e-3), name
    assert max(fitted.client.worst, fitted.server.worst) < 1e-3


def test_signatures_that_were_never_made_are_not_measured() -> None:
    passive = fit_constants([each for each in observed(0.0) if each.group.adversary == "passive"]).constants
    assert (passive.sign, passive.verify) == (None, None)
    assert passive.key_pair == pytest.approx(TRUE.key_pair, rel=1e-3)


def test_constants_from_noisy_times() -> None:
    fitted = fit_constants(observed(0.02))
    for name in ("key_pair", "agreement", "mask_element", "unseal", "sign", "verify"):
        assert getattr(fitted.constants, name) == pytest.approx(getattr(TRUE, name), rel=0.1), name
    for g in GROUPS:
        for party in ("client", "server"):
            found, true = (
                sum(seconds_of(operations(party, step, g), c) for step in steps_of(g.adversary))
                for c in (fitted.constants, TRUE)
            )
            assert found == pytest.approx(true, rel=0.03)
    assert 0 < fitted.client.mean <= fitted.client.worst < 0.05
    assert 0 < fitted.server.mean <= fitted.server.worst < 0.05


# Profiles.


def test_a_profile_can_be_read_again(tmp_path: Path) -> None:
    speed = Speed(35.6123e9, 2.0619e-3, Misses(0.05, 0.1), {"depthwise": 0.0391234})
    part = Terms.model_construct(a=0.0, b=1e-3, c=0.0)
    curves = {
        "secure-aggregation": Curve.model_construct(a=0.0, b=1.23456e-3, c=4.5e-8, parameters=500, proportional=part)
    }
    file = tmp_path / "made-here.yaml"
    file.write_text(
        profile_text("My host", "measured\n\nand given", speed, POWER, curves, 16 * 2**30), encoding="utf-8"
    )
    profile = find_profile(str(file))
    assert profile.name == "made-here"
    assert profile.title == "My host"
    assert profile.source == "measured\n\nand given"
    assert profile.effective_speed == pytest.approx(35.61e9)
    assert profile.batch_overhead == pytest.approx(2.062e-3)
    assert profile.power == POWER
    assert profile.memory == 16 * 2**30
    assert (profile.efficiency.depthwise, profile.efficiency.recurrent) == (0.03912, 1)
    assert profile.spread["speed"].relative == pytest.approx(0.05 * math.sqrt(math.pi / 2), abs=5e-4)
    assert profile.spread["speed"].source == "the fit misses the measured times by 5.0% in the mean"
    curve = profile.group_operations["secure-aggregation"]
    assert (curve.a, curve.b, curve.c) == pytest.approx((0, 1.235e-3, 4.5e-8))
    assert (curve.parameters, curve.proportional) == (500, part)


def test_figures_are_readable() -> None:
    assert curve_data(Curve.model_construct(a=0.0, b=1.23456e-3, c=4.5e-11)) == {
        "a": "0 s", "b": "1.235 ms", "c": "0.045 ns",
    }  # fmt: skip
    assert readable(TIME, 12.0, "s", "ms") == "12 s"
    assert readable(SIZE, 1.5 * 2**30, "GiB", "MiB") == "1.5 GiB"


def test_the_host_has_a_name() -> None:
    assert host_cpu().endswith("cores)")
    memory = host_memory_bytes()
    assert memory is None or memory > 2**20


def test_a_pair_is_timed_by_its_shortest_time() -> None:
    times = iter([0.0, 5.0, 10.0, 12.0, 20.0, 29.0])
    assert time_pair(10, 3, lambda: next(times)) == 2.0
