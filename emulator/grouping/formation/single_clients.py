"""Each client a group of its own: sampling groups is then sampling clients, as in flat federated learning."""

from __future__ import annotations

import numpy as np

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.view import ClientView
from emulator.registry import NoParams


@formations.register(
    "single", facts=FormationFacts(needs=(), smallest=lambda params: 1, largest=lambda params, clients: 1)
)
def single_clients(clients: ClientView, rng: np.random.Generator, params: NoParams) -> list[list[int]]:
    """Each client a group of its own."""
    return [[i] for i in range(len(clients.samples))]
