"""GAN recovery (S4 §V-B, after Hitaj et al. 2017): a generator trained against a model that was received as discriminator.

The attacker puts one dense layer on top of the model's class scores, which tells real images from made ones (S4 §V-C). It has
images of its own as real ones. Discriminator and generator are trained in turn: the former as in S4 Eq. 8, model and layer
together; the latter to be taken for real (the non-saturating form of Goodfellow et al. 2014).

How like the private images the result is, is measured by the features of a small classifier (`trained_features`), which stands in
for the Inception network of FID.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from emulator.learning.frechet import frechet_distance
from emulator.learning.measured_models import BATCH, MeasuredModels
from emulator.learning.recovery import Recovered, RecoveryParams
from emulator.rng import derive, stream

MOMENTUM = (0.5, 0.999)  # of Adam, as is usual for GANs (Radford et al. 2016)

FEATURES = 32
FEATURE_SEED = 0  # not the scenario's: distances of different runs on one data set must be comparable
FEATURE_SAMPLES = 100_000  # that the classifier sees in training, within these numbers of epochs
FEATURE_EPOCHS = (2, 20)
FEATURE_BATCH = 64


class Generator(nn.Module):
    """Images from noise, within the range of pixels that the attacker knows: two convolutions, each on twice the size."""

    def __init__(self, shape: tuple[int, ...], noise: int, width: int, low: float, high: float) -> None:
        super().__init__()
        channels, self._rows, self._columns = shape
        self._start = (2 * width, -(-self._rows // 4), -(-self._columns // 4))
        self._low, self._high = low, high
        self.first = nn.Linear(noise, int(np.prod(self._start)))
        self.norm1, self.norm2 = nn.BatchNorm2d(2 * width), nn.BatchNorm2d(width)
        self.middle = nn.Conv2d(2 * width, width, 3, padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        """Images [n, channels, height, width] from noise [n, noise]."""
        x = functional.relu(self.norm1(self.first(z).view(len(z), *self._start)))
        x = functional.relu(self.norm2(self.middle(functional.interpolate(x, scale_factor=2))))
        x = self.last(functional.interpolate(x, scale_factor=2))[:, :, : self._rows, : self._columns]
        return self._low + (self._high - self._low) * torch.sigmoid(x)


def recover(measured: MeasuredModels, params: RecoveryParams) -> Recovered:
    """What the client behind the samples recovers from a model, compared with the samples of all others."""
    assert measured.others is not None
    assert measured.features is not None
    device = measured.samples.x.device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(measured.rng.integers(2**62)))
        own = measured.samples.x
        span = float(own.min()), float(own.max())
        generator = Generator(tuple(own.shape[1:]), params.noise, params.width, *span).to(device)
        shown = torch.randn(params.samples, params.noise).to(device)
        untrained = _made(generator, shown)
        told = nn.Linear(measured.classes, 1).to(device)
        discriminator = nn.Sequential(copy.deepcopy(measured.load(measured.states[0])), told)
        _train(generator, discriminator.requires_grad_(True), own, params)
    made = _made(generator, shown)
    private, features = measured.others.x, in_batches(measured.features)
    truth, found, known = (features(x).cpu().numpy() for x in (private, made, own))
    halves = np.array_split(measured.rng.permutation(len(truth)), 2)
    kept = made[: params.images]
    nearest = torch.cdist(torch.from_numpy(found[: len(kept)]), torch.from_numpy(truth)).argmin(dim=1)
    return Recovered(
        frechet_distance(found, truth),
        frechet_distance(features(untrained).cpu().numpy(), truth),
        frechet_distance(known, truth) if len(known) > 1 else math.nan,
        frechet_distance(*(truth[half] for half in halves)),
        kept.cpu().numpy(),
        private[nearest.to(device)].cpu().numpy(),
    )


def _train(generator: Generator, discriminator: nn.Module, own: Tensor, params: RecoveryParams) -> None:
    """Trains both in turn; the discriminator's model stays as it predicts, so that dropout draws nothing.

    What is drawn is drawn on the CPU, so that it is the same on every device.
    """
    generator.train()
    discriminator.eval()
    size = params.batch_size
    optimisers = [torch.optim.Adam(m.parameters(), params.learning_rate, MOMENTUM) for m in (discriminator, generator)]
    device = own.device
    real, fake = torch.ones(size, 1, device=device), torch.zeros(size, 1, device=device)
    loss = functional.binary_cross_entropy_with_logits
    for _ in range(params.steps):
        seen = own[torch.randint(len(own), (size,)).to(device)]
        made = generator(torch.randn(size, params.noise).to(device))
        told = loss(discriminator(seen), real) + loss(discriminator(made.detach()), fake)
        _step(optimisers[0], told)
        _step(optimisers[1], loss(discriminator(made), real))


def _step(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _made(generator: Generator, noise: Tensor) -> Tensor:
    """What a generator makes of noise."""
    return in_batches(generator.eval())(noise)


def in_batches(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A module as a function of any number of samples."""

    def of(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return torch.cat([module(part) for part in x.split(BATCH)])  # type: ignore[no-untyped-call]

    return of


def trained_features(x: Tensor, y: Tensor, classes: int) -> nn.Module:
    """The first layers of a small classifier of all samples, up to `FEATURES` numbers for each image.

    It depends on the samples alone, not on a scenario's seed, and is on their device.
    """
    channels, rows, columns = x.shape[1:]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(FEATURE_SEED, "features"))
        layers = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * (rows // 4) * (columns // 4), FEATURES), nn.ReLU(),
        )  # fmt: skip
        last = nn.Linear(FEATURES, classes)
    layers, last = layers.to(x.device), last.to(x.device)
    optimiser = torch.optim.Adam([*layers.parameters(), *last.parameters()], 1e-3)
    low, high = FEATURE_EPOCHS
    for epoch in range(min(high, max(low, FEATURE_SAMPLES // len(x)))):
        order = torch.from_numpy(stream(FEATURE_SEED, "features", epoch).permutation(len(x))).to(x.device)
        for batch in order.split(FEATURE_BATCH):  # type: ignore[no-untyped-call]
            _step(optimiser, functional.cross_entropy(last(layers(x[batch])), y[batch]))
    return layers.eval().requires_grad_(False)
