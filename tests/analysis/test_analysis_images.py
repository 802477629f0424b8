from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis.plots.images import plot
from analysis.plots.style import PAGE_INCHES
from emulator.errors import InputError

LABELS = np.array([3, 1, 1, 7])


def rows(channels: int = 1, images: int = 4) -> dict[str, np.ndarray]:
    x = np.random.default_rng(4).normal(size=(images, channels, 6, 5))
    return {"real": x, "distilled": x + 0.1}


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_images_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    for name in "ab":
        plot(rows(), LABELS, path=tmp_path / f"{name}.{ending}", title="Distilled")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_pixels_are_scaled_to_real_images_of_their_label() -> None:
    given = rows()
    figure = plot(given, LABELS)
    assert len(figure.axes) == 8
    assert [box.get_title() for box in figure.axes[:4]] == ["3", "1", "1", "7"]
    assert [figure.axes[i].get_ylabel() for i in (0, 4)] == ["real", "distilled"]
    alike = given["real"][1:3]
    shown = np.asarray(figure.axes[4 + 2].images[0].get_array())
    expected = np.clip((given["distilled"][2, 0] - alike.min()) / (alike.max() - alike.min()), 0, 1)
    np.testing.assert_allclose(shown, expected, rtol=1e-12)
    assert shown.max() <= 1


def test_colours_and_images_of_one_shade() -> None:
    figure = plot(rows(channels=3), LABELS)
    assert np.asarray(figure.axes[0].images[0].get_array()).shape == (6, 5, 3)
    flat = plot({"real": np.full((1, 1, 4, 4), 0.7)}, np.array([2]))
    assert np.isfinite(np.asarray(flat.axes[0].images[0].get_array())).all()


def test_of_many_images_the_first_of_each_label_is_shown() -> None:
    labels = np.arange(60) % 12
    figure = plot(rows(images=60), labels)
    assert [box.get_title() for box in figure.axes[:10]] == [str(label) for label in range(10)]
    assert len(figure.axes) == 20
    assert figure.get_figwidth() <= PAGE_INCHES + 1e-9


@pytest.mark.parametrize(
    ("given", "labels", "message"),
    [
        ({}, LABELS, "at least one row"),
        (rows(), np.array([]), "at least one row"),
        (rows(channels=2), LABELS, "cannot draw 'real': images must have the shape"),
        ({**rows(), "odd": np.zeros((4, 1, 5, 5))}, LABELS, "cannot draw 'odd': all rows must have the same shape"),
        (rows(), LABELS[:3], "one label for each image"),
    ],
)
def test_what_cannot_be_drawn(given: dict[str, np.ndarray], labels: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot(given, labels)


def test_a_bad_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in one of"):
        plot(rows(), LABELS, path=tmp_path / "a.txt")
