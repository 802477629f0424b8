"""Limits that no round can keep are refused before anything runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator.errors import ScenarioError
from emulator.scenario import Loaded


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "method.min_members=100",
            r"method\.min_members: no group has 100 members \(the largest has 4\).*say 4 or less",
        ),
        (
            "method.wait_for_members={kind: quorum, count: 50}",
            r"wait_for_members\.count: waits for 50, but no more than 4",
        ),
        ("method.sampling={kind: uniform, groups: 9}", r"method\.sampling.*9"),
        ("faults=[{kind: edge-outage, edges: [7], at: [0 s], lasts: 1 s}]", r"faults.*edge"),
    ],
)
def test_a_limit_above_what_there_is_is_refused(small: Callable[..., Loaded], change: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        small(change)
