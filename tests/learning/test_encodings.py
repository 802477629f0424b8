"""Encodings against transcriptions of their papers, and round trips of any list of them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.contracts.encodings import Coder, EncodingChoice, Layout, Packer, Reducer, encodings
from emulator.learning.encodings import orthonormal, pack_bits, unpack_bits
from emulator.learning.transmission import Pipeline, Transmission, problems
from emulator.rng import stream

Shapes = tuple[tuple[int, ...], ...]


class Streams:
    """The streams of one transfer."""

    def __init__(self, place: int = 0, sender: str = "a") -> None:
        self._place, self._sender = place, sender

    def own(self, purpose: str) -> np.random.Generator:
        return stream(7, purpose, self._place, self._sender)

    def shared(self, purpose: str) -> np.random.Generator:
        return stream(7, purpose, self._place)


def choice(kind: str, **params: Any) -> EncodingChoice:
    return EncodingChoice(kind, encodings[kind].params(**params))


def made(kind: str, **params: Any) -> Any:
    return choice(kind, **params)()


def there_and_back(
    vector: np.ndarray, layout: Layout, kind: str, draw: Streams | None = None, **params: Any
) -> np.ndarray:
    """What comes of a vector, whose bytes are as many as was said."""
    pipeline, draw = Pipeline([choice(kind, **params)]), draw or Streams()
    data = pipeline.encode(vector, layout, draw)
    if pipeline.fixed:
        assert len(data) == pipeline.length(layout)
    return pipeline.decode(data, layout, draw)


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return stream(seed, "numbers").standard_normal(count).astype(np.float32)


# Against the papers.


def test_top_k_keeps_what_is_largest_with_its_places() -> None:
    vector = numbers(1000)
    kept = np.argsort(-np.abs(vector), kind="stable")[:30]
    expected = np.zeros_like(vector)
    expected[kept] = vector[kept]
    found = there_and_back(vector, Layout(((20, 50),)), "top-k", share=0.03)
    assert np.array_equal(found, expected)
    # 30 numbers of 4 bytes, and 30 places of 10 bits each.
    assert Pipeline([choice("top-k", share=0.03)]).length(Layout(((20, 50),))) == 30 * 4 + math.ceil(30 * 10 / 8)


def test_top_k_takes_the_first_of_equal_numbers() -> None:
    vector = np.array([1, -2, 2, 2, -2, 0], dtype=np.float32)
    assert there_and_back(vector, Layout(((6,),)), "top-k", share=0.5).tolist() == [0, -2, 2, 2, 0, 0]


def test_top_k_keeps_what_is_no_number_before_what_is_infinite() -> None:
    vector = np.array([np.inf, 1, -np.inf, np.nan, np.nan, 2], dtype=np.float32)
    kept = [there_and_back(vector, Layout(((6,),)), "top-k", share=share) for share in (1 / 6, 1 / 2, 1)]
    assert [np.isnan(each).sum() for each in kept] == [1, 2, 2]
    assert [np.isinf(each).sum() for each in kept] == [0, 1, 2]
    assert np.array_equal(kept[2], vector, equal_nan=True)


def test_random_k_is_right_in_expectation_and_alike_for_all_senders() -> None:
    vector, layout = numbers(40), Layout(((40,),))
    mean = np.mean([there_and_back(vector, layout, "random-k", Streams(t), share=0.25) for t in range(1000)], axis=0)
    assert np.abs(mean - vector).max() < 0.5
    kept = [np.flatnonzero(there_and_back(vector, layout, "random-k", Streams(3, who), share=0.25)) for who in "ab"]
    assert kept[0].tolist() == kept[1].tolist()
    assert len(kept[0]) == 10
    plain = there_and_back(vector, layout, "random-k", share=0.25, scale=False)
    assert set(plain[plain != 0].tolist()) <= set(vector.tolist())
    # Sums of what is sent are what is sent of sums.
    first, second, both = (
        there_and_back(each, layout, "random-k", share=0.25)
        for each in (vector, numbers(40, 1), vector + numbers(40, 1))
    )
    assert both == pytest.approx(first + second, rel=1e-5)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_quantised_numbers_are_levels_of_their_tensor(bits: int) -> None:
    # Suresh et al. 2017: k levels B(r) = min + r (max - min) / (k - 1); up with the chance that makes the expectation right.
    layout, vector = Layout(((8, 5), (7,))), numbers(47)
    mean, k = np.zeros(47), 2**bits
    for t in range(500):
        found = there_and_back(vector, layout, "quantise", Streams(t), bits=bits)
        mean += found / 500
        for part in (slice(0, 40), slice(40, 47)):
            low, high = vector[part].min(), vector[part].max()
            levels = low + np.arange(k) * (high - low) / (k - 1)
            below = np.searchsorted(levels[1:-1], vector[part], "right")
            near = np.stack([levels[below], levels[np.minimum(below + 1, k - 1)]])
            assert np.abs(near - found[part]).min(axis=0) == pytest.approx(0, abs=1e-5)
    assert np.abs(mean - vector).max() < 4 * (vector.max() - vector.min()) / (k - 1) / 2 / math.sqrt(500) + 1e-5
    assert Pipeline([choice("quantise", bits=bits)]).length(layout) == 2 * 8 + math.ceil(47 * bits / 8)
    nearest = there_and_back(vector, layout, "quantise", bits=bits, stochastic=False)
    ranges = np.repeat([np.ptp(vector[:40]), np.ptp(vector[40:])], [40, 7])
    assert (np.abs(nearest - vector) <= ranges / (k - 1) / 2 + 1e-5).all()


def test_blocks_have_ranges_of_their_own() -> None:
    vector = np.concatenate([numbers(10), 1000 * numbers(10, 1)]).astype(np.float32)
    layout = Layout(((20,),))
    coarse = there_and_back(vector, layout, "quantise", bits=4, stochastic=False)
    fine = there_and_back(vector, layout, "quantise", bits=4, block=10, stochastic=False)
    assert np.abs(fine - vector)[:10].max() < 0.2 < np.abs(coarse - vector)[:10].max()
    assert Pipeline([choice("quantise", bits=4, block=10)]).length(layout) == 2 * 8 + 10


def test_signs_are_scaled_by_the_mean_size_of_their_tensor() -> None:
    # Karimireddy et al. 2019: C(v) = ‖v‖₁/d · sign(v).
    layout, vector = Layout(((6, 2), (5,))), numbers(17)
    expected = np.concatenate([np.abs(part).mean() * np.where(part < 0, -1, 1) for part in (vector[:12], vector[12:])])
    assert there_and_back(vector, layout, "sign") == pytest.approx(expected, rel=1e-6)
    assert Pipeline([choice("sign")]).length(layout) == 2 * 4 + 3


def test_low_rank_is_one_step_of_power_iteration() -> None:
    # Vogels et al. 2019, Alg. 1 for one worker: P = M Q; P orthonormal; Q = Mᵀ P; M' = P Qᵀ.
    layout = Layout(((12, 3, 3, 2), (12,), (5, 4)))
    vector = numbers(layout.count)
    found = there_and_back(vector, layout, "low-rank", rank=2)
    matrix = vector[:216].reshape(12, 18).astype(np.float64)
    start = Streams().shared("directions").standard_normal((18, 2))
    p, _ = np.linalg.qr(matrix @ start)
    assert found[:216].reshape(12, 18) == pytest.approx(p @ (p.T @ matrix), rel=1e-4, abs=1e-5)
    assert np.array_equal(found[216:228], vector[216:228])  # a bias
    left = np.linalg.qr(vector[228:].reshape(5, 4).astype(np.float64) @ _second_draw(2))[0]
    assert found[228:].reshape(5, 4) == pytest.approx(left @ (left.T @ vector[228:].reshape(5, 4)), rel=1e-4, abs=1e-5)
    assert Pipeline([choice("low-rank", rank=2)]).length(layout) == 4 * (2 * (12 + 18) + 12 + 2 * (5 + 4))


def _second_draw(rank: int) -> np.ndarray:
    rng = Streams().shared("directions")
    rng.standard_normal((18, rank))
    return rng.standard_normal((4, rank))


def test_a_matrix_of_low_rank_is_kept_as_it_is() -> None:
    matrix = np.outer(numbers(9), numbers(7, 1)) + np.outer(numbers(9, 2), numbers(7, 3))
    found = there_and_back(matrix.reshape(-1).astype(np.float32), Layout(((9, 7),)), "low-rank", rank=2)
    assert found.reshape(9, 7) == pytest.approx(matrix, rel=1e-4, abs=1e-5)


def test_columns_without_a_direction_of_their_own_are_nothing() -> None:
    assert orthonormal(np.zeros((4, 2))).tolist() == np.zeros((4, 2)).tolist()
    twice = orthonormal(np.column_stack([[3.0, 4.0], [6.0, 8.0]]))
    assert twice == pytest.approx(np.array([[0.6, 0.0], [0.8, 0.0]]))


def test_half_precision_is_that_of_ieee_and_saturates() -> None:
    vector = np.array([1.0, 1 / 3, 65504.0, 1e6, -1e6, 1e-8], dtype=np.float32)
    found = there_and_back(vector, Layout(((6,),)), "float16")
    assert found.tolist() == np.array([1.0, np.float16(1 / 3), 65504, 65504, -65504, 0], dtype=np.float32).tolist()


# Any vector, any list.

shapes = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple)
values = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.sampled_from(
    [0.0, 1.0, -1.0, 3e38, -3e38, 1e-40]
)
PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "top-k": st.fixed_dictionaries({"share": st.floats(0.01, 1.0)}),
    "random-k": st.fixed_dictionaries({"share": st.floats(0.01, 1.0), "scale": st.booleans()}),
    "low-rank": st.fixed_dictionaries({"rank": st.integers(1, 3)}),
    "quantise": st.fixed_dictionaries(
        {"bits": st.integers(1, 8), "block": st.none() | st.integers(2, 9), "stochastic": st.booleans()}
    ),
    "zstd": st.fixed_dictionaries({"level": st.integers(1, 5)}),
}


@st.composite
def lists(draw: st.DrawFn) -> list[EncodingChoice]:
    """Encodings in an order that they may have."""
    chosen = draw(st.lists(st.sampled_from(["top-k", "random-k", "low-rank"]), max_size=2))
    chosen += draw(st.sampled_from([[], ["float16"], ["quantise"], ["sign"], ["float32"]]))
    chosen += draw(st.sampled_from([[], ["zstd"]]))
    return [choice(kind, **draw(PARAMS.get(kind, st.just({})))) for kind in chosen]


@settings(deadline=None)
@given(shapes, st.data(), lists())
@pytest.mark.filterwarnings("ignore:(invalid|overflow|divide):RuntimeWarning")
def test_bytes_are_as_many_as_said_and_read_back(
    shapes: Shapes, data: st.DataObject, chosen: list[EncodingChoice]
) -> None:
    layout = Layout(shapes)
    vector = np.array(data.draw(st.lists(values, min_size=layout.count, max_size=layout.count)), dtype=np.float32)
    before, pipeline = vector.copy(), Pipeline(chosen)
    written = pipeline.encode(vector, layout, Streams())
    if pipeline.fixed:
        assert len(written) == pipeline.length(layout)
    found = pipeline.decode(written, layout, Streams())
    assert found.dtype == np.float32
    assert found.shape == vector.shape
    assert np.array_equal(vector, before, equal_nan=True)
    assert pipeline.decode(pipeline.encode(vector, layout, Streams()), layout, Streams()).tobytes() == found.tobytes()
    kinds = {each.kind for each in chosen}
    if kinds <= {"zstd", "float32"}:
        assert found.tobytes() == vector.tobytes()
    if np.isnan(vector).any() and not kinds & {"random-k"}:
        assert np.isnan(found).any()  # a model that diverged stays one


@given(st.integers(1, 20), st.data())
def test_bits_are_read_as_they_were_written(bits: int, data: st.DataObject) -> None:
    found = data.draw(st.lists(st.integers(0, 2**bits - 1)))
    packed = pack_bits(np.array(found, dtype=np.int64), bits)
    assert len(packed) == -(-len(found) * bits // 8)
    assert unpack_bits(packed, bits, len(found)).tolist() == found


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["float16", "top-k"], "'top-k' cannot come after 'float16'"),
        (["top-k", "delta"], "'delta' cannot come after 'top-k'"),
        (["float16", "sign"], "'float16' and 'sign' do the same"),
        (["delta", "delta"], "'delta' and 'delta' do the same"),
        (["error-feedback"], "nothing to feed back"),
        (["error-feedback", "random-k"], "must not be scaled"),
    ],
)
def test_lists_that_make_no_sense_are_refused(kinds: list[str], said: str) -> None:
    assert any(said in message for message in problems([choice(kind) for kind in kinds]))


def test_every_encoding_is_what_its_facts_say() -> None:
    for name in encodings.names():
        assert not list(problems([choice(name)])) or name == "error-feedback"
        assert isinstance(made(name), Reducer | Coder | Packer) or name in ("delta", "error-feedback")


# On its way: differences and what is left out.


def test_what_is_left_out_comes_later() -> None:
    # Error feedback: over many rounds of one and the same update nothing is lost, however little of it travels each time.
    pipeline = Pipeline([choice("delta"), choice("error-feedback"), choice("top-k", share=0.1)])
    layout, update = Layout(((50,),)), torch.from_numpy(numbers(50))
    base, left, total = torch.zeros(50), list[torch.Tensor](), torch.zeros(50)
    for t in range(200):
        came, *left = Transmission(pipeline, layout, 0, "a", (t, 0, 0))(base + update, base, *left)
        total += came - base
    assert total / 200 == pytest.approx(update.numpy(), abs=0.2)
    without = Transmission(Pipeline([choice("delta"), choice("top-k", share=0.1)]), layout, 0, "a", (0, 0, 0))
    assert int((without(base + update, base)[0] != 0).sum()) == 5


def test_what_does_not_travel_stays_as_the_sender_has_it() -> None:
    sent = Transmission(Pipeline([choice("quantise", bits=1)]), Layout(((4,),)), 0, "a", (1, 0, 0))
    model = torch.arange(6.0)
    (came,) = sent(model)
    assert came[4:].tolist() == [4, 5]
    assert set(came[:4].tolist()) <= {0, 3}
    assert model.tolist() == list(range(6))


def test_only_what_is_drawn_differs_between_rounds_and_senders() -> None:
    def key(kind: str, sender: str, place: tuple[int, ...]) -> Any:
        return Transmission(Pipeline([choice(kind)]), Layout(((4,),)), 0, sender, place).identity()

    assert key("float16", "a", (1, 0, 0)) == key("float16", "b", (2, 0, 0))
    drawn = [key("quantise", *each) for each in itertools.product("ab", [(1, 0, 0), (2, 0, 0)])]
    assert all(a != b for a, b in itertools.combinations(drawn, 2))
