from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.compute import Arithmetic, dense_flops, flops_s, inference_s, training_s
from devices.memory import missing_bytes, swapping
from devices.power import energy_j
from devices.profile import DeviceProfile, find_profile


def made_up() -> DeviceProfile:
    return DeviceProfile(
        title="board",
        source="made up",
        effective_speed="2 GFLOP/s",
        batch_overhead="8 ms",
        power={"idle": "1 W", "compute": "5 W", "send": "2 W", "receive": "1.5 W"},
        group_operations={},
    )


@pytest.fixture
def board() -> DeviceProfile:
    return made_up()


@pytest.mark.parametrize("batch", [1, 8, 128])
def test_raspberry_pi_4_is_1_78_times_a_raspberry_pi_3(batch: int) -> None:
    slow, fast = (training_s(find_profile(n), 5e6, 1000, batch) for n in ("raspberry-pi-3b-plus", "raspberry-pi-4b"))
    assert slow / fast == pytest.approx(2380 / 1341, rel=2e-3)


def test_training_time_in_closed_form(board: DeviceProfile) -> None:
    # Three passes of 1 MFLOP at 2 GFLOP/s are 1.5 ms a sample; 8 ms a batch of 16 are 0.5 ms a sample.
    assert training_s(board, 1e6, 100, 16) == pytest.approx(0.2)
    assert training_s(board, 1e6, 100, 16, epochs=5) == pytest.approx(1.0)
    assert training_s(board, 1e6, 0, 16) == 0


def test_training_time_is_linear_in_the_samples(board: DeviceProfile) -> None:
    one = training_s(board, 3e6, 1, 32)
    assert [training_s(board, 3e6, n, 32) for n in (0.5, 7, 33, 1000)] == pytest.approx(
        [0.5 * one, 7 * one, 33 * one, 1000 * one]
    )


def test_inference_is_one_of_three_passes(board: DeviceProfile) -> None:
    assert inference_s(board, 1e6, 60, 16) == pytest.approx(60 * (0.5e-3 + 0.5e-3 / 3))
    assert 3 * inference_s(board, 1e6, 60, 16) == pytest.approx(training_s(board, 1e6, 60, 16))


def test_seconds_of_flops(board: DeviceProfile) -> None:
    assert flops_s(board, 1e9) == pytest.approx(0.5)
    assert flops_s(board, 1) > 0
    assert flops_s(board, 0) == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0.0, 10, 8), "forward_flops"),
        ((-1.0, 10, 8), "forward_flops"),
        ((math.nan, 10, 8), "forward_flops"),
        ((math.inf, 10, 8), "forward_flops"),
        ((1e6, -1, 8), "samples"),
        ((1e6, math.nan, 8), "samples"),
        ((1e6, 10, 0), "batch_size"),
        ((1e6, 10, 8, 0), "epochs"),
    ],
)
def test_work_never_costs_nothing_by_mistake(board: DeviceProfile, arguments: tuple[float, ...], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        training_s(board, *arguments)


@pytest.mark.parametrize("speed", [0.0, math.inf, math.nan])
def test_a_speed_that_is_none_is_refused(board: DeviceProfile, speed: float) -> None:
    broken = board.model_copy(update={"effective_speed": speed})
    with pytest.raises(ValueError, match="effective speed"):
        training_s(broken, 1e6, 10, 8)
    with pytest.raises(ValueError, match="flops"):
        flops_s(board, -1)


def test_energy_in_closed_form(board: DeviceProfile) -> None:
    assert energy_j(board, 0, 0, 0, 100) == pytest.approx(100)
    assert energy_j(board, 100, 0, 0, 100) == pytest.approx(500)
    assert energy_j(board, 30, 10, 20, 100) == pytest.approx(100 * 1 + 30 * 4 + 10 * 1 + 20 * 0.5)
    assert energy_j(board, 0, 0, 0, 0) == 0


def test_states_may_overlap(board: DeviceProfile) -> None:
    # Computing, sending and receiving at once for ten seconds.
    assert energy_j(board, 10, 10, 10, 10) == pytest.approx(10 * (1 + 4 + 1 + 0.5))


@pytest.mark.parametrize(
    ("times", "name"),
    [
        ((-1, 0, 0, 10), "compute_s"),
        ((0, 11, 0, 10), "send_s"),
        ((0, 0, math.nan, 10), "receive_s"),
        ((0, 0, 0, -1), "elapsed_s"),
    ],
)
def test_impossible_times_have_no_energy(board: DeviceProfile, times: tuple[float, ...], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        energy_j(board, *times)


def test_rounding_is_no_impossible_time(board: DeviceProfile) -> None:
    assert energy_j(board, sum([0.1] * 10), 0, 0, 0.9999999999999999) == pytest.approx(5)


# Kinds of layers.


def with_figures(board: DeviceProfile, **figures: object) -> DeviceProfile:
    return DeviceProfile.model_validate(board.model_dump() | figures)


@given(
    flops=st.floats(1, 1e12),
    shares=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)),
    efficiencies=st.tuples(st.floats(1e-3, 2), st.floats(1e-3, 2)),
    batch=st.integers(1, 512),
)
def test_layers_of_a_kind_take_their_share_of_the_speed(
    flops: float, shares: tuple[float, float], efficiencies: tuple[float, float], batch: int
) -> None:
    kinds = ("depthwise", "recurrent")
    device = with_figures(made_up(), efficiency=dict(zip(kinds, efficiencies, strict=True)))
    work = Arithmetic(flops, tuple((k, share * flops) for k, share in zip(kinds, shares, strict=True)))
    dense_s = (1 - sum(shares)) * flops / 2e9
    slow_s = sum(share * flops / (2e9 * e) for share, e in zip(shares, efficiencies, strict=True))
    expected = 3 * (dense_s + slow_s) + 8e-3 / batch
    assert training_s(device, work, 1, batch) == pytest.approx(expected, rel=1e-9)
    assert 3 * inference_s(device, work, 7, batch) == pytest.approx(7 * expected, rel=1e-9)


