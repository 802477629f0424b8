"""Small residual networks, as light and heavy loads for edge devices (S2 §6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import models
from emulator.learning.models.images import image_shape
from emulator.registry import Params

if TYPE_CHECKING:
    from torch import nn


class ResnetParams(Params):
    """Width and normalisation of a small residual network."""

    width: Annotated[int, Field(ge=1, le=4096)] = Field(
        16, description="channels of the first convolution; every block doubles them"
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
    """A residual network of three blocks: a heavy load (S2 §6.1)."""
    return _resnet("resnet-3block", shape, classes, 3, params)


def _resnet(name: str, shape: tuple[int, ...], classes: int, blocks: int, params: ResnetParams) -> nn.Module:
    """A 3×3 convolution, ``blocks`` basic blocks (He et al. 2016), the mean over the image, and one layer.

    Every block halves the resolution and doubles the channels. The paper gives the number of blocks alone.
    """
    from torch import nn

    from emulator.learning.blocks import Residual

    def convolution(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        norm = nn.GroupNorm(params.groups, outputs) if params.norm == "group" else nn.BatchNorm2d(outputs)
        return [nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), norm]

    inputs = params.width
    layers = [*convolution(image_shape(name, shape)[0], inputs, 3, 1), nn.ReLU()]
    for _ in range(blocks):
        outputs = 2 * inputs
        body = nn.Sequential(*convolution(inputs, outputs, 3, 2), nn.ReLU(), *convolution(outputs, outputs, 3, 1))
        layers += [Residual(body, nn.Sequential(*convolution(inputs, outputs, 1, 2))), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
