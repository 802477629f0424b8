"""Runs of the protocol on this host, for several sizes of group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from devices.secagg.cost import ProtocolGroup
from devices.secagg.encoding import Encoding
from devices.secagg.fit import Observation
from devices.secagg.session import ProtocolRun, run
from devices.secagg.shamir import threshold_of
from devices.secagg.steps import Adversary, steps_of
from emulator.rng import stream

THRESHOLD_SHARE = 2 / 3  # as in the published measurements


@dataclass(frozen=True)
class Measured:
    """What a member of a group of ``clients`` was found to pay where ``dropped`` of them (a mean) drop out.

    ``observations`` are the times that this was put together from, step by step.
    """

    clients: int
    dropped: float
    client_s: float
    server_s: float
    up_bytes: int
    down_bytes: int
    observations: tuple[Observation, ...]


def measure(
    sizes: Sequence[int],
    elements: int,
    dropout: float,
    repeats: int,
    on_run: Callable[[int, int], None] = lambda clients, dropped: None,
    adversary: Adversary = "passive",
) -> Iterator[Measured]:
    """Measures groups of these sizes against an adversary, one after another; times are the shortest of ``repeats`` runs.

    (What else the host does only adds to them.) Where the share ``dropout`` of a group is no whole number, runs with the next
    smaller and the next larger number of dropped clients are mixed so that the mean is right; as many as the threshold needs
    never drop out. ``on_run`` is told the clients and the dropped before they run. Raises ``ValueError`` for values out of
    range.
    """
    if not sizes or min(sizes) < 2:
        raise ValueError("a group needs at least 2 clients")
    if elements < 1 or repeats < 1:
        raise ValueError(f"elements and repeats must be at least 1, not {elements} and {repeats}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")
    for clients in sizes:
        yield _measure_one(clients, elements, dropout, repeats, on_run, adversary)


def _measure_one(
    clients: int,
    elements: int,
    dropout: float,
    repeats: int,
    on_run: Callable[[int, int], None],
    adversary: Adversary,
) -> Measured:
    threshold = threshold_of(clients, THRESHOLD_SHARE)
    expected = min(dropout * clients, clients - threshold)
    fewer = math.floor(expected + 1e-9)
    weights = {fewer: 1 - (expected - fewer), fewer + 1: expected - fewer}
    totals = [0.0, 0.0, 0.0, 0.0]
    observations: list[Observation] = []
    for dropped, weight in weights.items():
        if weight < 1e-9:
            continue
        on_run(clients, dropped)
        group = ProtocolGroup(clients, threshold, dropped, elements, adversary)
        outcomes = _runs(group, threshold, dropped, repeats)
        steps = steps_of(adversary)
        seen = [
            *(Observation("client", (s,), group, min(o.client_s[s] for o in outcomes)) for s in steps),
            *(Observation("server", (s,), group, min(o.server_s[s] for o in outcomes)) for s in steps),
        ]
        last = clients - 1  # the first ones drop out
        found = (
            sum(o.seconds for o in seen if o.party == "client"),
            sum(o.seconds for o in seen if o.party == "server"),
            sum(outcomes[0].up_bytes[last].values()),
            sum(outcomes[0].down_bytes[last].values()),
        )
        totals = [total + weight * value for total, value in zip(totals, found, strict=True)]
        observations += seen
    client_s, server_s, up, down = totals
    return Measured(clients, expected, client_s, server_s, round(up), round(down), tuple(observations))


def _runs(group: ProtocolGroup, threshold: int, dropped: int, repeats: int) -> list[ProtocolRun]:
    """Runs over made-up vectors; one more than is kept, because the first is slower."""
    rng = stream(0, "secure aggregation", "measurement", group.clients, group.elements)
    vectors = [rng.standard_normal(group.elements) for _ in range(group.clients)]
    encoding = Encoding(group.clients)
    outcomes = [
        run(vectors, threshold, range(dropped), encoding=encoding, adversary=group.adversary)
        for _ in range(repeats + 1)
    ]
    return outcomes[1:]
