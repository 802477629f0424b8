"""The scenario language: clients that move between servers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from emulator.contracts.world import MovementKind
from emulator.registry import Params
from emulator.units import Bytes, Seconds


class Movement(Params):
    """Clients that move between servers, and what a handover does."""

    path: MovementKind = Field(description="who moves, when and to which server: from a file, or by chance")
    transfers: Literal["lost", "resumed", "carried"] = Field(
        "lost",
        description="what becomes of a client's transfers under way when it moves: they are lost; what is left of them goes "
        "on over the new server; or they are carried to their end by the old one",
    )
    groups: Literal["form", "leave"] = Field(
        "form",
        description="what becomes of groups when clients have moved: they are formed anew before the next round, or members "
        "leave them until they are back",
    )
    interruption: Seconds = Field(0.0, description="how long a client that moves can neither send nor receive")
    state: Bytes = Field(0.0, description="what the old server sends to the new one before that one serves the client")
    model: bool = Field(False, description="whether the old server sends the new one a model too")
