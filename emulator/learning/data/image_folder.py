"""A user's own images: folders named after their classes, as torchvision's ImageFolder and many tools have them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError, quote_all
from emulator.learning.data.arrays import ArraySet, Outline, numbered, standardise
from emulator.learning.data.digits import stratified_split
from emulator.learning.data.folders import KEY, existing, fingerprint, wrong
from emulator.learning.data.mapped import sample_array
from emulator.registry import Params
from emulator.rng import stream

ENDINGS = (".png", ".jpg", ".jpeg")
RIGHT = "images are files CLASS/NAME with the ending .png, .jpg or .jpeg"
Size = Annotated[int, Field(ge=1, le=1024)]
Labelled = list[tuple[Path, int]]


class ImageFolderParams(Params):
    """Where the images are, and what they are made into."""

    path: str = Field(min_length=1, description="folder with a folder for each class, or with 'train' and 'test' above")
    size: tuple[Size, Size] = Field((32, 32), strict=False, description="height and width to which images are resized")
    colour: bool = Field(True, description="three channels; otherwise one, in grey")
    standardise: bool = Field(
        False, description="shift and scale every channel to mean 0 and deviation 1 over the training images"
    )
    test_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="where there are no folders 'train' and 'test': share of the images of each class that test"
    )
    owners: Literal["none", "prefix"] = Field(
        "none", description="prefix: an image belongs to whom its name says up to the first underscore"
    )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return 3 if self.colour else 1, *self.size


def _fingerprint(params: ImageFolderParams) -> str:
    folder = existing(params.path)
    _, train, test = _images(folder, params)
    name = f"image-folder-pillow-{importlib.metadata.version('pillow')}"  # resizing may change with it
    return fingerprint(name, params, folder, sorted(path for path, _ in (*train, *test)))


def _outline(params: ImageFolderParams) -> Outline:
    classes, train, _ = _images(existing(params.path), params)
    return Outline(_labels(train), len(classes), params.shape, *_owners(train, params))


@data_sets.register(
    "image-folder",
    ImageFolderParams,
    DataSetFacts(
        fingerprint=_fingerprint, outline=_outline, check=_outline, owners="with 'owners: prefix'", prepared=1
    ),
)
def image_folder(params: ImageFolderParams) -> ArraySet:
    """Images of your own in a folder for each class, PNG or JPEG, resized to one size.

    Classes are numbered in the order of their names. Where the folder has ``train`` and ``test``, these hold the
    classes; otherwise a share of each class tests, the same in every scenario. Pixels are scaled to 0..1.
    """
    classes, train, test = _images(existing(params.path), params)
    x_train, x_test = (_pixels(part, params) for part in (train, test))
    if params.standardise:
        standardise(x_train, x_test, (0, 2, 3))
    return ArraySet(x_train, _labels(train), x_test, _labels(test), len(classes), *_owners(train, params))


def _images(folder: Path, params: ImageFolderParams) -> tuple[list[str], Labelled, Labelled]:
    """The names of the classes, and the images to train and to test. Reads none. Raises `InputError`."""
    if (folder / "train").is_dir() and (folder / "test").is_dir():
        train, test = (_by_class(folder / part) for part in ("train", "test"))
        classes = sorted(train)
        if missing := sorted(set(test) - set(train)):
            wrong(
                folder / "test", f"it has {quote_all(missing)}, which 'train' has not", "classes to test are to train"
            )
        return classes, _number(train, classes), _number(test, classes)
    found = _by_class(folder)
    classes = sorted(found)
    images = _number(found, classes)
    if len(images) < 2:
        wrong(folder, "there is one image in it", "give at least one to train and one to test")
    testing = min(max(round(params.test_share * len(images)), 1), len(images) - 1)
    kept, tested = stratified_split(_labels(images), testing, stream(0, "data", "image-folder", "split"))
    return classes, [images[i] for i in kept], [images[i] for i in tested]


def _by_class(folder: Path) -> dict[str, list[Path]]:
    """The images of each class, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for home in sorted(folder.iterdir()):
        if home.name.startswith("."):
            continue
        if not home.is_dir():
            wrong(home, "it stands beside the folders of the classes", RIGHT)
        images = [p for p in sorted(home.iterdir()) if not p.name.startswith(".")]
        if foreign := [p for p in images if not p.is_file() or p.suffix.lower() not in ENDINGS]:
            wrong(foreign[0], "it is no PNG or JPEG file", RIGHT)
        if not images:
            wrong(home, "there is no image in it", RIGHT)
        found[home.name] = images
    if not found:
        wrong(folder, "there are no folders of classes in it", RIGHT)
    return found


def _number(found: dict[str, list[Path]], classes: Sequence[str]) -> Labelled:
    return [(path, label) for label, name in enumerate(classes) for path in found.get(name, ())]


def _labels(images: Labelled) -> np.ndarray:
    return np.array([label for _, label in images], np.int64)


def _owners(images: Labelled, params: ImageFolderParams) -> tuple[np.ndarray | None, tuple[str, ...]]:
    if params.owners == "none":
        return None, ()
    prefixes = [path.name.partition("_") for path, _ in images]
    for (prefix, underscore, _), (path, _) in zip(prefixes, images, strict=True):
        if not prefix or not underscore:
            message = (
                f"{path}: its name has no underscore behind an owner; name images OWNER_REST, or say 'owners: none'"
            )
            raise InputError(message, "data.set.owners")
    return numbered([prefix for prefix, _, _ in prefixes])


def _pixels(images: Labelled, params: ImageFolderParams) -> np.ndarray:
    """Float32 [images, channels, height, width], 0 to 1."""
    x = sample_array((len(images), *params.shape))
    for row, (path, _) in zip(x, images, strict=True):
        pixels = _read(path, params)
        row[:] = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    x /= 255
    return x


def _read(path: Path, params: ImageFolderParams) -> np.ndarray:
    """Bytes [height, width] or, in colour, [height, width, 3]. Raises `InputError`."""
    from PIL import Image, UnidentifiedImageError

    right = "give a whole PNG or JPEG file of 8 bits a channel"
    try:
        with Image.open(path, formats=["PNG", "JPEG"]) as image:
            mode = image.mode
            whole = image.convert("RGB" if params.colour else "L")
    except UnidentifiedImageError:
        wrong(path, "it is no PNG or JPEG file", right)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: it cannot be read ({error}); {right}", KEY) from error
    if mode[0] in "IF":
        wrong(path, f"its pixels have more than 8 bits (mode {mode})", right)
    height, width = params.size
    return np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR))
