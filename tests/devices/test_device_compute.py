from __future__ import annotations

import math

import pytest

from devices.compute import flops_s, inference_s, training_s
from devices.power import energy_j
from devices.profile import DeviceProfile, find_profile

# Forward FLOPs of one sample, two for each multiply-accumulate, of the networks that were measured on a
# Raspberry Pi 4 (github yeeiia/Hardware-Course-Project, src/fedavg/models.py). Images are 32x32, for TinyCNN
# 28x28.


def _residual_stage(channels: int, wider: int, side: int) -> int:
    """Two basic blocks of ResNet18, with a 1x1 shortcut where the channels grow."""
    shortcut = channels * wider if channels != wider else 0
    return side**2 * (channels * wider * 9 + 3 * wider * wider * 9 + shortcut)


def _fire(inputs: int, squeeze: int, expand: int) -> int:
    """Weights of a fire module: 1x1 to ``squeeze`` channels, then 1x1 and 3x3 to ``expand`` channels each."""
    return inputs * squeeze + squeeze * expand + squeeze * expand * 9


# ResNet18 with a 3x3 first layer of stride 1 and no first pooling.
RESNET18 = 2 * (
    32**2 * 3 * 64 * 9
    + _residual_stage(64, 64, 32)
    + _residual_stage(64, 128, 16)
    + _residual_stage(128, 256, 8)
    + _residual_stage(256, 512, 4)
    + 512 * 10
)
# SqueezeNet 1.0 with a 3x3 first layer and a first pooling of stride 1.
SQUEEZENET = 2 * (
    32**2 * (3 * 96 * 9 + _fire(96, 16, 64) + _fire(128, 16, 64) + _fire(128, 32, 128))
    + 16**2 * (_fire(256, 32, 128) + _fire(256, 48, 192) + _fire(384, 48, 192) + _fire(384, 64, 256))
    + 8**2 * (_fire(512, 64, 256) + 512 * 10)
)
# Two 3x3 convolutions (1-16-32 channels) at 28x28 and 14x14, then 1568-64-10.
TINYCNN = 2 * (28**2 * 16 * 9 + 14**2 * 16 * 32 * 9 + 1568 * 64 + 64 * 10)
# A 3x3 convolution to 24 channels at 32x32, then blocks of a depth-wise 3x3 and a 1x1 convolution.
DSCNN = 2 * (
    32**2 * (3 * 24 * 9 + 24 * 9 + 24 * 48) + 16**2 * (48 * 9 + 48 * 96) + 8**2 * (96 * 9 + 96 * 128) + 128 * 10
)
# MobileNetV3-Small with a first layer of stride 1, by PyTorch's flop counter on torchvision's model.
MOBILENETV3 = 11_005_440

DENSE = {  # name: forward FLOPs, batch size, measured samples a second without throttling
    "ResNet18": (RESNET18, 32, 1.904),
    "SqueezeNet": (SQUEEZENET, 32, 4.875),
    "TinyCNN": (TINYCNN, 8, 215.2),
}
DEPTHWISE = {"MobileNetV3-Small": (MOBILENETV3, 32, 39.05, 4.1), "DSCNN": (DSCNN, 16, 61.0, 2.8)}


@pytest.fixture
def board() -> DeviceProfile:
    return DeviceProfile(
        title="board",
        source="made up",
        effective_speed="2 GFLOP/s",
        batch_overhead="8 ms",
        power={"idle": "1 W", "compute": "5 W", "send": "2 W", "receive": "1.5 W"},
        group_operations={},
    )


def test_the_flops_of_the_measured_networks() -> None:
    # As PyTorch's flop counter has them.
    assert RESNET18 == 1_110_845_440
    assert SQUEEZENET == 404_422_656


@pytest.mark.parametrize("network", DENSE)
def test_raspberry_pi_4_meets_the_measured_speed_of_dense_networks(network: str) -> None:
    flops, batch, measured = DENSE[network]
    predicted = 1 / training_s(find_profile("raspberry-pi-4b"), flops, 1, batch)
    assert predicted == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize("network", DEPTHWISE)
def test_raspberry_pi_4_is_slower_on_depthwise_networks_by_the_stated_factor(network: str) -> None:
    flops, batch, measured, factor = DEPTHWISE[network]
    predicted = 1 / training_s(find_profile("raspberry-pi-4b"), flops, 1, batch)
    assert predicted / measured == pytest.approx(factor, rel=0.02)
    assert f"({factor} times slower)" in " ".join(find_profile("raspberry-pi-4b").source.split())


@pytest.mark.parametrize(
    ("flops", "batch", "measured", "error"),
    [
        (SQUEEZENET, 32, 167.8, 0.06),
        (TINYCNN, 16, 2023, 0.51),
        (TINYCNN, 32, 2633, 0.06),
        (TINYCNN, 64, 3265, 0.51),
    ],
)
def test_laptop_meets_the_measured_speed_within_the_stated_error(
    flops: int, batch: int, measured: float, error: float
) -> None:
    assert 1 / training_s(find_profile("laptop"), flops, 1, batch) == pytest.approx(measured, rel=error)


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
