"""What the tests of all data sets share."""

from __future__ import annotations

import numpy as np

from emulator.learning.data import ArraySet
from emulator.registry import data_sets


def load(kind: str, **params: object) -> ArraySet:
    plugin = data_sets[kind]
    loaded: ArraySet = plugin.function(plugin.params.model_validate(params))
    return loaded


def fingerprint(kind: str, **params: object) -> str:
    plugin = data_sets[kind]
    text = plugin.facts["fingerprint"](plugin.params.model_validate(params))
    assert isinstance(text, str)
    return text


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
