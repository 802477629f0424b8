"""Client selection: who of those that are there takes part in a round, and what a server is told to know that."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
import numpy.typing as npt

from emulator.conformance import Facts
from emulator.contracts.values import Floats, process, short, whole
from emulator.registry import Choice, Chosen, Params, Registry
from emulator.tables import Table

if TYPE_CHECKING:
    import simpy

    from emulator.learning.recipes import Handle
    from emulator.methods.session import Session
    from emulator.methods.training import GroupRound


@dataclass(frozen=True)
class Call:
    """What a server knows when it chooses clients.

    ``candidates`` are those that are there, ascending, of whom ``count`` are wanted; with fewer than ``least`` the round is
    given up.
    ``model`` is what those who are chosen will get, ``at`` how they will train and of how many bytes it is. ``turn`` tells
    several choices of a group in one round apart. ``rng`` is a stream of this choice alone.
    """

    server: str
    group: int
    candidates: npt.NDArray[np.int64]
    count: int
    least: int
    model: Handle
    at: GroupRound
    turn: int
    rng: np.random.Generator


@dataclass(frozen=True)
class Report:
    """What a server learns of a client to which it sent a model in a round.

    ``seconds``: from sending the model until the upload had arrived; infinity where it did not come in time, and then
    ``numbers`` gives nothing. Otherwise it gives what the client sent along with its model; it may have to be trained for, so
    ask for it when it is needed. ``samples``: on how many of its own the client trained, as averages by samples tell.
    """

    client: int
    round: int
    seconds: float
    samples: int
    numbers: Callable[[], Sequence[float]]


class AnySelector(Protocol):
    """What `emulator.methods.selection.Selector` describes."""

    estimates: Mapping[str, Floats]

    def choose(self, call: Call) -> Generator[simpy.Event, Any, Sequence[int]]: ...

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]: ...

    def told(self, report: Report) -> None: ...

    def scores(self, client: int) -> Mapping[str, float]: ...


@dataclass(frozen=True, kw_only=True)
class SelectionFacts(Facts):
    """What is true of a way to select clients.

    ``needs``: estimators of what the server must have learnt of clients before (``"estimates"``: the method's own).
    ``reports``: a function of the parameters: how many numbers, of 8 bytes each, a client sends along with its model.
    ``watches``: it is told of every client that was chosen how long it took, which it is anyway where clients send numbers.
    ``sends_model``: those chosen have got the model while they were chosen. ``by_chance``: all sets of clients of a size are
    equally likely, so that who takes part is hidden among all. ``privacy``: it works on nothing but numbers of labels, so it
    goes with differential privacy. ``tables``: those that it writes into the run folder.
    """

    needs: tuple[str, ...] = ()
    reports: Callable[[Any], int] | None = None
    watches: bool = False
    sends_model: Callable[[Any], bool] | None = None
    by_chance: bool = False
    privacy: bool = False
    tables: tuple[Table, ...] = ()


class SelectorMaker(Protocol):
    """Makes the selector of a run; a class that derives from `emulator.methods.selection.Selector` will do."""

    def __call__(self, session: Session, params: Any, /) -> AnySelector: ...


class SelectionChoice(Chosen[Params, SelectorMaker, SelectionFacts]):
    """A way to select clients."""

    slot = "selection"

    def __call__(self, session: Session) -> AnySelector:
        """The selector of a run."""
        selector = self.plugin.function(session, self.params)
        if not all(callable(getattr(selector, name, None)) for name in ("choose", "sends", "told", "scores")):
            raise self.broken(f"it must give a Selector, and gives {short(selector)}")
        return selector

    def choose(self, selector: AnySelector, call: Call) -> Generator[simpy.Event, Any, tuple[int, ...]]:
        """Those whom a selector chooses, by number: candidates, none twice, no more than wanted; there may be nobody."""
        found = yield from process(self, selector.choose(call))
        try:
            chosen = [int(client) for client in found]
        except (TypeError, ValueError):
            raise self.broken(f"it must choose client numbers, and chooses {short(found)}") from None
        known = np.isin(np.array(chosen, np.int64), call.candidates)
        if not known.all():
            raise self.broken(f"it chooses client {min(np.array(chosen)[~known])}, who is no candidate")
        if len(set(chosen)) < len(chosen):
            raise self.broken(f"it chooses a client twice: {short(chosen)}")
        if len(chosen) > call.count:
            raise self.broken(f"it chooses {len(chosen)} clients, and {call.count} are wanted")
        return tuple(sorted(chosen))

    def said(self, numbers: Callable[[], Sequence[float]]) -> Sequence[float]:
        """The numbers that a client sends along with its model: as many as are declared."""
        found = numbers()
        if len(found) != self.reports:
            raise self.broken(f"a client must send {self.reports} numbers along, and sends {short(found)}")
        return found

    @property
    def reports(self) -> int:
        """How many numbers a client sends along with its model."""
        reports = self.plugin.facts.reports
        return 0 if reports is None else whole(self, "'reports'", reports(self.params), 0)

    @property
    def hears(self) -> bool:
        """Whether the selector is told of clients that were chosen."""
        return self.plugin.facts.watches or self.reports > 0

    @property
    def sends_model(self) -> bool:
        """Whether those chosen have got the model while they were chosen."""
        sends = self.plugin.facts.sends_model
        return sends is not None and sends(self.params)


selections: Registry[SelectorMaker, SelectionFacts] = Registry(SelectionChoice, "emulator.methods.selection")

Selection = Annotated[SelectionChoice, Choice("selection")]
