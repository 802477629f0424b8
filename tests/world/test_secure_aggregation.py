"""Secure aggregation as a group operation: its threshold, its adversary, and what both cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scenario.command import hfl

from devices.profile import find_profile
from devices.secagg.constants import Constants, find_constants
from devices.secagg.cost import protocol_cost, protocol_curve
from devices.secagg.session import run
from emulator import ledger
from emulator.contracts.world import GroupOperationChoice, Meeting
from emulator.errors import InputError
from emulator.scenario import Loaded, dump, loads
from emulator.world.operations import CurveParams, SecureAggregationParams, backdoor_detection, secure_aggregation
from tests.devices.secagg_parties import vectors
from tests.methods.playing import played

PI, SERVER = find_profile("raspberry-pi-4b"), find_profile("edge-server")
DEFAULT = SecureAggregationParams()
PROTOCOL = SecureAggregationParams(model="protocol")
ACTIVE = SecureAggregationParams(model="protocol", adversary="active")


def least(size: int, params: SecureAggregationParams) -> int:
    return GroupOperationChoice("secure-aggregation", params).least_members(size)


@settings(deadline=None)
@given(st.integers(2, 5000), st.one_of(st.none(), st.floats(0.5, 1, exclude_min=True)))
def test_more_than_half_of_every_group_must_stay(size: int, share: float | None) -> None:
    params = PROTOCOL if share is None else PROTOCOL.model_copy(update={"threshold": share})
    assert size < 2 * least(size, params) <= 2 * size


@pytest.mark.parametrize("adversary", ["passive", "active"])
@pytest.mark.parametrize("size", [2, 3, 4, 6, 9])
def test_as_many_as_the_default_threshold_finish_the_real_protocol(size: int, adversary: str) -> None:
    inputs, threshold = vectors(size, 3), least(size, PROTOCOL)
    outcome = run(inputs, threshold, range(size - threshold), adversary=adversary)
    assert (outcome.total == sum(inputs[size - threshold :])).all()


@pytest.mark.parametrize("threshold", [0.5, 0.34, 0.0, -1.0, 1.01])
def test_thresholds_up_to_one_half_are_refused(threshold: float) -> None:
    with pytest.raises(ValidationError):
        SecureAggregationParams(model="protocol", threshold=threshold)


# Seconds and bytes of versions that knew no other adversary than a passive one, for members, vectors and dropped. A device's own
# curve was then that of 100,000 parameters for every model.
BEFORE = [
    (DEFAULT, (1, 1, 0), 0.45257600000000003, 96, 0),
    (DEFAULT, (2, 1, 0), 0.9141040000000001, 192, 128),
    (DEFAULT, (9, 2, 0), 8.580681, 864, 1024),
    (DEFAULT, (9, 1, 2), 4.476024000000001, 864, 1024),
    (PROTOCOL, (1, 1, 0), 0.0, 0, 0),
    (PROTOCOL, (2, 1, 0), 0.476702811, 244, 230),
    (PROTOCOL, (9, 2, 0), 4.55008048965, 1105, 1334),
    (PROTOCOL, (9, 1, 2), 2.92923065925, 1105, 1326),
]


@pytest.mark.parametrize(("params", "who", "seconds", "up_bytes", "down_bytes"), BEFORE)
def test_without_an_adversary_named_it_costs_what_it_always_did(
    params: SecureAggregationParams, who: tuple[int, int, int], seconds: float, up_bytes: int, down_bytes: int
) -> None:
    size, count, dropped = who
    parameters = 100_000 if params == DEFAULT else 50_000
    found = secure_aggregation(Meeting(PI, SERVER, size, parameters, count, dropped), params)
    assert (found.seconds, found.up_bytes, found.down_bytes) == (seconds, up_bytes, down_bytes)


NAMES = ("python-2022", "compiled-2026")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("who", [(2, 1, 0), (9, 2, 0), (9, 1, 2), (40, 1, 0)])
def test_a_named_implementation_costs_its_own_curve_or_count(name: str, who: tuple[int, int, int]) -> None:
    size, count, dropped = who
    meeting, constants = Meeting(PI, SERVER, size, 50_000, count, dropped), find_constants(name).constants
    named = SecureAggregationParams(constants=name, dropout=0.1, threshold=0.75)
    curve = protocol_curve(50_000, 0.1, 0.75, constants, 3.7, 1.2, count)
    quadratic, default = secure_aggregation(meeting, named), secure_aggregation(meeting, DEFAULT)
    assert quadratic.seconds == pytest.approx(curve.seconds(size) + curve.c * dropped * size, rel=1e-12)
    assert (quadratic.up_bytes, quadratic.down_bytes) == (default.up_bytes, default.down_bytes)
    cost = protocol_cost(size, 50_000, 0.1 + dropped / size, 0.75, constants, count)
    counted = secure_aggregation(meeting, named.model_copy(update={"model": "protocol"}))
    assert counted.seconds == pytest.approx(3.7 * cost.client_s + 1.2 * cost.server_s, rel=1e-12)


def test_the_protocol_without_a_name_is_the_published_implementation() -> None:
    meeting = Meeting(PI, SERVER, 9, 50_000)
    named = PROTOCOL.model_copy(update={"constants": "python-2022"})
    assert secure_aggregation(meeting, PROTOCOL) == secure_aggregation(meeting, named)


@pytest.mark.parametrize("name", NAMES)
def test_given_terms_stay_as_given_beside_a_name(name: str) -> None:
    meeting = Meeting(PI, SERVER, 9, 50_000)
    every = SecureAggregationParams(constants=name, a="1 s", b="100 ms", c="10 ms")
    assert secure_aggregation(meeting, every).seconds == pytest.approx(1 + 0.9 + 0.81)
    curve = protocol_curve(50_000, 0.05, 0.66, find_constants(name).constants, 3.7, 1.2)
    some = SecureAggregationParams(constants=name, b="100 ms")
    assert secure_aggregation(meeting, some).seconds == pytest.approx(curve.a + 0.9 + 81 * curve.c)
    nothing = SecureAggregationParams(constants=name, b="0 s", c="0 s")
    assert secure_aggregation(meeting, nothing).seconds == max(0.0, curve.a)


@pytest.mark.parametrize("model", ["quadratic", "protocol"])
def test_a_device_of_unknown_slowdown_has_no_named_curve(model: str) -> None:
    unknown = PI.model_copy(update={"core_slowdown": None})
    params = SecureAggregationParams(model=model, constants="compiled-2026")
    with pytest.raises(InputError, match="has no 'core_slowdown'"):
        secure_aggregation(Meeting(unknown, SERVER, 4, 50_000), params)


# From the smallest models to the largest. The two models differ by 6 % at most for the sake of the
# measurements that each is fitted to, and by 2 % more because a device's own curve has a server that is as fast as the Xeon.
@pytest.mark.parametrize("parameters", [1_000, 4_810, 16_586, 100_000, 309_290, 10_000_000])
@pytest.mark.parametrize("size", [2, 3, 6, 15, 50, 100])
@pytest.mark.parametrize("vectors", [1, 2])
def test_a_devices_own_curve_scales_as_the_protocol_counts(parameters: int, size: int, vectors: int) -> None:
    like_the_xeon = SERVER.model_copy(update={"core_slowdown": 1.0})
    for server, within in ((like_the_xeon, 0.06), (SERVER, 0.08)):
        meeting = Meeting(PI, server, size, parameters, vectors)
        counted = secure_aggregation(meeting, PROTOCOL).seconds
        assert secure_aggregation(meeting, DEFAULT).seconds == pytest.approx(counted, rel=within)


@pytest.mark.parametrize("parameters", [10, 100_000, 10_000_000])
def test_given_terms_hold_for_every_model(parameters: int) -> None:
    every = SecureAggregationParams(a="1 s", b="100 ms", c="10 ms")
    assert secure_aggregation(Meeting(PI, SERVER, 9, parameters), every).seconds == pytest.approx(1 + 0.9 + 0.81)


def test_pairs_of_updates_are_compared_at_their_length() -> None:
    calls_s = 20e-6 * 3.7
    for parameters in (1_000, 100_000, 10_000_000):
        expected = 45 * (6 * parameters / PI.effective_speed + calls_s)
        found = backdoor_detection(Meeting(PI, SERVER, 9, parameters), CurveParams()).seconds
        assert found == pytest.approx(expected, rel=1e-3)  # profiles have four digits


FAULT = "faults=[{kind: client-crash, at: [1000 d]}]"  # never in these runs; but clients are then played one by one


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["quadratic", "protocol"])
@pytest.mark.parametrize("changes", [(), (FAULT,)], ids=["together", "one by one"])
def test_a_run_charges_what_the_named_implementation_takes(
    name: str, model: str, changes: tuple[str, ...], small: Callable[..., Loaded]
) -> None:
    operation = f"{{kind: secure-aggregation, model: {model}, constants: {name}}}"
    loaded = small(f"method.group_operation={operation}", "method.formation=all", "topology.edges=1", *changes)
    assert loads(dump(loaded.scenario)).scenario == loaded.scenario
    session = played(loaded)
    assert session.world.calm == (not changes)
    rows = [r for r in session.world.ledger.rows if r.kind == ledger.GROUP_OPERATION]
    constants, parameters = find_constants(name).constants, session.lab.model_facts.parameters
    if model == "protocol":
        cost = protocol_cost(8, parameters, 0.05, 0.66, constants)
        expected = 3.7 * cost.client_s + 1.2 * cost.server_s
    else:
        expected = protocol_curve(parameters, 0.05, 0.66, constants, 3.7, 1.2).seconds(8)
    assert len(rows) == 8 * 2 * 2  # members, group rounds, rounds
    assert [r.end_s - r.start_s for r in rows] == pytest.approx([expected] * len(rows), rel=1e-9)


def test_an_active_adversary_costs_signatures_on_the_members_device() -> None:
    meeting = Meeting(PI, SERVER, 9, 50_000, dropped=2)
    constants = find_constants().constants
    cost = protocol_cost(9, 50_000, 0.05 + 2 / 9, 0.66, constants, adversary="active")
    passive, active = secure_aggregation(meeting, PROTOCOL), secure_aggregation(meeting, ACTIVE)
    assert active.seconds == pytest.approx(3.7 * cost.client_s + 1.2 * cost.server_s, rel=1e-12)
    assert (active.up_bytes, active.down_bytes) == (cost.overhead_up_bytes, cost.down_bytes)
    left = 9 - 0.05 * 9 - 2
    assert constants.sign
    assert constants.verify
    signatures_s = 3.7 * (2 * constants.sign + (8 + left) * constants.verify) + 1.2 * left * constants.entry
    assert active.seconds - passive.seconds == pytest.approx(signatures_s, rel=1e-9)
    assert active.up_bytes - passive.up_bytes == 64 + 68
    assert active.down_bytes - passive.down_bytes == pytest.approx(9 * 64 + left * 68, abs=1)
    alone = secure_aggregation(Meeting(PI, SERVER, 1, 50_000), ACTIVE)
    assert (alone.seconds, alone.up_bytes, alone.down_bytes) == (0, 0, 0)


def test_an_active_adversary_in_a_run(small: Callable[..., Loaded]) -> None:
    def sums(adversary: str) -> tuple[int, int, float]:
        operation = f"{{kind: secure-aggregation, model: protocol, dropout: 0.0, adversary: {adversary}}}"
        loaded = small(f"method.group_operation={operation}", "method.formation=all", "method.group_rounds=1",
                       "stop.rounds=1", "topology.edges=1")  # fmt: skip
        assert loads(dump(loaded.scenario)).scenario == loaded.scenario
        rows = [r for r in played(loaded).world.ledger.rows if r.what == "secure-aggregation"]
        up, down = (sum(r.bytes for r in rows if r.hop == hop) for hop in (ledger.CLIENT_SERVER, ledger.SERVER_CLIENT))
        return up, down, sum(r.end_s - r.start_s for r in rows if r.kind == ledger.GROUP_OPERATION)

    passive, active = sums("passive"), sums("active")
    assert (active[0] - passive[0], active[1] - passive[1]) == (8 * (64 + 68), 8 * 8 * (64 + 68))
    assert active[2] > passive[2]


def test_an_active_adversary_needs_the_protocol() -> None:
    with pytest.raises(ValidationError, match="'active' needs 'model: protocol'"):
        SecureAggregationParams(adversary="active")


def test_constants_without_signatures_are_refused_for_an_active_adversary_alone(tmp_path: Path) -> None:
    file = tmp_path / "constants.yaml"
    terms = {name: "1 us" for name in Constants.model_fields if name not in ("sign", "verify")}
    lines = "".join(f"  {name}: {value}\n" for name, value in terms.items())
    file.write_text(f"title: old\nsource: a host\nconstants:\n{lines}", encoding="utf-8")
    meeting, old = Meeting(PI, SERVER, 9, 50_000), {"constants": str(file)}
    assert secure_aggregation(meeting, PROTOCOL.model_copy(update=old)).seconds > 0
    with pytest.raises(InputError, match="has no 'sign' or no 'verify'") as caught:
        secure_aggregation(meeting, ACTIVE.model_copy(update=old))
    assert caught.value.key == "method.group_operation.constants"
    changes = (f"method.group_operation={{kind: secure-aggregation, model: protocol, adversary: active, constants: {file}}}",
               "topology.clients=12", "stop={rounds: 1}")  # fmt: skip
    done = hfl("run", "quickstart", *(word for each in changes for word in ("--set", each)), "--out", tmp_path / "run")
    assert done.code == 2
    assert f"method.group_operation.constants: {file} has no 'sign' or no 'verify'" in done.err
