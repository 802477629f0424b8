"""Speech Commands: short words of many speakers, as log-mel spectrograms (Warden 2018, arXiv:1804.03209)."""

from __future__ import annotations

import hashlib
import re
import wave
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.errors import InputError, quote_all
from emulator.learning.data.arrays import ArraySet, Outline, numbered, standardise
from emulator.learning.data.folders import KEY, FolderParams, fingerprint, folder_of, generated_fingerprint, wrong
from emulator.learning.data.mapped import sample_array
from emulator.learning.data.mel import frames, log_mel
from emulator.units import PositiveSeconds

RATE_HZ = 16_000
SAMPLES = RATE_HZ  # of a clip: one second
LISTS = {"testing": "testing_list.txt", "validation": "validation_list.txt"}
RIGHT_WAV = "clips are WAV files of 16 kHz, 16 bits and one channel"
RIGHT_NAME = "clips are named WORD/SPEAKER_nohash_NUMBER.wav"
_NAME = re.compile(r"(?P<speaker>[^_]+)_nohash_[0-9]+\.wav")
_HASHES = 2**27  # of the rule that the set's authors divide speakers by


class SpeechParams(FolderParams):
    """Which words, and how their sound is turned into numbers."""

    words: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        None, strict=False, min_length=1, description="the words to tell apart, in this order; without it all there are"
    )
    validation: Literal["drop", "train", "test"] = Field(
        "drop", description="what becomes of the clips that the authors set aside for validation"
    )
    mel_bands: Annotated[int, Field(ge=1, le=256)] = Field(40, description="bands of the spectrogram")
    window: PositiveSeconds = Field("25 ms", validate_default=True, description="length of its windows")
    hop: PositiveSeconds = Field("10 ms", validate_default=True, description="time from one window to the next")

    @model_validator(mode="after")
    def _fits_together(self) -> SpeechParams:
        if self.words is not None and len(set(self.words)) < len(self.words):
            raise PydanticCustomError("words", "'words' must differ")
        if not 2 <= self.window_samples <= SAMPLES:
            raise PydanticCustomError("window", "'window' must be between 0.125 ms and 1 s")
        if self.hop_samples < 1:
            raise PydanticCustomError("hop", "'hop' must be at least 0.0625 ms")
        return self

    @property
    def window_samples(self) -> int:
        """Samples of a window."""
        return round(self.window * RATE_HZ)

    @property
    def hop_samples(self) -> int:
        """Samples from one window to the next."""
        return round(self.hop * RATE_HZ)

    @property
    def classes(self) -> int | None:
        """How many words there are, where that is given."""
        return None if self.words is None else len(self.words)

    @property
    def shape(self) -> tuple[int, int, int]:
        """One channel, bands, windows."""
        return 1, self.mel_bands, frames(SAMPLES, self.window_samples, self.hop_samples)


@dataclass(frozen=True)
class Clip:
    """A file, the number of its word, and who says it."""

    path: Path
    label: int
    speaker: str


@dataclass(frozen=True)
class Clips:
    """The clips to train and to test, in the order of words and file names."""

    folder: Path
    words: tuple[str, ...]
    train: list[Clip]
    test: list[Clip]


def authors_part(speaker: str) -> str:
    """'validation', 'testing' or 'training': where the set's authors put a speaker, 10 % in each of the first two.

    The rule of the set's README: the SHA-1 of the name before ``_nohash_``, taken modulo 2^27, as a percentage of
    2^27 - 1.
    """
    number = int(hashlib.sha1(speaker.encode(), usedforsecurity=False).hexdigest(), 16) % _HASHES
    percentage = number * 100 / (_HASHES - 1)
    return "validation" if percentage < 10 else "testing" if percentage < 20 else "training"


def _fingerprint(params: SpeechParams) -> str:
    made_up = generated_fingerprint("speech-commands", params, "speech-commands")
    if made_up is not None:
        return made_up
    found = _clips(params)
    lists = [found.folder / name for name in LISTS.values() if (found.folder / name).is_file()]
    clips = sorted(clip.path for clip in (*found.train, *found.test))
    return fingerprint("speech-commands", params, found.folder, [*lists, *clips])


def _outline(params: SpeechParams) -> Outline:
    found = _clips(params)
    labels = np.array([clip.label for clip in found.train], np.int64)
    return Outline(labels, len(found.words), params.shape, *numbered([clip.speaker for clip in found.train]))


def _check(params: SpeechParams) -> None:
    if params.generated is None:
        _clips(params)


