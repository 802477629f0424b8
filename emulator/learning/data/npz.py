"""A user's own data: numpy arrays in one ``.npz`` file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from pydantic import Field

from emulator.errors import InputError, quote_all
from emulator.learning.data.arrays import ArraySet, numbered, standardise
from emulator.learning.data.files import fingerprint
from emulator.registry import Params, data_sets

KEY = "data.set.path"
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("user_train", "user")  # either may stand in the file
MOST_CHANNELS = 4  # an axis of at most so many entries may be that of the channels


class NpzParams(Params):
    """Which file, and how its images lie in it."""

    path: str = Field(
        min_length=1, description="file with the arrays x_train, y_train, x_test, y_test and, if wanted, user_train"
    )
    layout: Literal["auto", "nchw", "nhwc"] = Field(
        "auto",
        description="order of the axes of images with channels; auto takes the short axis for the channels",
    )
    standardise: bool = Field(
        False, description="shift and scale every channel to mean 0 and deviation 1 over the training samples"
    )


def _fingerprint(params: NpzParams) -> str:
    path = _existing(params)
    return fingerprint(f"npz-{params.layout}{'-standardised' if params.standardise else ''}", [path])


@data_sets.register("npz", NpzParams, fingerprint=_fingerprint, owners="whose file has an array 'user_train'")
def npz(params: NpzParams) -> ArraySet:
    """Arrays of your own from a .npz file: x_train, y_train, x_test, y_test.

    Images are [samples, height, width] or have their channels first or last; bytes are scaled to 0..1,
    floats are taken as they are. Labels are whole numbers from 0. A further array ``user_train`` (or ``user``),
    whole numbers or texts, says whose each training sample is.
    """
    path = _existing(params)
    raw = _load(path)
    x_train, x_test = (_images(raw[n], n, params.layout) for n in ("x_train", "x_test"))
    y_train, y_test = (_labels(raw[n], n) for n in ("y_train", "y_test"))
    for x, y, part in ((x_train, y_train, "train"), (x_test, y_test, "test")):
        if len(x) != len(y):
            raise InputError(
                f"x_{part} has {len(x)} samples and y_{part} {len(y)} labels; give one label a sample", KEY
            )
    if x_train.shape[1:] != x_test.shape[1:]:
        raise InputError(
            f"samples of x_train are {_times(x_train)}, those of x_test {_times(x_test)}; they must be alike",
            KEY,
        )
    if params.standardise:
        standardise(x_train, x_test, (0, 2, 3))
    classes = int(max(y_train.max(), y_test.max())) + 1
    return ArraySet(x_train, y_train, x_test, y_test, classes, *_owners(raw, len(x_train)))


def _existing(params: NpzParams) -> Path:
    path = Path(params.path)
    if not path.is_file():
        raise InputError(f"there is no file {path}", KEY)
    return path


def _load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of the file that are of use; raises `InputError` where it is no whole .npz file or lacks one."""
    try:
        with path.open("rb") as stream:  # opened here: where the content is wrong, numpy would leave it open
            return _read(path, stream)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}", KEY) from None


def _read(path: Path, stream: BinaryIO) -> dict[str, np.ndarray]:
    try:
        file = np.load(stream, allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile):
        raise InputError(f"{path} is not a whole .npz file; write it with numpy.savez", KEY) from None
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise InputError(f"{path} holds a single array, not a .npz file; write it with numpy.savez", KEY)
    missing = [n for n in ARRAYS if n not in file.files]
    if missing:
        raise InputError(f"{path} lacks {quote_all(missing)}; it holds {quote_all(file.files) or 'nothing'}", KEY)
    arrays = {}
    for name in (*ARRAYS, *(n for n in OWNERS if n in file.files)):
        try:
            array = file[name]
        except (EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(f"{name} of {path} cannot be read: {error}", KEY) from None
        except MemoryError:
            raise InputError(f"{name} of {path} does not fit into memory", KEY) from None
        if not isinstance(array, np.ndarray) or not array.size:
            raise InputError(f"{name} of {path} is empty", KEY)
        arrays[name] = array
    return arrays


def _images(raw: np.ndarray, name: str, layout: str) -> np.ndarray:
    """Float32 [samples, channels, height, width]."""
    if raw.dtype != np.uint8 and raw.dtype.kind != "f":
        raise InputError(f"{name} holds {raw.dtype}; give bytes (uint8) or floats", KEY)
    if raw.ndim == 3:
        raw = raw[:, None]
    elif raw.ndim != 4:
        raise InputError(
            f"{name} has {raw.ndim} axes; give [samples, height, width], or four with channels first or last",
            KEY,
        )
    elif _channels_last(raw.shape, name, layout):
        raw = raw.transpose(0, 3, 1, 2)
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite and is refused below
        x = np.array(raw, dtype=np.float32, order="C")
    if raw.dtype == np.uint8:
        x /= 255
    elif not np.isfinite(x).all():
        raise InputError(f"{name} holds values that are not finite 32-bit floats", KEY)
    return x


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
    """Int64 [samples]."""
    if raw.dtype.kind not in "iu":
        raise InputError(f"{name} holds {raw.dtype}; labels are whole numbers from 0", KEY)
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if raw.ndim != 1:
        raise InputError(f"{name} has {raw.ndim} axes; give one label a sample", KEY)
    if raw.min() < 0:
        raise InputError(f"{name} holds the negative label {raw.min()}; labels are whole numbers from 0", KEY)
    if raw.max() >= 1_000_000:
        raise InputError(f"{name} holds the label {raw.max()}; labels count the classes from 0", KEY)
    return raw.astype(np.int64)


def _owners(arrays: dict[str, np.ndarray], samples: int) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The owners' numbers and names; none, where the file does not say whose its samples are."""
    there = [name for name in OWNERS if name in arrays]
    if not there:
        return None, ()
    if len(there) > 1:
        raise InputError(f"the file has both {' and '.join(there)}; give one of them", KEY)
    name, raw = there[0], arrays[there[0]]
    if raw.dtype.kind not in "iuUS":
        raise InputError(f"{name} holds {raw.dtype}; give whole numbers or texts", KEY)
    if raw.shape != (samples,):
        shape = "×".join(str(n) for n in raw.shape)
        raise InputError(f"{name} has the shape {shape}; give one entry for each of {samples} training samples", KEY)
    texts = np.char.decode(raw, "utf-8", "replace") if raw.dtype.kind == "S" else raw
    return numbered([str(v) for v in texts.tolist()])


def _times(x: np.ndarray) -> str:
    return "×".join(str(n) for n in x.shape[1:])
