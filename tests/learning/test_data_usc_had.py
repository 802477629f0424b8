"""USC-HAD's files: windows of trials, whose they are, which test, and everything that can be wrong with a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from data_samples import check_form, fingerprint, load
from scipy.io import savemat

from emulator.errors import InputError


def readings(subject: int, activity: int, trial: int, count: int = 25) -> np.ndarray:
    return np.random.default_rng([subject, activity, trial]).normal(subject, activity, (count, 6))


def save(folder: Path, subject: int, activity: int, trial: int, **content: object) -> Path:
    path = folder / f"Subject{subject}" / f"a{activity}t{trial}.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, content or {"sensor_readings": readings(subject, activity, trial), "subject": "99"})
    return path


def usc_had(tmp_path: Path) -> str:
    folder = tmp_path / "set"
    for subject in (2, 10):
        for activity in (1, 12):
            for trial in (1, 2, 10):
                save(folder, subject, activity, trial)
    save(folder, 10, 3, 1)
    (folder / "Readme.txt").write_text("not a subject")
    (folder / "__MACOSX").mkdir()
    (folder / "Subject2" / ".DS_Store").write_text("")
    return str(folder)


def test_windows_of_trials(tmp_path: Path) -> None:
    data = load("usc-had", path=usc_had(tmp_path), window=10, overlap=0.5)
    check_form(data)
    assert (data.classes, data.shape) == (12, (1, 6, 10))
    assert data.owner_names == ("Subject2", "Subject10")
    assert data.owners is not None
    # 25 readings make four windows, from 0, 5, 10 and 15; the last of three trials tests, a single one trains.
    assert data.owners.tolist() == [0] * 16 + [1] * 20
    assert data.y_train.tolist() == [0] * 8 + [11] * 8 + [0] * 8 + [2] * 4 + [11] * 8
    assert data.y_test.tolist() == [0] * 4 + [11] * 4 + [0] * 4 + [11] * 4
    order = [(2, 1), (2, 12), (10, 1), (10, 3), (10, 12)]
    raw = [
        readings(s, a, t)[i : i + 10].T for s, a in order for t in ((1,) if a == 3 else (1, 2)) for i in (0, 5, 10, 15)
    ]
    x = np.array(raw, np.float32)
    mean, std = x.mean(axis=(0, 2), dtype=np.float64)[:, None], x.std(axis=(0, 2), dtype=np.float64)[:, None]
    assert data.x_train[:, 0] == pytest.approx((x - mean) / std, abs=1e-5)
    tested = readings(2, 12, 10)[5:15].T
    assert data.x_test[5, 0] == pytest.approx((tested - mean) / std, abs=1e-5)


def test_shares_and_steps(tmp_path: Path) -> None:
    folder = usc_had(tmp_path)
    half = load("usc-had", path=folder, window=25, overlap=0, test_share=0.6)
    assert (len(half.y_train), len(half.y_test)) == (5, 8)
    assert len(load("usc-had", path=folder, window=10, overlap=0.9).y_test) == 16 * 4
    assert fingerprint("usc-had", path=folder, window=10) != fingerprint("usc-had", path=folder, window=12)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("empty", "not a whole MATLAB file"),
        ("cut", "not a whole MATLAB file"),
        ("text", "not a whole MATLAB file"),
        ("other", "it has no 'sensor_readings'"),
        ("narrow", "'sensor_readings' are 25×5 of float64"),
        ("nothing", "'sensor_readings' are 0×6"),
        ("words", "'sensor_readings' are"),
        ("nan", "some of its readings are not finite"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, fault: str, text: str) -> None:
    folder = usc_had(tmp_path)
    path = tmp_path / "set" / "Subject2" / "a1t2.mat"
    whole = path.read_bytes()
    contents = {
        "other": {"readings": np.zeros((25, 6))},
        "narrow": {"sensor_readings": np.zeros((25, 5))},
        "nothing": {"sensor_readings": np.zeros((0, 6))},
        "words": {"sensor_readings": "none"},
        "nan": {"sensor_readings": np.full((25, 6), np.nan)},
    }
    if fault in contents:
        save(tmp_path / "set", 2, 1, 2, **contents[fault])
    else:
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"hello " * 100}[fault])
    with pytest.raises(InputError, match=text) as caught:
        load("usc-had", path=folder, window=10)
    assert str(path) in caught.value.message
    assert "100" in caught.value.message or "hundredth" in caught.value.message
    assert caught.value.key == "data.set.path"


@pytest.mark.parametrize("name", ["Subject2/a13t1.mat", "Subject2/a1.mat", "Subject2/notes.txt", "Person2/a1t1.mat"])
def test_names_that_are_wrong(tmp_path: Path, name: str) -> None:
    folder = usc_had(tmp_path)
    (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
    shutil.copy(tmp_path / "set" / "Subject2" / "a1t1.mat", tmp_path / "set" / name)
    for call in (load, fingerprint):
        with pytest.raises(InputError, match=r"it is not named as .*; files are named SubjectN/aXtY\.mat") as caught:
            call("usc-had", path=folder, window=10)
        assert name.partition("/")[0] in caught.value.message


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no folder"):
            call("usc-had", path=str(tmp_path / "nothing"))
        with pytest.raises(InputError, match="there is no trial in it"):
            call("usc-had", path=str(folder))
    save(folder, 1, 1, 1)
    with pytest.raises(InputError, match="none left to test"):
        load("usc-had", path=str(folder), window=10)
    with pytest.raises(InputError, match="25 readings, fewer than a window of 200") as caught:
        load("usc-had", path=str(folder))
    assert caught.value.key == "data.set.window"
