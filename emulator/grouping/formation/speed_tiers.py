"""Tiers of clients that are about equally fast: those of TiFL (Chai et al., HPDC 2020) and of FedAT (Chai et al., SC 2021).

Both papers have them under the cloud.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping.formation.limits import Least
from emulator.grouping.view import ClientView
from emulator.registry import Params, Scale


class SpeedTiersParams(Params):
    """How many tiers."""

    tiers: Least = Field(5, description="tiers (M); no more than there are clients")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Every tier needs a client."""
        if self.tiers > scale.clients:
            yield "tiers", f"{self.tiers} tiers cannot be formed from {scale.clients} clients"


@formations.register(
    "speed-tiers",
    SpeedTiersParams,
    FormationFacts(
        needs=("response-time",),
        smallest=lambda params: params.tiers,
        most=lambda params, clients: min(params.tiers, clients),
        largest=lambda params, clients: -(-clients // params.tiers),
    ),
)
def speed_tiers(clients: ClientView, rng: np.random.Generator, params: SpeedTiersParams) -> list[list[int]]:
    """Clients that answer about equally fast together: sorted by response time and cut into tiers, the fastest first.

    Tiers differ by at most one client. Of clients that are equally fast, those with smaller numbers come first.
    """
    order = np.argsort(clients.learnt[:, 0], kind="stable")
    return [sorted(part.tolist()) for part in np.array_split(order, params.tiers) if len(part)]
