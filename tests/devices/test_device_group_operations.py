from __future__ import annotations

import csv
from pathlib import Path

import pytest
from pydantic import ValidationError

from devices import backdoor_detection, secure_aggregation
from devices.profile import Curve, Terms

MEASURED = Path(__file__).resolve().parents[2] / "../shared/traces/secagg/ccs17_totals.csv"

# Published means of the seconds of a client and of the server (see the docstring of `secure_aggregation`).
ROWS = [  # parameters, clients, dropout, client's time, server's time
    (10_000, 100, 0.0, 1.470, 1.258),
    (10_000, 100, 0.1, 1.482, 12.206),
    (100_000, 100, 0.0, 9.462, 10.658),
    (100_000, 100, 0.1, 9.457, 100.759),
    (100_000, 300, 0.1, 29.386, 876.003),
    (300_000, 300, 0.3, 80.843, 7159.128),
]


@pytest.mark.parametrize(("parameters", "clients", "dropout", "client_s", "server_s"), ROWS)
def test_secure_aggregation_meets_the_measurements(
    parameters: int, clients: int, dropout: float, client_s: float, server_s: float
) -> None:
    curve = secure_aggregation.curve(parameters, dropout, slowdown=1.0)
    assert curve.seconds(clients) == pytest.approx(client_s + server_s, rel=0.08)


@pytest.mark.skipif(not MEASURED.exists(), reason="the published table is not here")
def test_secure_aggregation_meets_the_whole_table_within_the_stated_error() -> None:
    checked = 0
    for row in csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()):
        parameters, clients, dropout = int(row["dimension"]), int(row["nclients"]), float(row["dropout"])
        within = (
            0.07
            if clients == 100 and parameters >= 10_000
            else 0.08
            if clients <= 300 and parameters >= 100_000
            else None
        )
        if within is not None:
            total = float(row["client_s"]) + float(row["server_s"])
            curve = secure_aggregation.curve(parameters, dropout, slowdown=1.0)
            assert curve.seconds(clients) == pytest.approx(total, rel=within), row
            checked += 1
    assert checked == 24


def test_secure_aggregation_in_closed_form() -> None:
    # 200,000 parameters are two masks; the member is three times slower than the Xeon, its server twice.
    curve = secure_aggregation.curve(200_000, 0.1, slowdown=3.0, server_slowdown=2.0)
    assert curve.a == 0
    assert curve.b == pytest.approx(3 * (0.0028 + 0.00317 + 2 * 0.0865) + 2 * 2 * 0.106)
    assert curve.c == pytest.approx(3 * 3.5e-6 + 2 * 0.1 * (2 * 0.0865 + 0.00277))


def test_two_vectors_cost_as_much_as_a_model_of_twice_the_size() -> None:
    double, large = secure_aggregation.curve(50_000, 0.05, 3.7, vectors=2), secure_aggregation.curve(100_000, 0.05, 3.7)
    for parameters in (1_000, 50_000, 800_000):
        assert double.of(parameters) == large.of(2 * parameters)


def test_only_recovery_and_secret_sharing_are_quadratic() -> None:
    assert secure_aggregation.curve(100_000, 0.0, 1.0).c == pytest.approx(3.5e-6)
    assert secure_aggregation.curve(100_000, 0.2, 1.0).c > 4000 * 3.5e-6


def test_a_curve_is_its_own_at_its_size_and_only_its_part_grows() -> None:
    curve = Curve(a="1 s", b="20 ms", c="3 ms", parameters=1000, proportional=Terms(a="0 s", b="10 ms", c="3 ms"))
    assert curve.of(1000).seconds(10) == curve.seconds(10)
    assert curve.of(4000).seconds(10) == pytest.approx(1 + 0.5 + 1.2)
    assert curve.faster(2).of(4000).seconds(10) == pytest.approx((1 + 0.5 + 1.2) / 2)
    assert Curve(a="1 s", b="20 ms", c="3 ms", parameters=1000).of(2000).seconds(10) == pytest.approx(2 * 1.5)
    assert Curve(a="1 s", b="20 ms", c="3 ms").of(2000).seconds(10) == pytest.approx(1.5)
    with pytest.raises(ValidationError, match="'proportional' needs 'parameters'"):
        Curve(a="1 s", b="20 ms", c="3 ms", proportional=Terms(a="0 s", b="10 ms", c="3 ms"))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 0.1, 1.0), "parameters"),
        ((10, 1.0, 1.0), "dropout"),
        ((10, -0.1, 1.0), "dropout"),
        ((10, 0.1, 0.0), "slowdown"),
    ],
)
def test_secure_aggregation_refuses_nonsense(arguments: tuple[int, float, float], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        secure_aggregation.curve(*arguments)


def test_backdoor_detection_in_closed_form() -> None:
    # 6 FLOP a parameter at 6 GFLOP/s are 1 ms a pair; the calls take 20 us, three times that here.
    curve = backdoor_detection.curve(1_000_000, 6e9, slowdown=3.0)
    pair_s = 1e-3 + 60e-6
    assert [curve.seconds(n) for n in (1, 2, 10)] == pytest.approx([pair_s, 3 * pair_s, 55 * pair_s])


@pytest.mark.parametrize("arguments", [(0, 1e9, 1.0), (10, 0.0, 1.0), (10, float("inf"), 1.0), (10, 1e9, 0.0)])
def test_backdoor_detection_refuses_nonsense(arguments: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        backdoor_detection.curve(*arguments)
