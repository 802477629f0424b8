from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from secagg_parties import vectors

from devices.secagg import client, encoding, server, session, shamir
from devices.secagg.constants import Constants, find_constants
from devices.secagg.cost import ProtocolGroup, operations, protocol_cost
from devices.secagg.identity import Membership
from devices.secagg.keys import KeyPair
from devices.secagg.measurement import measure
from devices.secagg.session import run
from devices.secagg.shamir import threshold_of
from devices.secagg.steps import Adversary, steps_of
from emulator.errors import ScenarioError

ONES = Constants.model_construct(**dict.fromkeys(Constants.model_fields, 1.0))


def only(**seconds: float) -> Constants:
    """Constants of which all but these are zero."""
    return Constants.model_construct(**(dict.fromkeys(Constants.model_fields, 0.0) | seconds))


@pytest.mark.parametrize("adversary", ["passive", "active"])
@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize(
    ("clients", "threshold", "dropped", "parameters", "count"),
    [(2, 2, 0, 5, 1), (3, 2, 1, 10, 1), (5, 3, 2, 1, 2), (8, 6, 0, 33, 2), (8, 5, 3, 100, 1), (12, 8, 3, 7, 1)],
)
def test_bytes_are_exactly_what_a_run_sends(
    clients: int, threshold: int, dropped: int, parameters: int, count: int, bits: int, adversary: Adversary
) -> None:
    outcome = run(vectors(clients, parameters * count, bits=bits), threshold, range(dropped), adversary=adversary)
    cost = protocol_cost(
        clients, parameters, dropped / clients, threshold / clients, ONES, count, bits, adversary=adversary
    )
    assert tuple(cost.steps) == steps_of(adversary)
    for number in outcome.survivors:
        assert outcome.up_bytes[number] == {name: step.up_bytes for name, step in cost.steps.items()}
        assert outcome.down_bytes[number] == {name: step.down_bytes for name, step in cost.steps.items()}
    assert cost.up_bytes == sum(outcome.up_bytes[clients - 1].values())
    assert cost.down_bytes == sum(outcome.down_bytes[clients - 1].values())
    assert cost.vector_bytes == parameters * count * bits // 8


