"""Splitting clusters: stability as published, bipartitions worked out by hand, and which clusters are merged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.contracts.learning import LocalRuleChoice
from emulator.contracts.methods import Halves, Reading
from emulator.learning.facts import ModelFacts
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.learning.recipes import Handle as AnyHandle
from emulator.methods.merging import clusters_to_merge
from emulator.methods.splitting import (
    ConvergenceParams,
    Record,
    ReferenceParams,
    Sides,
    Watch,
    convergence,
    matrix,
    reference,
)
from emulator.registry import NoParams
from emulator.rng import stream
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]
HICFL = (
    "topology.edges=0", "method=hicfl", "method.local={batch_size: 4, learning_rate: 0.1}",
    "data.partition={kind: label-blocks, blocks: [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], samples_per_client: 40}",
)  # fmt: skip


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def layers(state: np.ndarray) -> list[np.ndarray]:
    """The two weight matrices of the small perceptron, without biases."""
    return [state[:512], state[520:600]]


def updates_of(loaded: Loaded, rounds: int) -> np.ndarray:
    """The updates [rounds, clients, parameters] of all clients while they are one cluster, by the lab alone."""
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    clients, rule = range(loaded.scenario.topology.clients), loaded.scenario.method.params.local
    samples = lab.clients.samples
    model, found = lab.initial(), []
    for t in range(1, rounds + 1):
        trained = [lab.train(LocalTraining(model, c, rule, t))[0] for c in clients]
        before = lab.value(model).double().numpy()
        found.append(np.stack([lab.value(h).double().numpy() - before for h in trained]))
        model = lab.combine(trained, [int(n) / int(samples.sum()) for n in samples])
    return np.stack(found)


@pytest.mark.parametrize("selection", [None, 0.05, 0.2])
def test_stability_is_equation_14_averaged_over_the_window(small: Small, selection: float | None) -> None:
    chosen = "null" if selection is None else selection
    loaded = small(
        *HICFL, f"method.split_time={{kind: stability, epsilon: 0, window: 2, selection: {chosen}}}", "stop.rounds=6"
    )
    session = played(loaded)
    updates = updates_of(loaded, 6)
    for layer, name in enumerate(("1", "3")):
        by_round = []
        for t in range(2, 6):
            values = []
            for client in range(8):
                first, second, third = (layers(updates[u, client])[layer] for u in (t - 2, t - 1, t))
                if selection is not None:
                    changed = np.abs(layers(updates[1, client])[layer] - layers(updates[0, client])[layer])
                    kept = changed > selection * 0.1
                    assert 0 < kept.sum() < len(kept)
                    first, second, third = first[kept], second[kept], third[kept]
                trend = (cosine(second, third) + cosine(first, second)) / 2
                values.append(abs(trend - cosine(first, third)))
            by_round.append(values)
        rows = [r for r in session.tables["stability"] if r["layer"] == name]
        assert [r["round"] for r in rows] == [3, 4, 5, 6]
        assert rows[0]["least_stable"] == pytest.approx(max(by_round[0]), rel=1e-4)
        for row, (before, now) in zip(rows[1:], itertools.pairwise(by_round), strict=True):
            windows = [(a + b) / 2 for a, b in zip(before, now, strict=True)]
            assert row["stability"] == pytest.approx(np.mean(windows), rel=1e-4)
            assert row["least_stable"] == pytest.approx(max(windows), rel=1e-4)


class Vectors:
    """A lab whose handles are known vectors of one layer and a bias; it counts the cosines that it works out."""

    def __init__(self, vectors: Sequence[Sequence[float]]) -> None:
        self.of = {f"v{i}": np.array(v, float) for i, v in enumerate(vectors)}
        self.handles = [Handle(key) for key in self.of]
        self.cosines = 0
        size = len(vectors[0])
        self.model_facts = ModelFacts(size, size, 1.0, size, (("layer", size),))
        self.clients = SimpleNamespace(samples=np.ones(len(vectors), dtype=np.int64))

    def combine(self, handles: Sequence[AnyHandle], weights: Sequence[float]) -> Handle:
        mean = Handle(f"m{len(self.of)}")
        self.of[mean.key] = sum(w * self.of[h.key] for h, w in zip(handles, weights, strict=True))
        return mean

    def measure_all(self, kind: str, subjects: Sequence[tuple[Sequence[AnyHandle], None]]) -> list[np.ndarray]:
        return [self.measure(kind, handles) for handles, _ in subjects]

    def measure(self, kind: str, handles: Sequence[AnyHandle]) -> np.ndarray:
        if kind == "length":
            return np.array([np.linalg.norm(self.of[handles[0].key])])
        assert kind == "cosines"
        first, *others = [self.of[h.key] for h in handles]
        self.cosines += len(others)
        return np.array([[cosine(first, other)] * 2 for other in others])


def watched(vectors: Sequence[Sequence[float]]) -> tuple[Watch, Vectors]:
    lab = Vectors(vectors)
    records = {c: Record() for c in range(len(vectors))}
    for record, handle in zip(records.values(), lab.handles, strict=True):
        record.add(handle)
    return Watch(lab, records, tuple(records)), lab  # type: ignore[arg-type]


RNG = stream(0, "test")
READING = Reading(True, layer=0, unstable={0: 0.3, 1: 0.1, 2: 0.2, 3: 0.4})


def test_the_reference_is_the_most_stable_and_others_go_by_the_sign_of_their_cosine() -> None:
    watch, lab = watched([[1, 0.1], [-1, 0], [1, 0], [-1, 0.2]])
    halves = reference(watch, READING, False, RNG, ReferenceParams())
    assert halves.reference == 1
    assert (list(halves.like), list(halves.unlike)) == ([1, 3], [0, 2])
    assert lab.cosines == halves.cosines == 3


def test_a_random_reference_is_any_of_them() -> None:
    watch, _ = watched([[1, 0.1], [-1, 0], [1, 0], [-1, 0.2]])
    found = {
        reference(watch, READING, False, stream(s, "r"), ReferenceParams(choice="random")).reference for s in range(40)
    }
    assert found == {0, 1, 2, 3}


def test_who_point_the_same_way_are_split_only_where_somebody_insists() -> None:
    watch, _ = watched([[1, 0], [1, 0.1], [1, 0.2], [1, 3]])
    whole = reference(watch, READING, False, RNG, ReferenceParams())
    assert (list(whole.like), list(whole.unlike)) == ([1, 0, 2, 3], [])
    finer = reference(watch, READING, True, RNG, ReferenceParams())
    assert (sorted(finer.like), list(finer.unlike)) == ([0, 1, 2], [3])


@pytest.mark.parametrize("clients", [2, 5, 20, 40])
def test_similarity_work_is_linear_by_reference_and_quadratic_by_matrix(clients: int) -> None:
    vectors = stream(1, "vectors").normal(size=(clients, 3)).tolist()
    watch, lab = watched(vectors)
    reference(watch, Reading(True, layer=0), False, RNG, ReferenceParams())
    assert lab.cosines == clients - 1
    watch, lab = watched(vectors)
    halves = matrix(watch, Reading(True), False, RNG, NoParams())
    assert lab.cosines == halves.cosines == clients * (clients - 1) // 2


def test_the_matrix_finds_the_halves_with_the_least_similarity_across() -> None:
    rng = stream(2, "vectors")
    for _ in range(20):
        vectors = rng.normal(size=(6, 3))
        watch, _ = watched(vectors.tolist())
        halves = matrix(watch, Reading(True), False, RNG, NoParams())
        across = [cosine(vectors[a], vectors[b]) for a in halves.like for b in halves.unlike]
        best = min(
            max(
                cosine(vectors[a], vectors[b])
                for a in range(6)
                for b in range(6)
                if side >> a & 1 and not side >> b & 1
            )
            for side in range(1, 63)
        )
        assert max(across) == pytest.approx(best)


def test_identical_members_are_not_split() -> None:
    for split in (reference, matrix):
        watch, _ = watched([[1, 2]] * 4)
        params = ReferenceParams() if split is reference else NoParams()
        halves = split(watch, READING, True, RNG, params)  # type: ignore[operator]
        assert sorted(halves.like) == [0, 1, 2, 3]
        assert list(halves.unlike) == []


def test_convergence_is_a_small_mean_and_a_large_member() -> None:
    watch, _ = watched([[1, 0], [0, 1]])
    params = ConvergenceParams(mean_below=0.1, max_above=2.0)
    for mean, longest, ripe in ((0.99, 5.0, True), (1.01, 5.0, False), (0.5, 1.9, False), (0.5, 2.1, True)):
        watch.largest, watch.lengths = 10.0, (mean, longest)
        assert convergence(watch, params).ripe is ripe


@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    samples=st.lists(st.integers(1, 9), min_size=10, max_size=10),
)
@settings(max_examples=60, deadline=None)
def test_what_sides_have_in_common_are_mean_products_of_two_members(
    seed: int, sizes: tuple[int, int], samples: list[int]
) -> None:
    """In linear work it is what all pairs would give."""
    vectors = stream(seed, "vectors").normal(size=(sum(sizes), 4))
    watch, lab = watched(vectors.tolist())
    n = lab.clients.samples = np.array(samples[: sum(sizes)])
    halves = Halves(list(range(sizes[0])), list(range(sizes[0], sum(sizes))), None, 0, 0.0)
    found = watch.sides(halves)
    assert lab.cosines == sum(sizes) + 1
    sums, weights = [0.0, 0.0], [0.0, 0.0]
    for i, own in itertools.product(range(sum(sizes)), (True, False)):
        others = [j for j in range(sum(sizes)) if j != i and ((i in halves.like) == (j in halves.like)) == own]
        products = [float(n[i] * n[j] * (vectors[i] @ vectors[j])) for j in others]
        sums[own] += sum(products)
        weights[own] += float(sum(n[i] * n[j] for j in others))
    assert found.across == pytest.approx(sums[False] / weights[False])
    if weights[True]:
        assert found.within == pytest.approx(sums[True] / weights[True])
    else:
        assert found.within is None


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(("angle", "agree"), [(0, True), (45, True), (75, False), (90, False), (180, False)])
def test_sides_agree_below_60_degrees_whatever_the_noise(noise: float, angle: float, agree: bool) -> None:
    """A constant cannot tell: noise of twice the length makes the mean update of one cluster short, too."""
    rng, dimensions = stream(3, "sides"), 4000
    ways = np.zeros((2, dimensions))
    ways[0, 0], ways[1, :2] = 1, (np.cos(np.radians(angle)), np.sin(np.radians(angle)))
    vectors = [ways[i // 6] + noise * rng.normal(size=dimensions) / np.sqrt(dimensions) for i in range(12)]
    watch, _ = watched([v.tolist() for v in vectors])
    sides = watch.sides(Halves(list(range(6)), list(range(6, 12)), None, 0, 0.0))
    assert sides.within == pytest.approx(1, abs=0.15)
    assert sides.across == pytest.approx(np.cos(np.radians(angle)), abs=0.15)
    assert sides.agree is agree


@pytest.mark.parametrize(
    ("within", "across", "agree"),
    [
        (None, -1.0, True),  # two members: nothing tells a cluster from noise
        (-0.1, -0.3, True),  # members of a side have nothing in common
        (0.2, 0.1, False),
        (0.2, 0.11, True),
    ],
)
def test_noise_is_no_cluster(within: float | None, across: float, agree: bool) -> None:
    assert Sides(within, across, 0.0).agree is agree


def test_a_kept_record_goes_on_and_selects_weights_by_its_latest_updates() -> None:
    record = Record()
    for number in range(5):
        record.add(Handle(f"u{number}"))
    record.stabilities.append(np.ones(2))
    assert [h.key for h in record.selecting] == ["u0", "u1"]
    kept = record.kept()
    assert [h.key for h in kept.latest] == ["u2", "u3", "u4"]
    assert [h.key for h in kept.selecting] == ["u3", "u4"]
    kept.add(Handle("u5"))
    kept.stabilities.append(np.ones(2))
    assert [h.key for h in kept.selecting] == ["u3", "u4"]
    assert (len(record.latest), record.latest[-1].key, len(record.stabilities)) == (3, "u4", 1)


def test_stability_may_be_judged_by_the_mean_over_members(small: Small) -> None:
    loaded = small(
        *HICFL, "method.split_time={kind: stability, epsilon: 0, window: 1, selection: null}", "stop.rounds=3"
    )
    rows = [r for r in played(loaded).tables["stability"] if r["layer"]]
    middle = min((r["stability"] + r["least_stable"]) / 2 for r in rows)
    assert middle < min(r["least_stable"] for r in rows)
    for members, splits in (("every", 0), ("mean", 2)):
        changes = f"{{kind: stability, epsilon: {middle / 0.1}, window: 1, selection: null, members: {members}, agreement: 1}}"
        session = played(small(*HICFL, f"method.split_time={changes}", "stop.rounds=3"))
        assert sum(r["reason"] == "split" for r in session.tables["clusters"]) == splits


@pytest.mark.parametrize(
    ("similar", "sizes", "expected"),
    [
        ([[1, 0.5], [0.5, 1]], [3, 2], [[0, 1]]),
        ([[1, 0.5], [0.5, 1]], [2, 3], [[1, 0]]),
        ([[1, -0.5], [-0.5, 1]], [3, 2], [[0], [1]]),
        # 2 is most like 0, who is with 1 already; it conflicts with 1 and stays alone.
        ([[1, 0.6, 0.9], [0.6, 1, -0.1], [0.9, -0.1, 1]], [5, 1, 2], [[0, 1], [2]]),
        # the next most similar, since the first choice is with somebody who conflicts
        (
            [[1, 0.6, 0.9, -1], [0.6, 1, -0.1, -1], [0.9, -0.1, 1, 0.2], [-1, -1, 0.2, 1]],
            [5, 1, 2, 4],
            [[0, 1], [3, 2]],
        ),
        ([[1.0]], [4], [[0]]),
    ],
)
def test_which_clusters_are_merged(similar: list[list[float]], sizes: list[int], expected: list[list[int]]) -> None:
    assert sorted(clusters_to_merge(np.array(similar), sizes)) == sorted(expected)


def test_cosines_and_lengths_are_those_of_the_vectors(small: Small) -> None:
    loaded = small(*HICFL)
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    rule: LocalRuleChoice = loaded.scenario.method.params.local
    handles = [lab.initial(), *(lab.train(LocalTraining(lab.initial(), c, rule, 1))[0] for c in (0, 5))]
    vectors = [lab.value(h).double().numpy() for h in handles]
    found = lab.measure("cosines", handles)
    for row, other in zip(found, vectors[1:], strict=True):
        expected = [cosine(vectors[0], other)]
        expected += [cosine(a, b) for a, b in zip(layers(vectors[0]), layers(other), strict=True)]
        assert row.tolist() == pytest.approx(expected, rel=1e-9)
    assert lab.measure("length", [handles[1]])[0] == pytest.approx(np.linalg.norm(vectors[1]))
    assert lab.measure("cosines", [lab.zeros(), handles[1]]).tolist() == [[0.0] * 3]
