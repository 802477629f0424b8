"""What the tests of all data sets share."""

from __future__ import annotations

import numpy as np

from emulator.contracts.learning import data_sets
from emulator.learning.data import ArraySet


def load(kind: str, **params: object) -> ArraySet:
    plugin = data_sets[kind]
    loaded: ArraySet = plugin.function(plugin.params.model_validate(params))
    return loaded


def fingerprint(kind: str, **params: object) -> str:
    plugin = data_sets[kind]
    text = plugin.facts.fingerprint(plugin.params.model_validate(params))
    assert isinstance(text, str)
    return text


def check_outline(data: ArraySet, kind: str, **params: object) -> None:
    """What a set says of itself without its samples is what it holds."""
    plugin = data_sets[kind]
    outline = plugin.facts.outline(plugin.params.model_validate(params))
    assert np.array_equal(outline.y_train, data.y_train)
    assert outline.y_train.dtype == np.int64
    assert (outline.classes, outline.shape) == (data.classes, data.shape)


def check_form(data: ArraySet) -> None:
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert x.dtype == np.float32
        assert y.dtype == np.int64
        assert x.shape == (len(y), *data.shape)
        assert x.flags.c_contiguous
        assert x.flags.writeable  # torch.from_numpy warns otherwise
        assert y.flags.writeable
        assert y.min() >= 0
        assert y.max() < data.classes
