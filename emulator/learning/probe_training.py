"""Trains Task2Vec's probes on a data set before clients get them (see `emulator.learning.probe`).

The probe that reads images is the scenario's own model. It is made for the labels of its data set, trained, and then gets the
untrained last layer of the scenario's model in the place of its own, because the clients' labels are others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from emulator.errors import InputError
from emulator.learning import probe
from emulator.learning.data import read
from emulator.learning.data.arrays import ArraySet, is_text
from emulator.learning.device import HOST, Place
from emulator.learning.flat import FlatModel
from emulator.learning.layers import classifier_of
from emulator.learning.public import about_set, fitted
from emulator.learning.trainer import PROBE, Trainer, TrainingData, TrainJob

TOGETHER = 4096  # images that are fitted at a time
DATA = f"{probe.KEY}.data"

_transformers: dict[str, nn.Module] = {}  # the one that was trained last in this process, by what determines it


def pretrained_state(
    made: Callable[[int], nn.Module], clients: ArraySet, params: probe.ProbeParams, seed: int, place: Place
) -> Tensor:
    """The state of the clients' model, but for its last layer trained on the probe's data set; on the CPU.

    ``made`` gives the untrained model for a number of labels. Raises `InputError` where the set does not fit the model.
    """
    with about_set(DATA):
        arrays = read(params.data)
        x = _fitted(arrays.x_train, clients.shape)
    module = made(arrays.classes)
    trained = _trained(module, x, arrays.y_train, params, seed, place)
    result = made(clients.classes)
    own = {id(list(result.parameters())[i]) for i in classifier_of(result, clients.shape)}
    flat, source = FlatModel(result), FlatModel(module.cpu())
    source.state.copy_(trained)
    pairs = zip(_tensors(result), _tensors(source.module), strict=True)
    for mine, theirs in ((a, b) for a, b in pairs if id(a) not in own):
        if mine.shape != theirs.shape:
            raise InputError(
                "layers before the last depend on the number of labels, so this model cannot be a probe", "model"
            )
        mine.data.copy_(theirs.data)
    return flat.state


def trained_transformer(params: probe.ProbeParams, key: str, length: int, classes: int) -> nn.Sequential:
    """The probe for texts, trained, with a classifier that begins at zero; trained once in a process.

    Raises `InputError` where the data set has other samples than the clients.
    """
    named = f"{key} {length} {classes}"
    if named not in _transformers:
        with about_set(DATA):
            arrays = read(params.data)
        if arrays.shape != (length,) or arrays.classes != classes:
            has = f"its samples have the shape {list(arrays.shape)} and {arrays.classes} labels"
            raise InputError(f"{has}, those of the clients {[length]} and {classes}; texts cannot be fitted", DATA)
        module = probe.transformer(length, classes)
        state = _trained(module, arrays.x_train, arrays.y_train, params, probe.SEED, HOST)
        FlatModel(module).state.copy_(state)
        for parameter in module[-1].parameters():
            nn.init.zeros_(parameter)
        _transformers.clear()
        _transformers[named] = module
    found = copy.deepcopy(_transformers[named])
    assert isinstance(found, nn.Sequential)
    return found


def _tensors(module: nn.Module) -> list[Tensor]:
    """What the state of a model holds."""
    return [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]


def _fitted(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if x.shape[1:] == shape and not is_text(shape):
        return x
    return np.concatenate([fitted(x[i : i + TOGETHER], shape) for i in range(0, len(x), TOGETHER)])


def _trained(
    module: nn.Module, x: np.ndarray, y: np.ndarray, params: probe.ProbeParams, seed: int, place: Place
) -> Tensor:
    """The state of a module after training on all samples; they are as those of one client, alone in its process."""
    data = TrainingData(torch.from_numpy(x), torch.from_numpy(y), {PROBE: np.arange(len(y))}).to(place.device)
    start = FlatModel(copy.deepcopy(module)).state
    trainer = Trainer(module, data, seed, math.inf, place)  # of so much arithmetic that it is not stacked
    [(_, result)] = trainer.train([TrainJob(start, PROBE, params.rule, 0, 0)])
    return result.state
