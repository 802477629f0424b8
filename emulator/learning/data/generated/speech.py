"""Made-up Speech Commands: words that glide between two vowels, spoken by several synthetic voices, as WAV files.

A voice is a row of harmonics of its pitch. Each is as loud as it is close to one of three formants, which glide from those
of the first vowel to those of the second. Some words begin or end with a hiss.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from emulator.learning.data.speech_commands import LISTS, RATE_HZ, authors_part
from emulator.rng import stream

# Formants in Hz, rounded from the means of men in Peterson and Barney (1952).
VOWELS = {
    "a": (730, 1090, 2440),
    "e": (530, 1840, 2480),
    "i": (270, 2290, 3010),
    "o": (570, 840, 2410),
    "u": (300, 870, 2240),
}
# From vowel to vowel, and whether there is a hiss before or after.
WORDS = {
    "down": ("a", "u", False, False),
    "go": ("o", "u", False, False),
    "left": ("e", "e", False, True),
    "no": ("o", "o", False, False),
    "right": ("a", "i", False, False),
    "stop": ("o", "a", True, False),
    "up": ("u", "a", False, False),
    "yes": ("i", "e", False, True),
}
WIDTH_HZ = 120.0  # of a formant
HIGHEST_HZ = 4000.0  # there are no harmonics above
HISS = 0.25


def write(folder: Path, owners: int, samples: int, seed: int) -> None:
    """Writes ``owners`` speakers to train with about ``samples`` clips each, and a few more to test and to validate.

    Names of speakers are drawn until the authors' rule puts them where they are wanted, so the lists agree with it.
    """
    names = stream(seed, "generated", "speech", "speakers")
    wanted = {"training": owners, "testing": max(2, owners // 4), "validation": max(1, owners // 10)}
    lists: dict[str, list[str]] = {part: [] for part in wanted}
    for word in WORDS:
        (folder / word).mkdir()
    for part, count in wanted.items():
        speakers: list[str] = []
        while len(speakers) < count:
            name = f"{names.integers(2**32):08x}"
            if authors_part(name) == part and name not in speakers:
                speakers.append(name)
        for name in speakers:
            lists[part] += _speak(folder, name, samples, seed)
    for part, file in LISTS.items():
        (folder / file).write_text("\n".join(sorted(lists[part])) + "\n", encoding="utf-8", newline="\n")
    (folder / "_background_noise_").mkdir()
    noise = 0.05 * stream(seed, "generated", "speech", "noise").standard_normal(2 * RATE_HZ)
    _save(folder / "_background_noise_" / "hiss.wav", noise)


def _speak(folder: Path, speaker: str, samples: int, seed: int) -> list[str]:
    """Writes the clips of a speaker; returns their names."""
    rng = stream(seed, "generated", "speech", speaker)
    pitch_hz, tract, noise = rng.uniform(95, 230), rng.uniform(0.9, 1.15), rng.uniform(0.001, 0.01)
    liking = rng.dirichlet(np.full(len(WORDS), 3.0))
    counts = rng.multinomial(max(1, round(samples * rng.uniform(0.6, 1.4))), liking)
    names = []
    for word, count in zip(WORDS, counts.tolist(), strict=True):
        for number in range(count):
            sound = _word(word, pitch_hz * rng.uniform(0.94, 1.06), tract, rng)
            sound += noise * rng.standard_normal(len(sound))
            names.append(f"{word}/{speaker}_nohash_{number}.wav")
            _save(folder / names[-1], sound)
    return names


def _word(word: str, pitch_hz: float, tract: float, rng: np.random.Generator) -> np.ndarray:
    """The sound of a word in a clip of 0.9 to 1 s."""
    first, second, hiss_before, hiss_after = WORDS[word]
    clip = np.zeros(int(RATE_HZ * rng.uniform(0.9, 1.0)))
    length = int(RATE_HZ * rng.uniform(0.35, 0.5))
    time = np.arange(length) / length
    glide = 1 / (1 + np.exp(-12 * (time - 0.5)))[:, None]
    formants = tract * ((1 - glide) * np.array(VOWELS[first]) + glide * np.array(VOWELS[second]))  # [length, 3]
    pitch = pitch_hz * (1.05 - 0.1 * time)
    turn = np.exp(2j * np.pi * np.cumsum(pitch) / RATE_HZ)
    harmonic, voice = np.ones(length, complex), np.zeros(length)
    for k in range(1, int(HIGHEST_HZ / pitch_hz) + 1):
        harmonic *= turn
        near = np.exp(-0.5 * ((k * pitch[:, None] - formants) / WIDTH_HZ) ** 2) @ np.array([1.0, 0.6, 0.3])
        voice += (near + 0.02) * harmonic.imag
    voice *= np.sin(np.pi * time) ** 0.5 * rng.uniform(0.2, 0.35) / max(np.abs(voice).max(), 1e-9)
    start = int(rng.integers(RATE_HZ // 8, len(clip) - length - RATE_HZ // 8))
    clip[start : start + length] = voice
    for there, at in ((hiss_before, start - RATE_HZ // 10), (hiss_after, start + length - RATE_HZ // 50)):
        if there:
            clip[at : at + RATE_HZ // 10] += HISS * 0.2 * np.diff(rng.standard_normal(RATE_HZ // 10 + 1))
    return clip


def _save(path: Path, sound: np.ndarray) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(np.round(32767 * np.clip(sound, -1, 1)).astype("<i2").tobytes())
