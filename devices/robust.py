"""Least squares that a few outliers do not move: relative errors, a loss that grows linearly, no negative coefficient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MAD = 1.4826  # a normal distribution's standard deviation in median absolute deviations
_TUNING = (
    3.0  # residuals beyond so many standard deviations count less: waits of every day still draw the mean towards them
)
_PASSES = 30
_EXACT = 1e-9  # relative errors below are rounding


@dataclass(frozen=True)
class Robust:
    """What was found: a value for each parameter and its standard error; ``deviation`` is that of the relative errors.

    ``errors`` are (prediction - measurement) / prediction. A standard error is infinite where the data do not determine it,
    and nan where there is nothing left to tell it by.
    """

    values: Floats
    standard_errors: Floats
    errors: Floats
    deviation: float


def deviation_of(errors: Floats) -> float:
    """The standard deviation of errors, by their median absolute deviation; 0 for none."""
    return float(_MAD * np.median(np.abs(errors - np.median(errors)))) if len(errors) else 0.0


def fit(
    predict: Callable[[Floats], Floats], measured: Floats, starts: list[Floats], low: Floats, high: Floats
) -> Robust:
    """The parameters between ``low`` and ``high`` whose predictions have the least robust relative errors.

    Each of ``starts`` is tried, and the best result counts. Raises ``ValueError`` where there is nothing to fit or a time is
    not greater than zero.
    """
    from scipy.optimize import least_squares

    _check(measured)
    tolerances = {"xtol": 1e-12, "ftol": 1e-12, "gtol": 1e-12, "bounds": (low, high), "x_scale": "jac", "max_nfev": 200}

    def against(expected: Floats) -> Callable[[Floats], Floats]:
        return lambda values: (predict(values) - measured) / expected

    found = min(
        (least_squares(against(measured), np.clip(start, low, high), **tolerances) for start in starts),
        key=lambda each: each.cost,
    )
    # Errors are relative to what is expected: relative to what was measured, short times would count most. The scale, by which
    # outliers are told, is that of the errors of a fit which is robust itself.
    for _ in range(_PASSES):
        before = found.x
        errors = against(expected := np.maximum(predict(before), 1e-300))(before)
        scale = _scale(errors)
        if scale <= _EXACT:
            break
        found = least_squares(against(expected), before, **tolerances, loss="soft_l1", f_scale=_TUNING * scale)
        if np.allclose(found.x, before, rtol=1e-6, atol=0):
            break
    errors = against(np.maximum(predict(found.x), 1e-300))(found.x)
    return Robust(found.x, _standard_errors(found.jac, errors, len(found.x)), errors, deviation_of(errors))


def factor(measured: Floats, predicted: Floats) -> Robust:
    """By which factor ``predicted`` must be multiplied to meet what was measured."""
    _check(measured)
    start = np.array([float(np.median(measured / predicted))])
    return fit(lambda k: k[0] * predicted, measured, [start], np.array([1e-12]), np.array([1e12]))


def linear(table: Floats, measured: Floats) -> Robust:
    """Coefficients, none negative, with which the columns of ``table`` add up to what was measured."""
    from scipy.optimize import nnls

    _check(measured)
    relative = table / measured[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0  # a column of zeros explains nothing
    start, _ = nnls(relative / scale, np.ones(len(measured)))
    found = fit(
        lambda values: (table / scale) @ values, measured, [start, np.full(len(start), 1 / len(start))],
        np.zeros(len(start)), np.full(len(start), np.inf),
    )  # fmt: skip
    return Robust(found.values / scale, found.standard_errors / scale, found.errors, found.deviation)


def _check(measured: Floats) -> None:
    if not len(measured) or not (np.isfinite(measured).all() and (measured > 0).all()):
        raise ValueError("there must be at least one time, and all must be numbers greater than zero")


def _scale(errors: Floats) -> float:
    """The size of the errors around 0; where more than half of them are nothing, their root mean square."""
    by_median = _MAD * float(np.median(np.abs(errors)))
    return by_median if by_median > _EXACT else float(np.sqrt(np.mean(errors**2)))


def _standard_errors(jacobian: Floats, errors: Floats, count: int) -> Floats:
    freedom = len(errors) - count
    if freedom < 1:
        return np.full(count, np.nan)
    found = np.full(count, np.inf)
    sizes = np.sqrt((jacobian**2).sum(axis=0))
    told = sizes > 1e-9 * sizes.max(initial=0.0)
    scaled = jacobian[:, told] / sizes[told]
    if told.any() and np.linalg.cond(scaled) < 1e8:
        deviation = min(_scale(errors), float(np.sqrt((errors**2).sum() / freedom)))
        found[told] = deviation * np.sqrt(np.diag(np.linalg.inv(scaled.T @ scaled))) / sizes[told]
    return found
