"""Clipping and noise: no client can shift a sum by more than the clip, and the noise has the variance that it should."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from emulator.learning.private import PrivateMean, clipped

SIZE = 40_000

vectors = arrays.arrays(np.float64, 7, elements=st.floats(-1e6, 1e6, allow_subnormal=False))


@given(vectors, st.floats(1e-6, 1e6))
def test_no_update_is_longer_than_the_clip_and_its_direction_stays(values: np.ndarray, clip: float) -> None:
    update = torch.from_numpy(values)
    found = clipped(update, clip)
    assert float(found.norm()) <= clip * (1 + 1e-12)
    if float(update.norm()) <= clip:
        assert torch.equal(found, update)  # untouched, to the last bit
    else:
        assert float(found.norm()) == pytest.approx(clip)
        assert torch.allclose(found * float(update.norm()), update * float(found.norm()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, 1e200])
def test_an_update_that_is_not_finite_counts_nothing(broken: float) -> None:
    assert clipped(torch.tensor([1.0, broken, 2.0], dtype=torch.float64), 1.0).tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=50)
@given(st.lists(vectors, min_size=1, max_size=5), vectors, st.integers(0, 4), st.floats(0.01, 100.0))
def test_one_client_shifts_the_sum_by_no_more_than_the_clip(
    updates: list[np.ndarray], other: np.ndarray, place: int, clip: float
) -> None:
    """With zeros in its place (a client's data taken away), or with any other update: twice as much."""
    place %= len(updates)

    def total(of: list[np.ndarray]) -> torch.Tensor:
        return torch.stack([clipped(torch.from_numpy(update), clip) for update in of]).sum(0)

    whole = total(updates)
    without = total([np.zeros(7) if i == place else update for i, update in enumerate(updates)])
    replaced = total([other if i == place else update for i, update in enumerate(updates)])
    assert float((whole - without).norm()) <= clip * (1 + 1e-9)
    assert float((whole - replaced).norm()) <= 2 * clip * (1 + 1e-9)


def test_the_average_is_that_of_clipped_updates() -> None:
    before = torch.tensor([1.0, 2.0])
    models = [torch.tensor([1.3, 2.4]), torch.tensor([4.0, 6.0]), torch.tensor([1.0, math.nan])]
    (found,) = PrivateMean(1, 1.0, 0.0, ())(before, *models)
    expected = [1 + (0.3 + 0.6 + 0.0) / 3, 2 + (0.4 + 0.8 + 0.0) / 3]  # (3, 4) is five times too long
    assert found.tolist() == pytest.approx(expected, abs=1e-6)
    assert found.dtype is torch.float32
    assert before.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("members", [1, 4, 25])
@pytest.mark.parametrize("lost", [0, 3])
def test_shares_of_noise_add_up_to_the_variance_that_is_accounted(members: int, lost: int) -> None:
    """Each member adds 1/members of the variance; with some lost, what is left of the variance is in proportion."""
    there = members - min(lost, members - 1)
    share = 3.0 / math.sqrt(members)
    names = tuple(("privacy", "share", client) for client in range(there))
    before = torch.zeros(SIZE)
    (found,) = PrivateMean(5, 1.0, share, names)(before, *[before] * there)
    noise = found.double().numpy() * there  # of the sum
    expected = 9.0 * there / members
    # A variance of n normal numbers has the standard deviation sqrt(2 / n) of itself; 5 of them are a chance of 1 in 10^6.
    assert abs(noise.var() / expected - 1) < 5 * math.sqrt(2 / SIZE)
    assert abs(noise.mean()) < 5 * math.sqrt(expected / SIZE)
    kurtosis = (noise**4).mean() / noise.var() ** 2
    assert abs(kurtosis - 3) < 5 * math.sqrt(24 / SIZE)  # as of a normal distribution


def test_noise_of_two_names_has_nothing_in_common_and_that_of_one_name_is_the_same() -> None:
    before = torch.zeros(SIZE)

    def noise(seed: int, *name: str | int) -> np.ndarray:
        (found,) = PrivateMean(seed, 1.0, 1.0, (name,))(before, before)
        return found.numpy()

    first = noise(1, "privacy", "client", 3, 1, 0)
    assert np.array_equal(first, noise(1, "privacy", "client", 3, 1, 0))
    others = [(2, 3, 1, 0), (1, 4, 1, 0), (1, 3, 2, 0), (1, 3, 1, 1)]
    for seed, *place in others:
        assert abs(np.corrcoef(first, noise(seed, "privacy", "client", *place))[0, 1]) < 5 / math.sqrt(SIZE)


def test_all_that_determines_the_result_is_in_the_identity() -> None:
    names = (("privacy", "server", 0, 1, 0),)
    found = {
        str(PrivateMean(*each).identity())
        for each in (
            (1, 1.0, 1.0, names),
            (2, 1.0, 1.0, names),
            (1, 2.0, 1.0, names),
            (1, 1.0, 2.0, names),
            (1, 1.0, 1.0, (("privacy", "server", 0, 1, 1),)),
        )
    }
    assert len(found) == 5
