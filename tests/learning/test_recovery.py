"""Recovered images: the Fréchet distance against closed forms, and an attack that is the same each time and leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from emulator.contracts.learning import MeasurementChoice
from emulator.errors import InputError
from emulator.learning.frechet import frechet_distance, normal_distance
from emulator.learning.gan import FEATURES, Generator, trained_features
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recovery import Recovered, RecoveryParams, check_images
from emulator.rng import stream
from emulator.scenario import Loaded

Small = Callable[..., Loaded]

QUICK = RecoveryParams(steps=60, batch_size=8, noise=4, width=4, samples=64, images=3)


# The distance.


def test_the_distance_of_diagonal_normals_is_the_closed_form() -> None:
    rng = stream(1, "normals")
    means, variances = rng.normal(size=(2, 5)), rng.uniform(0.1, 3.0, size=(2, 5))
    expected = ((means[0] - means[1]) ** 2).sum() + ((np.sqrt(variances[0]) - np.sqrt(variances[1])) ** 2).sum()
    found = normal_distance(means[0], np.diag(variances[0]), means[1], np.diag(variances[1]))
    assert found == pytest.approx(expected, rel=1e-12)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]  # both turned alike are as far apart
    turned = [(turn @ m, turn @ np.diag(v) @ turn.T) for m, v in zip(means, variances, strict=True)]
    assert normal_distance(*turned[0], *turned[1]) == pytest.approx(expected, rel=1e-9)
    assert normal_distance(*turned[1], *turned[0]) == pytest.approx(expected, rel=1e-9)


def test_the_distance_of_sets_is_that_of_their_moments() -> None:
    rng = stream(2, "sets")
    one = rng.normal(size=(300, 4))
    assert frechet_distance(one, one) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(one, one[rng.permutation(300)]) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(one, one + np.array([3.0, 0.0, 4.0, 0.0])) == pytest.approx(25.0)
    # Scaled by 3: standard deviations s and 3s, so Σ (2 s)² and the mean's shift.
    spread = np.linalg.eigvalsh(np.cov(one, rowvar=False)).sum()
    assert frechet_distance(one, 3 * one) == pytest.approx(4 * spread + 4 * (one.mean(axis=0) ** 2).sum())
    line = np.array([[1.0], [3.0]])
    assert frechet_distance(line, line + 2) == pytest.approx(4.0)


def test_fewer_samples_than_features_give_a_distance_all_the_same() -> None:
    rng = stream(3, "few")
    few, many = rng.normal(size=(5, 20)).astype(np.float32), rng.normal(size=(500, 20)).astype(np.float32)
    assert frechet_distance(few, few) == pytest.approx(0.0, abs=1e-9)
    assert frechet_distance(few, many) == pytest.approx(frechet_distance(many, few), rel=1e-6)
    assert frechet_distance(few, many) > frechet_distance(many[:250], many[250:])
    with pytest.raises(ValueError, match="at least two samples"):
        frechet_distance(few[:1], many)


# The attack.


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 28, 28), (2, 9, 7), (1, 4, 5)])
def test_a_generator_makes_images_of_any_shape_within_the_known_range(shape: tuple[int, ...]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Generator(shape, 6, 4, -2.0, 3.0)(10 * torch.randn(5, 6))
    assert made.shape == (5, *shape)
    assert made.min() >= -2.0
    assert made.max() <= 3.0


@pytest.mark.parametrize("shape", [(), (12,), (1, 3, 8), (1, 8, 3), (4, 4)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="images of at least 4×4 pixels") as caught:
        check_images(shape)
    assert caught.value.key == "attacks"
    check_images((1, 4, 4))


def test_results_are_packed_and_unpacked() -> None:
    images = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    result = Recovered.from_array(Recovered(1.5, 2.5, 3.5, 0.5, images, images + 1).to_array(), (3, 2, 2))
    assert (result.distance, result.untrained, result.own, result.floor) == (1.5, 2.5, 3.5, 0.5)
    assert np.array_equal(result.images, images)
    assert np.array_equal(result.nearest, images + 1)


def test_features_depend_on_the_samples_alone() -> None:
    rng = stream(4, "samples")
    x = torch.from_numpy(rng.normal(size=(40, 1, 8, 8)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 3, 40))
    first = trained_features(x, y, 3)(x)
    torch.rand(3)  # whatever others draw
    assert torch.equal(first, trained_features(x, y, 3)(x))
    assert first.shape == (40, FEATURES)


def recovered(lab: Lab, params: RecoveryParams, client: int = 0) -> Recovered:
    found = lab.measure(MeasurementChoice("gan-recovery", params), [lab.initial()], client)
    return Recovered.from_array(found, lab.sample_shape)


def test_an_attack_is_the_same_each_time_and_leaves_no_trace(small: Small) -> None:
    loaded = small("data.set.train_samples=200")
    drawn = torch.random.get_rng_state()
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    before = lab.evaluate(lab.initial())
    one = recovered(lab, QUICK)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    fresh = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    other = recovered(fresh, QUICK)
    assert np.array_equal(one.to_array(), other.to_array())
    assert fresh.evaluate(fresh.initial()) == before
    # Private images are those of others, as they are.
    held = {x.tobytes() for c, part in enumerate(lab._data.parts) if c for x in lab._data.arrays.x_train[part]}
    assert all(image.tobytes() in held for image in one.nearest)
    mine = lab._data.arrays.x_train[lab._data.parts[0]]
    assert one.images.min() >= mine.min()
    assert one.images.max() <= mine.max()
    assert not np.array_equal(recovered(lab, QUICK, client=1).images, one.images)


def test_training_brings_the_generator_nearer_than_it_began(small: Small) -> None:
    loaded = small("data.partition={kind: iid}", "data.set.train_samples=400", "topology.clients=4")
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    idle = recovered(lab, QUICK.model_copy(update={"steps": 0}))
    assert idle.distance == idle.untrained
    trained = recovered(lab, QUICK.model_copy(update={"steps": 300, "width": 8}))
    assert trained.distance < 0.7 * trained.untrained
    assert 0 < trained.floor < trained.own < trained.distance  # real images are nearer than any that were made
    assert math.isclose(trained.floor, idle.floor, rel_tol=1e-6)
