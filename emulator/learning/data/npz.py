"""A user's own data: numpy arrays in one ``.npz`` file."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.lib.npyio import NpzFile
from pydantic import Field

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError, quote_all
from emulator.learning.data.arrays import ArraySet, numbered, standardise
from emulator.learning.data.files import fingerprint
from emulator.learning.data.mapped import sample_array
from emulator.registry import Params

KEY = "data.set.path"
PARTS = ("train", "test")
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("user_train", "user")  # either may stand in the file
TOGETHER_BYTES = 1 << 24  # of samples that are read at a time
MOST_CHANNELS = 4  # an axis of at most so many entries may be that of the channels


class NpzParams(Params):
    """Which file, and how its samples lie in it."""

    path: str = Field(
        min_length=1, description="file with the arrays x_train, y_train, x_test, y_test and, if wanted, user_train"
    )
    layout: Literal["auto", "nchw", "nhwc"] = Field(
        "auto",
        description="order of the axes of images with channels; auto takes the short axis for the channels",
    )
    standardise: bool = Field(
        False,
        description="shift and scale every channel (of a table, every feature) to mean 0 and deviation 1 over the "
        "training samples",
    )

    @property
    def task(self) -> str | None:
        """The task that the labels are for, as the file tells; None where it cannot be read."""
        try:
            labels = _open(Path(self.path), _head)["y_train"]
        except InputError:
            return None
        return "regression" if labels.dtype.kind == "f" else "multi-label" if _several(labels) else "classification"


def _fingerprint(params: NpzParams) -> str:
    path = _existing(params)
    return fingerprint(f"npz-{params.layout}{'-standardised' if params.standardise else ''}", [path])


def _check(params: NpzParams) -> None:
    """Raises what `npz` would, as far as it can be told from the heads of the arrays."""
    _check_heads(_open(_existing(params), _head), params.layout)


@data_sets.register(
    "npz",
    NpzParams,
    DataSetFacts(
        fingerprint=_fingerprint, check=_check, owners="whose file has an array 'user_train'", task=None, prepared=1
    ),
)
def npz(params: NpzParams) -> ArraySet:
    """Arrays of your own from a .npz file: x_train, y_train, x_test, y_test.

    Images are [samples, height, width] or have their channels first or last; bytes are scaled to 0..1,
    floats are taken as they are. A table is [samples, features], texts [samples, length], whole numbers. Labels are whole numbers
    from 0; several a sample [samples, labels] are 0 or 1, and floats are targets of a regression. A further array ``user_train``
    (or ``user``), whole numbers or texts, says whose each training sample is.
    """
    path = _existing(params)
    _check_heads(_open(path, _head), params.layout)
    raw = _open(path, lambda file, name: _read_array(file, name, params.layout))
    x_train, x_test = raw["x_train"], raw["x_test"]
    y_train, y_test = (_labels(raw[n], n) for n in ("y_train", "y_test"))
    if params.standardise and x_train.ndim == 4:
        standardise(x_train, x_test, (0, 2, 3))
    if y_train.ndim == 2:
        return ArraySet(x_train, y_train, x_test, y_test, y_train.shape[1], *_owners(raw))
    tokens = [x.max() for x in (x_train, x_test) if x.ndim == 2]
    classes = int(max(y_train.max(), y_test.max(), *tokens)) + 1
    return ArraySet(x_train, y_train, x_test, y_test, classes, *_owners(raw))


def _existing(params: NpzParams) -> Path:
    path = Path(params.path)
    if not path.is_file():
        raise InputError(f"there is no file {path}", KEY)
    return path


class Head(NamedTuple):
    """What an array says of itself before its content."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    transposed: bool = False  # its samples do not lie one after another


T = TypeVar("T", bound=Head | np.ndarray)


def _open(path: Path, read: Callable[[NpzFile, str], T]) -> dict[str, T]:
    """What ``read`` makes of the arrays that are of use; raises `InputError` where it is no whole .npz file or lacks one."""
    try:
        with path.open("rb") as stream:  # opened here: where the content is wrong, numpy would leave it open
            return _read(path, stream, read)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}", KEY) from None


def _read(path: Path, stream: BinaryIO, read: Callable[[NpzFile, str], T]) -> dict[str, T]:
    try:
        file = np.load(stream, allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile):
        raise InputError(f"{path} is not a whole .npz file; write it with numpy.savez", KEY) from None
    if not isinstance(file, NpzFile):
        raise InputError(f"{path} holds a single array, not a .npz file; write it with numpy.savez", KEY)
    missing = [n for n in ARRAYS if n not in file.files]
    if missing:
        raise InputError(f"{path} lacks {quote_all(missing)}; it holds {quote_all(file.files) or 'nothing'}", KEY)
    arrays = {}
    for name in (*ARRAYS, *(n for n in OWNERS if n in file.files)):
        try:
            found = read(file, name)
        except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{name} of {path} cannot be read: {error}", KEY) from None
        except MemoryError:
            raise InputError(f"{name} of {path} does not fit into memory", KEY) from None
        if not math.prod(found.shape):
            raise InputError(f"{name} of {path} is empty", KEY)
        arrays[name] = found
    return arrays


