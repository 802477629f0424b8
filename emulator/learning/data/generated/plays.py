"""Made-up Shakespeare: lines of several roles from a small source of sentences, in windows as LEAF cuts them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emulator.learning.data.generated.leaf_files import Samples, sizes, write_part
from emulator.rng import stream

WINDOW = 80
LIKING = 0.4  # of a role for single words: a Dirichlet parameter, smaller means more one-sided

WORDS = {
    "opening": "now then today perhaps yet still",
    "article": "the this that every my our",
    "quality": "old quiet bright heavy small green broken golden distant gentle",
    "thing": "harbour lantern river engine garden ladder window letter orchard kettle bridge signal",
    "person": "sailor baker teacher farmer painter captain neighbour child",
    "deed": "carries follows repairs remembers watches opens crosses finds paints mends",
    "manner": "slowly gladly twice again softly often",
    "link": "and but while because until",
    "place": "by under near beyond above across",
}
# Which kind of word follows which, and how often; '.' ends the sentence.
FOLLOWS = {
    ".": {"opening": 0.4, "article": 0.6},
    "opening": {"article": 1.0},
    "article": {"quality": 0.4, "person": 0.6},
    "quality": {"person": 0.7, "quality": 0.3},
    "person": {"deed": 0.7, "manner": 0.3},
    "manner": {"deed": 1.0},
    "deed": {"thing": 1.0},
    "thing": {"place": 0.3, "link": 0.3, ".": 0.4},
    "place": {"thing": 1.0},
    "link": {"article": 1.0},
}


def write(folder: Path, owners: int, samples: int, seed: int) -> None:
    """Writes ``owners`` roles with about ``samples`` windows each to train, and a quarter of that, further on, to test.

    All roles speak by the same grammar; each has words that it likes.
    """
    parts: list[dict[str, Samples]] = [{}, {}]
    roles = WORDS["person"].upper().split()
    for i in range(owners):
        rng = stream(seed, "generated", "plays", i)
        name = f"A_DAY_AT_THE_HARBOUR_{roles[i % len(roles)]}_{i + 1}"
        counts = sizes(samples, rng.random())
        text = _speech(sum(counts) + 2 * WINDOW, rng)
        start = 0
        for users, count in zip(parts, counts, strict=True):
            x = [text[j : j + WINDOW] for j in range(start, start + count)]
            users[name] = x, [text[j + WINDOW] for j in range(start, start + count)]
            start += count + WINDOW  # no window to test holds a character of one to train
    for part, users in zip(("train", "test"), parts, strict=True):
        write_part(folder, part, users)


def _speech(length: int, rng: np.random.Generator) -> str:
    """Sentences of one role, at least so many characters."""
    words = {kind: text.split() for kind, text in WORDS.items()}
    liking = {kind: rng.dirichlet(np.full(len(those), LIKING)) for kind, those in words.items()}
    text, kind, sentence = "", ".", list[str]()
    while len(text) <= length:
        following = FOLLOWS[kind]
        kind = str(rng.choice(list(following), p=list(following.values())))
        if kind == ".":
            text += " ".join(sentence).capitalize() + ". "
            sentence = []
        else:
            sentence.append(str(rng.choice(words[kind], p=liking[kind])))
    return text
