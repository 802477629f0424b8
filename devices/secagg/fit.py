"""The seconds of each operation, from measured seconds of whole steps, by non-negative least squares of relative errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from devices.calibration import Misses, least_squares, times_data
from devices.secagg.constants import Constants
from devices.secagg.cost import PARTIES, Party, ProtocolGroup, operations
from devices.secagg.steps import Step

NAMES = tuple(Constants.model_fields)


@dataclass(frozen=True)
class Observation:
    """Measured: a party's seconds in one step, or in several together."""

    party: Party
    steps: tuple[Step, ...]
    group: ProtocolGroup
    seconds: float


@dataclass(frozen=True)
class ConstantsFit:
    """Constants (rounded to four digits), and how far they miss the total times of a client and of the server."""

    constants: Constants
    client: Misses
    server: Misses


def fit_constants(
    observations: Sequence[Observation], *, reuse_basis: bool = True, recover_all: bool = False
) -> ConstantsFit:
    """The constants that meet the observations best. The options say what was measured: see `cost.operations`.

    Operations that never come, or that others explain as well, get zero seconds; signatures that never come stay
    unmeasured. Raises ``ValueError`` where a time is not greater than zero.
    """
    table = np.array([_counts(each, reuse_basis, recover_all) for each in observations])
    found = least_squares(table, [each.seconds for each in observations])
    needed = [table[:, i].any() or Constants.model_fields[name].is_required() for i, name in enumerate(NAMES)]
    seconds = {name: s for name, s, wanted in zip(NAMES, found.coefficients, needed, strict=True) if wanted}
    constants = Constants.model_validate(times_data(seconds))
    client, server = (_misses(constants, observations, party, reuse_basis, recover_all) for party in PARTIES)
    return ConstantsFit(constants, client, server)


def _misses(
    constants: Constants, observations: Sequence[Observation], party: Party, reuse_basis: bool, recover_all: bool
) -> Misses:
    """How far constants miss a party's total time, over all groups that were observed."""
    values = np.array([getattr(constants, name) or 0.0 for name in NAMES])
    measured: dict[ProtocolGroup, float] = defaultdict(float)
    predicted: dict[ProtocolGroup, float] = defaultdict(float)
    for each in observations:
        if each.party == party:
            measured[each.group] += each.seconds
            predicted[each.group] += float(_counts(each, reuse_basis, recover_all) @ values)
    errors = [abs(predicted[group] / measured[group] - 1) for group in measured]
    return Misses(sum(errors) / len(errors), max(errors)) if errors else Misses(0.0, 0.0)


def _counts(observation: Observation, reuse_basis: bool, recover_all: bool) -> np.ndarray:
    counts = dict.fromkeys(NAMES, 0.0)
    for step in observation.steps:
        each = operations(observation.party, step, observation.group, reuse_basis=reuse_basis, recover_all=recover_all)
        for name, count in each.items():
            counts[name] += count
    return np.array([counts[name] for name in NAMES])
