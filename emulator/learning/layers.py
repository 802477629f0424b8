"""Which layer of a model is its classifier, and which are its feature extractor; samples to try a model with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from emulator.errors import InputError
from emulator.learning.flat import device_of


def blank_sample(shape: tuple[int, ...], tokens: bool = False) -> Tensor:
    """One sample of zeros [1, *shape] as the data set would have it: int64 where samples are tokens, else float32."""
    return torch.zeros(1, *shape, dtype=torch.int64 if tokens else torch.float32)


def are_tokens(x: Tensor) -> bool:
    """Whether samples are tokens of a text: whole numbers, which name entries of a vocabulary."""
    return not x.is_floating_point()


def classifier_of(module: nn.Module, shape: tuple[int, ...], tokens: bool = False) -> list[int]:
    """Which parameters, by their numbers in the order of the module, are its classifier's: the layer that is called last.

    Finds out by a forward pass of one sample of this shape. Raises `InputError` where no layer has parameters of its own.
    """
    layers = [
        part
        for part in module.modules()
        if any(True for _ in part.parameters(recurse=False))
        and not any(any(True for _ in child.parameters()) for child in part.children())
    ]
    called: list[nn.Module] = []
    hooks = [layer.register_forward_hook(lambda part, args, result: called.append(part)) for layer in layers]
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            module(blank_sample(shape, tokens).to(device_of(module)))
    finally:
        for hook in hooks:
            hook.remove()
        for part in training:
            part.training = True
    if not called:
        raise InputError("the model has no layer that could be its classifier", "model")
    own = {id(p) for p in called[-1].parameters()}
    return [i for i, p in enumerate(module.parameters()) if id(p) in own]
