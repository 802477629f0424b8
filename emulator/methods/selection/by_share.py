"""Selections that draw clients by fixed probabilities: all alike, or by their samples."""

from __future__ import annotations

from collections.abc import Sequence

from emulator.contracts.selection import Call, SelectionFacts, selections
from emulator.methods.selection import Selector
from emulator.methods.session import Session
from emulator.registry import NoParams
from emulator.world.world import StepsTo


@selections.register("uniform", facts=SelectionFacts(by_chance=True, privacy=True))
class Uniform(Selector):
    """Uniform: all candidates are equally likely."""

    def __init__(self, session: Session, params: NoParams) -> None:
        pass

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """So many candidates at random."""
        yield from ()
        chosen: Sequence[int] = call.rng.choice(call.candidates, call.count, replace=False).tolist()
        return chosen
