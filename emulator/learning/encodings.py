"""Encodings of what travels: fewer bits a number, fewer numbers, or what is left when bytes are packed.

Each is a real codec: it writes bytes and reads them again. How long these are follows from shapes and parameters alone, but for
packed bytes. What is no number stays none, so that a model that diverged is not mended on its way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.encodings import (
    Coder,
    Difference,
    Draw,
    EncodingFacts,
    Feedback,
    Flops,
    Layout,
    Packer,
    Reducer,
    Vector,
    encodings,
)
from emulator.registry import NoParams, Params

Share = Annotated[float, Field(gt=0, le=1)]
_LARGEST_HALF = np.float32(65504.0)
_TINY = 1e-12  # a column of a factor that is shorter than this part of the longest has no direction of its own


@encodings.register("delta", facts=EncodingFacts(role="difference", summable=True))
def delta(params: NoParams) -> Difference:
    """Delta: the difference to what the receiver has: the model that was sent the other way last; at first the untrained one."""
    return Difference()


@encodings.register("error-feedback", facts=EncodingFacts(role="feedback"))
def error_feedback(params: NoParams) -> Feedback:
    """Error feedback: what encoding leaves out is kept by the sender and added next time (Karimireddy et al. 2019, EF-SGD)."""
    return Feedback()


# Fewer numbers.


class SparseParams(Params):
    """How many numbers are kept."""

    share: Share = Field(0.01, description="of all numbers; at least one is kept")

    def kept(self, layout: Layout) -> int:
        """How many of a vector's numbers are kept."""
        return min(layout.count, max(1, round(self.share * layout.count)))


