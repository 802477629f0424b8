"""Who is chosen, what servers hear of those who were, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import numpy as np
import pytest

from emulator import ledger
from emulator.accounting import totals_of
from emulator.contracts.selection import Call, SelectionChoice, selections
from emulator.errors import HflError, InputError
from emulator.methods.selecting import NUMBER_BYTES
from emulator.methods.selection import Selector
from emulator.methods.selection.fedcs import Resources, greedy
from emulator.methods.session import Session
from emulator.registry import NoParams
from emulator.rng import stream
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]
FLAT = ("topology.clients=12", "method=fedavg", "method.participation=0.5", "stop.rounds=4")
ENCODED = "method.encodings={client: {up: [float16]}}"


def models(session: Session, hop: str) -> list[int]:
    """The bytes of models that went over a kind of hop."""
    return [row.bytes for row in session.world.ledger.rows if row.what == "model" and row.hop == hop]


def told(session: Session, hop: str) -> list[int]:
    """The bytes that went there to select clients."""
    return [row.bytes for row in session.world.ledger.rows if row.what == "selection" and row.hop == hop]


def chosen(session: Session) -> dict[int, set[int]]:
    """Who was chosen in each round, by the table."""
    found: dict[int, set[int]] = {}
    for row in session.tables["selections"]:
        found.setdefault(row["round"], set()).update([row["client"]] if row["chosen"] else [])
    return found


@pytest.mark.parametrize(
    ("selection", "numbers"),
    [("uniform", 0), ("{kind: power-of-choice, loss: latest}", 1), ("oort", 1), ("energy-aware", 2)],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_numbers_go_up_with_the_model(small: Small, selection: str, numbers: int, encoded: bool) -> None:
    extra = [ENCODED] if encoded else []
    plain = set(models(played(small(*FLAT, *extra)), ledger.CLIENT_SERVER))
    session = played(small(*FLAT, *extra, f"method.selection={selection}"))
    assert {size - NUMBER_BYTES * numbers for size in models(session, ledger.CLIENT_SERVER)} == plain
    assert len(models(session, ledger.CLIENT_SERVER)) == len(models(session, ledger.SERVER_CLIENT))


def test_those_who_were_asked_for_their_loss_get_no_second_model(small: Small) -> None:
    session = played(small(*FLAT, "method.selection={kind: power-of-choice, choices: 1.5}"))
    count = session.scenario.method.params.taking_part(session.scenario.topology.client_count)
    size = session.world.workload.model_bytes
    down = models(session, ledger.SERVER_CLIENT)
    assert sorted(set(down)) == [0, size]
    assert (down.count(size), down.count(0)) == (4 * round(1.5 * count), 4 * count)
    assert told(session, ledger.CLIENT_SERVER) == [NUMBER_BYTES] * 4 * round(1.5 * count)
    for rows in (session.tables["selections"][i : i + 12] for i in range(0, 48, 12)):
        losses = {row["client"]: row["statistical"] for row in rows if not math.isnan(row["statistical"])}
        best = sorted(losses, key=lambda c: -losses[c])[:count]
        assert {row["client"] for row in rows if row["chosen"]} == set(best)


def test_clients_with_more_samples_are_drawn_in_proportion(small: Small) -> None:
    params = ("method.selection=by-data-size", "stop.rounds=1")
    session = played(small(*FLAT, *params))
    assert "label-counts" in {row.what for row in session.world.ledger.rows}
    from emulator.methods.selection.by_share import by_data_size

    samples, rng = np.array([1, 3, 0, 6]), stream(0, "test")
    first = [by_data_size(samples, (0, 1, 2, 3), 1, rng)[0] for _ in range(4000)]
    shares = np.bincount(first, minlength=4) / 4000
    assert np.allclose(shares, samples / 10, atol=0.03)
    assert shares[2] == 0


def test_fedcs_pays_for_requests_and_answers(small: Small) -> None:
    session = played(small(*FLAT, "method.selection={kind: fedcs, deadline: 1 h, request: 0.75}"))
    assert told(session, ledger.SERVER_CLIENT) == [NUMBER_BYTES] * 4 * 9
    assert told(session, ledger.CLIENT_SERVER) == [3 * NUMBER_BYTES] * 4 * 9
    assert {len(clients) for clients in chosen(session).values()} == {6}


def test_fedcs_takes_nobody_who_ends_too_late(small: Small) -> None:
    with pytest.raises(HflError, match="nothing was trained"):
        played(small(*FLAT, "method.selection={kind: fedcs, deadline: 1 ms}"))


def test_fedcs_adds_those_who_cost_least_time_first() -> None:
    """Algorithm 3 of the paper, worked by hand: 2 trains while the others send, so it costs no more than its own upload."""
    asked = {0: Resources(1, 4, 1), 1: Resources(1, 1, 2), 2: Resources(1, 3, 3), 3: Resources(9, 1, 1)}
    # 1 first: 1 + (2 + 1); then 0: (1 + max(0, 4 - 3)) more; then 2: 3 more; then 3, whose download holds up all.
    assert greedy(asked, 100.0, 4) == [1, 0, 2, 3]
    assert greedy(asked, 6.5, 4) == [1, 0]
    assert greedy(asked, 6.0, 4) == [1]  # a round ends before its deadline, not at it
    assert greedy(asked, 100.0, 2) == [1, 0]
    assert greedy({0: Resources(math.inf, 1, 1)}, 100.0, 1) == []


def test_energy_is_what_the_meter_says_of_each_client(small: Small) -> None:
    loaded = small(*FLAT, "method.selection=energy-aware")
    session = played(loaded)
    world, names = session.world, session.world.fleet.client_names
    each = sum(session.meter.client_energy_j(name, world.now) for name in names)
    assert each == pytest.approx(session.meter.energy_j(world.now), rel=1e-9)
    power = dict(zip(names, (device.power for device in world.fleet.client_devices), strict=True))
    alone = [row for row in world.ledger.rows if names[0] in (row.who, row.peer)]
    extra = totals_of(alone, {names[0]: power[names[0]]}).extra_energy_j
    found = session.meter.client_energy_j(names[0], world.now)
    assert found == pytest.approx(power[names[0]].idle * world.now + extra, rel=1e-9)


def test_those_with_most_left_in_their_batteries_come_first_where_utility_does_not_count(small: Small) -> None:
    how = "{kind: energy-aware, utility: 0.0, exploration: 1.0, least_exploration: 1.0, capacity: 1 kJ, cutoff: 1.0}"
    session = played(small(*FLAT, f"method.selection={how}", "stop.rounds=3"))
    found, last = chosen(session), [row for row in session.tables["selections"] if row["round"] == 3]
    assert found[1].isdisjoint(found[2])  # as long as somebody is new
    left = {row["client"]: row["utility"] for row in last}
    assert all(0 < share < 1 for share in left.values())
    assert min(left[c] for c in found[3]) > max(left[c] for c in left.keys() - found[3])


class Strange(Selector):
    """Chooses what a test says."""

    answer: Any = ()

    def __init__(self, session: Session, params: NoParams) -> None:
        pass

    def choose(self, call: Call) -> Generator[Any, Any, Sequence[int]]:
        yield from ()
        return cast(Sequence[int], self.answer)


@pytest.mark.parametrize(
    ("answer", "blame"),
    [
        ([7, 99], "client 99, who is no candidate"),
        ([3, 3], "a client twice"),
        (list(range(12)), "chooses 12 clients, and 6 are wanted"),
        (None, "must choose client numbers"),
    ],
)
def test_a_selector_that_chooses_wrongly_is_blamed(
    small: Small, monkeypatch: pytest.MonkeyPatch, answer: Any, blame: str
) -> None:
    loaded = small(*FLAT)
    monkeypatch.setattr(Strange, "answer", answer)
    monkeypatch.setattr(selections["uniform"].function, "choose", Strange.choose)
    monkeypatch.setattr(selections["uniform"].function, "answer", answer, raising=False)
    with pytest.raises((HflError, RuntimeError), match=blame):
        played(loaded)


def test_a_client_that_sends_too_many_numbers_is_blamed() -> None:
    choice = SelectionChoice("uniform", NoParams())
    with pytest.raises(RuntimeError, match="must send 0 numbers along"):
        choice.said(lambda: [1.0])


def test_what_does_not_come_in_time_is_told_without_its_numbers(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[float, Sequence[float]]] = []
    of = selections["oort"].function
    monkeypatch.setattr(of, "told", lambda self, report: heard.append((report.seconds, report.numbers())))
    played(small(*FLAT, "method.selection=oort", "method.wait_for_members={kind: quorum, count: 4}"))
    late = [numbers for seconds, numbers in heard if seconds == math.inf]
    back = [numbers for seconds, numbers in heard if seconds < math.inf]
    assert (len(back), len(late)) == (4 * 4, 4 * 2)
    assert not any(late)
    assert all(len(numbers) == 1 and numbers[0] > 0 for numbers in back)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        (["method.participation=1.0", "method.selection=oort"], "method.selection", "a 'participation' below 1"),
        (
            ["method=fedcyclic", "method.participation=0.5", "method.selection=oort"],
            "method.selection",
            "must hear from",
        ),
        (["method.selection={kind: tifl, tiers: 13}"], "method.selection.tiers", "13 tiers, but only 12 clients"),
        (
            ["method.selection={kind: tifl, tiers: 2, probabilities: [1.0]}"],
            "method.selection.probabilities",
            "2 numbers",
        ),
        (
            ["privacy={at: client, clip: 1.0, noise_multiplier: 1.0}", "method.selection=oort"],
            "method.selection",
            "learns",
        ),
        (
            [
                "privacy={at: server, clip: 1.0, noise_multiplier: 1.0, participants: hidden}",
                "method.selection=by-data-size",
            ],
            "privacy.participants",
            "drawn by chance alone",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(small: Small, changes: list[str], key: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        small(*FLAT, *changes)
    assert key in str(refused.value)
    assert message in str(refused.value)
