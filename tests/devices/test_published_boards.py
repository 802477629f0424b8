"""The bundled profiles against published figures, within the errors that benchmarks/boards.py shows."""

from __future__ import annotations

import pytest

from devices.profile import find_profile
from emulator.learning.facts import model_facts
from tests.devices.published import arithmetic, compared, fit_depthwise, published
from tests.devices.published_networks import NETWORKS

ROWS = {f"{row.what} ({row.of})": row for row in compared()}

# By how much a profile may be off, in per cent, where it is fitted to the figure ...
FITTED = {"speed": 4, "depthwise": 6, "throttling": 1, "reserve": 1}
# ... and where it is not, or worse: what the model does not have.
OFF = {
    "TinyCNN, batch 16, samples/s (pi_": (120, 125),  # under-voltage
    "laptop: SqueezeNet": (-6, -4),
    "laptop: TinyCNN, batch 16": (-32, -29),
    "laptop: TinyCNN, batch 64": (50, 52),
    "hot: SqueezeNet": (105, 110),  # the load does not matter
    "hot: DSCNN": (13, 17),
    "DSCNN, batch 16, samples/s (pi_": (-3, 0),
    "DSCNN, batch 16, MiB": (-18, -15),  # neither data at rest nor workspaces of kernels
    "MobileNetV3-Small, batch 32, MiB": (-21, -18),
    "SqueezeNet, batch 32, MiB": (-22, -19),
    "ResNet18, batch 32, MiB": (-31, -28),
}


@pytest.mark.parametrize("name", ROWS)
def test_profiles_meet_what_was_published_within_the_stated_error(name: str) -> None:
    row = ROWS[name]
    low, high = next((bounds for part, bounds in OFF.items() if part in name), (None, None))
    if low is None or high is None:
        high = FITTED[row.fitted]
        low = -high
    assert low <= 100 * row.error <= high


def test_every_stated_error_is_that_of_a_figure() -> None:
    assert all(sum(part in name for name in ROWS) == 1 for part in OFF)


def test_the_efficiency_of_depthwise_layers_is_the_fit() -> None:
    data = published()
    rows = [
        (arithmetic(data["networks"][r["network"]]), r["batch"], r["measured"])
        for r in data["speeds"]
        if r["fitted"] == "depthwise"
    ]
    pi = find_profile("raspberry-pi-4b")
    assert pi.efficiency.depthwise == pytest.approx(fit_depthwise(pi, rows), rel=0.01)
    each = [fit_depthwise(pi, [row]) for row in rows]
    assert each == pytest.approx([0.030, 0.035], abs=5e-4)  # as the profile's source says
    predicted = [row for row in compared() if row.fitted == "depthwise"]
    assert [100 * row.error_without for row in predicted] == pytest.approx([12, -10], abs=0.6)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_published_networks_are_as_the_file_says(name: str) -> None:
    make, shape = NETWORKS[name]
    facts, said = model_facts(make(), shape), published()["networks"][name]
    assert (facts.forward_flops, facts.parameters) == (said["forward_flops"], said["parameters"])
    assert (dict(facts.by_kind).get("depthwise", 0), facts.activation_bytes) == (
        said["depthwise"],
        said["activation_bytes"],
    )


@pytest.mark.parametrize("name", ["raspberry-pi-4b-hot", "raspberry-pi-3b-plus", "android-mid", "android-high"])
def test_arm_cores_share_the_efficiency_of_depthwise_layers(name: str) -> None:
    assert find_profile(name).efficiency == find_profile("raspberry-pi-4b").efficiency


def test_the_hot_board_is_the_same_board() -> None:
    hot, cool = (find_profile(name) for name in ("raspberry-pi-4b-hot", "raspberry-pi-4b"))
    own = {"title", "source", "throttling", "spread"}
    assert hot.model_dump(exclude=own) == cool.model_dump(exclude=own)
