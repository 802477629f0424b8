"""Text as numbers: LEAF's characters, and words.

A character is its place in the table of the LEAF project (``ALL_LETTERS`` in ``models/utils/language_utils.py`` of
github.com/TalwalkarLab/leaf): 80 characters. All others are one more.

Words are runs of letters and apostrophes, in lower case. LEAF cuts a text into windows that each start one character
after the one before. So a window counts as a sample of words only where its last word ends with it: then every word of
the text is to be predicted once. The words before it are the sample, but for the first, which the window may have cut.
Words beyond the vocabulary count as one, and samples whose next word is such a one are left out.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

CHARACTERS = f"\n !\"&'(),-.{string.digits}:;>?{string.ascii_uppercase}[]{string.ascii_lowercase}}}"
UNKNOWN_CHARACTER = len(CHARACTERS)

PADDING, UNKNOWN, RESERVED = 0, 1, 2  # words are numbered from RESERVED
Sentence = tuple[list[str], str]  # some words, and the next one

_TABLE = np.full(128, UNKNOWN_CHARACTER, np.int64)
_TABLE[[ord(c) for c in CHARACTERS]] = np.arange(len(CHARACTERS))
_WORD = re.compile(r"[A-Za-z']+")


def characters(text: str) -> np.ndarray:
    """The number of every character, int64."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    found: np.ndarray = np.where(codes < len(_TABLE), _TABLE[np.minimum(codes, len(_TABLE) - 1)], UNKNOWN_CHARACTER)
    return found


def sentences(windows: Sequence[str], following: Sequence[str]) -> list[Sentence]:
    """The samples of words among windows of text, each with the character that follows it."""
    found = []
    for window, after in zip(windows, following, strict=True):
        if not _WORD.match(window[-1]) or _WORD.match(after):
            continue
        words = _WORD.findall(window.lower())
        if _WORD.match(window[0]):
            words = words[1:]
        if len(words) > 1:
            found.append((words[:-1], words[-1]))
    return found


def most_frequent(words: Sequence[str], most: int) -> dict[str, int]:
    """Numbers for the most frequent words, the first of the alphabet among equals."""
    ordered = sorted(Counter(words).items(), key=lambda entry: (-entry[1], entry[0]))
    return {word: RESERVED + i for i, (word, _) in enumerate(ordered[:most])}


def tokens(samples: Sequence[Sentence], known: Mapping[str, int], length: int) -> tuple[np.ndarray, np.ndarray]:
    """The last ``length`` words of each sample whose next word is known, filled up in front, and that next word; int64."""
    kept = [(words, word) for words, word in samples if word in known]
    x = np.full((len(kept), length), PADDING, np.int64)
    for row, (words, _) in zip(x, kept, strict=True):
        numbers = [known.get(word, UNKNOWN) for word in words[-length:]]
        row[length - len(numbers) :] = numbers
    return x, np.array([known[word] for _, word in kept], np.int64)
