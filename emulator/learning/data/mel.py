"""Log-mel spectrograms, computed with torch.

The power spectrum of overlapping windows (Hann) is summed up in triangular bands that are equally wide on the mel scale
(Davis and Mermelstein 1980), m = 2595 · log10(1 + f / 700 Hz) (O'Shaughnessy 1987). Neighbouring triangles overlap by
half: each begins and ends at the peaks of the ones beside it. The logarithm of each sum is taken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

LOWEST_HZ = 20.0
FLOOR = 1e-6  # added to every sum, so that silence has a logarithm; samples go from -1 to 1
TOGETHER = 256  # clips whose spectra are in memory at a time


def mel(frequency_hz: np.ndarray | float) -> np.ndarray:
    """The place of frequencies on the mel scale."""
    return np.asarray(2595 * np.log10(1 + np.asarray(frequency_hz, np.float64) / 700))


def mel_bands(bands: int, fft: int, rate_hz: float) -> np.ndarray:
    """Weights [bands, fft // 2 + 1] of the bins of a spectrum, from `LOWEST_HZ` to half the rate; each peaks at 1."""
    low, high = float(mel(LOWEST_HZ)), float(mel(rate_hz / 2))
    corners = 700 * (10 ** (np.linspace(low, high, bands + 2) / 2595) - 1)
    bins = np.arange(fft // 2 + 1) * rate_hz / fft
    left, peak, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    weights: np.ndarray = np.maximum(0.0, np.minimum((bins - left) / (peak - left), (right - bins) / (right - peak)))
    return weights


def frames(samples: int, window: int, hop: int) -> int:
    """How many windows fit into a clip."""
    return 1 + (samples - window) // hop


def fft_size(window: int) -> int:
    """The power of two in which a window is transformed."""
    return 1 << math.ceil(math.log2(window))


def log_mel(clips: np.ndarray, rate_hz: float, bands: int, window: int, hop: int) -> np.ndarray:
    """Float32 [clips, bands, frames] of int16 clips [clips, samples]; ``window`` and ``hop`` are in samples."""
    import torch

    weights = mel_bands(bands, fft_size(window), rate_hz).astype(np.float32)
    shape = torch.hann_window(window, periodic=True)
    parts: list[np.ndarray] = []
    for start in range(0, len(clips), TOGETHER):
        signal = torch.from_numpy(clips[start : start + TOGETHER].astype(np.float32) / 32768)
        spectrum = torch.fft.rfft(signal.unfold(1, window, hop) * shape, fft_size(window))  # [clips, frames, bins]
        power = spectrum.real.square() + spectrum.imag.square()
        parts.append(torch.log(_sums(power, weights) + FLOOR).numpy())
    return np.concatenate(parts)


def _sums(power: Tensor, weights: np.ndarray) -> Tensor:
    """[clips, bands, frames]. Band by band: a matrix product would round as its threads go."""
    import torch

    sums = []
    for row in weights:
        there = np.flatnonzero(row)  # none, where the band is narrower than a bin
        first, end = (int(there[0]), int(there[-1]) + 1) if len(there) else (0, 0)
        sums.append((power[:, :, first:end] * torch.from_numpy(row[first:end])).sum(dim=2))
    return torch.stack(sums, dim=1)
