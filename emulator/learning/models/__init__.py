"""Models: each is a function ``(shape, classes, params) -> torch.nn.Module``.

``shape`` is that of one sample (channels, height, width; of a text its length); the module maps [batch, *shape] to scores [batch,
classes]. Initial weights come from torch's default generator: whoever builds a model seeds it. Where a
model cannot take such samples, `emulator.errors.InputError` is raised with the key ``model``.

But for those of texts, the two of torchvision and the user's own, all models are trees of ``nn.Sequential`` and
`emulator.learning.blocks.Residual` over plain layers (Conv2d, Linear, ReLU, MaxPool2d, AdaptiveAvgPool2d,
Flatten, Dropout, GroupNorm, BatchNorm), so that they can be taken apart and put together anew.
"""
