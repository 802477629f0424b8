"""Power-of-choice (Cho, Wang and Joshi 2020): of some candidates that are drawn, those with the largest local loss.

The server draws d candidates without replacement, in proportion to their samples. With ``loss: current`` it sends them the model;
each evaluates it on its own samples and sends its mean loss back, and the ``count`` with the largest take part (π_pow-d). With
``loss: latest`` it goes by the losses that came with earlier uploads, of the models that were trained then; one that is not
known is infinite (π_rpow-d).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from emulator.contracts.methods import Patience
from emulator.contracts.selection import Call, Report, SelectionFacts, selections
from emulator.learning.recipes import Handle
from emulator.ledger import Tag
from emulator.methods.selecting import NUMBER_BYTES, SELECTIONS
from emulator.methods.selection import Selector
from emulator.methods.selection.by_share import COUNTS, by_data_size
from emulator.methods.session import Session
from emulator.methods.waiting import gather
from emulator.registry import Params
from emulator.world.world import StepsTo


class PowerOfChoiceParams(Params):
    """How many are looked at, and how the server knows of their losses."""

    choices: Annotated[float, Field(ge=1)] = Field(
        2.0, description="candidates looked at for each client that takes part (d / m)"
    )
    loss: Literal["current", "latest"] = Field(
        "current",
        description="'current': candidates get the model and evaluate it; 'latest': what they reported with their last upload",
    )


@selections.register(
    "power-of-choice",
    PowerOfChoiceParams,
    SelectionFacts(
        needs=(COUNTS,),
        reports=lambda params: int(params.loss == "latest"),
        sends_model=lambda params: params.loss == "current",
        tables=(SELECTIONS,),
    ),
)
class PowerOfChoice(Selector):
    """Power-of-choice: of candidates drawn by their samples, those with the largest local loss take part (Cho et al. 2020)."""

    def __init__(self, session: Session, params: PowerOfChoiceParams) -> None:
        self._session, self._params = session, params
        self._samples = session.lab.clients.samples  # which label counts tell the server
        self._news: dict[int, Report] = {}
        self._latest: dict[int, float] = {}
        self._judged: dict[int, float] = {}

    def choose(self, call: Call) -> StepsTo[Sequence[int]]:
        """Those of the drawn candidates whose loss is largest; of equal ones those who were drawn first."""
        most = min(len(call.candidates), max(call.count, round(self._params.choices * call.count)))
        drawn = call.rng.permutation(by_data_size(self._samples, call.candidates, most, call.rng)).tolist()
        if self._params.loss == "current":
            world = self._session.world
            work = {client: self._evaluate(call, client) for client in drawn}
            give_up = partial(world.give_up, call.at.round, call.group)
            losses = yield from gather(world, work, Patience(len(work)), world.now, give_up)
        else:
            self._latest |= {client: report.numbers()[0] for client, report in self._news.items()}
            self._news = {}
            losses = {client: self._latest.get(client, math.inf) for client in drawn}
        self._judged = {c: -math.inf if math.isnan(loss) else loss for c, loss in losses.items()}
        return sorted(self._judged, key=lambda c: -self._judged[c])[: call.count]

    def _evaluate(self, call: Call, client: int) -> StepsTo[float | None]:
        """A candidate gets the model, evaluates it and sends its mean loss."""
        session, world, at = self._session, self._session.world, call.at
        name, tag = world.fleet.client_names[client], Tag("model", at.round, call.group, at.group_round)
        model = yield from session.deliver(call.server, name, call.model, at.down_bytes, tag)
        if model is None:
            return None
        held, tag = int(self._samples[client]), tag.with_purpose("selection")
        forward, size = world.workload.forward, at.local.params.batch_size
        found = yield from session.measure(
            lambda begun: world.predict(client, forward, held, size, tag, begun), "fit", [model], client
        )
        if found is None or not (yield world.send(name, call.server, NUMBER_BYTES, tag)):
            return None
        return float(found[0, 0])

    def sends(self, client: int, model: Handle) -> Callable[[], Sequence[float]]:
        """The mean loss of the model that it got."""
        if self._params.loss == "current":
            return tuple
        asked = self._session.lab.announce("fit", [model], client)
        return lambda: [float(self._session.lab.measure("fit", asked.models, client)[0, 0])]

    def told(self, report: Report) -> None:
        """Keeps the latest loss."""
        if report.seconds < math.inf and self._params.loss == "latest":
            self._news[report.client] = report

    def scores(self, client: int) -> Mapping[str, float]:
        """The loss by which it was judged, where it was drawn."""
        return {"statistical": self._judged[client], "utility": self._judged[client]} if client in self._judged else {}
