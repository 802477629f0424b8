"""Which worlds are drawn: points that fill the unit cube evenly, made the quantities' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from emulator.certify.quantities import Quantity
from emulator.contracts.uncertainty import Floats

Kind = Literal["sobol", "latin-hypercube"]

_EDGE = 2.0**-40  # shares of exactly 0 or 1 belong to no value of a distribution without ends


def shares(kind: Kind, worlds: int, dimensions: int, seed: int) -> Floats:
    """A point of the unit cube for each world: Sobol's sequence, scrambled, or a Latin hypercube."""
    from scipy.stats import qmc

    if kind == "sobol":
        points = qmc.Sobol(dimensions, scramble=True, seed=seed).random_base2(max(0, (worlds - 1).bit_length()))
    else:
        points = qmc.LatinHypercube(dimensions, seed=seed).random(worlds)
    return np.asarray(points[:worlds], dtype=np.float64)


def saltelli(base: int, dimensions: int, seed: int) -> Floats:
    """The points from which SALib computes Sobol indices of first order and total ones: ``base · (dimensions + 2)`` of them."""
    from SALib.sample import sobol

    problem = {
        "num_vars": dimensions,
        "names": [str(i) for i in range(dimensions)],
        "bounds": [[0.0, 1.0]] * dimensions,
    }
    return np.asarray(sobol.sample(problem, base, calc_second_order=False, scramble=True, seed=seed), dtype=np.float64)


def correlated(points: Floats, correlations: Floats) -> Floats:
    """Points of the unit cube whose normal variables have these correlations (a Gaussian copula).

    Where nothing is correlated the points stay as they are, bit for bit.
    """
    points = np.clip(points, _EDGE, 1 - _EDGE)
    if np.array_equal(correlations, np.eye(len(correlations))):
        return points
    from scipy.special import ndtr, ndtri

    # A lower triangle L with L Lᵀ = correlations, also where these are only just definite.
    values, vectors = np.linalg.eigh(correlations)
    triangle = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0))).T).R.T
    triangle *= np.where(np.diag(triangle) < 0, -1.0, 1.0)
    made: Floats = np.clip(ndtr(ndtri(points) @ triangle.T), _EDGE, 1 - _EDGE)
    return made


def numbers(quantities: Sequence[Quantity], points: Floats) -> Floats:
    """What each quantity is at each point: a row for each world. Raises `InputError` where a distribution has no such values."""
    columns = [quantity.at(points[:, i]) for i, quantity in enumerate(quantities)]
    return np.column_stack(columns) if columns else np.empty((len(points), 0))
