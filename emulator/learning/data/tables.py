"""Tables: rows of features with a target. Two come with scikit-learn; others are CSV files of the user's.

A row is an image of one pixel, whose channels are the features, so that whatever works on channels works on features.
"""

from __future__ import annotations

import csv
import functools
import gzip
import importlib.metadata
import io
import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError, quote_all, suggestion
from emulator.learning.data.arrays import ArraySet, numbered, standardise
from emulator.learning.data.digits import stratified_split
from emulator.learning.data.files import fingerprint
from emulator.registry import NoParams, Params
from emulator.rng import stream

ROOM = "sklearn/datasets/data"
KEY = "data.set.path"
Kind = Literal["classification", "regression", "multi-label"]


def _of_scikit_learn(name: str) -> str:
    """A text file that comes with scikit-learn, read without importing it."""
    file = Path(str(importlib.metadata.distribution("scikit-learn").locate_file(f"{ROOM}/{name}")))
    raw = file.read_bytes()
    return (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()


def _version(name: str) -> str:
    return f"{name}:scikit-learn-{importlib.metadata.version('scikit-learn')}"


@data_sets.register(
    "diabetes",
    facts=DataSetFacts(
        classes=1,
        train_samples=353,
        shape=(10, 1, 1),
        task="regression",
        fingerprint=lambda params: _version("diabetes"),
    ),
)
def diabetes(params: NoParams) -> ArraySet:
    """Diabetes of 442 patients: 10 features, how far it has gone a year later (25 to 346); 353 to train, 89 to test.

    Comes with scikit-learn (Efron et al. 2004). Features are standardised. The split is the same whatever the seed.
    """
    x = np.loadtxt(io.StringIO(_of_scikit_learn("diabetes_data_raw.csv.gz")))
    y = np.loadtxt(io.StringIO(_of_scikit_learn("diabetes_target.csv.gz")))
    return _divided(x, y.astype(np.float32)[:, None], 1, 89, "diabetes")


@data_sets.register(
    "breast-cancer",
    facts=DataSetFacts(
        classes=2, train_samples=455, shape=(30, 1, 1), fingerprint=lambda params: _version("breast-cancer")
    ),
)
def breast_cancer(params: NoParams) -> ArraySet:
    """Breast cancer of Wisconsin: 569 tumours, 30 features of their cells, malignant (0) or benign (1); 114 to test.

    Comes with scikit-learn (Wolberg et al. 1995). Features are standardised. The split is the same whatever the seed.
    """
    table = np.loadtxt(io.StringIO(_of_scikit_learn("breast_cancer.csv")), delimiter=",", skiprows=1)
    return _divided(table[:, :-1], table[:, -1].astype(np.int64), 2, 114, "breast-cancer")


def _divided(
    x: np.ndarray,
    y: np.ndarray,
    classes: int,
    tested: int,
    name: str,
    scale: bool = True,
    owners: list[str] | None = None,
) -> ArraySet:
    """A table divided by chance into what is trained on and what is tested on; of classes, in the same proportion."""
    rng = stream(0, "data", name, "split")
    if y.dtype == np.int64:
        train, test = stratified_split(y, tested, rng)
    else:
        order = rng.permutation(len(y))
        train, test = np.sort(order[tested:]), np.sort(order[:tested])
    x_train, x_test = (x[rows].astype(np.float32)[:, :, None, None] for rows in (train, test))
    if scale:
        standardise(x_train, x_test, (0, 2, 3))
    whose = (None, ()) if owners is None else numbered([owners[row] for row in train.tolist()])
    return ArraySet(x_train, y[train], x_test, y[test], classes, *whose)


class CsvParams(Params):
    """Which file, and what its columns are."""

    path: str = Field(min_length=1, description="file with a line of column names, and a line for each sample")
    target: str | tuple[str, ...] = Field(
        description="the column that is to be learned: a class (numbers or texts), or a number. Several: numbers, or "
        "labels 0 and 1",
    )
    learn: Kind = Field("classification", description="what the target is for")
    ignore: tuple[str, ...] = Field((), strict=False, description="columns that are no features")
    owner: str | None = Field(None, description="the column that says whose a sample is; no feature either")
    test: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of the samples to test on, drawn at random"
    )
    standardise: bool = Field(True, description="shift and scale every feature to mean 0 and deviation 1")

    @property
    def task(self) -> str:
        """The task that the target is for."""
        return self.learn

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns that are to be learned."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)


