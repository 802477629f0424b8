"""Differential privacy in a run: who clips, who adds which noise, what that takes, and what it has spent."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emulator.errors import InputError
from emulator.learning.interface import AnyLab
from emulator.learning.private import CLIPPING, DRAWING, Name, PrivateMean
from emulator.learning.recipes import Handle, Trained
from emulator.ledger import Tag
from emulator.methods.accountant import Accountant
from emulator.scenario.privacy_schema import unprotected
from emulator.world.world import StepsTo, World

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

log = logging.getLogger(__name__)

PURPOSE = "privacy"  # of the server's computations, and of random streams


@dataclass(frozen=True)
class Drawn:
    """A group's round: under which server, how it is numbered, of whom its members were drawn (of nobody: all take part), how
    many were asked, and with how many it goes on.
    """

    server: str
    group: int
    of: tuple[int, ...]
    asked: int
    least: int


def privacy_of(scenario: Scenario, world: World, lab: AnyLab) -> Privacy | None:
    """The privacy of a run, where its scenario asks for some. Raises `InputError` where its model does not go with it."""
    if scenario.privacy is None:
        return None
    if lab.model_facts.state_size != lab.model_facts.parameters:
        message = (
            "noise makes variances of batch normalisation negative; take a model without, or with group normalisation"
        )
        raise InputError(message, "model")
    beside = unprotected(scenario)
    if beside:
        log.warning("%s", beside)
    return Privacy(scenario, world, lab)


class Privacy:
    """Clips clients' updates, adds noise, and keeps the account."""

    def __init__(self, scenario: Scenario, world: World, lab: AnyLab) -> None:
        assert scenario.privacy is not None
        self.params = scenario.privacy
        self._world, self._lab, self._seed = world, lab, scenario.seed
        self._accountant = Accountant(scenario.topology.client_count, self.params.delta)
        self._deviation = self.params.noise_multiplier * self.params.clip
        self._times: Counter[Name] = Counter()

    @property
    def of_sums(self) -> bool:
        """Whether sums are protected, by `average`, and not each update, by `sent`."""
        return self.params.at != "client"

    @property
    def device_flops(self) -> float:
        """What a client computes beside each training: it clips its update and draws noise, unless its server does."""
        return 0.0 if self.params.at == "server" else float((CLIPPING + DRAWING) * self._lab.model_facts.parameters)

    def epsilon(self) -> float:
        """What the run has spent so far: of the client who spent most."""
        return self._accountant.epsilon()

    def sent(self, trained: Trained, before: Handle, client: int, round: int, turn: int) -> Trained:  # noqa: A002
        """What a client sends in place of what it trained: clipped and with its own noise, where that is where noise is added.

        Whoever sees it may tell any two updates apart that are up to twice ``clip`` from each other.
        """
        if self.of_sums:
            return trained
        self._accountant.took_part((client,), self.params.noise_multiplier / 2)
        name = self._name("client", client, round, turn)
        function = PrivateMean(self._seed, self.params.clip, self._deviation, (name,))
        return Trained(self._lab.apply(function, (before, trained.model))[0], trained.own)

    def average(
        self,
        trained: Mapping[int, Handle],
        before: Handle,
        round: int,  # noqa: A002
        turn: int,
        drawn: Drawn,
    ) -> StepsTo[Handle]:
        """The average of members' updates, all of one weight, clipped and with the noise of the server or of all members."""
        if self.params.at == "distributed":
            among = drawn.least if self.params.shares == "least" else drawn.asked
            share = self._deviation / math.sqrt(among)
            names = tuple(self._name("share", client, round, turn) for client in trained)
            function = PrivateMean(self._seed, self.params.clip, share, names)
            self._accountant.took_part(tuple(trained), self.params.noise_multiplier * math.sqrt(len(trained) / among))
        else:
            name = self._name("server", drawn.group, round, turn)
            function = PrivateMean(self._seed, self.params.clip, self._deviation, (name,))
            self._note_sum(tuple(trained), drawn)
            flops = float((CLIPPING * len(trained) + DRAWING) * self._lab.model_facts.parameters)
            yield self._world.serve(drawn.server, flops, Tag(PURPOSE, round, drawn.group, turn))
        return self._lab.apply(function, (before, *trained.values()))[0]

    def _note_sum(self, clients: tuple[int, ...], drawn: Drawn) -> None:
        multiplier = self.params.noise_multiplier
        if self.params.participants == "public" or not drawn.of:
            self._accountant.took_part(clients, multiplier)
            return
        # Where some may be lost, how many came back tells of who was drawn.
        hidden = self._world.calm and len(clients) == drawn.asked
        self._accountant.may_have_taken_part(drawn.of, drawn.asked, multiplier, hidden)

    def _name(self, who: str, number: int, round: int, turn: int) -> Name:  # noqa: A002
        """The name of noise that is drawn once in a run: the same noise on two models would cancel."""
        place = (PURPOSE, who, number, round, turn)
        self._times[place] += 1
        return (*place, *((self._times[place],) if self._times[place] > 1 else ()))