@encodings.register("top-k", SparseParams, EncodingFacts(role="reduce"))
def top_k(params: SparseParams) -> Reducer:
    """Top-k: the numbers that are largest in size, with their places (Aji and Heafield 2017; Stich et al. 2018).

    Of equal ones the first; what is no number counts as largest. A place takes ⌈log2 n⌉ bits.
    """

    def encode(vector: Vector, layout: Layout, draw: Draw) -> tuple[bytes, Vector]:
        k = params.kept(layout)
        if not k:
            return b"", vector
        size, none = np.abs(vector), np.isnan(vector)
        places = np.flatnonzero(none)[:k]
        size[none] = -1
        if left := k - len(places):
            least = np.partition(size, layout.count - left)[layout.count - left]
            more = np.flatnonzero(size > least)
            places = np.concatenate([places, more, np.flatnonzero(size == least)[: left - len(more)]])
        places = np.sort(places)
        return pack_bits(places, _place_bits(layout)), vector[places]

    def decode(side: bytes, kept: Vector, layout: Layout, draw: Draw) -> Vector:
        found = np.zeros(layout.count, dtype=np.float32)
        found[unpack_bits(side, _place_bits(layout), params.kept(layout))] = kept
        return found

    def length(layout: Layout) -> tuple[int, Layout]:
        k = params.kept(layout)
        return -(-k * _place_bits(layout) // 8), Layout(((k,),))

    # Sizes, a partial sort (about five comparisons each), and the search for what is kept.
    return Reducer(length, encode, decode, lambda layout: Flops(8.0 * layout.count, float(params.kept(layout))))


def _place_bits(layout: Layout) -> int:
    return max(1, (layout.count - 1).bit_length())


class RandomParams(SparseParams):
    """How many numbers are kept, and whether they are scaled."""

    scale: bool = Field(
        True,
        description="whether kept numbers are multiplied by n/k, so that the expectation is right; not with feedback",
    )


@encodings.register("random-k", RandomParams, EncodingFacts(role="reduce", summable=True))
def random_k(params: RandomParams) -> Reducer:
    """Random-k: numbers at places that are drawn anew for every round, the same for all clients (Stich et al. 2018).

    Both ends draw the places from the round's own stream, so they are not sent.
    """

    def places(layout: Layout, draw: Draw) -> np.ndarray:
        if not layout.count:
            return np.zeros(0, dtype=np.int64)
        return np.sort(draw.shared("places").choice(layout.count, params.kept(layout), replace=False, shuffle=False))

    def encode(vector: Vector, layout: Layout, draw: Draw) -> tuple[bytes, Vector]:
        factor = np.float32(layout.count / params.kept(layout) if params.scale and layout.count else 1.0)
        return b"", vector[places(layout, draw)] * factor

    def decode(side: bytes, kept: Vector, layout: Layout, draw: Draw) -> Vector:
        found = np.zeros(layout.count, dtype=np.float32)
        found[places(layout, draw)] = kept
        return found

    def length(layout: Layout) -> tuple[int, Layout]:
        return 0, Layout(((params.kept(layout),),))

    return Reducer(length, encode, decode, lambda layout: Flops(*[2.0 * params.kept(layout)] * 2), draws=True)


class LowRankParams(Params):
    """Of which rank."""

    rank: Annotated[int, Field(ge=1, le=256)] = Field(2, description="of what each matrix becomes")


@encodings.register("low-rank", LowRankParams, EncodingFacts(role="reduce"))
def low_rank(params: LowRankParams) -> Reducer:
    """Low rank: a matrix M becomes P Qᵀ by one step of power iteration, as in PowerSGD (Vogels et al. 2019, Alg. 1).

    P = M Q₀ with random Q₀, its columns made orthonormal; Q = Mᵀ P. Kernels are matrices of one row for each output; vectors, and
    matrices that would not become smaller, stay as they are. Q₀ is drawn anew for every round.
    """

    def factored(shape: tuple[int, ...]) -> tuple[int, int] | None:
        if len(shape) < 2:
            return None
        rows, columns = shape[0], math.prod(shape[1:])
        return (rows, columns) if params.rank * (rows + columns) < rows * columns else None

    def pieces(layout: Layout) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
        at = 0
        for shape, size in zip(layout.shapes, layout.sizes, strict=True):
            yield at, size, factored(shape)
            at += size

    def reduced(layout: Layout) -> Layout:
        shapes: list[tuple[int, ...]] = []
        for shape in layout.shapes:
            found = factored(shape)
            shapes += [shape] if found is None else [(n, params.rank) for n in found]
        return Layout(tuple(shapes))

    def encode(vector: Vector, layout: Layout, draw: Draw) -> tuple[bytes, Vector]:
        parts, rng = list[np.ndarray](), draw.shared("directions")
        for at, size, matrix in pieces(layout):
            piece = vector[at : at + size]
            if matrix is None:
                parts.append(piece)
                continue
            m = piece.reshape(matrix).astype(np.float64)
            p = orthonormal(m @ rng.standard_normal((matrix[1], params.rank)))
            parts += [p.reshape(-1), (m.T @ p).reshape(-1)]
        return b"", np.concatenate(parts).astype(np.float32)

    def decode(side: bytes, kept: Vector, layout: Layout, draw: Draw) -> Vector:
        found, begin = np.empty(layout.count, dtype=np.float32), 0
        for at, size, matrix in pieces(layout):
            if matrix is None:
                found[at : at + size] = kept[begin : begin + size]
                begin += size
                continue
            rows, columns = (n * params.rank for n in matrix)
            p = kept[begin : begin + rows].reshape(matrix[0], params.rank)
            q = kept[begin + rows : begin + rows + columns].reshape(matrix[1], params.rank)
            found[at : at + size] = (p @ q.T).reshape(-1)
            begin += rows + columns
        return found

    def flops(layout: Layout) -> Flops:
        one = sum(2.0 * params.rank * size for _, size, matrix in pieces(layout) if matrix is not None)
        columns = sum(2.0 * matrix[0] * params.rank**2 for *_, matrix in pieces(layout) if matrix is not None)
        return Flops(2 * one + columns, one)

    return Reducer(lambda layout: (0, reduced(layout)), encode, decode, flops, draws=True)


def orthonormal(matrix: np.ndarray) -> np.ndarray:
    """The columns of a matrix made orthonormal one after another (Gram and Schmidt); one without a direction of its own is 0."""
    found = np.array(matrix, dtype=np.float64)
    longest = max((float(np.linalg.norm(column)) for column in found.T), default=0.0)
    for number in range(found.shape[1]):
        column = found[:, number]
        for before in range(number):
            column -= (found[:, before] @ column) * found[:, before]
        length = float(np.linalg.norm(column))
        found[:, number] = 0.0 if length <= _TINY * longest else column / length
    return found


# Fewer bits a number.


@encodings.register("float16", facts=EncodingFacts(role="code"))
def float16(params: NoParams) -> Coder:
    """Float16: IEEE half precision, two bytes a number; what is too large becomes ±65504."""

    def encode(vector: Vector, layout: Layout, draw: Draw) -> bytes:
        return np.clip(vector, -_LARGEST_HALF, _LARGEST_HALF).astype("<f2").tobytes()

    return Coder(
        lambda layout: 2 * layout.count,
        encode,
        lambda data, layout: np.frombuffer(data, "<f2").astype(np.float32),
        lambda layout: Flops(2.0 * layout.count, float(layout.count)),
    )


class QuantiseParams(Params):
    """How many bits, and for how many numbers together."""

    bits: Annotated[int, Field(ge=1, le=8)] = Field(8, description="of a number: 2^bits levels")
    block: Annotated[int, Field(ge=2, le=100_000_000)] | None = Field(
        None, description="numbers that share their range; without it, those of a tensor"
    )
    stochastic: bool = Field(
        True, description="rounded up or down by chance, so that the expectation is right; or to the nearest"
    )

    def blocks(self, layout: Layout) -> list[tuple[int, int]]:
        """Where each block begins and ends."""
        if self.block is not None:
            return [(at, min(layout.count, at + self.block)) for at in range(0, layout.count, self.block)]
        ends = np.cumsum(layout.sizes).tolist()
        return [(end - size, end) for end, size in zip(ends, layout.sizes, strict=True) if size]


@encodings.register("quantise", QuantiseParams, EncodingFacts(role="code"))
def quantise(params: QuantiseParams) -> Coder:
    """Quantise: levels at equal distances from the least to the largest number of a block (Suresh et al. 2017, §2.2).

    A block costs 8 bytes for its range. In a block in which one is no finite number, none is.
    """
    steps = np.float32(2**params.bits - 1)

    def encode(vector: Vector, layout: Layout, draw: Draw) -> bytes:
        ranges, levels = list[tuple[float, float]](), np.empty(layout.count, dtype=np.uint8)
        rng = draw.own("rounding") if params.stochastic else None
        for begin, end in params.blocks(layout):
            piece = vector[begin:end].astype(np.float64)
            low, high = (float(piece.min()), float(piece.max()))
            if not (math.isfinite(low) and math.isfinite(high)):
                low = high = math.nan
            ranges.append((low, high))
            up = 0.5 if rng is None else rng.random(end - begin)
            width = high - low if high > low else 1.0
            places = np.zeros(end - begin) if math.isnan(low) else (piece - low) / width * float(steps)
            levels[begin:end] = np.minimum(np.floor(places + up), float(steps)).astype(np.uint8)
        return np.array(ranges, dtype="<f4").tobytes() + pack_bits(levels, params.bits)

    def decode(data: bytes, layout: Layout) -> Vector:
        blocks = params.blocks(layout)
        ranges = np.frombuffer(data[: 8 * len(blocks)], "<f4").reshape(-1, 2)
        levels = unpack_bits(data[8 * len(blocks) :], params.bits, layout.count)
        found = np.empty(layout.count, dtype=np.float32)
        for (begin, end), (low, high) in zip(blocks, ranges, strict=True):
            share = levels[begin:end].astype(np.float32) / steps
            found[begin:end] = low * (1 - share) + high * share  # which does not overflow where high - low would
        return found

    return Coder(
        lambda layout: 8 * len(params.blocks(layout)) + -(-layout.count * params.bits // 8),
        encode,
        decode,
        lambda layout: Flops(7.0 * layout.count, 4.0 * layout.count),
        draws=params.stochastic,
    )


@encodings.register("sign", facts=EncodingFacts(role="code"))
def sign(params: NoParams) -> Coder:
    """Sign: a bit a number, and each tensor's mean size (Karimireddy et al. 2019: ‖v‖₁/d · sign v). Zero counts as positive."""

    def tensors(layout: Layout) -> list[tuple[int, int]]:
        return QuantiseParams().blocks(layout)

    def encode(vector: Vector, layout: Layout, draw: Draw) -> bytes:
        means = np.array([np.abs(vector[a:b].astype(np.float64)).mean() for a, b in tensors(layout)])
        means[~np.isfinite(means)] = np.nan
        return means.astype("<f4").tobytes() + np.packbits(~(vector < 0)).tobytes()

    def decode(data: bytes, layout: Layout) -> Vector:
        blocks = tensors(layout)
        means = np.frombuffer(data[: 4 * len(blocks)], "<f4")
        up = np.unpackbits(np.frombuffer(data[4 * len(blocks) :], np.uint8), count=layout.count).astype(bool)
        found = np.empty(layout.count, dtype=np.float32)
        for (begin, end), mean in zip(blocks, means, strict=True):
            found[begin:end] = np.where(up[begin:end], mean, -mean)
        return found

    return Coder(
        lambda layout: 4 * len(tensors(layout)) + -(-layout.count // 8),
        encode,
        decode,
        lambda layout: Flops(3.0 * layout.count, float(layout.count)),
    )


@encodings.register("float32", facts=EncodingFacts(role="code", summable=True))
def float32(params: NoParams) -> Coder:
    """Float32: four bytes a number, as they are; what a list without another coder has at its end."""
    return Coder(
        lambda layout: 4 * layout.count,
        lambda vector, layout, draw: vector.astype("<f4").tobytes(),
        lambda data, layout: np.frombuffer(data, "<f4").astype(np.float32),
        lambda layout: Flops(0.0, 0.0),
    )


# Packed bytes.


class ZstdParams(Params):
    """How hard it tries."""

    level: Annotated[int, Field(ge=1, le=19)] = Field(3, description="of compression")
    ratio: Annotated[float, Field(gt=0, le=2)] | None = Field(
        None, description="bytes out of one, for runs without training, such as a run with training measured"
    )


@encodings.register("zstd", ZstdParams, EncodingFacts(role="pack"))
def zstd(params: ZstdParams) -> Packer:
    """Zstd: lossless compression of the bytes (RFC 8878). How many are left is measured, once what is sent has been trained.

    The operations are ours: 30 a byte to pack and 10 to unpack, which is what level 3 takes on a core of 10 GFLOP/s at 330 MB/s.
    """
    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=params.level)

    def encode(data: bytes) -> bytes:
        return len(data).to_bytes(4, "little") + bytes(codec.compress(data, asbytes=True))

    def decode(data: bytes) -> bytes:
        return bytes(codec.decompress(data[4:], decompressed_size=int.from_bytes(data[:4], "little"), asbytes=True))

    return Packer(encode, decode, Flops(30.0, 10.0), params.ratio)


def pack_bits(numbers: np.ndarray, bits: int) -> bytes:
    """Whole numbers below 2^bits as bits, one after another, the highest bit first."""
    if bits == 8:
        return numbers.astype(np.uint8).tobytes()
    shifts = np.arange(bits - 1, -1, -1)
    return np.packbits((numbers.astype(np.int64)[:, None] >> shifts & 1).astype(np.uint8)).tobytes()


def unpack_bits(data: bytes, bits: int, count: int) -> np.ndarray:
    """The whole numbers that `pack_bits` wrote."""
    if bits == 8:
        return np.frombuffer(data, np.uint8, count).astype(np.int64)
    found = np.unpackbits(np.frombuffer(data, np.uint8), count=count * bits).reshape(count, bits).astype(np.int64)
    return found @ (1 << np.arange(bits - 1, -1, -1))
