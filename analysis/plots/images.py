"""Images side by side: real ones above what was made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.plots.style import PAGE_INCHES, check_path, save, settle, style, title_above
from emulator.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 10  # images beside each other, at most
LABEL_INCHES = 0.9  # room for the names at the left


def plot(
    rows: Mapping[str, np.ndarray],
    labels: np.ndarray | None,
    path: Path | str | None = None,
    title: str | None = None,
) -> Figure:
    """Draws rows of images, one row for each name; the images of a column belong together.

    ``rows`` holds arrays [n, channels, height, width] of one shape, of one or three channels, in any range:
    images are scaled to the range of the first row's images of the same label, so that rows can be compared.
    ``labels`` [n] are the images' labels, which stand above them; None, where they have none. Of more than ten images
    the first of each label is shown, for ten labels at most; without labels, the first ten. With a ``path`` the
    figure is also written there (PNG, SVG or PDF).

    Raises `InputError` if there is nothing to draw, the arrays do not fit together, or the path is no good.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    arrays = {name: np.asarray(images) for name, images in rows.items()}
    alike_of = np.zeros(len(next(iter(arrays.values()), ())), dtype=int) if labels is None else np.asarray(labels)
    _check(arrays, alike_of)
    if path is not None:
        check_path(path)
    shown = list(range(min(len(alike_of), COLUMNS))) if labels is None else _chosen(alike_of)
    side = (PAGE_INCHES - LABEL_INCHES) / COLUMNS
    with style():
        figure = Figure(
            figsize=(LABEL_INCHES + side * len(shown), side * (len(arrays) + 0.35 * (labels is not None))),
            layout="constrained",
        )
        FigureCanvasAgg(figure)
        boxes = figure.subplots(len(arrays), len(shown), squeeze=False)
        first = next(iter(arrays.values()))
        for row, (name, images) in enumerate(arrays.items()):
            for box, index in zip(boxes[row], shown, strict=True):
                alike = first[alike_of == alike_of[index]]
                box.imshow(_pixels(images[index], alike), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                box.set_xticks([])
                box.set_yticks([])
                box.grid(False)
                for edge in box.spines.values():
                    edge.set_visible(False)
                if row == 0 and labels is not None:
                    box.set_title(str(labels[index]), pad=3)
            boxes[row][0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=6)
        if title:
            title_above(figure, title)
        settle(figure)
    if path is not None:
        save(figure, path)
    return figure


def _check(arrays: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
    if not arrays or not len(labels):
        raise InputError("give at least one row of images to draw")
    first = next(iter(arrays.values()))
    for name, images in arrays.items():
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise InputError(f"cannot draw '{name}': images must have the shape [n, 1 or 3, height, width]")
        if images.shape != first.shape or len(images) != len(labels):
            raise InputError(f"cannot draw '{name}': all rows must have the same shape, and one label for each image")


def _chosen(labels: np.ndarray) -> list[int]:
    """Which images are shown: all if they are few, else the first of each label."""
    if len(labels) <= COLUMNS:
        return list(range(len(labels)))
    return [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)[:COLUMNS]]


def _pixels(image: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """An image as matplotlib wants it, scaled to what images like it range over; what is beyond is cut off."""
    low, high = float(alike.min()), float(alike.max())
    scaled = np.clip((image - low) / (high - low if high > low else 1.0), 0.0, 1.0)
    return np.asarray(scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, -1))
