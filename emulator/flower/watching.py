"""What a run of an app reports: the metrics of each round, and what was charged until then.

Flower's strategies put what they report into a `Result` (or a `History`, the older ones). Both are replaced, while an app
runs, by ones that tell the run at once. For an app with neither, the replies' metrics count: their mean, weighted by the
clients' samples.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from flwr.app import RecordDict
from flwr.server.history import History
from flwr.serverapp.strategy import Result

from emulator.accounting import Meter
from emulator.flower.pricing import RATE, SAMPLES
from emulator.flower.replies import Reply
from emulator.flower.turns import here
from emulator.ledger import bytes_column
from emulator.world.world import World

log = logging.getLogger(__name__)
Kind = Literal["server", "evaluate", "train"]
KINDS: tuple[Kind, ...] = ("server", "evaluate", "train")
_CATEGORIES: dict[str, Kind] = {"train": "train", "evaluate": "evaluate"}
_OLDER = "num_examples"
_ACCURACY, _LOSS = re.compile(r"(^|[_.-])(accuracy|acc)$"), re.compile(r"(^|[_.-])loss$")


def numbers_in(records: RecordDict) -> dict[str, float]:
    """The single numbers in all metric records, by name."""
    found: dict[str, float] = {}
    for record in records.metric_records.values():
        for name, value in record.items():
            if isinstance(value, int | float):
                found[SAMPLES if name == _OLDER else str(name)] = float(value)
    return found


class Watch:
    """Rounds and what is known of them."""

    def __init__(
        self, world: World, meter: Meter, on_round: Callable[[int, dict[str, float]], None], accuracy: str | None
    ) -> None:
        """``on_round`` is told of each round that is over, with its row; ``accuracy`` names the metric that counts as one."""
        self._world = world
        self._meter = meter
        self._on_round = on_round
        self._wanted = accuracy
        self._charged: dict[int, dict[str, float]] = {}
        self._said: dict[tuple[int, Kind], dict[str, float]] = {}
        self._sums: dict[tuple[int, Kind], dict[str, tuple[float, float]]] = {}
        self._told: set[str] = set()
        self.replies: list[dict[str, Any]] = []
        self.round = 0
        self.flops = self.answers = 0
        self.touch(0)

    def touch(self, round_: int) -> None:
        """Something happens in a round: what is charged until now belongs to it, and an earlier one is over."""
        if round_ > self.round:
            self._on_round(self.round, self.row(self.round))
            self.round = round_
        self._charged[self.round] = self._totals()

    def end(self) -> None:
        """The run is over: so is its last round, with all that was charged."""
        self._charged[self.round] = self._totals()
        self._on_round(self.round, self.row(self.round))

    def note(self, kind: Kind, round_: int, values: Mapping[str, Any]) -> None:
        """What a strategy reports of a round."""
        numbers = {str(k): float(v) for k, v in values.items() if isinstance(v, int | float)}
        self._said.setdefault((round_, kind), {}).update(numbers)
        if round_ >= self.round:
            self.touch(round_)

    def replied(
        self,
        round_: int,
        message_type: str,
        node: str,
        times: Mapping[str, float],
        down_bytes: int,
        up_bytes: int,
        failed: bool,
        said: Mapping[str, float],
    ) -> None:
        """A reply has arrived."""
        row = {
            "round": round_,
            "node": node,
            "type": message_type,
            **times,
            "down_bytes": down_bytes,
            "up_bytes": up_bytes,
        }
        self.replies.append({**row, "error": int(failed), "samples": said.get(SAMPLES, "")})
        kind: Kind | None = _CATEGORIES.get(message_type.partition(".")[0])
        if kind is not None:
            sums = self._sums.setdefault((round_, kind), {})
            weight = said.get(SAMPLES, 1.0)
            for name, value in said.items():
                if name not in (SAMPLES, RATE):
                    total, weights = sums.get(name, (0.0, 0.0))
                    sums[name] = total + weight * value, weights + weight

    def worked(self, message_type: str, answer: Reply) -> None:
        """A client's code was run, or its reply remembered."""
        self.flops += sum(answer.flops.values())
        self.answers += not answer.is_error and message_type.startswith("train")

    def rows(self) -> list[dict[str, float]]:
        """``metrics.csv``: a row for each round, with the same columns in all."""
        rows = [self.row(r) for r in sorted(self._charged) if r > 0 or self._metrics(0)]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return [{name: row.get(name, math.nan) for name in names} for row in rows]

    def row(self, round_: int) -> dict[str, float]:
        """The row of a round, as far as it is known."""
        metrics, charged = self._metrics(round_), dict(self._charged.get(round_, {}))
        shown = {"accuracy": self._accuracy(metrics), "loss": self._pick(metrics, _LOSS, None)}
        time_s = charged.pop("time_s", math.nan)
        return {"round": round_, "time_s": time_s, **shown, **charged, **metrics}

    def _metrics(self, round_: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for kind in KINDS:
            said = self._said.get((round_, kind))
            if said is None:
                sums = self._sums.get((round_, kind), {})
                said = {name: total / weights for name, (total, weights) in sums.items() if weights}
            found |= {f"{kind}_{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}": value for name, value in said.items()}
        return found

    def _accuracy(self, metrics: Mapping[str, float]) -> float:
        value = self._pick(metrics, _ACCURACY, self._wanted)
        if value == value and not 0 <= value <= 1:
            if "share" not in self._told:
                log.warning(
                    "the app reports an accuracy of %g, which is no share from 0 to 1; it stands in its own column alone",
                    value,
                )
            self._told.add("share")
            return math.nan
        return value

    @staticmethod
    def _pick(metrics: Mapping[str, float], pattern: re.Pattern[str], wanted: str | None) -> float:
        """What the server says of a model, or else its clients' tests: the named metric, or the first whose name fits."""
        for kind in KINDS[:2] if wanted is None else KINDS:
            for column, value in metrics.items():
                name = column.removeprefix(f"{kind}_")
                if column.startswith(f"{kind}_") and (
                    pattern.search(name) if wanted is None else wanted in (name, column)
                ):
                    return value
        return math.nan

    def _totals(self) -> dict[str, float]:
        totals, now = self._meter.totals(), self._world.now
        row: dict[str, float] = {"time_s": now}
        row |= {bytes_column(hop): count for hop, count in totals.bytes_by_hop.items()}
        return row | {
            "bytes_total": totals.bytes_total,
            "bytes_wasted": totals.bytes_wasted,
            "cost_training_s": totals.cost_training_s,
            "cost_group_s": totals.cost_group_s,
            "cost_s": totals.cost_s,
            "cost_wasted_s": totals.cost_wasted_s,
            "energy_j": self._meter.energy_j(now),
        }


class _Telling(dict[int, Any]):
    """A dictionary of metrics by round that tells of each."""

    def __init__(self, watch: Watch, kind: Kind) -> None:
        super().__init__()
        self._watch, self._kind = watch, kind

    def __setitem__(self, round_: int, values: Any) -> None:
        super().__setitem__(round_, values)
        if here() is not None and isinstance(values, Mapping):
            self._watch.note(self._kind, int(round_), values)


@contextmanager
def reported(watch: Watch) -> Iterator[None]:
    """A block in which strategies of Flower tell what they report."""

    class Told(Result):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.train_metrics_clientapp = _Telling(watch, "train")
            self.evaluate_metrics_clientapp = _Telling(watch, "evaluate")
            self.evaluate_metrics_serverapp = _Telling(watch, "server")

    Told.__name__ = Told.__qualname__ = Result.__name__
    strategies = [
        m for name, m in sys.modules.items() if name.startswith("flwr.") and getattr(m, "Result", None) is Result
    ]
    ways: dict[str, tuple[Kind, bool]] = {
        "add_loss_distributed": ("evaluate", True),
        "add_loss_centralized": ("server", True),
        "add_metrics_distributed_fit": ("train", False),
        "add_metrics_distributed": ("evaluate", False),
        "add_metrics_centralized": ("server", False),
    }
    before = {name: getattr(History, name) for name in ways}

    def telling(name: str, kind: Kind, loss: bool) -> Callable[..., None]:
        def add(self: Any, server_round: int, *args: Any, **kwargs: Any) -> None:
            before[name](self, server_round, *args, **kwargs)
            value = [*args, *kwargs.values()][0]
            if here() is not None:
                watch.note(kind, server_round, {"loss": value} if loss else value)

        return add

    logger = logging.getLogger("flwr")
    handing_on = logger.propagate
    logger.propagate = False  # it prints for itself; once is enough
    try:
        for module in strategies:
            module.__dict__["Result"] = Told
        for name, (kind, loss) in ways.items():
            setattr(History, name, telling(name, kind, loss))
        yield
    finally:
        logger.propagate = handing_on
        for module in strategies:
            module.__dict__["Result"] = Result
        for name, method in before.items():
            setattr(History, name, method)
