"""Networks for sound and movement: small ones, as the papers train them on phones and single-board computers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.learning.models.images import KEY, image_shape
from emulator.registry import Params

if TYPE_CHECKING:
    from torch import nn

Width = Annotated[int, Field(ge=1, le=100_000)]
Shape = tuple[int, ...]


class AudioParams(Params):
    """Widths of a network for spectrograms."""

    channels: tuple[Width, Width, Width, Width] = Field(
        (32, 32, 64, 64), strict=False, description="channels of the four convolutions"
    )


@models.register("audio-cnn", AudioParams)
def audio_cnn(shape: Shape, classes: int, params: AudioParams) -> nn.Module:
    """Spoken words by five layers: four 3×3 convolutions, each followed by 2×2 max-pooling, and one layer on their mean.

    S2 §6.1 has a network of five layers for Speech Commands and says no more. The widths are those of the five-layer network
    M5 (Dai et al. 2017), which reads sound waves; this one reads their spectrograms. A side of one pixel is not halved further.
    """
    from torch import nn

    before, height, width = image_shape("audio-cnn", shape)
    layers: list[nn.Module] = []
    for channels in params.channels:
        pool = (min(2, height), min(2, width))
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(pool)]
        before, height, width = channels, height // pool[0], width // pool[1]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class HarParams(Params):
    """Widths of a network for movements."""

    channels: tuple[Width, Width, Width] = Field(
        (32, 64, 64), strict=False, description="channels of the three convolutions"
    )
    kernel: Annotated[int, Field(ge=1, le=99)] = Field(5, description="time steps that a convolution spans")
    hidden: Width = Field(128, description="size of the first of the two layers")


@models.register("har-cnn", HarParams)
def har_cnn(shape: Shape, classes: int, params: HarParams) -> nn.Module:
    """Activities from readings of sensors by three convolutions over time and two layers (S3 §V-A, USC-HAD).

    S3 gives the number of layers alone. Time is the last axis of a sample. The first convolution spans all sensors, whether they
    are rows or channels; max-pooling halves the time after each.
    """
    from torch import nn

    before, span, steps = image_shape("har-cnn", shape)
    lost = params.kernel - 1
    layers: list[nn.Module] = []
    for channels in params.channels:
        layers += [nn.Conv2d(before, channels, (span, params.kernel)), nn.ReLU(), nn.MaxPool2d((1, 2))]
        before, span, steps = channels, 1, (steps - lost) // 2
    if steps < 1:
        least = (((1 * 2 + lost) * 2 + lost) * 2) + lost
        raise InputError(f"har-cnn needs at least {least} time steps; the samples have {shape[2]}", KEY)
    head = [nn.Linear(before * steps, params.hidden), nn.ReLU(), nn.Linear(params.hidden, classes)]
    return nn.Sequential(*layers, nn.Flatten(), *head)