@data_sets.register(
    "speech-commands",
    SpeechParams,
    DataSetFacts(fingerprint=_fingerprint, outline=_outline, check=_check, owners=True, prepared=1),
)
def speech_commands(params: SpeechParams) -> ArraySet:
    """Speech Commands: words of one second by many speakers, as log-mel spectrograms (Warden 2018).

    The folder is the unpacked archive: a folder for each word, with clips SPEAKER_nohash_NUMBER.wav, and the lists
    ``testing_list.txt`` and ``validation_list.txt``. Where a list is missing, speakers are divided by the rule that
    the lists were made by. Folders whose names start with ``_`` (the background noise) are left out. Clips are
    cut, or filled up with silence, to one second; spectrograms are shifted and scaled to mean 0 and deviation 1
    over all training clips.
    """
    found = _clips(params)
    x_train, x_test = (_spectrograms(clips, params) for clips in (found.train, found.test))
    standardise(x_train, x_test, (0, 1, 2, 3))
    y_train, y_test = (np.array([clip.label for clip in clips], np.int64) for clips in (found.train, found.test))
    owners = numbered([clip.speaker for clip in found.train])
    return ArraySet(x_train, y_train, x_test, y_test, len(found.words), *owners)


def _clips(params: SpeechParams) -> Clips:
    """Which clips there are, and what they are for. Reads no sound. Raises `InputError`."""
    folder = folder_of(params, "speech-commands")
    there = sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith(("_", ".")))
    if not there:
        wrong(folder, "there are no folders of words in it", RIGHT_NAME)
    words = tuple(there) if params.words is None else params.words
    if missing := [w for w in words if w not in there]:
        message = f"{folder} has no folder {quote_all(missing)}; it has {quote_all(there)}"
        raise InputError(message, "data.set.words")
    listed = {part: _listed(folder / name, there) for part, name in LISTS.items()}
    purpose = {"training": "train", "testing": "test", "validation": params.validation}
    parts: dict[str, list[Clip]] = {"train": [], "test": [], "drop": []}
    for label, word in enumerate(words):
        for path, speaker in _of_word(folder / word):
            parts[purpose[_part(f"{word}/{path.name}", speaker, listed)]].append(Clip(path, label, speaker))
    for part in ("train", "test"):
        if not parts[part]:
            wrong(folder, f"no clip of {quote_all(words[:10])} is left to {part}", "look into testing_list.txt")
    return Clips(folder, words, parts["train"], parts["test"])


def _part(name: str, speaker: str, listed: dict[str, set[str] | None]) -> str:
    for part, names in listed.items():
        if name in names if names is not None else authors_part(speaker) == part:
            return part
    return "training"


def _of_word(folder: Path) -> Iterable[tuple[Path, str]]:
    """The clips of a word, in the order of their names, and their speakers."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        match = _NAME.fullmatch(path.name)
        if match is None:
            wrong(path, "it is not named as a clip", RIGHT_NAME)
        found.append((path, match["speaker"]))
    if not found:
        wrong(folder, "there is no clip in it", RIGHT_NAME)
    return found


def _listed(path: Path, words: Sequence[str]) -> set[str] | None:
    """The names in a list of clips; None where there is no such list. Clips that are not there may be named too."""
    if not path.is_file():
        return None
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        wrong(path, f"it cannot be read ({error})", "it should hold a line WORD/CLIP.wav for each clip")
    for line in lines:
        name = line.partition("/")[2]
        if not _NAME.fullmatch(name):
            wrong(path, f"it holds the line '{line[:80]}'", RIGHT_NAME)
    if not any(line.partition("/")[0] in words for line in lines):
        wrong(path, "it names no clip of any word in this folder", RIGHT_NAME)
    return set(lines)


def read_clip(path: Path) -> np.ndarray:
    """The sound of a file, int16 [16000], cut or filled up with zeros. Raises `InputError`."""
    try:
        with path.open("rb") as stream, wave.open(stream) as file:
            form = (file.getframerate(), 8 * file.getsampwidth(), file.getnchannels())
            claimed = file.getnframes()
            raw = file.readframes(claimed)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", KEY) from error
    except (wave.Error, EOFError, RuntimeError, ValueError) as error:  # RuntimeError: a part that ends before it begins
        wrong(path, f"it is not a whole WAV file ({str(error) or 'its parts do not fit'})", RIGHT_WAV)
    if form != (RATE_HZ, 16, 1):
        wrong(path, f"it has {form[0] / 1000:g} kHz, {form[1]} bits and {form[2]} channels", RIGHT_WAV)
    if len(raw) != 2 * claimed:
        wrong(path, f"it ends after {len(raw) // 2} of {claimed} samples", "copy it again")
    if not raw:
        wrong(path, "there is no sound in it", RIGHT_WAV)
    clip = np.zeros(SAMPLES, np.int16)
    clip[: min(claimed, SAMPLES)] = np.frombuffer(raw, "<i2")[:SAMPLES]
    return clip


def _spectrograms(clips: Sequence[Clip], params: SpeechParams) -> np.ndarray:
    """Float32 [clips, 1, bands, windows]; the sound of a few hundred clips is in memory at a time."""
    result = sample_array((len(clips), *params.shape))
    for start in range(0, len(clips), 512):
        sound = np.stack([read_clip(clip.path) for clip in clips[start : start + 512]])
        made = log_mel(sound, RATE_HZ, params.mel_bands, params.window_samples, params.hop_samples)
        result[start : start + 512, 0] = made
    return result
