"""What the tests of all data sets share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scenario.command import ROOT

from emulator.contracts.learning import DataSetChoice, data_sets
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


def choose(kind: str, **params: Any) -> DataSetChoice:
    return DataSetChoice(kind, data_sets[kind].params.model_validate(params))


def own_npz(path: Path, shade: float = 0.5, samples: int = 40) -> DataSetChoice:
    rng = np.random.default_rng(3)
    x = rng.random((samples, 6, 6), dtype=np.float32) * np.float32(shade)
    np.savez(path, x_train=x, y_train=np.arange(samples) % 4, x_test=x[:8], y_test=np.arange(8) % 4)
    return choose("npz", path=str(path), standardise=True)


def same(one: ArraySet, other: ArraySet) -> bool:
    names = ("x_train", "y_train", "x_test", "y_test", "owners", "test_owners")
    for name in names:
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None) or (a is not None and (a.dtype != b.dtype or a.tobytes() != b.tobytes())):
            return False
    return (one.classes, one.owner_names, one.shape) == (other.classes, other.owner_names, other.shape)


def in_processes(code: str, count: int, **variables: str) -> list[Any]:
    """What scripts print as JSON that run at once."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
    started = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    try:
        return [json.loads(process.communicate(timeout=60)[0]) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
