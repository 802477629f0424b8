"""Combinations against direct transcriptions of their papers, and what they make of ties, of one model, and of nonsense."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emulator.contracts.combining import CombinationChoice, combinations
from emulator.errors import HflError

ROBUST = {
    "median": {},
    "trimmed-mean": {"share": 0.25},
    "geometric-median": {},
    "krum": {"attackers": 1},
    "multi-krum": {"attackers": 1},
    "norm-bound": {"norm": 2.0},
}
EVERY = {"mean": {}, **ROBUST}

Vectors = np.ndarray


def chosen(kind: str, **params: Any) -> CombinationChoice:
    return CombinationChoice(kind, combinations[kind].params.model_validate(params))


def combined(kind: str, models: Sequence[Vectors], weights: Sequence[float] | None = None, **params: Any) -> Vectors:
    before = np.zeros_like(models[0])
    return chosen(kind, **params)(before, models, weights or [1 / len(models)] * len(models))


# Small vectors whose numbers are exact in float32, many of them equal.
values = st.integers(-40, 40).map(lambda n: n / 8)


def several(least: int = 1, most: int = 9) -> st.SearchStrategy[np.ndarray]:
    sizes = st.tuples(st.integers(least, most), st.integers(1, 5))
    return sizes.flatmap(lambda size: arrays(np.float32, size, elements=values))


# The papers, line by line.


def median_of(models: np.ndarray) -> np.ndarray:
    """Yin et al. 2018, Definition 1."""
    return np.median(models.astype(np.float64), axis=0)


def trimmed_mean_of(models: np.ndarray, share: float) -> np.ndarray:
    """Yin et al. 2018, Definition 2: without the largest and the smallest share of every coordinate."""
    found = []
    for column in models.T.astype(np.float64).tolist():
        cut = math.floor(share * len(column))
        kept = sorted(column)[cut : len(column) - cut]
        found.append(sum(kept) / len(kept))
    return np.array(found)


def krum_scores(models: np.ndarray, attackers: int) -> list[float]:
    """Blanchard et al. 2017, Section 4: the sum of squared distances to the n - f - 2 closest vectors."""
    n, scores = len(models), []
    for i in range(n):
        gaps = sorted(float(((models[i] - models[j]).astype(np.float64) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(gaps[: n - attackers - 2]))
    return scores


@given(several())
def test_median(models: np.ndarray) -> None:
    assert np.array_equal(combined("median", models), median_of(models).astype(np.float32))


@given(several(), st.sampled_from((0.0, 0.1, 0.2, 0.25, 0.4, 0.49)))
def test_trimmed_mean(models: np.ndarray, share: float) -> None:
    assert np.allclose(combined("trimmed-mean", models, share=share), trimmed_mean_of(models, share), atol=1e-6)


def test_a_share_counts_as_it_is_written() -> None:
    models = np.arange(100, dtype=np.float32)[:, None] ** 2
    assert combined("trimmed-mean", models, share=0.29)[0] == np.float32((np.arange(29, 71) ** 2.0).mean())


@given(several(5, 11), st.data())
def test_krum(models: np.ndarray, data: st.DataObject) -> None:
    attackers = data.draw(st.integers(0, (len(models) - 3) // 2))
    scores = krum_scores(models, attackers)
    assert np.array_equal(combined("krum", models, attackers=attackers), models[scores.index(min(scores))])


@given(several(5, 11), st.data())
def test_multi_krum(models: np.ndarray, data: st.DataObject) -> None:
    n = len(models)
    attackers = data.draw(st.integers(0, (n - 3) // 2))
    selected = data.draw(st.none() | st.integers(1, n))
    best = sorted(range(n), key=krum_scores(models, attackers).__getitem__)[: selected or n - attackers]
    wanted = models[best].astype(np.float64).mean(axis=0)
    assert np.allclose(combined("multi-krum", models, attackers=attackers, selected=selected), wanted, atol=1e-6)


@given(several(5, 9))
def test_multi_krum_of_one_is_krum_and_of_all_is_the_mean(models: np.ndarray) -> None:
    krum = combined("krum", models, attackers=1)
    assert np.array_equal(combined("multi-krum", models, attackers=1, selected=1), krum)
    everybody = combined("multi-krum", models, attackers=1, selected=len(models))
    assert np.allclose(everybody, combined("mean", models), atol=1e-6)


@given(several(2), st.integers(1, 20))
def test_geometric_median_takes_the_steps_of_rfa(models: np.ndarray, iterations: int) -> None:
    weights = np.arange(1.0, len(models) + 1) / sum(range(1, len(models) + 1))
    v = np.median(models.astype(np.float64), axis=0)
    for _ in range(iterations):  # Pillutla et al. 2022, Algorithm 2
        beta = [a / max(0.01, float(np.linalg.norm(v - w))) for a, w in zip(weights, models, strict=True)]
        v = sum(b * w.astype(np.float64) for b, w in zip(beta, models, strict=True)) / sum(beta)
    found = combined("geometric-median", models, weights.tolist(), iterations=iterations, smoothing=0.01)
    assert np.allclose(found, v, atol=1e-5)


def test_geometric_median_is_where_the_sum_of_distances_is_least() -> None:
    models = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    found = combined("geometric-median", models, iterations=500)

    def total(point: np.ndarray) -> float:
        return float(np.linalg.norm(models - point, axis=1).sum())

    steps = [np.array(step) * 1e-3 for step in itertools.product((-1, 0, 1), repeat=3)]
    assert min(total(found + step) for step in steps) >= total(found) - 1e-9


@given(several(), st.floats(0.1, 10))
def test_norm_bound(models: np.ndarray, norm: float) -> None:
    before = np.full_like(models[0], 0.5)
    weights = np.arange(1.0, len(models) + 1) / sum(range(1, len(models) + 1))
    wanted = before.astype(np.float64)
    for weight, model in zip(weights, models, strict=True):  # Sun et al. 2019, Section 5.3
        update = model.astype(np.float64) - before
        wanted = wanted + weight * update / max(1.0, float(np.linalg.norm(update)) / norm)
    assert np.allclose(chosen("norm-bound", norm=norm)(before, models, weights.tolist()), wanted, atol=1e-5)


# What holds for all of them.


@pytest.mark.parametrize("kind", EVERY)
@given(several())
def test_it_gives_a_float32_vector_and_changes_none(kind: str, models: np.ndarray) -> None:
    given_, before = models.copy(), np.zeros_like(models[0])
    found = chosen(kind, **EVERY[kind])(before, models, [1 / len(models)] * len(models))
    assert found.dtype == np.float32
    assert found.shape == before.shape
    assert np.array_equal(models, given_)
    assert not before.any()


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind != "norm-bound"])
@given(model=several(1, 1), times=st.integers(1, 7))
def test_of_equal_models_it_gives_that_one(kind: str, model: np.ndarray, times: int) -> None:
    """So also of one."""
    assert np.allclose(combined(kind, np.repeat(model, times, axis=0), **EVERY[kind]), model[0], atol=1e-6)


def test_of_equally_good_models_krum_takes_the_first() -> None:
    models = np.array([[9], [1], [0], [1], [0]], dtype=np.float32)  # [1] and [0] have the score 1 in pairs
    scores = krum_scores(models, 1)
    assert scores[1] == scores[2] == min(scores)
    assert combined("krum", models, attackers=1) == [1]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("nonsense", [np.nan, np.inf, -np.inf])
def test_models_that_are_not_finite_are_left_out(kind: str, nonsense: float) -> None:
    honest = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    bad = honest[0].copy()
    bad[2] = nonsense
    models = [*honest[:3], bad, *honest[3:]]
    params = {**EVERY[kind], **({"attackers": 0} if "attackers" in EVERY[kind] else {})}
    wanted = combined(kind, list(honest), **params)
    assert np.array_equal(combined(kind, models, **EVERY[kind]), wanted)


@pytest.mark.parametrize("kind", EVERY)
def test_where_no_model_is_finite_the_server_keeps_its_own(kind: str) -> None:
    before = np.array([1.0, 2.0], dtype=np.float32)
    bad = np.full(2, np.nan, dtype=np.float32)
    assert np.array_equal(chosen(kind, **EVERY[kind])(before, [bad, bad], [0.5, 0.5]), before)


@pytest.mark.parametrize("kind", ["median", "trimmed-mean", "geometric-median", "krum", "multi-krum"])
@given(several(7, 11), st.sampled_from((1e3, 1e30, 3e38)), st.integers(0, 6))
def test_one_model_cannot_move_it_far(kind: str, models: np.ndarray, size: float, who: int) -> None:
    models = models.copy()
    models[who] = size
    honest = np.delete(models, who, axis=0)
    found = combined(kind, models, **ROBUST[kind])
    reach = 1.5 * np.linalg.norm(honest - honest.mean(axis=0), axis=1).max() + 1e-3
    assert np.linalg.norm(found - honest.mean(axis=0)) <= 2 * reach


@given(several(7, 9))
def test_norm_bounding_lets_one_model_go_as_far_as_the_bound(models: np.ndarray) -> None:
    moved = models.copy()
    moved[0] = 1e30
    gap = np.linalg.norm(combined("norm-bound", moved, norm=12.0) - combined("norm-bound", models, norm=12.0))
    assert gap <= 24.0 / len(models) + 1e-5  # no update was longer than √5 · 5


def test_fewer_models_than_krum_needs_bear_fewer_attackers() -> None:
    models = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    assert np.array_equal(combined("krum", models, attackers=4), combined("krum", models, attackers=1))
    pair = models[:2]
    assert np.array_equal(combined("krum", pair, attackers=4), pair[0])


@pytest.mark.parametrize(
    ("kind", "params", "flops"),
    [
        ("mean", {}, 0),
        ("median", {}, 8 * 100 * 3),
        ("trimmed-mean", {}, 8 * 100 * 3),
        ("krum", {"attackers": 1}, 3 * 28 * 100),
        ("multi-krum", {"attackers": 1, "selected": 4}, 3 * 28 * 100 + 4 * 100),
        ("geometric-median", {"iterations": 9}, (3 + 5 * 9) * 8 * 100),
        ("norm-bound", {"norm": 1.0}, 5 * 8 * 100),
    ],
)
def test_what_the_server_computes(kind: str, params: dict[str, Any], flops: float) -> None:
    assert chosen(kind, **params).flops(8, 100) == flops


def test_blocks_change_nothing() -> None:
    """Models longer than a block."""
    models = np.random.default_rng(3).normal(size=(5, 40_000)).astype(np.float32)
    assert np.array_equal(combined("median", models), median_of(models).astype(np.float32))
    scores = krum_scores(models, 1)
    assert np.array_equal(combined("krum", models, attackers=1), models[int(np.argmin(scores))])


@pytest.mark.parametrize("given_", [np.zeros(3), "nothing", np.zeros((2, 2))], ids=["longer", "text", "square"])
def test_what_a_combination_gives_is_checked(monkeypatch: pytest.MonkeyPatch, given_: object) -> None:
    plugin = combinations["median"]
    monkeypatch.setitem(
        combinations._plugins, "median", type(plugin)("median", plugin.params, lambda r, p: given_, plugin.facts)
    )
    with pytest.raises(HflError, match="it must give numbers"):
        combined("median", np.zeros((3, 2), dtype=np.float32))
