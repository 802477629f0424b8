"""Spreads of profiles, and profiles whose figures are other than their files say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from devices.compute import training_s
from devices.profile import UNCERTAIN, ProfileFactors, find_profile, profile_names
from devices.secagg.constants import constants_names, find_constants
from devices.spread import Spread
from emulator.contracts.uncertainty import Distribution, DistributionChoice
from emulator.errors import InputError, ScenarioError

read: TypeAdapter[DistributionChoice] = TypeAdapter(Distribution)


def spread(**given: Any) -> Spread:
    return Spread.model_validate({"source": "a test", **given})


def test_every_range_of_a_bundled_profile_has_its_figure_in_it() -> None:
    seen = 0
    for name in profile_names():
        profile = find_profile(name)
        for figure, each in profile.spread.items():
            seen += 1
            value = profile.figure(figure)
            assert value is not None
            if each.low is not None and each.high is not None:
                assert each.low.value <= value <= each.high.value, (name, figure)
    assert seen >= 8


def test_the_cost_of_a_mask_lies_between_the_implementations_that_are_known() -> None:
    """The range is no other than what the profiles say, and the published and our own figure are its ends."""
    known = [find_constants(name).constants.mask_element for name in constants_names()]
    for name in constants_names():
        each = find_constants(name).spread["mask_element"]
        assert each.low is not None
        assert each.high is not None
        assert (each.low.value, each.high.value) == (pytest.approx(min(known)), pytest.approx(max(known)))
    assert (min(known), max(known)) == (pytest.approx(2.075e-9), pytest.approx(864.6e-9))


def test_spreads_are_distributions() -> None:
    deviation = read.validate_python(spread(relative=0.3).distribution(5.0))
    drawn = deviation((np.arange(20_000) + 0.5) / 20_000)
    assert np.median(drawn) == pytest.approx(1, rel=1e-3)
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(0.3, rel=0.01)
    ends = read.validate_python(spread(low="2 GFLOP/s", high="8 GFLOP/s").distribution(4e9))
    assert ends(np.array([1e-12, 0.5, 1 - 1e-12])).tolist() == pytest.approx([0.5, 1.0, 2.0])
    own = read.validate_python(spread(low="1 ns", high="100 ns").distribution())
    assert own(np.array([0.5])) == pytest.approx(1e-8)
    with pytest.raises(ValueError, match="is one of factors"):
        spread(relative=0.3).distribution()


@pytest.mark.parametrize(
    "given", [{}, {"relative": 0.1, "low": 1, "high": 2}, {"low": 1}, {"low": 2, "high": 1}, {"low": 0, "high": 1},
              {"low": "1 s", "high": "2 W"}, {"relative": 0}],
)  # fmt: skip
def test_spreads_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spread(**given)


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("{sped: {relative: 0.1, source: me}}", "nothing is called 'sped' here; did you mean 'speed'?"),
        ("{power.idle: {low: 1 s, high: 2 s, source: me}}", "the range of 'power.idle' is of another kind"),
        ("{speed: {relative: 0.1}}", "is required"),
    ],
)
def test_a_profile_with_a_wrong_spread_is_refused_with_its_place(tmp_path: Path, section: str, why: str) -> None:
    text = (Path(__file__).resolve().parents[2] / "devices" / "profiles" / "jetson-nano.yaml").read_text()
    file = tmp_path / "mine.yaml"
    file.write_text(f"{text}spread: {section}\n")
    with pytest.raises(ScenarioError) as error:
        find_profile(str(file))
    assert error.value.problems[0].line == text.count("\n") + 1
    assert why in str(error.value)


def test_factors_are_those_of_the_figures() -> None:
    pi = find_profile("raspberry-pi-4b")
    twice = pi.times(ProfileFactors(speed=2.0))
    assert training_s(twice, 1e9, 100, 10) == pytest.approx(training_s(pi, 1e9, 100, 10) / 2, rel=1e-12)
    assert twice.name == pi.name
    for figure in UNCERTAIN:
        if figure == "speed":
            continue
        section, _, name = figure.partition(".")
        made = pi.times(ProfileFactors.model_validate({section: {name: 1.05} if name else 1.05}))
        changed = {f for f in UNCERTAIN if made.figure(f) != pi.figure(f)}
        assert changed == {figure}
        value = pi.figure(figure)
        assert value is not None
        assert made.figure(figure) == pytest.approx(1.05 * value)
    slow = pi.times(ProfileFactors(core_slowdown=2.0)).group_operations["secure-aggregation"]
    assert slow.b == pytest.approx(2 * pi.group_operations["secure-aggregation"].b)
    with pytest.raises(ValueError, match="would draw less in the state 'compute'"):
        pi.times(ProfileFactors.model_validate({"power": {"idle": 3.0}}))
    assert math.isclose(pi.times(ProfileFactors()).effective_speed, pi.effective_speed)


def test_a_mask_element_takes_the_place_of_that_of_the_constants(small: Any) -> None:
    from emulator.contracts.world import Meeting
    from emulator.scenario import dump
    from emulator.scenario.load import loads

    def cost(operation: str) -> float:
        scenario = small(f"method.group_operation={operation}").scenario
        pi, edge = find_profile("raspberry-pi-4b"), find_profile("edge-server")
        meeting = Meeting(size=6, parameters=100_000, vectors=1, device=pi, server=edge)
        return float(scenario.method.params.group_operation(meeting).seconds)

    published, ours = (
        "{kind: secure-aggregation, constants: python-2022}",
        "{kind: secure-aggregation, mask_element: 864.6 ns}",
    )
    assert cost(ours) == cost(published)
    assert cost(ours) == pytest.approx(
        cost("secure-aggregation"), rel=0.06
    )  # the device's curve, of the same measurements
    cheap = cost("{kind: secure-aggregation, mask_element: 2.075 ns}")
    # Masks: n for each member, the own ones of those who stay and those of the pairs that were lost, at the slowdowns of both.
    dropped = 0.05 * 6
    masks = 3.7 * 6 + 1.2 * (6 - dropped + dropped * (6 - dropped))
    assert cost(ours) - cheap == pytest.approx(masks * 1e5 * (864.6e-9 - 2.075e-9), rel=1e-9)
    for model in ("quadratic", "protocol"):
        text = dump(
            small(f"method.group_operation={{kind: secure-aggregation, model: {model}, mask_element: 5 ns}}").scenario
        )
        assert loads(text).scenario.method.params.group_operation.params.mask_element == 5e-9


def test_an_unknown_profile_among_the_factors_is_refused(small: Any) -> None:
    with pytest.raises(InputError, match="unknown device 'toaster'"):
        small("topology.profiles={toaster: {speed: 2}}")