@given(flops=st.floats(1, 1e12), share=st.floats(0, 1), batch=st.integers(1, 512), samples=st.integers(0, 10**6))
def test_where_all_kinds_are_as_fast_nothing_changes_in_a_bit(
    flops: float, share: float, batch: int, samples: int
) -> None:
    work = Arithmetic(flops, (("depthwise", share * flops),), "some", 10)
    assert training_s(made_up(), work, samples, batch) == 3 * (samples * (flops / 2e9 + 8e-3 / batch / 3))
    assert dense_flops(made_up(), work) == flops


def test_what_a_local_rule_computes_comes_on_top_at_full_speed(board: DeviceProfile) -> None:
    slow = with_figures(board, efficiency={"depthwise": 0.1})
    plain, more = Arithmetic(1e6, (("depthwise", 5e5),)), Arithmetic(1e6, (("depthwise", 5e5),), extra_flops=4e6)
    added = training_s(slow, more, 10, 8) - training_s(slow, plain, 10, 8)
    assert added == pytest.approx(10 * 3 * 4e6 / 2e9)


# Measured seconds.

NETWORK = Arithmetic(1e7, (("depthwise", 1e6),), "some-net", 5000)


def entry(batch: int, seconds: str, **other: object) -> dict[str, object]:
    return {
        "model": "some-net", "forward_flops": 1e7, "parameters": 5000, "batch_size": batch, "seconds": seconds,
        "source": "made up", **other,
    }  # fmt: skip


MEASURED = [entry(8, "40 ms"), entry(32, "22 ms")]


@pytest.fixture
def timed(board: DeviceProfile) -> DeviceProfile:
    return with_figures(board, measured=MEASURED, efficiency={"depthwise": 0.5})


def test_measured_seconds_take_the_place_of_the_formula(timed: DeviceProfile) -> None:
    assert [training_s(timed, NETWORK, 1, batch) for batch in (8, 32)] == pytest.approx([0.040, 0.022], rel=1e-12)
    assert inference_s(timed, NETWORK, 30, 8) == pytest.approx(30 * 0.040 / 3)
    # Linear in 1 / batch: 1/16 lies two thirds of the way from 1/8 to 1/32.
    assert training_s(timed, NETWORK, 5, 16) == pytest.approx(5 * (0.040 - 2 / 3 * 0.018))


@pytest.mark.parametrize(("batch", "nearest", "seconds"), [(1, 8, 0.040), (4, 8, 0.040), (64, 32, 0.022)])
def test_beyond_what_was_measured_the_formula_is_scaled(
    board: DeviceProfile, timed: DeviceProfile, batch: int, nearest: int, seconds: float
) -> None:
    formula = with_figures(board, efficiency={"depthwise": 0.5})
    ratio = training_s(formula, NETWORK, 1, batch) / training_s(formula, NETWORK, 1, nearest)
    assert training_s(timed, NETWORK, 1, batch) == pytest.approx(seconds * ratio)
    assert training_s(timed, NETWORK.times(3), 1, batch) == pytest.approx(3 * seconds * ratio)


def test_measured_seconds_are_those_of_the_same_network_alone(board: DeviceProfile, timed: DeviceProfile) -> None:
    formula = with_figures(board, efficiency={"depthwise": 0.5})
    others = {"model": "other-net", "flops": 1.002e7, "parameters": 5006}
    for name, value in others.items():
        other = replace(NETWORK, **{name: value})
        assert training_s(timed, other, 1, 8) == training_s(formula, other, 1, 8) != 0.040
    near = replace(NETWORK, flops=1.0005e7, parameters=5004)
    assert training_s(timed, near, 1, 8) == pytest.approx(0.040)


def test_a_local_rule_is_charged_beside_measured_seconds(timed: DeviceProfile) -> None:
    assert training_s(timed, replace(NETWORK, extra_flops=2e6), 1, 8) == pytest.approx(0.040 + 3 * 2e6 / 2e9)


def test_a_device_that_is_faster_is_so_in_what_was_measured(timed: DeviceProfile) -> None:
    assert training_s(timed.faster(4, "x"), NETWORK, 9, 12) == pytest.approx(training_s(timed, NETWORK, 9, 12) / 4)


# Memory.


def test_what_does_not_fit_is_swapped_by_its_share(board: DeviceProfile) -> None:
    small = with_figures(board, memory="1 GiB", reserve="512 MiB", out_of_memory={"swap": 9})
    for needed, missing, factor in ((256, 0, 1), (512, 0, 1), (1024, 512, 1 + 8 / 2), (2048, 1536, 1 + 8 * 3 / 4)):
        assert missing_bytes(small, needed * 2**20) == missing * 2**20
        assert swapping(small, needed * 2**20) == factor
        work = Arithmetic(1e6, memory_bytes=needed * 2**20)
        assert training_s(small, work, 10, 16) == pytest.approx(factor * training_s(board, 1e6, 10, 16))
    assert swapping(with_figures(board, memory="1 GiB"), 2**40) == 1  # it refuses instead
    assert missing_bytes(board, 2**40) == 0  # its memory is not known
    none = with_figures(board, memory="100 MiB", out_of_memory={"swap": 9})
    assert swapping(none, 2**20) == 9  # not even the system fits: all of it is swapped
