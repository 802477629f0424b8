"""Client selection: who of a group takes part in a round. One way to select, or a few that are alike, a file.

A selector is made once for a run. It knows what the server was told and nothing else: what estimators said of clients
(`Selector.estimates`), what came back of those that it chose before (`Selector.told`), and what it asks candidates while it
chooses, which takes time and bytes on the clock. What it declares about itself is a
`emulator.contracts.selection.SelectionFacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from emulator.contracts.selection import Call, Report
from emulator.contracts.values import Floats

if TYPE_CHECKING:
    from emulator.learning.recipes import Handle
    from emulator.world.world import StepsTo


class Selector:
    """A selector that must yet say whom it chooses; each kind overrides what it needs."""

    estimates: Mapping[str, Floats] = {}

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """A process that gives those of the candidates who take part, at most as many as are wanted."""
        raise NotImplementedError

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]:
        """On a client's device, before its upload: what it sends along that got and trained this model, as a function.

        That is called when the server needs to know. Looks at nothing but what the client has.
        """
        return tuple

    def told(self, report: Report) -> None:
        """The server has heard of a client to which it had sent a model, or gave it up."""

    def scores(self, client: int) -> Mapping[str, float]:
        """For the table ``selections``: by what a client was judged when somebody was chosen last."""
        return {}
