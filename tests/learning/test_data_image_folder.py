"""Folders of images: exact values, sizes, owners by name, and everything that can be wrong with a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data_samples import check_form, check_outline, fingerprint, load
from PIL import Image

from emulator.errors import InputError


def pixels(seed: int, height: int = 6, width: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path)


def images(tmp_path: Path) -> str:
    folder = tmp_path / "set"
    for i, name in enumerate(["train/cat/w2_a", "train/cat/w10_a", "train/dog/w2_b", "test/cat/w1_c", "test/dog/x_d"]):
        save(folder / f"{name}.png", pixels(i))
    (folder / "train" / "cat" / ".hidden").write_text("")
    return str(folder)


def test_images_are_read_exactly(tmp_path: Path) -> None:
    folder = images(tmp_path)
    data = load("image-folder", path=folder, size=[6, 4])
    check_form(data)
    check_outline(data, "image-folder", path=folder, size=[6, 4])
    assert (data.classes, data.shape, data.owners) == (2, (3, 6, 4), None)
    for row, seed in zip(data.x_train, (1, 0, 2), strict=True):  # in the order of names: w10_a, w2_a
        assert row == pytest.approx(pixels(seed).transpose(2, 0, 1) / 255)
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 0, 1], [0, 1])


def test_images_belong_to_whom_their_names_say(tmp_path: Path) -> None:
    data = load("image-folder", path=images(tmp_path), owners="prefix")
    assert data.owner_names == ("w2", "w10")
    assert data.owners is not None
    assert data.owners.tolist() == [1, 0, 0]
    save(tmp_path / "set" / "train" / "cat" / "nobody.png", pixels(9))
    with pytest.raises(InputError, match=r"nobody\.png: its name has no underscore") as caught:
        load("image-folder", path=str(tmp_path / "set"), owners="prefix")
    assert caught.value.key == "data.set.owners"


def test_images_are_resized_and_turned_grey(tmp_path: Path) -> None:
    folder = images(tmp_path)
    grey = load("image-folder", path=folder, size=[3, 2], colour=False)
    whole = Image.fromarray(pixels(2)).convert("L").resize((2, 3), Image.Resampling.BILINEAR)
    assert grey.shape == (1, 3, 2)
    assert grey.x_train[2, 0] == pytest.approx(np.asarray(whole) / 255)
    even = load("image-folder", path=folder, size=[6, 4], standardise=True)
    assert even.x_train.mean(axis=(0, 2, 3)) == pytest.approx([0, 0, 0], abs=1e-5)
    prints = {fingerprint("image-folder", path=folder, **p) for p in ({}, {"size": [3, 2]}, {"colour": False})}
    assert len(prints) == 3


def test_a_share_of_each_class_tests_where_there_is_no_test_folder(tmp_path: Path) -> None:
    for name, count in (("a", 10), ("b", 20)):
        for i in range(count):
            save(tmp_path / "set" / name / f"{i}.jpg", np.full((8, 8), 10 * i, np.uint8))
    data = load("image-folder", path=str(tmp_path / "set"), test_share=0.3, size=[8, 8], colour=False)
    assert (np.bincount(data.y_train).tolist(), np.bincount(data.y_test).tolist()) == ([7, 14], [3, 6])
    levels = np.sort(np.concatenate([data.x_train, data.x_test]).mean(axis=(1, 2, 3))) * 25.5
    assert levels == pytest.approx(np.sort([*range(10), *range(20)]), abs=0.2)
    check_outline(data, "image-folder", path=str(tmp_path / "set"), test_share=0.3, size=[8, 8], colour=False)


@pytest.mark.parametrize(
    ("name", "fault", "text"),
    [
        ("train/cat/w2_a.png", "empty", "no PNG or JPEG file; give a whole PNG or JPEG"),
        ("train/cat/w2_a.png", "cut", "it cannot be read"),
        ("train/cat/w2_a.png", "text", "no PNG or JPEG file"),
        ("train/cat/w2_a.png", "deep", "more than 8 bits"),
        ("train/cat/notes.txt", "text", "no PNG or JPEG file; images are files CLASS/NAME"),
        ("train/readme.md", "text", "stands beside the folders of the classes"),
        ("train/cat/deeper", "folder", "no PNG or JPEG file"),
        ("train/empty", "folder", "there is no image in it"),
        ("test/horse/w_1.png", "copy", "it has 'horse', which 'train' has not"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, name: str, fault: str, text: str) -> None:
    folder, path = images(tmp_path), tmp_path / "set" / name
    save(tmp_path / "big.png", pixels(0, 90, 90))
    whole = (tmp_path / "big.png").read_bytes()
    path.parent.mkdir(exist_ok=True)
    if fault == "folder":
        path.mkdir()
    elif fault == "deep":
        Image.fromarray(np.full((6, 4), 40_000, np.uint16)).save(path)
    else:
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"hello", "copy": whole}[fault])
    with pytest.raises(InputError, match=text) as caught:
        load("image-folder", path=folder)
    assert path.name in caught.value.message or "horse" in caught.value.message
    assert caught.value.key == "data.set.path"


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no folder"):
            call("image-folder", path=str(tmp_path / "nothing"))
        with pytest.raises(InputError, match="no folders of classes in it"):
            call("image-folder", path=str(tmp_path / "set"))
    save(tmp_path / "set" / "a" / "1.png", pixels(0))
    with pytest.raises(InputError, match="there is one image in it"):
        load("image-folder", path=str(tmp_path / "set"))
