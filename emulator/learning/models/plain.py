"""Models without branches: perceptrons and convolutional networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.learning.data.arrays import is_text
from emulator.learning.models.images import KEY, fitted
from emulator.registry import NoParams, Params

if TYPE_CHECKING:
    from torch import nn

Width = Annotated[int, Field(ge=1, le=1_000_000)]
Shape = tuple[int, ...]
Biases = Literal["all", "hidden", "none"]


class MlpParams(Params):
    """Layers of a perceptron."""

    hidden: tuple[Width, ...] = Field((64,), strict=False, max_length=100, description="sizes of the hidden layers")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="share dropped after each hidden layer")


@models.register("mlp", MlpParams)
def mlp(shape: Shape, classes: int, params: MlpParams) -> nn.Module:
    """A perceptron with ReLU; without hidden layers it is multinomial logistic regression."""
    from torch import nn

    if is_text(shape):
        raise InputError(f"mlp cannot read texts; the samples have the shape {shape}", KEY)
    return nn.Sequential(nn.Flatten(), *_dense(math.prod(shape), params.hidden, classes, params.dropout))


class CnnParams(Params):
    """Layers of a convolutional network."""

    channels: tuple[Width, ...] = Field(
        (16, 32), strict=False, min_length=1, max_length=100, description="channels of the convolutions"
    )
    kernel: Annotated[int, Field(ge=1, le=100)] = Field(3, description="side of the convolutions' kernels")
    padding: Literal["same", "none"] = Field("same", description="whether convolutions keep the size of the image")
    pool: Annotated[int, Field(ge=1, le=100)] = Field(2, description="side of the max-pooling after each; 1 for none")
    hidden: tuple[Width, ...] = Field(
        (), strict=False, max_length=100, description="sizes of the hidden layers that follow"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="share dropped after each hidden layer")

    @model_validator(mode="after")
    def _odd_kernel(self) -> CnnParams:
        if self.padding == "same" and self.kernel % 2 == 0:
            raise PydanticCustomError("kernel", "'kernel' must be odd with 'padding: same'")
        return self


@models.register("cnn", CnnParams)
def cnn(shape: Shape, classes: int, params: CnnParams) -> nn.Module:
    """Convolutions with ReLU and max-pooling, then a perceptron; by default for 8×8 pixels and more."""
    return _cnn("cnn", shape, classes, params)


@models.register("lenet5")
def lenet5(shape: Shape, classes: int, params: NoParams) -> nn.Module:
    """LeNet-5 with ReLU and max-pooling: 6 and 16 channels, 120 and 84 hidden units (S5 §V-A).

    44,426 parameters for 10 classes of 1×28×28.
    """
    return _cnn("lenet5", shape, classes, _unpadded((6, 16), (120, 84)))


@models.register("cnn-fedseq")
def cnn_fedseq(shape: Shape, classes: int, params: NoParams) -> nn.Module:
    """Two 5×5 convolutions of 64 channels, layers of 384 and 192 (the network of FedDyn on CIFAR, Acar et al. 2021).

    S4 compares with FedDyn on these sets and leaves its own layers to its supplement. 797,962 parameters for 10 classes of
    3×32×32.
    """
    return _cnn("cnn-fedseq", shape, classes, _unpadded((64, 64), (384, 192)))


class HflddParams(Params):
    """Which reading of S5's network."""

    norm: Literal["batch", "none"] = Field(
        "batch",
        description="after every layer but the last, as S5 Fig. 4 names it, or no normalisation and other widths",
    )


@models.register("cnn-hfldd", HflddParams)
def cnn_hfldd(shape: Shape, classes: int, params: HflddParams) -> nn.Module:
    """Convolutions, BatchNorm and three layers with the 1,020,160 parameters that S5 §V-A has for CIFAR-10.

    A reading: S5 prints the number and the kinds of layers, not their widths. The number is a multiple of 256, so that with the
    usual widths the last layer cannot have biases. Searched were two to six 3×3 or 5×5 convolutions, 2×2 max-pooling
    after each or every second, up to two hidden layers, powers of two as widths, which do not shrink from convolution to
    convolution nor grow from layer to layer. With BatchNorm after every layer but the last, only this one has that number: 3×3
    convolutions of 16, 32, 64, 128 and 512 channels, then layers of 512, 128 and the classes, of which the last has no
    biases. Without any (``norm: none``) it is 16, 64, 128 and 128 channels, then 1024, 256 and the classes without biases.
    """
    if params.norm == "none":
        layers = CnnParams(channels=(16, 64, 128, 128), hidden=(1024, 256))
        return _cnn("cnn-hfldd", shape, classes, layers, biases="none")
    layers = CnnParams(channels=(16, 32, 64, 128, 512), hidden=(512, 128))
    return _cnn("cnn-hfldd", shape, classes, layers, biases="hidden", norm=True)


@models.register("cnn-mnist")
def cnn_mnist(shape: Shape, classes: int, params: NoParams) -> nn.Module:
    """Two 5×5 convolutions of 20 and 50 channels and one layer (S3 Table I: 33,500 weights for 1×28×28)."""
    return _cnn("cnn-mnist", shape, classes, _unpadded((20, 50)))


@models.register("cnn-fashion-mnist")
def cnn_fashion_mnist(shape: Shape, classes: int, params: NoParams) -> nn.Module:
    """Two 5×5 convolutions of 16 and 32 channels and one layer (S3 Table I: 18,320 weights for 1×28×28)."""
    return _cnn("cnn-fashion-mnist", shape, classes, _unpadded((16, 32)))


@models.register("cnn-cifar10")
def cnn_cifar10(shape: Shape, classes: int, params: NoParams) -> nn.Module:
    """Two 5×5 convolutions of 6 and 16 channels and one layer (S3 Table I: 6,850 weights for 3×32×32)."""
    return _cnn("cnn-cifar10", shape, classes, _unpadded((6, 16)))


def _unpadded(channels: tuple[int, ...], hidden: tuple[int, ...] = ()) -> CnnParams:
    return CnnParams(channels=channels, kernel=5, padding="none", pool=2, hidden=hidden, dropout=0.0)


def _cnn(
    name: str, shape: Shape, classes: int, params: CnnParams, biases: Biases = "all", norm: bool = False
) -> nn.Module:
    """``biases`` says which layers after the convolutions have some, ``norm`` puts BatchNorm after all layers but the last."""
    from torch import nn

    lost = params.kernel - 1 if params.padding == "none" else 0

    def side_after(side: int) -> int:
        for _ in params.channels:
            side = (side - lost) // params.pool
        return side

    before, rows, columns = fitted(name, shape, side_after)
    layers: list[nn.Module] = []
    for channels in params.channels:
        layers.append(nn.Conv2d(before, channels, params.kernel, padding=(params.kernel - 1 - lost) // 2))
        if norm:
            layers.append(nn.BatchNorm2d(channels))
        layers.append(nn.ReLU())
        if params.pool > 1:
            layers.append(nn.MaxPool2d(params.pool))
        before = channels
    dense = _dense(before * rows * columns, params.hidden, classes, params.dropout, biases, norm)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _dense(
    inputs: int, hidden: Sequence[int], classes: int, dropout: float, biases: Biases = "all", norm: bool = False
) -> list[nn.Module]:
    from torch import nn

    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(inputs, width, biases != "none"))
        if norm:
            layers.append(nn.BatchNorm1d(width))
        layers.append(nn.ReLU())
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        inputs = width
    return [*layers, nn.Linear(inputs, classes, biases == "all")]
