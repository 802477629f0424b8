"""FEMNIST and Shakespeare as the LEAF benchmark writes them: JSON files by user (Caldas et al. 2018, arXiv:1812.01097)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError, quote_all
from emulator.learning.data.arrays import ArraySet, numbered, numbered_as, standardise
from emulator.learning.data.folders import KEY, FolderParams, fingerprint, folder_of, generated_fingerprint, wrong
from emulator.learning.data.text import CHARACTERS, RESERVED, Sentence, characters, most_frequent, sentences, tokens

SIDE = 28
WRITER_CLASSES = 62  # digits, capitals, small letters
WINDOW = 80  # characters of a sample of Shakespeare
LEAF_FILES = "LEAF's preprocess.sh writes folders 'train' and 'test' with such files"
Arrays = tuple[np.ndarray, np.ndarray]
T = TypeVar("T")


class LeafParams(FolderParams):
    """Which task, where, and in which units text is read."""

    task: Literal["femnist", "shakespeare"] = Field(description="which of LEAF's sets")
    unit: Literal["character", "word"] = Field(
        "character", description="for shakespeare: what a token is, and what is to be predicted"
    )
    length: Annotated[int, Field(ge=1, le=40)] = Field(10, description="with 'unit: word': words of a sample")
    vocabulary: Annotated[int, Field(ge=1, le=100_000)] = Field(
        1000, description="with 'unit: word': so many words, the most frequent of the training text, are told apart"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> LeafParams:
        # Not what was written: a run folder keeps its scenario with every default in it, and must be read again.
        usual = type(self).model_fields
        given = [name for name in ("length", "vocabulary") if getattr(self, name) != usual[name].default]
        if self.unit == "word" and self.task != "shakespeare":
            raise PydanticCustomError("unit", "'unit: word' needs 'task: shakespeare'; images have no words")
        if self.unit != "word" and given:
            message = "{names} needs 'unit: word'"
            raise PydanticCustomError("unit", message, {"names": quote_all(given)})
        return self

    @property
    def classes(self) -> int:
        """How many labels there are."""
        if self.task == "femnist":
            return WRITER_CLASSES
        return len(CHARACTERS) + 1 if self.unit == "character" else RESERVED + self.vocabulary

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample."""
        if self.task == "femnist":
            return (1, SIDE, SIDE)
        return (WINDOW,) if self.unit == "character" else (self.length,)


def _folder(params: LeafParams) -> Path:
    return folder_of(params, _kind(params))


def _kind(params: LeafParams) -> str:
    return f"leaf-{params.task}"


def _fingerprint(params: LeafParams) -> str:
    made_up = generated_fingerprint("leaf", params, _kind(params))
    if made_up is not None:
        return made_up
    folder = _folder(params)
    return fingerprint("leaf", params, folder, [p for part in ("train", "test") for p in _files(folder, part)])


def _check(params: LeafParams) -> None:
    if params.generated is None:
        for part in ("train", "test"):
            _files(_folder(params), part)


@data_sets.register("leaf", LeafParams, DataSetFacts(fingerprint=_fingerprint, check=_check, owners=True, prepared=1))
def leaf(params: LeafParams) -> ArraySet:
    """FEMNIST (28×28, 62 labels) or Shakespeare (next character or word) by user, as LEAF writes them.

    The folder has ``train`` and ``test``, each with LEAF's .json files. Users of the training files are the owners;
    the samples of all test files are the test set, whoever they are of. So both of LEAF's splits can be used: by
    sample, where everybody is in both, and by user, where those to test are others.

    Images, 0 (ink) to 1 (paper) in the files, are shifted and scaled to mean 0 and deviation 1 over all training
    images: nearly all of each is paper, and as it is a model learns it slowly. A character is its number in LEAF's
    table of 80, or 80 where it is not in the table. With ``unit: word`` see `emulator.learning.data.text`.
    """
    folder = _folder(params)
    if params.unit == "word":
        train, test = _words(folder, params.length, params.vocabulary)
    else:
        convert = _images if params.task == "femnist" else _windows
        train, test = (_read(_files(folder, part), convert) for part in ("train", "test"))
    for part, users in (("train", train), ("test", test)):
        if not any(len(y) for _, (_, y) in users):
            wrong(folder / part, "there is no sample in it", "give users who have some")
    x_train, x_test = (np.concatenate([x for _, (x, _) in users]) for users in (train, test))
    y_train, y_test = (np.concatenate([y for _, (_, y) in users]) for users in (train, test))
    if params.task == "femnist":
        standardise(x_train, x_test, (0, 1, 2, 3))
    owners, names = numbered([user for user, (_, y) in train for _ in range(len(y))])
    tested = numbered_as([user for user, (_, y) in test for _ in range(len(y))], names)
    return ArraySet(x_train, y_train, x_test, y_test, params.classes, owners, names, tested)


