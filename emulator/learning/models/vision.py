"""Large networks of torchvision, untrained."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from pydantic import Field

from emulator.contracts.learning import models
from emulator.learning.models.images import fitted
from emulator.registry import NoParams, Params

if TYPE_CHECKING:
    from torch import nn


class Resnet18Params(Params):
    """Normalisation of a ResNet-18."""

    norm: Literal["batch", "group"] = Field(
        "batch", description="as torchvision has it, or group normalisation of 32 groups"
    )


@models.register("resnet18", Resnet18Params)
def resnet18(shape: tuple[int, ...], classes: int, params: Resnet18Params) -> nn.Module:
    """ResNet-18 of torchvision, untrained; the first convolution is made for the channels of the images.

    On images of 32×32 and less the last layers see a single pixel, and batch normalisation then cannot
    train on a batch of one sample.
    """
    from torch import nn

    from emulator.learning.torchvision_cpu import torchvision

    # Five halvings, each rounded up; the last stage must still have more than one pixel to halve.
    channels, _, _ = fitted("resnet18", shape, lambda side: (side - 1) // 16)
    norm = partial(nn.GroupNorm, 32) if params.norm == "group" else None
    model: nn.Module = torchvision.models.resnet18(weights=None, num_classes=classes, norm_layer=norm)
    if channels != 3:
        model.conv1 = _initialised(nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False))
    return model


@models.register("vgg11")
def vgg11(shape: tuple[int, ...], classes: int, params: NoParams) -> nn.Module:
    """VGG-11 of torchvision without batch normalisation, untrained; 129 million parameters for 10 classes."""
    from torch import nn

    from emulator.learning.torchvision_cpu import torchvision

    channels, _, _ = fitted("vgg11", shape, lambda side: side // 32)  # five halvings, each rounded down
    model: nn.Module = torchvision.models.vgg11(weights=None, num_classes=classes)
    if channels != 3:
        features = cast("nn.Sequential", model.features)
        features[0] = _initialised(nn.Conv2d(channels, 64, 3, padding=1))
    return model


def _initialised(convolution: nn.Conv2d) -> nn.Conv2d:
    """With initial weights as torchvision gives them to the other convolutions of both networks."""
    from torch import nn

    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution
