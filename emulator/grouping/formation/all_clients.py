"""One group of everybody: without groups, an edge server and its clients are the group."""

from __future__ import annotations

import numpy as np

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.view import ClientView
from emulator.registry import NoParams


@formations.register("all", facts=FormationFacts(needs=(), smallest=lambda params: 1, most=lambda params, clients: 1))
def all_clients(clients: ClientView, rng: np.random.Generator, params: NoParams) -> list[list[int]]:
    """One group of all clients."""
    members = list(range(len(clients.samples)))
    return [members] if members else []
