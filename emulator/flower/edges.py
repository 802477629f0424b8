"""Edges that aggregate: each is a server of its own, which hands a message on to its clients and combines their replies.

The strategy that does so is one of Flower's (`flwr.serverapp.strategy`), which the user names. Its own sampling and its own
aggregation are used; the cloud's strategy sees edges as its clients.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import FedAvg, Strategy

from emulator.errors import HflError, InputError
from emulator.flower.codec import Body, body_of, records_from_bytes
from emulator.flower.grid import EmulatedGrid
from emulator.flower.office import Letter, Office
from emulator.flower.turns import Seat, Steps, Turns
from emulator.modules import refusing

FEDAVG = "fedavg"


def strategy_maker(named: str, folder: Path) -> Callable[[], Strategy]:
    """What makes a strategy for each edge: ``fedavg``, or ``module:object``, a strategy or what makes one.

    Raises `InputError` where there is none.
    """
    if named == FEDAVG:
        return functools.partial(FedAvg, fraction_train=1.0, fraction_evaluate=1.0, min_train_nodes=1, min_evaluate_nodes=1,
                                 min_available_nodes=1)  # fmt: skip
    from flwr.supercore.object_ref import load_app

    with refusing(f"--edges {named}"):
        found = load_app(named, ValueError, folder)
        made = found if isinstance(found, Strategy) else found()
    if not isinstance(made, Strategy):
        raise InputError(f"--edges {named}: gives a {type(made).__name__}, and a strategy of flwr.serverapp is wanted")
    return (lambda: copy.deepcopy(found)) if isinstance(found, Strategy) else found


class Edge:
    """An edge at work on messages of the cloud."""

    def __init__(
        self,
        office: Office,
        turns: Turns,
        strategy: Strategy,
        timeout_s: float | None,
        meter: Callable[[], Any] | None,
    ) -> None:
        self._office = office
        self._turns = turns
        self._strategy = strategy
        self._timeout_s = timeout_s
        self._meter = meter
        self._grid = EmulatedGrid(office, turns)

    def serve(self, letter: Letter) -> Steps[Body]:
        """Hands a message on and gives the edge's reply. Raises `HflError` with what the strategy raised."""
        env, made = self._turns.env, list[Body]()
        done = env.event()

        def work() -> None:
            try:
                made.append(body_of(self._reply(letter)))
            finally:
                if not self._turns.over:
                    done.succeed()

        name = f"strategy of {self._office.server}"
        seat: Seat = self._turns.start(work, name, self._office.server, self._meter)
        yield done
        if seat.error is not None:
            raise HflError(f"the {name} raised in round {letter.round}: {type(seat.error).__name__}: {seat.error}")
        if self._turns.charge is not None:
            yield from self._turns.charge(seat)
        return made[0]

    def _reply(self, letter: Letter) -> Message:
        records = records_from_bytes(letter.body.data)
        kind = letter.header.metadata.message_type
        arrays, configs = records.array_records, records.config_records
        if kind not in ("train", "evaluate") or len(arrays) != 1:
            raise ValueError(
                f"an edge can aggregate 'train' and 'evaluate' messages with one ArrayRecord, and this is '{kind}' "
                f"with {len(arrays)}; take --edges relay"
            )
        (array_key, model), config = next(iter(arrays.items())), next(iter(configs.values()), ConfigRecord())
        strategy: Any = self._strategy
        configure = strategy.configure_train if kind == "train" else strategy.configure_evaluate
        messages = list(configure(letter.round, model, config, self._grid))
        for message in messages:  # to the clients records are called as the cloud calls them
            message.content = _renamed(message.content, array_key, next(iter(configs), None))
        replies = list(self._grid.send_and_receive(messages, timeout=self._timeout_s))
        weight = getattr(strategy, "weighted_by_key", "num-examples")
        said = [m.content for m in replies if not m.has_error()]
        total = sum(float(r[weight]) for c in said for r in c.metric_records.values() if weight in r)
        content = RecordDict()
        if kind == "train":
            put_together, metrics = strategy.aggregate_train(letter.round, replies)
            if put_together is not None:
                content[next(iter(said[0].array_records))] = put_together
        else:
            put_together = metrics = strategy.aggregate_evaluate(letter.round, replies)
        if put_together is None:
            error = Error(code=ErrorCode.UNKNOWN, reason=f"no client of {self._office.server} has replied")
            return Message(error, reply_to=letter.header)
        names = [name for c in said[:1] for name in c.metric_records] or ["metrics"]
        content[names[0]] = MetricRecord({**(metrics or {}), weight: total})
        return Message(content, reply_to=letter.header)


def _renamed(content: RecordDict, array_key: str, config_key: str | None) -> RecordDict:
    """The same records under the names that the cloud's message had."""
    found = RecordDict()
    for key, value in content.items():
        named = {"ArrayRecord": array_key, "ConfigRecord": config_key or key}.get(type(value).__name__, key)
        found[named] = value
    return found
