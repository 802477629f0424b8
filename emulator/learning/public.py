"""Public samples: of the clients' own data set (training samples kept back, or test samples), or of another one (S5 §IV-B).

Samples of another set keep the normalisation of that set. They are fitted to the shape of the clients' samples: pixels are
averaged over the area that they cover, and channels are averaged or repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from emulator.errors import InputError
from emulator.learning.data import read
from emulator.learning.data.arrays import ArraySet, is_text
from emulator.rng import stream
from emulator.scenario.schema import Scenario

KEY = "data.public_set"


def public_of_another(scenario: Scenario, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Samples [n, *shape] of the scenario's public set, and their labels in it. Raises `InputError`."""
    chosen = scenario.data.public_set
    if chosen is None:
        raise ValueError("the scenario has no public set")
    with about_public_set():
        other = read(chosen)
        x, y = drawn_public(scenario, other)
        return fitted(x, shape), y


def drawn_public(scenario: Scenario, arrays: ArraySet) -> tuple[np.ndarray, np.ndarray]:
    """The public samples of a set and their labels, from the split that the scenario says. Raises `InputError`."""
    x, y = (arrays.x_train, arrays.y_train) if scenario.data.public_split == "train" else (arrays.x_test, arrays.y_test)
    kinds, count = (y, arrays.classes) if y.ndim == 1 else scenario.objective.kinds_of(y, arrays.classes)
    _, rows = split_public(kinds, count, scenario.data.public, scenario.seed, is_text(arrays.shape))
    return x[rows], y[rows]


@contextlib.contextmanager
def about_set(key: str) -> Iterator[None]:
    """Lets what is wrong with a data set be said of the one at this key of a scenario."""
    try:
        yield
    except InputError as error:
        own = next((k for k in ("data.set", KEY) if error.key.startswith(k)), None)
        raise InputError(error.message, error.key.replace(own, key, 1) if own else error.key or key) from error


def about_public_set() -> contextlib.AbstractContextManager[None]:
    """Lets what is wrong with a data set be said of the public one."""
    return about_set(KEY)


def fitted(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images [n, channels, height, width] in another shape, float32.

    Raises `InputError` where the channels do not fit, or either are no images.
    """
    if x.ndim != 4 or len(shape) != 3:
        which = "its samples" if x.ndim != 4 else "those of the clients"
        raise InputError(f"{which} are no images, and only images can be fitted; leave it out", KEY)
    channels, height, width = shape
    if x.shape[1] != channels:
        if 1 not in (x.shape[1], channels):
            raise InputError(f"its images have {x.shape[1]} channels, those of the clients {channels}", KEY)
        x = np.broadcast_to(x.mean(axis=1, keepdims=True), (len(x), channels, *x.shape[2:]))
    rows, columns = averaging(x.shape[2], height), averaging(x.shape[3], width)
    narrowed = np.einsum(
        "ncij,wj->nciw", x.astype(np.float64), columns
    )  # no matrix product: those round as their threads go
    result: np.ndarray = np.einsum("hi,nciw->nchw", rows, narrowed).astype(np.float32)
    return result


def averaging(before: int, after: int) -> np.ndarray:
    """Weights [after, before] that make ``after`` pixels of ``before``: each is the mean over the stretch that it covers."""
    edges = np.arange(after + 1) * before / after
    pixels = np.arange(before)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    result: np.ndarray = np.maximum(overlap, 0.0) * after / before
    return result


def split_public(
    labels: np.ndarray, classes: int, per_class: int, seed: int, text: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of what is left for the clients and of the public samples, ``per_class`` of each class, drawn at random.

    Where a class has too few, raises `InputError`; of a ``text``, in which some characters or words are always rare, it gives
    none. A class without any sample has no public ones.
    """
    if per_class == 0:
        return np.arange(len(labels)), np.arange(0)
    rng = stream(seed, "public")
    chosen = []
    for c in range(classes):
        members = np.flatnonzero(labels == c)
        if len(members) <= per_class:
            if text or not len(members):
                continue
            raise InputError(
                f"class {c} has {len(members)} samples; {per_class} public ones would leave none", "data.public"
            )
        chosen.append(rng.choice(members, per_class, replace=False))
    if not chosen:
        raise InputError(f"no class has more than {per_class} samples, so none can be public", "data.public")
    public = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), public), public