def _files(folder: Path, part: str) -> list[Path]:
    found = sorted((folder / part).glob("*.json"))
    if not found:
        wrong(folder, f"it has no folder '{part}' with .json files", LEAF_FILES)
    return found


def _read(paths: list[Path], convert: Callable[[Path, str, list[Any], list[Any]], T]) -> list[tuple[str, T]]:
    """What ``convert`` makes of the x and y of every user, in the order of files. Raises `InputError`."""
    result: dict[str, T] = {}
    for path in paths:
        for user, x, y in _users(path):
            if user in result:
                wrong(path, f"user '{user}' is in it and in an earlier file", "a user stands in one file of a folder")
            result[user] = convert(path, user, x, y)
    return list(result.items())


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Name, x and y of every user of a file."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", KEY) from error
    except (ValueError, RecursionError) as error:
        wrong(path, f"it is not whole JSON ({error})", LEAF_FILES)
    users, data = (content.get(k) if isinstance(content, dict) else None for k in ("users", "user_data"))
    if not isinstance(users, list) or not isinstance(data, dict):
        wrong(path, "it has no list 'users' and no mapping 'user_data'", LEAF_FILES)
    counts = content.get("num_samples")
    if not isinstance(counts, list) or len(counts) != len(users):
        wrong(path, "it has no list 'num_samples' with one number a user", LEAF_FILES)
    if not all(isinstance(user, str) for user in users) or sorted(users) != sorted(data):
        wrong(path, "'users' and 'user_data' do not name the same users", "each stands once in both")
    for user, count in zip(users, counts, strict=True):
        entry = data[user] if isinstance(data[user], dict) else {}
        x, y = entry.get("x"), entry.get("y")
        if not isinstance(x, list) or not isinstance(y, list):
            wrong(path, f"user '{user}' has no lists 'x' and 'y'", LEAF_FILES)
        if not len(x) == len(y) == count:
            message = f"user '{user}' has {len(x)} samples and {len(y)} labels, and 'num_samples' says {count}"
            wrong(path, message, "the three must agree")
        yield user, x, y


def _images(path: Path, user: str, x: list[Any], y: list[Any]) -> Arrays:
    """FEMNIST: float32 [n, 1, 28, 28] and labels."""
    right = f"a sample of femnist is {SIDE * SIDE} numbers from 0 to 1, its label a whole number from 0 to 61"
    if not x:
        return np.zeros((0, 1, SIDE, SIDE), np.float32), np.zeros(0, np.int64)
    try:
        images = np.array(x, np.float32).reshape(len(x), -1)
    except (ValueError, TypeError):
        wrong(path, f"user '{user}' has samples that are no equally long lists of numbers", right)
    if images.shape[1] != SIDE * SIDE:
        wrong(path, f"user '{user}' has samples of {images.shape[1]} numbers", right)
    if not ((images >= 0) & (images <= 1)).all():
        wrong(path, f"user '{user}' has numbers that are not between 0 and 1", right)
    for label in y:
        if type(label) is not int or not 0 <= label < WRITER_CLASSES:
            wrong(path, f"user '{user}' has the label {label!r}", right)
    return images.reshape(-1, 1, SIDE, SIDE), np.array(y, np.int64)


def _texts(path: Path, user: str, x: list[Any], y: list[Any]) -> None:
    right = f"a sample of shakespeare is a text of {WINDOW} characters, its label the next character"
    for sample, label in zip(x, y, strict=True):
        if not isinstance(sample, str) or not isinstance(label, str):
            wrong(path, f"user '{user}' has samples or labels that are no texts", right)
        if len(sample) != WINDOW:
            wrong(path, f"user '{user}' has a sample of {len(sample)} characters", right)
        if len(label) != 1:
            wrong(path, f"user '{user}' has the label {label!r}", right)


def _windows(path: Path, user: str, x: list[Any], y: list[Any]) -> Arrays:
    """Shakespeare by characters: int64 [n, 80] and the next one."""
    _texts(path, user, x, y)
    return characters("".join(x)).reshape(len(x), WINDOW), characters("".join(y))


def _sentences(path: Path, user: str, x: list[Any], y: list[Any]) -> list[Sentence]:
    _texts(path, user, x, y)
    return sentences(x, y)


def _words(folder: Path, length: int, vocabulary: int) -> list[list[tuple[str, Arrays]]]:
    """Shakespeare by words: int64 [n, length] and the next one, of the users to train and to test."""
    parts = [_read(_files(folder, part), _sentences) for part in ("train", "test")]
    known = most_frequent([word for _, found in parts[0] for _, word in found], vocabulary)
    return [[(user, tokens(found, known, length)) for user, found in users] for users in parts]
