"""What a referee is asked: links, flows and repeats, read from JSON and checked. Standard library only."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

FRAME_BYTES, PACKET_BYTES, PAYLOAD_BYTES = 1514, 1500, 1448  # a full frame: with Ethernet's header, without it, of data
MAX_BYTES = 1_000_000_000  # that one call may send


class RefusedError(Exception):
    """The referee cannot do what it was asked; the message says why in one line."""


@dataclass(frozen=True)
class Link:
    """One direction of data. The other direction has the same rate and delay."""

    rate_bps: float
    delay_s: float
    queue_packets: int


@dataclass(frozen=True)
class Flow:
    """So many bytes, sent over these links from the first to the last."""

    route: tuple[str, ...]
    bytes: int
    start_s: float


@dataclass(frozen=True)
class Case:
    """What is to be measured; the README has the format."""

    links: Mapping[str, Link]
    flows: tuple[Flow, ...]
    repeats: int
    seed: int
    start_spread_s: float
    congestion: str
    handshake: bool
    limit_s: float
    model: str

    def late_s(self, repeat: int) -> list[float]:
        """How long after its ``start_s`` each flow starts in a repeat (from 0): uniform, the same in every referee."""
        draw = random.Random(f"{self.seed}/{repeat}")
        return [self.start_spread_s * draw.random() for _ in self.flows]

    def round_trip_s(self, flow: Flow) -> float:
        """The delays of a flow's links, there and back."""
        return 2 * sum(self.links[name].delay_s for name in flow.route)


def number(told: Mapping[str, Any], key: str, where: str, least: float, default: float | None = None) -> float:
    """A finite number of at least ``least``. Raises `RefusedError` where it is none."""
    value = told.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
        raise RefusedError(f"{where}{key} must be a number of at least {least:g}, not {value!r}")
    return value


def chosen(told: Mapping[str, Any], key: str, options: tuple[Any, ...]) -> Any:
    """One of the options, the first where nothing is said. Raises `RefusedError` where it is none of them."""
    value = told.get(key, options[0])
    if value not in options:
        raise RefusedError(f"{key} must be one of {', '.join(map(json.dumps, options))}, not {value!r}")
    return value


def read_link(name: str, told: Mapping[str, Any]) -> Link:
    """A link of the input. Raises `RefusedError`."""
    where = f"link {name!r}: "
    rate, delay = number(told, "rate_bps", where, 1000), number(told, "delay_s", where, 0)
    return Link(rate, delay, int(number(told, "queue_packets", where, 2)))


def read_flow(index: int, told: Mapping[str, Any], links: Mapping[str, Link]) -> Flow:
    """A flow of the input. Raises `RefusedError`."""
    where, route = f"flow {index}: ", tuple(told.get("route", ()))
    if not route or len(set(route)) < len(route):
        raise RefusedError(f"{where}route must name at least one link, and each once")
    for name in route:
        if name not in links:
            raise RefusedError(f"{where}there is no link {name!r}")
    return Flow(route, int(number(told, "bytes", where, 1)), number(told, "start_s", where, 0, 0.0))


def read_case(text: str) -> Case:
    """The case that a JSON text describes. Raises `RefusedError` where it describes none."""
    try:
        told = json.loads(text)
        links = {name: read_link(name, link) for name, link in told["links"].items()}
        flows = tuple(read_flow(i, flow, links) for i, flow in enumerate(told["flows"]))
    except KeyError as error:
        raise RefusedError(f"the input has no {error.args[0]!r}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise RefusedError(f"the input is no case in JSON: {error}") from None
    if not flows:
        raise RefusedError("the input has no flow")
    repeats = int(number(told, "repeats", "", 1, 1))
    total = repeats * sum(flow.bytes for flow in flows)
    if total > MAX_BYTES:
        raise RefusedError(f"{total:,} bytes in all repeats are more than the {MAX_BYTES:,} that one call may send")
    return Case(
        links,
        flows,
        repeats,
        int(number(told, "seed", "", 0, 1)),
        number(told, "start_spread_s", "", 0, 0.0),
        chosen(told, "congestion", ("cubic", "reno")),
        chosen(told, "handshake", (True, False)),
        number(told, "limit_s", "", 0.001, 60.0),
        chosen(told, "model", ("fluid", "tcp")),
    )


def refuse(error: RefusedError) -> NoReturn:
    """Ends the process with code 2, and the reason as one line on standard error."""
    print(str(error).replace("\n", " "), file=sys.stderr)
    raise SystemExit(2)
