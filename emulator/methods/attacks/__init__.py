"""What malicious clients do, one attack a file.

An attack is made once for a run and is told what happens in it. It may poison what clients train on (`Lab.poison`), have them
send other models than they trained (`Attack.trained`) and measure models (`Lab.measure`); it takes no emulated time and moves no
bytes, so a run differs from a clean one by what is learned alone.

What an attack declares about itself is a `emulator.contracts.methods.AttackFacts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.learning.recipes import Handle
    from emulator.methods.cluster_models import Clusters
    from emulator.methods.training import Group


class Attack:
    """An attack that does nothing; each kind overrides what it wants to be told."""

    def formed(self, groups: Sequence[Group]) -> None:
        """Groups were formed, from all clients; they are about to train."""

    def trained(self, round: int, turn: int, client: int, before: Handle, after: Handle) -> Handle:  # noqa: A002
        """A client has made ``after`` of the model ``before`` that it got; returns the model that it hands in or on.

        ``turn`` tells several trainings of a client in one round apart.
        """
        return after

    def handed_on(self, round: int, client: int, model: Handle) -> None:  # noqa: A002
        """In a chain, a client has received a model from another client, and is about to train it."""

    def evaluated(self, round: int, clusters: Clusters, accuracy: float) -> None:  # noqa: A002
        """The models of a round were evaluated; ``accuracy`` is the mean over clients, nan where it is not known."""

    def facts(self) -> dict[str, Any]:
        """What the run's summary says of the attack."""
        return {}
