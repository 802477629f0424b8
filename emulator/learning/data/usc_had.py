"""USC-HAD: twelve daily activities of fourteen people, from a sensor at the hip (Zhang and Sawchuk 2012; S3 §V)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError
from emulator.learning.data.arrays import ArraySet, numbered, numbered_as, standardise
from emulator.learning.data.folders import KEY, FolderParams, fingerprint, folder_of, generated_fingerprint, wrong

ACTIVITIES = 12
SENSORS = 6  # acceleration along three axes (g), turning about them (degrees a second)
RIGHT_NAME = "files are named SubjectN/aXtY.mat, for activity X (1 to 12) and trial Y"
RIGHT_FILE = "a trial is a .mat file with 'sensor_readings', six finite numbers for each hundredth of a second"
# What reading a file that is cut short or of another kind can raise, beside scipy's own error.
_UNREADABLE = (
    OSError, EOFError, NotImplementedError, MemoryError, ArithmeticError, NameError, LookupError, TypeError, ValueError,
    zlib.error,
)  # fmt: skip
_SUBJECT = re.compile(r"[Ss]ubject ?([1-9][0-9]*)")
_TRIAL = re.compile(r"a([1-9][0-9]*)t([1-9][0-9]*)\.mat")


class UscHadParams(FolderParams):
    """How trials are cut into samples, and which of them test."""

    window: Annotated[int, Field(ge=2, le=100_000)] = Field(
        200, description="readings of a sample; there are 100 in a second"
    )
    overlap: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="share of a sample that the next one of the same trial has too"
    )
    test_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of the trials of each subject and activity that test: the last ones, whole"
    )

    @property
    def classes(self) -> int:
        """One label for each activity."""
        return ACTIVITIES

    @property
    def shape(self) -> tuple[int, int, int]:
        """One channel, sensors, readings."""
        return 1, SENSORS, self.window


Trials = dict[tuple[str, int], list[Path]]  # files of a subject's activity, by trial


def _fingerprint(params: UscHadParams) -> str:
    made_up = generated_fingerprint("usc-had", params, "usc-had")
    if made_up is not None:
        return made_up
    folder = folder_of(params, "usc-had")
    return fingerprint("usc-had", params, folder, [p for paths in _trials(folder).values() for p in paths])


def _check(params: UscHadParams) -> None:
    if params.generated is None:
        _trials(folder_of(params, "usc-had"))


@data_sets.register(
    "usc-had",
    UscHadParams,
    DataSetFacts(fingerprint=_fingerprint, check=_check, classes=ACTIVITIES, owners=True, prepared=1),
)
def usc_had(params: UscHadParams) -> ArraySet:
    """USC-HAD: activities of people, windows of six sensors at 100 Hz (Zhang and Sawchuk 2012).

    The folder is the unpacked archive: SubjectN/aXtY.mat for activity X and trial Y. Names count, not what the files
    say of themselves. Samples are images of one channel, six rows (sensors) and as many columns as a window has
    readings; each sensor is shifted and scaled to mean 0 and deviation 1 over the training samples. Of every
    subject's trials of an activity the last ones test, at least one where there are two.
    """
    folder = folder_of(params, "usc-had")
    parts: dict[str, list[tuple[np.ndarray, int, str]]] = {"train": [], "test": []}
    for (subject, activity), paths in _trials(folder).items():
        kept = len(paths) - min(max(round(params.test_share * len(paths)), 1), len(paths) - 1)
        for i, path in enumerate(paths):
            found = _windows(path, params)
            parts["train" if i < kept else "test"].append((found, activity - 1, subject))
    if not parts["test"]:
        wrong(folder, "there is one trial of each activity only, and none left to test", RIGHT_NAME)
    x_train, x_test = (np.concatenate([x for x, _, _ in part])[:, None] for part in parts.values())
    y_train, y_test = (np.array([y for x, y, _ in part for _ in x], np.int64) for part in parts.values())
    standardise(x_train, x_test, (0, 1, 3))
    owners, names = numbered([subject for x, _, subject in parts["train"] for _ in x])
    tested = numbered_as([subject for x, _, subject in parts["test"] for _ in x], names)
    return ArraySet(x_train, y_train, x_test, y_test, ACTIVITIES, owners, names, tested)


def _trials(folder: Path) -> Trials:
    """The files of every subject and activity, both in their order. Raises `InputError`."""
    found: dict[tuple[int, int], dict[int, Path]] = {}
    for subject, home in _subjects(folder):
        for path in sorted(home.iterdir()):
            if path.name.startswith("."):
                continue
            match = _TRIAL.fullmatch(path.name)
            if match is None or int(match[1]) > ACTIVITIES:
                wrong(path, "it is not named as a trial", RIGHT_NAME)
            found.setdefault((subject, int(match[1])), {})[int(match[2])] = path
    if not found:
        wrong(folder, "there is no trial in it", RIGHT_NAME)
    return {(f"Subject{s}", a): [p for _, p in sorted(found[s, a].items())] for s, a in sorted(found)}


def _subjects(folder: Path) -> Iterator[tuple[int, Path]]:
    for home in sorted(folder.iterdir()):
        if not home.is_dir() or home.name.startswith((".", "_")):  # the archive has scripts and a readme too
            continue
        match = _SUBJECT.fullmatch(home.name)
        if match is None:
            wrong(home, "it is not named as the folder of a subject", RIGHT_NAME)
        yield int(match[1]), home


def _windows(path: Path, params: UscHadParams) -> np.ndarray:
    """Float32 [samples, sensors, readings] of a trial; what is left over at its end is dropped."""
    readings = read_trial(path)
    if len(readings) < params.window:
        message = f"{path} has {len(readings)} readings, fewer than a window of {params.window}; take a shorter window"
        raise InputError(message, "data.set.window")
    step = max(1, round(params.window * (1 - params.overlap)))
    cut = np.lib.stride_tricks.sliding_window_view(readings, params.window, axis=0)[::step]
    return np.ascontiguousarray(cut, np.float32)


def read_trial(path: Path) -> np.ndarray:
    """The readings of a file, float64 [readings, 6]. Raises `InputError`."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, variable_names=["sensor_readings"])
    except (MatReadError, *_UNREADABLE) as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # scipy raises OSError without a number for a short file
            raise InputError(f"{path} cannot be read: {error.strerror}", KEY) from error
        wrong(path, f"it is not a whole MATLAB file ({error})", RIGHT_FILE)
    readings = content.get("sensor_readings")
    if readings is None:
        wrong(path, "it has no 'sensor_readings'", RIGHT_FILE)
    if readings.ndim != 2 or readings.shape[1] != SENSORS or not len(readings) or readings.dtype.kind not in "fiu":
        shape = "×".join(str(n) for n in readings.shape)
        wrong(path, f"its 'sensor_readings' are {shape} of {readings.dtype}", RIGHT_FILE)
    result: np.ndarray = readings.astype(np.float64)
    if not np.isfinite(result).all():
        wrong(path, "some of its readings are not finite", RIGHT_FILE)
    return result