def _member(file: NpzFile, name: str) -> IO[bytes]:
    assert file.zip is not None
    return file.zip.open(f"{name}.npy" if f"{name}.npy" in file.zip.namelist() else name)


def _head(file: NpzFile, name: str) -> Head:
    with _member(file, name) as stream:
        return _read_head(stream)


def _read_head(stream: IO[bytes]) -> Head:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, transposed, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")  # as numpy says it
    return Head(shape, dtype, transposed)


def _read_array(file: NpzFile, name: str, layout: str) -> np.ndarray:
    """Images and tables as float32 [samples, channels, height, width], texts as int64, other arrays as they are."""
    if name not in ("x_train", "x_test"):
        return np.asarray(file[name])
    head = _head(file, name)
    if _are_tokens(head):
        return _tokens(np.asarray(file[name]), name)
    x = sample_array(_shape_of_samples(head, name, layout))
    done = 0
    for raw in _blocks(file, name):
        _take(raw, x[done : done + len(raw)], name, layout)
        done += len(raw)
    return x


def _blocks(file: NpzFile, name: str) -> Iterator[np.ndarray]:
    """The samples of an array, some megabytes at a time where they lie one after another in the file."""
    with _member(file, name) as stream:
        (samples, *shape), dtype, transposed = _read_head(stream)
        if transposed:
            yield np.asarray(file[name])
            return
        sample_bytes = math.prod(shape) * dtype.itemsize
        together = max(1, TOGETHER_BYTES // sample_bytes)
        for start in range(0, samples, together):
            count = min(together, samples - start)
            raw = stream.read(count * sample_bytes)
            if len(raw) < count * sample_bytes:
                raise EOFError(f"it ends within sample {start + len(raw) // sample_bytes} of {samples}")
            yield np.frombuffer(raw, dtype).reshape(count, *shape)
        stream.read(1)  # at the end of an array its checksum is looked at


def _check_heads(found: Mapping[str, Head], layout: str) -> None:
    """Raises `InputError` where the shapes and types of the arrays are not right, or do not fit together."""
    x_train, x_test = (_shape_of_samples(found[n], n, layout) for n in ("x_train", "x_test"))
    y_train, y_test = (_count_labels(found[n], n) for n in ("y_train", "y_test"))
    for x, y, part in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if x[0] != y:
            raise InputError(f"x_{part} has {x[0]} samples and y_{part} {y} labels; give one label a sample", KEY)
    labels, tested = (_kind(found[f"y_{n}"]) for n in PARTS)
    if _are_tokens(found["x_train"]) != _are_tokens(found["x_test"]):
        raise InputError(
            f"x_test holds {found['x_test'].dtype}, x_train {found['x_train'].dtype}; they must be alike", KEY
        )
    if labels[0] != tested[0]:
        raise InputError(
            f"y_test holds {found['y_test'].dtype}, y_train {found['y_train'].dtype}; they must be alike", KEY
        )
    if labels[1] != tested[1]:
        message = f"y_test has {_axes(found['y_test'])} and y_train {_axes(found['y_train'])}"
        raise InputError(f"{message}; give as many numbers a sample in both", KEY)
    if x_train[1:] != x_test[1:]:
        raise InputError(
            f"samples of x_train are {_times(x_train)}, those of x_test {_times(x_test)}; they must be alike", KEY
        )
    there = [name for name in OWNERS if name in found]
    if len(there) > 1:
        raise InputError(f"the file has both {' and '.join(there)}; give one of them", KEY)
    for name in there:
        shape, kind = found[name].shape, found[name].dtype
        if kind.kind not in "iuUS":
            raise InputError(f"{name} holds {kind}; give whole numbers or texts", KEY)
        if shape != x_train[:1]:
            own = "×".join(str(n) for n in shape)
            raise InputError(
                f"{name} has the shape {own}; give one entry for each of {x_train[0]} training samples", KEY
            )


def _kind(raw: Head) -> tuple[bool, int]:
    """Whether labels are numbers with fractions, and how many a sample has."""
    return raw.dtype.kind == "f", math.prod(raw.shape[1:])


def _axes(raw: Head) -> str:
    return f"{len(raw.shape)} axes {list(raw.shape)}"


def _are_tokens(raw: Head) -> bool:
    return raw.dtype.kind in "iu" and raw.dtype != np.uint8 and len(raw.shape) == 2


def _several(raw: Head) -> bool:
    """Whether samples have several whole numbers each."""
    return raw.dtype.kind in "iub" and len(raw.shape) == 2 and raw.shape[1] > 1


def _tokens(raw: np.ndarray, name: str) -> np.ndarray:
    if not 0 <= raw.min() <= raw.max() < 1_000_000:
        raise InputError(f"{name} holds tokens from {raw.min()} to {raw.max()}; they count from 0", KEY)
    return raw.astype(np.int64)


def _shape_of_samples(raw: Head, name: str, layout: str) -> tuple[int, ...]:
    """Samples, channels, height, width; of a text samples and length."""
    if _are_tokens(raw):
        return raw.shape
    if raw.dtype != np.uint8 and raw.dtype.kind != "f":
        raise InputError(f"{name} holds {raw.dtype}; give bytes (uint8) or floats, or tokens [samples, length]", KEY)
    samples, *shape = raw.shape or (0,)
    if len(shape) == 1:
        return samples, *shape, 1, 1
    if len(shape) == 2:
        return samples, 1, *shape
    if len(shape) != 3:
        raise InputError(
            f"{name} has {len(raw.shape)} axes; give [samples, height, width], or four with channels first or last; of a table "
            "[samples, features]",
            KEY,
        )
    if _channels_last(raw.shape, name, layout):
        return samples, shape[2], *shape[:2]
    return samples, *shape


def _count_labels(raw: Head, name: str) -> int:
    if raw.dtype.kind not in "iuf" and not _several(raw):
        raise InputError(f"{name} holds {raw.dtype}; labels are whole numbers from 0", KEY)
    if len(raw.shape) != 1 and raw.shape[1:] != (1,) and not _several(raw) and not _targets(raw):
        raise InputError(f"{name} has {len(raw.shape)} axes; give one label a sample", KEY)
    return raw.shape[0]


def _targets(raw: Head) -> bool:
    return raw.dtype.kind == "f" and len(raw.shape) <= 2


def _take(raw: np.ndarray, x: np.ndarray, name: str, layout: str) -> None:
    """Puts samples as they are in the file into ``x``, float32 [samples, channels, height, width]."""
    if raw.ndim == 2:
        raw = raw[:, :, None, None]
    elif raw.ndim == 3:
        raw = raw[:, None]
    elif _channels_last(raw.shape, name, layout):
        raw = raw.transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite and is refused below
        x[:] = raw
    if raw.dtype == np.uint8:
        x /= 255
    elif not np.isfinite(x).all():
        raise InputError(f"{name} holds values that are not finite 32-bit floats", KEY)


def _channels_last(shape: tuple[int, ...], name: str, layout: str) -> bool:
    if layout != "auto":
        return layout == "nhwc"
    first, last = shape[1] <= MOST_CHANNELS, shape[3] <= MOST_CHANNELS
    if first == last:
        raise InputError(
            f"{name} has the shape {shape}: say with 'layout' whether it is nchw or nhwc", "data.set.layout"
        )
    return last


def _labels(raw: np.ndarray, name: str) -> np.ndarray:
    """Int64 [samples]; targets and several labels a sample float32 [samples, numbers]."""
    if raw.dtype.kind == "f":
        with np.errstate(over="ignore"):
            found = raw.reshape(len(raw), -1).astype(np.float32)
        if not np.isfinite(found).all():
            raise InputError(f"{name} holds targets that are not finite 32-bit floats", KEY)
        return found
    if raw.ndim == 2 and raw.shape[1] > 1:
        if not np.isin(raw, (0, 1)).all():
            raise InputError(f"{name} has several labels a sample, and some that are neither 0 nor 1", KEY)
        return raw.astype(np.float32)
    if raw.min() < 0:
        raise InputError(f"{name} holds the negative label {raw.min()}; labels are whole numbers from 0", KEY)
    if raw.max() >= 1_000_000:
        raise InputError(f"{name} holds the label {raw.max()}; labels count the classes from 0", KEY)
    return raw.reshape(-1).astype(np.int64)


def _owners(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The owners' numbers and names; none, where the file does not say whose its samples are."""
    raw = next((arrays[name] for name in OWNERS if name in arrays), None)
    if raw is None:
        return None, ()
    texts = np.char.decode(raw, "utf-8", "replace") if raw.dtype.kind == "S" else raw
    return numbered([str(v) for v in texts.tolist()])


def _times(shape: tuple[int, ...]) -> str:
    return "×".join(str(n) for n in shape[1:])
