"""Small residual networks, as light and heavy loads for edge devices (S2 §6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.learning.models.images import image_shape
from emulator.registry import Params, models

if TYPE_CHECKING:
    from torch import nn


class ResnetParams(Params):
    """Width and normalisation of a small residual network."""

    width: Annotated[int, Field(ge=1, le=4096)] = Field(
        16, description="channels of the first block; each further has twice as many"
    )
    norm: Literal["group", "batch"] = Field(
        "group",
        description="kind of normalisation; that by groups keeps no statistics of the clients' data",
    )
    groups: Annotated[int, Field(ge=1, le=4096)] = Field(8, description="groups of the group normalisation")

    @model_validator(mode="after")
    def _whole_groups(self) -> ResnetParams:
        if self.norm == "group" and self.width % self.groups:
            raise PydanticCustomError("groups", "'width' must be a multiple of 'groups'")
        return self


@models.register("resnet-1block", ResnetParams)
def resnet_1block(shape: tuple[int, ...], classes: int, params: ResnetParams) -> nn.Module:
    """A residual network of one block: a light load (S2 §6.1)."""
    return _resnet("resnet-1block", shape, classes, 1, params)


@models.register("resnet-3block", ResnetParams)
def resnet_3block(shape: tuple[int, ...], classes: int, params: ResnetParams) -> nn.Module:
    """A residual network of three blocks, each further at half the resolution: a heavy load (S2 §6.1)."""
    return _resnet("resnet-3block", shape, classes, 3, params)


def _resnet(name: str, shape: tuple[int, ...], classes: int, blocks: int, params: ResnetParams) -> nn.Module:
    """A 3×3 convolution, ``blocks`` basic blocks, the mean over the image, one layer (He et al. 2016, for
    CIFAR).

    The paper gives the number of blocks alone.
    """
    from torch import nn

    from emulator.learning.blocks import Residual

    def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        norm = nn.GroupNorm(params.groups, outputs) if params.norm == "group" else nn.BatchNorm2d(outputs)
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), norm]

    channels = image_shape(name, shape)[0]
    layers = [*convolution(channels, params.width, 3, 1), nn.ReLU()]
    inputs = params.width
    for block in range(blocks):
        outputs, stride = params.width * 2**block, 2 if block else 1
        body = nn.Sequential(*convolution(inputs, outputs, 3, stride), nn.ReLU(), *convolution(outputs, outputs, 3, 1))
        shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride)) if block else nn.Identity()
        layers += [Residual(body, shortcut), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
