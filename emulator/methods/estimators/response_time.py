"""Response times: how long clients take for a round, measured before the first (as TiFL profiles them; Chai et al., HPDC 2020).

On the clock: the untrained model goes down to all clients (through their edge, where edges form the groups); each trains it as
the method's local rule says, and sends a model up. The work is charged as in any round, and belongs to round 0. What was trained
is thrown away, so nothing is learned, and the lab is not asked.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from pydantic import Field

from emulator.contracts.learning import LocalParams, LocalRuleChoice
from emulator.contracts.methods import Patience, estimators
from emulator.ledger import Tag
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import at_servers
from emulator.methods.session import Session
from emulator.methods.waiting import gather
from emulator.registry import Params
from emulator.scenario.words import Count
from emulator.units import PositiveSeconds
from emulator.world.world import Steps, StepsTo

PROFILING = Tag("profiling")


class ResponseTimeParams(Params):
    """How often clients are timed, and how long the servers wait for them."""

    rounds: Count = Field(1, description="rounds of profiling, of which the mean is taken (sync_rounds of TiFL)")
    timeout: PositiveSeconds | None = Field(
        None, description="how long a round lasts at most (T_max of TiFL); who is later, or lost, counts with it"
    )


@estimators.register("response-time", ResponseTimeParams)
def response_time(session: Session, enquiry: Enquiry, params: ResponseTimeParams) -> Steps:
    """Seconds from sending a client the untrained model to the arrival of what it trained, in the mean over rounds (TiFL).

    All clients that are there are timed side by side, and a round ends when all have answered or are lost, or at the timeout.
    A client that never answered has the timeout as its estimate; without one, the estimate of the slowest who did. So with a
    timeout, TiFL's dropouts are the clients with an estimate of at least that.
    """
    world, samples = session.world, session.lab.clients.samples
    local = getattr(session.scenario.method.params, "local", None) or LocalRuleChoice("sgd", LocalParams())
    how, step_flops = local.params, local().step_flops
    limit_s = math.inf if params.timeout is None else params.timeout
    if params.timeout is not None:
        world.watch()  # who is late is cut off
    fetched = at_servers(session, enquiry, PROFILING)
    yield world.env.all_of([world.env.process(fetched(server)) for server in dict.fromkeys(enquiry.servers)])
    taken_s = np.full((len(enquiry.servers), params.rounds), limit_s)

    def trip(client: int, turn: int) -> StepsTo[bool]:
        server = world.server(enquiry.servers[client])
        if server is None or not (yield from fetched(server)):
            return False
        began_s, held = world.now, int(samples[client])
        work = session.work(
            lambda begun: world.train(client, held, how.epochs, how.batch_size, PROFILING, step_flops, begun),
            lambda: True,
        )
        if not (yield from session.round_trip(client, server, work, PROFILING, enquiry.model_bytes)):
            return False
        taken_s[client, turn] = world.now - began_s
        return True

    give_up = partial(world.give_up, PROFILING.round, PROFILING.group)
    for turn in range(params.rounds):
        here = world.present(range(len(taken_s)))
        if here:
            yield from gather(world, {c: trip(c, turn) for c in here}, Patience(len(here), limit_s), world.now, give_up)
    heard, never = np.isfinite(taken_s), (taken_s >= limit_s).all(axis=1)
    mean_s = np.where(heard, taken_s, 0.0).sum(axis=1) / np.maximum(1, heard.sum(axis=1))
    mean_s[never] = mean_s.max(initial=0.0) if params.timeout is None else params.timeout
    return mean_s[:, None]
