"""The networks whose training times on boards were published, rebuilt from their description; see published_boards.yaml."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from emulator.learning.torchvision_cpu import torchvision


def resnet18() -> nn.Module:
    """ResNet-18 in its CIFAR form: a first convolution of 3×3 without stride, and no pooling after it."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


def squeezenet() -> nn.Module:
    """SqueezeNet 1.0 with a first convolution of 3×3 and a first pooling, both without stride."""
    model = torchvision.models.squeezenet1_0(num_classes=10)
    model.features[0], model.features[2] = nn.Conv2d(3, 96, 3, padding=1), nn.MaxPool2d(3, 1, padding=1)
    return model


def mobilenetv3_small() -> nn.Module:
    """MobileNetV3-Small, whose first convolution has no stride."""
    model = torchvision.models.mobilenet_v3_small(num_classes=10)
    model.features[0][0].stride = (1, 1)
    return model


def tinycnn() -> nn.Module:
    """Two convolutions of 3×3 with batch normalisation and pooling, and two layers."""
    parts: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32)):
        parts += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(True), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(True), nn.Linear(64, 10))


def dscnn() -> nn.Module:
    """A convolution of 3×3, then three times a depth-wise one of 3×3 and one of 1×1, with pooling between them."""

    def convolution(inputs: int, outputs: int, kernel: int, groups: int = 1) -> list[nn.Module]:
        layer = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(outputs), nn.ReLU(True)]

    parts = convolution(3, 24, 3)
    for inputs, outputs in ((24, 48), (48, 96), (96, 128)):
        parts += [*convolution(inputs, inputs, 3, inputs), *convolution(inputs, outputs, 1), nn.MaxPool2d(2)]
    return nn.Sequential(*parts[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "ResNet18": (resnet18, (3, 32, 32)),
    "SqueezeNet": (squeezenet, (3, 32, 32)),
    "TinyCNN": (tinycnn, (1, 28, 28)),
    "MobileNetV3-Small": (mobilenetv3_small, (3, 32, 32)),
    "DSCNN": (dscnn, (3, 32, 32)),
}