def _csv_fingerprint(params: CsvParams) -> str:
    said = params.model_dump(exclude={"path"})
    return fingerprint(f"csv-{said}", [_existing(params)])


def _existing(params: CsvParams) -> Path:
    path = Path(params.path)
    if not path.is_file():
        raise InputError(f"there is no file {path}", KEY)
    return path


@data_sets.register("csv", CsvParams, DataSetFacts(
    fingerprint=_csv_fingerprint, check=lambda params: _read(params), task=None, owners="whose 'owner' names a column"
))  # fmt: skip
def read_csv(params: CsvParams) -> ArraySet:
    """A table of your own from a CSV file: a line of names, then a line for each sample.

    Features are numbers. A class may be a text: classes count from 0 in their order.
    """
    return _read(params)


def _read(params: CsvParams) -> ArraySet:
    names, rows = _rows(_existing(params))
    aside = [*params.targets, *params.ignore, *([] if params.owner is None else [params.owner])]
    for name in aside:
        if name not in names:
            raise InputError(f"the file has no column '{name}'; {suggestion(name, names)}", "data.set")
    features = [name for name in names if name not in aside]
    if not features:
        raise InputError("the file has no columns beside these that could be features", "data.set")
    x = np.array([_numbers(rows, names, name) for name in features]).T
    tested = min(max(1, round(params.test * len(x))), len(x) - 1)
    owners = None if params.owner is None else [row[names.index(params.owner)] for row in rows]
    y, classes = _targets(params, names, rows)
    return _divided(x, y, classes, tested, "csv", params.standardise, owners)


def _targets(params: CsvParams, names: list[str], rows: list[list[str]]) -> tuple[np.ndarray, int]:
    if params.learn != "classification":
        y = np.array([_numbers(rows, names, name) for name in params.targets]).T.astype(np.float32)
        if params.learn == "multi-label" and not np.isin(y, (0, 1)).all():
            raise InputError("labels are 0 or 1, a column for each", "data.set.target")
        return y, y.shape[1]
    if len(params.targets) > 1:
        raise InputError(
            "of classes there is one column; say 'learn: multi-label' for several labels", "data.set.target"
        )
    place = names.index(params.targets[0])
    number, found = numbered([row[place].strip() for row in rows])
    return number, len(found)


@functools.lru_cache(maxsize=1)
def _parsed(path: str, changed_ns: int) -> tuple[list[str], list[list[str]]]:
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    return [name.strip() for name in names], rows


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        names, rows = _parsed(str(path.resolve()), path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", KEY) from None
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"{path} has columns of the same name: {quote_all(twice)}", KEY)
    if len(rows) < 2:
        raise InputError(f"{path} has {len(rows)} samples; there must be two at least", KEY)
    wrong = next((n for n, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None:
        raise InputError(f"{path}: row {wrong} has not as many fields as the line of names ({len(names)})", KEY)
    return names, rows


def _numbers(rows: list[list[str]], names: list[str], name: str) -> list[float]:
    place, found = names.index(name), []
    for number, row in enumerate(rows, 2):
        try:
            value = float(row[place])
        except ValueError:
            value = math.nan
        if not abs(value) < 3e38:
            what = f"column '{name}' has {row[place][:40]!r} in row {number}, which is no finite number"
            raise InputError(f"{what}; give numbers, or name the column in 'ignore'", "data.set")
        found.append(value)
    return found
