"""The selection of a run at work: whom servers choose for a round, and what they are told of those whom they chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from emulator.contracts.selection import Call, Report, SelectionChoice
from emulator.contracts.values import Floats
from emulator.learning.recipes import Handle
from emulator.rng import stream
from emulator.tables import Table
from emulator.world.world import StepsTo

if TYPE_CHECKING:
    from emulator.methods.session import Session
    from emulator.methods.training import GroupRound

NUMBER_BYTES = 8  # of a number that a client tells
SCORES = ("statistical", "system", "utility", "tier")
SELECTIONS = Table("selections", ("round", "time_s", "group", "client", "chosen", *SCORES))


class Selecting:
    """The one selector of a run, asked and told. To be made before anything is under way on the clock."""

    def __init__(self, session: Session, how: SelectionChoice) -> None:
        self.how = how
        self._session = session
        self._selector = how(session)
        self._chosen: dict[tuple[int, int], tuple[int, ...]] = {}  # by round and group, of the latest round
        if how.hears:
            session.world.watch()

    def learnt(self, said: Mapping[str, Floats]) -> None:
        """Gives the selector what estimators said, by their names."""
        self._selector.estimates = {need: said[need] for need in self.how.plugin.facts.needs}

    def choose(
        self,
        server: str,
        group: int,
        candidates: Sequence[int] | npt.NDArray[np.int64],
        count: int,
        model: Handle,
        at: GroupRound,
        least: int = 1,
        turn: int = 0,
    ) -> StepsTo[tuple[int, ...]]:
        """Those of these candidates (ascending) who are to train this model, sorted: ``count``, or fewer; see `Call`."""
        again = (turn,) if turn else ()
        rng = stream(self._session.seed, "participation", at.round, group, *again)
        call = Call(server, group, np.asarray(candidates, np.int64), count, least, model, at, turn, rng)
        chosen = yield from self.how.choose(self._selector, call)
        if SELECTIONS in self.how.plugin.facts.tables:
            self._note(call, chosen)
        return chosen

    def for_round(
        self, server: str, group: int, candidates: Sequence[int], count: int, model: Handle, at: GroupRound, least: int
    ) -> StepsTo[tuple[tuple[int, ...], GroupRound]]:
        """`choose`, once in a round for each group: where a tier above has several turns, the same members take part in all.

        Returns them and how they begin: without another download, where they got the model while they were chosen. What is
        encoded comes out otherwise for each transfer, so it is sent again.
        """
        place = (at.round, group)
        if place not in self._chosen:
            chosen = yield from self.choose(server, group, candidates, count, model, at, least)
            self._chosen = {known: of for known, of in self._chosen.items() if known[0] == at.round} | {place: chosen}
            if self.how.sends_model and not self._session.wire.used:
                at = replace(at, down_bytes=0)
        return self._chosen[place], at

    def hearing(self, round: int) -> Hearing | None:  # noqa: A002
        """What is to be heard of clients to whom a model is sent now; None where the selector is told nothing."""
        return (
            Hearing(self._session, self.how, self._selector.sends, self._selector.told, round)
            if self.how.hears
            else None
        )

    def _note(self, call: Call, chosen: Collection[int]) -> None:
        """Writes down who was chosen, and who was not although there."""
        place = {"round": call.at.round, "time_s": self._session.world.now, "group": call.group}
        those = set(chosen)
        for client in call.candidates.tolist():
            scores = self._selector.scores(client)
            known = {name: float(scores.get(name, math.nan)) for name in SCORES}
            self._session.note(SELECTIONS.name, {**place, "client": client, "chosen": int(client in those), **known})


class Hearing:
    """What a server hears of the clients to which it sends a model now."""

    def __init__(
        self,
        session: Session,
        how: SelectionChoice,
        sends: Callable[[int, Handle], Callable[[], Sequence[float]]],
        told: Callable[[Report], None],
        round: int,  # noqa: A002
    ) -> None:
        self.size_bytes = NUMBER_BYTES * how.reports  # of what each sends along with its model
        self._session, self._how, self._sends, self._told, self._round = session, how, sends, told, round
        self._since_s = session.world.now
        self._numbers: dict[int, Callable[[], Sequence[float]]] = {}
        self._seconds: dict[int, float] = {}

    def uploads(self, client: int, model: Handle) -> None:
        """A client that got this model is about to send back what it made of it."""
        self._numbers[client] = Said(partial(self._how.said, self._sends(client, model)))

    def arrived(self, client: int) -> None:
        """Its upload is there."""
        self._seconds[client] = self._session.world.now - self._since_s

    def tell(self, asked: Sequence[int], back: Collection[int]) -> None:
        """Tells the selector of all that were asked; of those that are not ``back`` that they did not come in time."""
        samples = self._session.lab.clients.samples
        for client in asked:
            came = client in back and client in self._seconds
            seconds, numbers = (self._seconds[client], self._numbers[client]) if came else (math.inf, tuple)
            self._told(Report(client, self._round, seconds, int(samples[client]), numbers))


class Said:
    """What a client sent along: worked out when it is first asked for, and then kept in place of what it takes to do so."""

    def __init__(self, ask: Callable[[], Sequence[float]]) -> None:
        self._ask: Callable[[], Sequence[float]] | None = ask
        self._found: Sequence[float] = ()

    def __call__(self) -> Sequence[float]:
        """The numbers."""
        if self._ask is not None:
            self._found, self._ask = self._ask(), None
        return self._found
