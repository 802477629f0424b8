"""The named implementations of secure aggregation, and the curve of each against the protocol's counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices.profile import Curve, find_profile
from devices.secagg.constants import DEFAULT, Constants, constants_names, find_constants
from devices.secagg.cost import protocol_cost, protocol_curve
from emulator.errors import InputError

NAMES = ("compiled-2026", "python-2022")


def test_two_implementations_are_bundled_with_title_and_source() -> None:
    assert tuple(constants_names()) == NAMES
    assert DEFAULT in NAMES
    assert find_constants() is not None
    for name in NAMES:
        found = find_constants(name)
        assert "Xeon E5-2697 v4" in found.title
        assert "Bonawitz" in found.source
        assert None not in (found.constants.sign, found.constants.verify)
    source = " ".join(find_constants("compiled-2026").source.split())
    assert "Command: hfl calibrate secure-aggregation --sizes 2,4,8,16,32,64" in source
    assert "--slowdown 0.6" in source
    assert "divided by 0.6" in source


def test_the_two_differ_about_four_hundred_times_in_masks() -> None:
    compiled, python = (find_constants(name).constants.mask_element for name in NAMES)
    assert 300 < python / compiled < 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("compiled-2025", "unknown constants 'compiled-2025'; did you mean 'compiled-2026'?"),
        ("fast", "unknown constants 'fast'; known: 'compiled-2026', 'python-2022'"),
        ("nowhere.yaml", "nowhere.yaml: there is no such file"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        find_constants(name)
    assert message in str(caught.value)


def seconds(
    n: int,
    parameters: int,
    dropout: float,
    share: float,
    constants: Constants,
    member: float,
    server: float,
    vectors: int,
) -> float:
    cost = protocol_cost(n, parameters, dropout, share, constants, vectors)
    return member * cost.client_s + server * cost.server_s


@given(
    st.sampled_from(NAMES),
    st.integers(2, 1000),
    st.integers(1, 10**7),
    st.floats(0, 0.9),
    st.floats(0.5001, 1),
    st.floats(0.1, 20),
    st.floats(0.1, 20),
    st.integers(1, 2),
)
def test_the_curve_is_the_protocol_but_for_the_rounding_of_its_threshold(
    name: str, n: int, parameters: int, dropout: float, share: float, member: float, server: float, vectors: int
) -> None:
    constants = find_constants(name).constants
    counted = seconds(n, parameters, dropout, share, constants, member, server, vectors)
    curve = protocol_curve(parameters, dropout, share, constants, member, server, vectors).seconds(n)
    # What one more client of threshold costs.
    client_s = 2 * n * constants.share_term
    server_s = (2 * share * n + 1) * constants.basis_term + n * constants.secret_term
    error = 1e-9 * counted
    assert -error <= counted - curve <= member * client_s + server * server_s + error


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [2, 3, 5, 10, 20, 50, 100])
def test_on_a_raspberry_pi_the_two_models_agree_within_a_percent(name: str, n: int) -> None:
    constants = find_constants(name).constants
    counted = seconds(n, 100_000, 0.05, 0.66, constants, 3.7, 1.2, 1)
    assert protocol_curve(100_000, 0.05, 0.66, constants, 3.7, 1.2).seconds(n) == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 20, 50])
def test_naming_the_published_implementation_changes_little(n: int) -> None:
    own = find_profile("raspberry-pi-4b").group_operations["secure-aggregation"].seconds(n)
    named = protocol_curve(100_000, 0.05, 0.66, find_constants("python-2022").constants, 3.7, 1.2).seconds(n)
    assert named == pytest.approx(own, rel=0.07)


def test_the_constants_of_ours_stay_6_to_22_percent_below_its_measured_curve() -> None:
    found = find_constants("compiled-2026")
    assert isinstance(found.curve, Curve)
    derived = protocol_curve(100_000, 0.05, 2 / 3, found.constants)
    for n in (2, 4, 8, 16, 32, 64):
        assert 0.78 < derived.seconds(n) / found.curve.seconds(n) < 0.94


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.1, 0.66), "parameters"),
        ((10, 1.0, 0.66), "dropout"),
        ((10, 0.1, 0.66, 0.0), "slowdowns"),
        ((10, 0.1, 0.66, 1.0, -1.0), "slowdowns"),
    ],
)
def test_curves_that_make_no_sense(arguments: tuple[float, ...], message: str) -> None:
    parameters, dropout, share, *slowdowns = arguments
    with pytest.raises(ValueError, match=message):
        protocol_curve(int(parameters), dropout, share, find_constants().constants, *slowdowns)
