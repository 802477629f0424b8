"""Limits that no round can keep: seen before the first where that is possible, and at the end of a run at the latest.

What a scenario shows by itself is refused when it is validated (`problems` of the methods' slots).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from emulator.contracts.learning import LocalRule
from emulator.contracts.methods import Waiting
from emulator.errors import HflError, InputError
from emulator.methods.session import Session
from emulator.methods.slots import GroupSlots
from emulator.methods.training import Group
from emulator.units import TIME
from emulator.world.fleet import CLOUD

log = logging.getLogger(__name__)


def check_deadline(
    session: Session,
    key: str,
    how: Waiting,
    local: LocalRule,
    down_bytes: int,
    up_bytes: int,
    tier: str,
    rounds: int = 0,
) -> None:
    """Raises `InputError` where a deadline is shorter than any possible round: a model down, a training, and it back up.

    Without ``rounds`` it is a server's deadline for its clients: an edge's or the cloud's. With them it is the cloud's for whole
    groups, in each of which so many such rounds take place.
    """
    after_s = how.after_s
    if after_s is None:
        return
    world, samples, params = session.world, session.lab.clients.samples, local.params
    fleet = world.fleet

    def least_s(client: int) -> float:
        server = fleet.at_tier(client, tier)
        work = (int(samples[client]), params.epochs, params.batch_size)
        first_s = world.fastest_s(client, server, down_bytes, up_bytes, *work)
        if not rounds:
            return first_s
        later_s = world.fastest_s(client, server, up_bytes, up_bytes, *work)
        beyond_s = 0.0
        if server != CLOUD:
            beyond_s = world.fastest_send_s(CLOUD, server, down_bytes) + world.fastest_send_s(server, CLOUD, up_bytes)
        return first_s + (rounds - 1) * later_s + beyond_s

    fastest_s = min(least_s(c) for c in range(len(samples)))
    if after_s < fastest_s < math.inf:
        message = f"the deadline of {TIME.format(after_s)} is shorter than any possible round: the fastest client needs"
        raise InputError(
            f"{message} {fastest_s:.4g} s to get the model, train it and send it back", f"method.{key}.after"
        )


def check_groups(session: Session, params: GroupSlots, groups: Sequence[Group], t: int) -> None:
    """Raises `InputError` where no group can end a round, although everybody is there; before the first, warns of some."""
    if params.training.plugin.facts.headers or session.world.movements.paths:
        return  # one member trains for all, and is enough; or clients that move may form larger groups later
    sizes = sorted({len(group.members) for group in groups})
    for key, message in params.hindered(sizes):
        raise InputError(message, f"method.{key}")
    idle = [group for group in groups if params.hindrance(len(group.members)) is not None]
    if idle and t == 1:
        reason = params.hindrance(len(idle[0].members))
        log.warning("%d of %d groups never train: method.%s: %s", len(idle), len(groups), *(reason or ("", "")))


def check_trained(session: Session, trained: bool, *keys: str) -> None:
    """Raises `HflError` at the end of a run in which no round gave a model, although everybody was always there.

    ``keys`` are the deadlines that may be to blame, as the method has them. Where clients come and go, only warns.
    """
    if trained or not session.rounds:
        return
    params = session.scenario.method.params
    short = [f"'method.{key}.after'" for key in keys if getattr(params, key).after_s is not None]
    before = f" before {' or '.join(short)}" if short else ""
    message = f"nothing was trained: in no round (of {session.rounds}) did a model come back{before}"
    needed = getattr(params, "min_members", 1)
    if needed > 1:
        least = f"{needed} models of a group, as 'method.min_members' asks for,"
        message = f"nothing was trained: in no round (of {session.rounds}) did {least} come back{before}"
    if session.world.all_present:
        raise HflError(message)
    log.warning("%s", message)
