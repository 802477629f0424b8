"""Made-up texts in two dialects: sentences of two Markov chains over the same small vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from emulator.contracts.learning import DataSetFacts, data_sets
from emulator.learning.data.arrays import ArraySet
from emulator.registry import NoParams
from emulator.rng import stream

VOCABULARY, LENGTH, CLIENTS, EACH = 12, 10, 8, 60


def texts(samples: int, dialect: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [samples, LENGTH] of a dialect, which is a Markov chain of its own, and the tokens that come next."""
    chances = stream(dialect, "test-texts", "chain").dirichlet([0.2] * VOCABULARY, VOCABULARY).cumsum(axis=1)
    rng = stream(dialect, "test-texts", name)
    tokens = rng.integers(0, VOCABULARY, (samples, LENGTH + 1))
    for i in range(LENGTH):
        later = rng.random((samples, 1)) > chances[tokens[:, i]]
        tokens[:, i + 1] = np.minimum(later.sum(axis=1), VOCABULARY - 1)
    return tokens[:, :LENGTH], tokens[:, LENGTH]


def text_set() -> ArraySet:
    """Eight owners with equally many samples; the first four speak one dialect, the others the other."""
    owned = [texts(EACH, owner // 4, f"owner {owner}") for owner in range(CLIENTS)]
    tested = [texts(100, dialect, "test") for dialect in (0, 1)]
    owners = np.repeat(np.arange(CLIENTS), EACH)
    train, test = ([np.concatenate(part) for part in zip(*some, strict=True)] for some in (owned, tested))
    names = tuple(f"owner {n}" for n in range(CLIENTS))
    return ArraySet(*train, *test, VOCABULARY, owners, names)


def register_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the set known as 'made-up-texts' until the test ends."""
    data_sets.names()
    monkeypatch.setattr(data_sets, "_plugins", dict(data_sets._plugins))

    @data_sets.register("made-up-texts", facts=DataSetFacts(fingerprint=lambda params: "made-up-texts-1", owners=True))
    def made_up_texts(params: NoParams) -> ArraySet:
        """Made-up texts in two dialects."""
        return text_set()


LEARNING = (
    "data={set: made-up-texts, partition: natural}",
    "model={kind: char-lstm, embedding: 4, hidden: 16, layers: 1}",
    f"topology.clients={CLIENTS}",
)
