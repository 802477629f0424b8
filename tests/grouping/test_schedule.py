from __future__ import annotations

import pytest
from pydantic import ValidationError

from emulator.grouping.schedule import EveryParams, every, fixed
from emulator.registry import Chosen, NoParams, schedules


def test_fixed_forms_groups_once() -> None:
    assert [fixed(r, NoParams()) for r in range(4)] == [True, False, False, False]


@pytest.mark.parametrize("rounds", [1, 3, 50])
def test_every_forms_groups_before_the_first_round_and_then_at_equal_distances(rounds: int) -> None:
    rule = Chosen("schedule", "every", EveryParams(rounds=rounds))
    assert [r for r in range(120) if rule(r)] == list(range(0, 120, rounds))
    assert every(0, EveryParams(rounds=rounds))


def test_names_and_limits() -> None:
    assert {"fixed", "every"} <= set(schedules.names())
    with pytest.raises(ValidationError, match="rounds"):
        EveryParams(rounds=0)
