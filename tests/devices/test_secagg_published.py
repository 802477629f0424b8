"""The bundled constants against the published measurements that they are fitted to (see profiles/python-2022.yaml)."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from devices import secure_aggregation
from devices.secagg.constants import Constants, find_constants
from devices.secagg.cost import ProtocolGroup, operations, protocol_cost, seconds_of
from devices.secagg.fit import Observation, fit_constants
from devices.secagg.steps import KEYS, MASKED, SHARES, STEPS, UNMASK

TABLE = Path(__file__).resolve().parents[2] / "../shared/traces/secagg/ccs17_time_by_round.csv"
needs_table = pytest.mark.skipif(not TABLE.exists(), reason="the published table is not here")

CLIENT_ROUNDS = dict(zip(STEPS, ("round0", "roudn1", "round2", "round4"), strict=True))  # its own spelling
HOW = {"reuse_basis": False, "recover_all": True}  # how the measured implementation counts


def published() -> list[Observation]:
    """The table as observations. Server rounds other than the second are one: it adds vectors in its last."""
    means: dict[ProtocolGroup, dict[tuple[str, str], float]] = {}
    for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        clients = int(row["nclients"])
        dropped = round(float(row["dropout"]) * clients)
        group = ProtocolGroup(clients, int(row["threshold"]), dropped, int(row["dimension"]))
        means.setdefault(group, {})[row["entity"], row["round"]] = float(row["mean"])
    found = []
    for group, mean in means.items():
        found += [Observation("client", (s,), group, mean["client", r]) for s, r in CLIENT_ROUNDS.items()]
        found.append(Observation("server", (SHARES,), group, mean["server", "round1"]))
        rest = sum(mean["server", r] for r in ("round0", "round2", "round4"))
        found.append(Observation("server", (KEYS, MASKED, UNMASK), group, rest))
    return found


@needs_table
def test_the_bundled_constants_are_the_fit_with_the_stated_errors() -> None:
    observations = published()
    assert len(observations) == 51 * 6
    fitted = fit_constants(observations, **HOW)
    bundled = find_constants("python-2022")
    signatures = {"sign", "verify"}
    assert {name for name in Constants.model_fields if getattr(fitted.constants, name) is None} == signatures
    for name in Constants.model_fields.keys() - signatures:
        assert getattr(bundled.constants, name) == pytest.approx(getattr(fitted.constants, name), rel=2e-3), name
    source = " ".join(bundled.source.split())
    assert f"a client's total time by {fitted.client}, the server's by {fitted.server}." in source


def test_signatures_are_scaled_by_the_stated_measurement() -> None:
    found = find_constants("python-2022")
    said = re.search(
        r"took ([\d.]+) us, a signature \(Ed25519\) ([\d.]+) us and its verification ([\d.]+) us", found.source
    )
    assert said
    key_pair, sign, verify = map(float, said.groups())
    assert found.constants.sign == pytest.approx(found.constants.key_pair * sign / key_pair, rel=1e-3)
    assert found.constants.verify == pytest.approx(found.constants.key_pair * verify / key_pair, rel=1e-3)


@needs_table
def test_our_counts_are_below_the_measured_server_only() -> None:
    constants = find_constants("python-2022").constants
    for group in {observation.group for observation in published()}:
        cost = protocol_cost(group.clients, group.elements, group.dropped / group.clients, 2 / 3, constants)
        theirs = sum(seconds_of(operations("server", step, group, **HOW), constants) for step in STEPS)
        client = sum(seconds_of(operations("client", step, group, **HOW), constants) for step in STEPS)
        assert cost.client_s == pytest.approx(client)
        assert cost.server_s < theirs


# Published means of the seconds of a client and of the server.
ROWS = [  # parameters, clients, dropout, client's time, server's time
    (10_000, 100, 0.0, 1.470, 1.258),
    (10_000, 100, 0.1, 1.482, 12.206),
    (100_000, 100, 0.0, 9.462, 10.658),
    (100_000, 100, 0.1, 9.457, 100.759),
    (300_000, 300, 0.0, 79.425, 97.172),
]


@pytest.mark.parametrize(("parameters", "clients", "dropout", "client_s", "server_s"), ROWS)
def test_costs_meet_measurements(
    parameters: int, clients: int, dropout: float, client_s: float, server_s: float
) -> None:
    cost = protocol_cost(clients, parameters, dropout, 2 / 3, find_constants("python-2022").constants)
    assert cost.client_s == pytest.approx(client_s, rel=0.04)
    assert cost.server_s == pytest.approx(server_s, rel=0.11)


@pytest.mark.parametrize("clients", [2, 3, 5, 10, 20, 50, 100])
def test_the_two_cost_models_agree_at_the_reference_setting(clients: int) -> None:
    parameters, dropout = secure_aggregation.REFERENCE_PARAMETERS, secure_aggregation.REFERENCE_DROPOUT
    cost = protocol_cost(clients, parameters, dropout, 2 / 3, find_constants("python-2022").constants)
    quadratic = secure_aggregation.curve(parameters, dropout, slowdown=1.0).seconds(clients)
    assert cost.client_s + cost.server_s == pytest.approx(quadratic, rel=0.06)
