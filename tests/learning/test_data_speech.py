"""Speech Commands' files: clips, lists and the authors' rule; log-mel spectrograms against a plain computation."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_samples import check_form, check_outline, fingerprint, load
from pydantic import ValidationError

from emulator.errors import InputError
from emulator.learning.data.arrays import numbered
from emulator.learning.data.mel import FLOOR, log_mel, mel, mel_bands
from emulator.learning.data.speech_commands import authors_part

TESTED, TRAINED, VALIDATED = (
    "c50f55b8",
    "0a7c2a8d",
    "e7ea8b76",
)  # by the lists; the rule comes in where they are missing


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray:
    return np.round(8000 * np.sin(2 * np.pi * hertz * np.arange(int(16_000 * seconds)) / 16_000)).astype("<i2")


def save(path: Path, sound: np.ndarray, rate: int = 16_000, width: int = 2, channels: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(sound.tobytes())
    return path


def speech(tmp_path: Path) -> str:
    folder = tmp_path / "set"
    for word, hertz in (("yes", 500), ("no", 1500), ("_background_noise_", 100)):
        for speaker in (TESTED, TRAINED, VALIDATED):
            for number in range(2):
                save(folder / word / f"{speaker}_nohash_{number}.wav", tone(hertz + 50 * number, (1.2, 0.8)[number]))
    (folder / "_background_noise_" / "README.md").write_text("not a clip")
    (folder / "LICENSE").write_text("not a word")
    (folder / "testing_list.txt").write_text(
        "".join(f"{w}/{TESTED}_nohash_{n}.wav\n" for w in ("yes", "no") for n in (0, 1))
    )
    (folder / "validation_list.txt").write_text(f"yes/{VALIDATED}_nohash_0.wav\nother/{VALIDATED}_nohash_7.wav\n")
    return str(folder)


def plain_log_mel(clip: np.ndarray, bands: int, window: int, hop: int, fft: int) -> np.ndarray:
    """Written out once more: numpy's transform, triangles from their definition, one frame at a time."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    low, high = 2595 * np.log10(1 + 20 / 700), 2595 * np.log10(1 + 8000 / 700)
    corners = [700 * (10 ** ((low + (high - low) * i / (bands + 1)) / 2595) - 1) for i in range(bands + 2)]
    columns = []
    for start in range(0, len(clip) - window + 1, hop):
        power = np.abs(np.fft.rfft(clip[start : start + window] / 32768 * hann, fft)) ** 2
        sums = []
        for left, peak, right in zip(corners, corners[1:], corners[2:], strict=False):
            total = 0.0
            for k, p in enumerate(power):
                f = k * 16_000 / fft
                if left < f < right:
                    total += p * ((f - left) / (peak - left) if f <= peak else (right - f) / (right - peak))
            sums.append(np.log(total + FLOOR))
        columns.append(sums)
    return np.array(columns).T


def test_spectrograms_are_what_they_are_said_to_be() -> None:
    rng = np.random.default_rng(0)
    clips = rng.integers(-9000, 9000, (3, 4000)).astype(np.int16)
    found = log_mel(clips, 16_000, 12, 400, 160)
    assert found.shape == (3, 12, 23)
    assert found.dtype == np.float32
    assert found[1] == pytest.approx(plain_log_mel(clips[1], 12, 400, 160, 512), abs=1e-4)
    assert np.array_equal(log_mel(clips[2:], 16_000, 12, 400, 160)[0], found[2])  # whoever is beside it


def test_the_mel_scale() -> None:
    assert float(mel(1000.0)) == pytest.approx(1000, abs=0.1)  # by its making
    bands = mel_bands(40, 512, 16_000)
    assert bands.shape == (40, 257)
    first, last = np.argmax(bands[0]) + 1, np.argmax(bands[-1])  # between their peaks neighbours add up to one
    assert bands[:, first:last].sum(axis=0) == pytest.approx(np.ones(last - first))
    peaks_hz = 700 * (10 ** (np.linspace(float(mel(20)), float(mel(8000)), 42)[1:-1] / 2595) - 1)
    for band in (10, 20, 30):
        assert np.argmax(log_mel(tone(peaks_hz[band])[None], 16_000, 40, 400, 160)[0].mean(axis=1)) == band


def test_clips_by_speaker(tmp_path: Path) -> None:
    folder = speech(tmp_path)
    data = load("speech-commands", path=folder)
    check_form(data)
    check_outline(data, "speech-commands", path=folder)
    assert (data.classes, data.shape) == (2, (1, 40, 98))
    # no before yes; TESTED is tested; of VALIDATED one clip is dropped
    assert data.y_train.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert data.y_test.tolist() == [0, 0, 1, 1]
    assert data.owner_names == (TRAINED, VALIDATED)
    assert data.owners is not None
    assert data.owners.tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert data.x_train.mean() == pytest.approx(0, abs=1e-4)
    assert data.x_train.std() == pytest.approx(1, abs=1e-4)
    short = tone(1550, 0.8)
    one_s = np.stack([tone(1500, 1.2)[:16_000], np.append(short, np.zeros(16_000 - len(short), "<i2"))])
    expected = log_mel(one_s, 16_000, 40, 400, 160)
    scale = (data.x_train[1, 0] - data.x_train[0, 0]) / (expected[1] - expected[0])  # one scale for all
    assert scale[np.abs(expected[1] - expected[0]) > 1] == pytest.approx(float(np.median(scale)), rel=1e-3)