class Counted:
    """Counts the operations of a run by party and step, a client's as the mean of those that took the step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[tuple[str, str], dict[str, float]] = {}
        self._now: Counter[str] = Counter()
        clients, of_server = session._Meter.clients, session._Meter.server

        def by_clients(meter: Any, step: str, numbers: list[int], work: Callable[[int], bytes]) -> list[bytes]:
            self._now = Counter()
            sent = clients(meter, step, numbers, work)
            self.found["client", step] = {name: count / len(numbers) for name, count in self._now.items()}
            return sent

        def by_server(meter: Any, step: str, work: Callable[[], Any]) -> Any:
            self._now = Counter(self.found.get(("server", step), {}))
            result = of_server(meter, step, work)
            self.found["server", step] = dict(self._now)
            return result

        monkeypatch.setattr(session._Meter, "clients", by_clients)
        monkeypatch.setattr(session._Meter, "server", by_server)
        one = lambda *arguments: 1  # noqa: E731
        for owner, name, operation, weight in (
            (KeyPair, "__init__", "key_pair", one),
            (KeyPair, "agree", "agreement", one),
            (client, "seal", "seal", one),
            (client, "open_box", "unseal", one),
            (client, "expand", "mask_element", lambda key, length, dtype: length),
            (server, "expand", "mask_element", lambda key, length, dtype: length),
            (encoding.Encoding, "encode", "encode_element", lambda self, values: len(values)),
            (shamir, "evaluate", "share_term", lambda coefficients, x: len(coefficients)),
            (server, "basis", "basis_term", lambda points: len(list(points)) ** 2),
            (server, "combine", "secret_term", lambda shares, weights: len(weights)),
            (Membership, "sign", "sign", one),
            (Membership, "verify", "verify", one),
        ):
            self._watch(monkeypatch, owner, name, operation, weight)

    def _watch(self, monkeypatch: Any, owner: Any, name: str, operation: str, weight: Callable[..., int]) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self._now[operation] += weight(*arguments, **options)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)


@pytest.mark.parametrize("adversary", ["passive", "active"])
@pytest.mark.parametrize(("clients", "threshold", "dropped"), [(2, 2, 0), (4, 3, 1), (7, 4, 2), (9, 5, 4)])
def test_operations_come_as_often_as_they_are_counted(
    clients: int, threshold: int, dropped: int, adversary: Adversary, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    values = [np.zeros(13)] * clients
    run(values, threshold, range(dropped), encoding=encoding.Encoding(clients), adversary=adversary)
    group = ProtocolGroup(clients, threshold, dropped, 13, adversary)
    not_watched = {"step", "entry", "add_element"}
    for party in ("client", "server"):
        for step in steps_of(adversary):
            expected = {k: n for k, n in operations(party, step, group).items() if k not in not_watched and n}
            assert counted.found[party, step] == expected, (party, step)


def test_costs_in_closed_form() -> None:
    # Ten clients of whom two drop out, a threshold of seven, two vectors of 50.
    def cost(**seconds: float) -> tuple[float, float]:
        found = protocol_cost(10, 50, 0.2, 2 / 3, only(**seconds), vectors=2)
        return found.client_s, found.server_s

    assert cost(step=1.0) == (4, 4)
    assert cost(key_pair=1.0) == (2, 2)
    assert cost(agreement=1.0) == (18, 16)
    assert cost(share_term=1.0) == (140, 0)
    assert cost(seal=1.0) == cost(unseal=1.0) == (9, 0)
    assert cost(encode_element=1.0) == (100, 0)
    assert cost(mask_element=1.0) == (1000, 2400)
    assert cost(add_element=1.0) == (0, 800)
    assert cost(entry=1.0) == (0, 10 + 90 + 80)
    assert cost(basis_term=1.0) == (0, 49)
    assert cost(secret_term=1.0) == (0, 70)


def test_what_an_active_adversary_adds_in_closed_form() -> None:
    # Ten clients of whom two drop out: two signatures, nine of keys and eight of lists checked, one more step for both.
    def extra(**seconds: float) -> tuple[float, float]:
        passive, active = (
            protocol_cost(10, 50, 0.2, 2 / 3, only(**seconds), adversary=a) for a in ("passive", "active")
        )
        return active.client_s - passive.client_s, active.server_s - passive.server_s

    assert extra(sign=1.0) == (2, 0)
    assert extra(verify=1.0) == (9 + 8, 0)
    assert extra(step=1.0) == (1, 1)
    assert extra(entry=1.0) == (0, 8)
    others = set(Constants.model_fields) - {"sign", "verify", "step", "entry"}
    assert extra(**dict.fromkeys(others, 1.0)) == (0, 0)
    passive, active = (protocol_cost(10, 50, 0.2, 2 / 3, ONES, adversary=a) for a in ("passive", "active"))
    assert active.up_bytes - passive.up_bytes == 64 + 68
    assert active.down_bytes - passive.down_bytes == 10 * 64 + 8 * 68
    assert active.vector_bytes == passive.vector_bytes


# Seconds of a client and of the server, and bytes up and down, of versions that knew no other adversary than a passive one.
PASSIVE = [
    ((2, 1000, 0.0, 0.66), 0.009196667999999998, 0.0021306708, 4244, 230),
    ((7, 50_000, 0.05, 0.66), 0.3415145700000001, 0.45367320607500006, 200_859, 1019),
    ((20, 100_000, 0.1, 2 / 3), 1.85071926, 5.0923842612, 402_458, 3066),
    ((100, 100_000, 0.3, 0.75), 9.306432500000001, 194.9993576875, 412_298, 15_594),
]


@pytest.mark.parametrize(("setting", "client_s", "server_s", "up_bytes", "down_bytes"), PASSIVE)
def test_a_passive_adversary_costs_what_it_always_did(
    setting: tuple[int, int, float, float], client_s: float, server_s: float, up_bytes: int, down_bytes: int
) -> None:
    cost = protocol_cost(*setting, find_constants().constants)
    assert (cost.client_s, cost.server_s, cost.up_bytes, cost.down_bytes) == (client_s, server_s, up_bytes, down_bytes)
    assert cost == protocol_cost(*setting, find_constants().constants, adversary="passive")


def test_other_implementations_do_more() -> None:
    group = ProtocolGroup(10, 7, 2.0, 100)
    found = operations("server", "unmask", group, reuse_basis=False, recover_all=True)
    assert (found["basis_term"], found["agreement"], found["mask_element"]) == (490, 18, 2600)


def test_recovery_makes_the_server_quadratic() -> None:
    masks = only(mask_element=1e-6)
    with_dropouts, without = (
        [protocol_cost(n, 1000, dropout, 2 / 3, masks).server_s for n in (100, 200)] for dropout in (0.1, 0.0)
    )
    assert without[1] / without[0] == pytest.approx(2)
    assert with_dropouts[1] / with_dropouts[0] == pytest.approx(4, rel=0.06)


def test_beside_the_vector_little_is_sent() -> None:
    cost = protocol_cost(20, 100_000, 0.0, 2 / 3, ONES)
    assert cost.vector_bytes == 400_000
    assert cost.overhead_up_bytes == 68 + (4 + 19 * 86) + 4 + (8 + 20 * 37)
    assert cost.down_bytes == 20 * 68 + 19 * 86 + 20 * 4


def test_a_group_of_one_has_nobody_to_hide_among() -> None:
    for adversary in ("passive", "active"):
        cost = protocol_cost(1, 100, 0.0, 2 / 3, ONES, adversary=adversary)
        assert (cost.client_s, cost.server_s, cost.overhead_up_bytes, cost.down_bytes) == (0, 0, 0, 0)
        assert cost.up_bytes == 400


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 10, 0.0, 0.6), "clients"),
        ((5, 0, 0.0, 0.6), "parameters"),
        ((5, 10, 1.0, 0.6), "dropout"),
        ((5, 10, -0.1, 0.6), "dropout"),
        ((5, 10, float("nan"), 0.6), "dropout"),
        ((5, 10, 0.0, 0.5), "share of the clients"),
    ],
)
def test_costs_that_make_no_sense(arguments: tuple[int, int, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        protocol_cost(*arguments, ONES)


@pytest.mark.parametrize("missing", ["sign", "verify"])
def test_an_active_adversary_asks_for_constants_of_signatures(missing: str) -> None:
    without = Constants.model_construct(**{**dict(ONES), missing: None})
    assert protocol_cost(5, 10, 0.0, 0.6, without) == protocol_cost(5, 10, 0.0, 0.6, ONES)
    with pytest.raises(ValueError, match="no constants 'sign' and 'verify'"):
        protocol_cost(5, 10, 0.0, 0.6, without, adversary="active")


def test_measured_groups_mix_runs_to_the_share_that_drops_out() -> None:
    seen = []
    rows = list(measure((2, 4, 8), 20, 0.3, 1, lambda clients, dropped: seen.append((clients, dropped))))
    assert seen == [(2, 0), (4, 1), (8, 2)]  # no more than the threshold leaves room for
    assert [row.dropped for row in rows] == [0, 1, 2]
    (row,) = measure((8,), 20, 0.05, 2)
    assert row.dropped == pytest.approx(0.4)
    assert {o.group.dropped for o in row.observations} == {0, 1}
    assert len(row.observations) == 2 * 2 * 4
    cost = protocol_cost(8, 20, 0.05, 2 / 3, ONES)
    assert (row.up_bytes, row.down_bytes) == (cost.up_bytes, cost.down_bytes)
    assert all(o.group.threshold == threshold_of(8, 2 / 3) for o in row.observations)


def test_measured_groups_with_signatures() -> None:
    (row,) = measure((5,), 20, 0.2, 1, adversary="active")
    assert [(o.party, o.steps) for o in row.observations] == [
        (party, (step,)) for party in ("client", "server") for step in steps_of("active")
    ]
    assert {o.group for o in row.observations} == {ProtocolGroup(5, 4, 1, 20, "active")}
    cost = protocol_cost(5, 20, 0.2, 2 / 3, ONES, adversary="active")
    assert (row.up_bytes, row.down_bytes) == (cost.up_bytes, cost.down_bytes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), 5, 0.0, 1), "at least 2 clients"),
        (((), 5, 0.0, 1), "at least 2 clients"),
        (((2,), 0, 0.0, 1), "elements"),
        (((2,), 5, 0.0, 0), "repeats"),
        (((2,), 5, 1.0, 1), "dropout"),
    ],
)
def test_measurements_that_make_no_sense(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(measure(*arguments))


def test_the_bundled_constants_name_their_source() -> None:
    found = find_constants()
    assert "Bonawitz" in found.source
    assert "Mansouri" in found.source
    assert found.constants.agreement == pytest.approx(2.877e-3)
    assert found.curve is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; a file of constants has the keys 'title', 'source', 'constants', 'curve'"),
        ("title: x\nsource: y\nconstants: {agreement: 3}\n", "3:24: constants.agreement: 3 has no unit"),
        ("title: x\nsource: y\nconstants: {agrement: 3 ms}\n", "3:13: constants.agrement: unknown key; did you mean"),
    ],
)
def test_what_is_wrong_with_a_file_of_constants_is_said(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "constants.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        find_constants(str(file))
    assert message in str(caught.value)
