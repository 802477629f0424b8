"""How much neighbouring servers take from each other's models, so that repeated exchanges lead all to one average."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def mixing_weights(
    neighbours: Mapping[str, Sequence[str]], samples: Mapping[str, float] | None = None
) -> dict[str, dict[str, float]]:
    """For each server the weights of its neighbours' models; its own weight is what is left of 1.

    With ``samples`` exchanges keep the average by samples and lead to it as fast as one constant step can: the weights are those
    of P = I - ε L Ω⁻¹ with the Laplacian L of the graph, Ω the shares of samples, and ε = 2 / (largest + smallest positive
    eigenvalue of L Ω⁻¹) (Xiao and Boyd 2004 for equal shares; Sun et al. 2023 with samples). The more unequal the shares, the
    slower that is, and own weights may then be negative. Without ``samples`` the weights are Metropolis's, 1 / (1 + the larger
    number of neighbours of the two), which keep the plain average and are never negative. The graph must be connected.
    """
    if samples is None:
        return {
            name: {other: 1.0 / (1 + max(len(near), len(neighbours[other]))) for other in near}
            for name, near in neighbours.items()
        }
    names = list(neighbours)
    held = np.array([float(samples[name]) for name in names])
    omega = held / held.sum()
    place = {name: number for number, name in enumerate(names)}
    laplacian = np.zeros((len(names), len(names)))
    for name, near in neighbours.items():
        laplacian[place[name], [place[other] for other in near]] = -1.0
        laplacian[place[name], place[name]] = len(near)
    root = np.sqrt(omega)
    eigenvalues = np.linalg.eigvalsh(laplacian / root[:, None] / root)
    epsilon = 2.0 / (eigenvalues[-1] + eigenvalues[1])  # the smallest is 0, once where all are joined
    return {name: dict.fromkeys(near, float(epsilon / omega[place[name]])) for name, near in neighbours.items()}