def test_words_bands_and_windows_can_be_chosen(tmp_path: Path) -> None:
    folder = speech(tmp_path)
    params: dict[str, Any] = {"words": ["yes", "no"], "mel_bands": 8, "window": "50 ms", "hop": "50 ms"}
    data = load("speech-commands", path=folder, **params)
    assert data.shape == (1, 8, 20)
    assert data.y_test.tolist() == [0, 0, 1, 1]
    assert np.array_equal(
        load("speech-commands", path=folder, **params | {"words": ["yes"]}).y_train, np.zeros(3, np.int64)
    )
    assert len(load("speech-commands", path=folder, validation="train").y_train) == 8
    assert len(load("speech-commands", path=folder, validation="test").y_test) == 5
    prints = {fingerprint("speech-commands", path=folder, **p) for p in ({}, params, {"validation": "train"})}
    assert len(prints) == 3


def test_speakers_are_divided_by_the_authors_rule_where_there_are_no_lists(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    names = [f"{i:08x}" for i in range(60)]
    for name in names:
        save(folder / "yes" / f"{name}_nohash_0.wav", tone(300, 0.1))
    data = load("speech-commands", path=str(folder), mel_bands=4)
    assert data.owner_names == numbered([n for n in names if authors_part(n) == "training"])[1]
    assert len(data.y_test) == sum(authors_part(n) == "testing" for n in names) > 0
    parts = [authors_part(f"{i:08x}") for i in range(20_000)]
    assert parts.count("testing") / 20_000 == pytest.approx(0.1, abs=0.01)
    assert parts.count("validation") / 20_000 == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("empty", "not a whole WAV file .*; clips are WAV files of 16 kHz"),
        ("cut", "it ends after .* of 19200 samples"),
        ("header", "not a whole WAV file"),
        ("text", "not a whole WAV file"),
        ("parts", r"not a whole WAV file \(its parts do not fit\)"),
        ("rate", "it has 8 kHz, 16 bits and 1 channels; clips are"),
        ("stereo", "it has 16 kHz, 16 bits and 2 channels"),
        ("bytes", "it has 16 kHz, 8 bits and 1 channels"),
        ("silent", "there is no sound in it"),
    ],
)
def test_clips_that_are_wrong(tmp_path: Path, fault: str, text: str) -> None:
    folder = speech(tmp_path)
    path = tmp_path / "set" / "yes" / f"{TRAINED}_nohash_0.wav"
    whole = path.read_bytes()
    raw = {
        "empty": b"",
        "cut": whole[:9000],
        "header": whole[:30],
        "parts": whole[:16] + b"\x14" + whole[17:],
        "text": b"hello" * 50,
    }
    forms = {"rate": (tone(5), 8000), "stereo": (tone(5), 16_000, 2, 2), "bytes": (tone(5), 16_000, 1)}
    if fault in raw:
        path.write_bytes(raw[fault])
    else:
        save(path, *forms.get(fault, (tone(5)[:0],)))
    with pytest.raises(InputError, match=text) as caught:
        load("speech-commands", path=folder)
    assert str(path) in caught.value.message
    assert caught.value.key == "data.set.path"


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("yes/nobody.wav", b"", "not named as a clip; clips are named WORD/SPEAKER_nohash_NUMBER.wav"),
        ("yes/notes.txt", b"", "not named as a clip"),
        ("testing_list.txt", b"yes/abc.wav\n", "holds the line 'yes/abc.wav'"),
        ("testing_list.txt", b"\xff\xfe", "cannot be read"),
        ("testing_list.txt", b"cat/aa_nohash_0.wav\n", "names no clip of any word in this folder"),
        ("validation_list.txt", b"", "names no clip of any word in this folder"),
    ],
)
def test_names_that_are_wrong(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    folder = speech(tmp_path)
    (tmp_path / "set" / name).write_bytes(content)
    for call in (load, fingerprint):
        with pytest.raises(InputError, match=text) as caught:
            call("speech-commands", path=folder)
        assert name.rpartition("/")[2] in caught.value.message


def test_folders_that_are_wrong(tmp_path: Path) -> None:
    folder = speech(tmp_path)
    (tmp_path / "none").mkdir()
    (tmp_path / "set" / "maybe").mkdir()
    for call in (load, fingerprint):
        with pytest.raises(InputError, match="there is no folder"):
            call("speech-commands", path=str(tmp_path / "nothing"))
        with pytest.raises(InputError, match="no folders of words in it"):
            call("speech-commands", path=str(tmp_path / "none"))
        with pytest.raises(InputError, match="maybe: there is no clip in it"):
            call("speech-commands", path=folder)
        with pytest.raises(InputError, match="no folder 'cat'; it has 'maybe', 'no', 'yes'") as caught:
            call("speech-commands", path=folder, words=["yes", "cat"])
        assert caught.value.key == "data.set.words"
    (tmp_path / "set" / "testing_list.txt").write_text(f"yes/{TESTED}_nohash_9.wav\n")
    with pytest.raises(InputError, match="no clip of 'no' is left to test"):
        load("speech-commands", path=folder, words=["no"])


@pytest.mark.parametrize(
    "bad", [{"words": ["a", "a"]}, {"window": "2 s"}, {"window": "0.01 ms"}, {"hop": "0.01 ms"}, {"words": []}]
)
def test_parameters_that_are_wrong(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        load("speech-commands", path="x", **bad)
