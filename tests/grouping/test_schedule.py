from __future__ import annotations

import pytest
from pydantic import ValidationError

from emulator.contracts.grouping import ScheduleChoice, schedules
from emulator.grouping.schedule import EveryParams, GrowingParams, every, fixed, growing, growing_count
from emulator.registry import NoParams


def test_fixed_forms_groups_once() -> None:
    assert [fixed(r, 30, NoParams()) for r in range(4)] == [True, False, False, False]


@pytest.mark.parametrize("rounds", [1, 3, 50])
def test_every_forms_groups_before_the_first_round_and_then_at_equal_distances(rounds: int) -> None:
    rule = ScheduleChoice("every", EveryParams(rounds=rounds))
    assert [r for r in range(120) if rule(r, 30)] == list(range(0, 120, rounds))
    assert every(0, 30, EveryParams(rounds=rounds))


def test_names_and_limits() -> None:
    assert {"fixed", "every"} <= set(schedules.names())
    with pytest.raises(ValidationError, match="rounds"):
        EveryParams(rounds=0)


@pytest.mark.parametrize(
    ("shape", "rate", "counts"),
    [
        ("linear", 0.5, [4, 6, 8, 10, 12]),  # 4 (0.5 (t - 1) + 1)
        ("log", 1.0, [4, 6, 8, 9, 10]),  # 4 (ln t + 1) = 4, 6.77, 8.39, 9.55, 10.44
        ("exp", 0.25, [4, 5, 6, 7, 9]),  # 4 · 1.25^(t - 1) = 4, 5, 6.25, 7.81, 9.77
    ],
)
def test_growing_counts_are_the_published_functions_rounded_down(shape: str, rate: float, counts: list[int]) -> None:
    params = GrowingParams.model_validate({"shape": shape, "rate": rate, "start": 4})
    assert [growing_count(r, 10**9, params) for r in range(5)] == counts
    assert all(growing(r, 10**9, params) for r in range(5))
    slow = GrowingParams(shape="linear", rate=0.1, start=1)
    assert [r for r in range(31) if growing(r, 30, slow)] == [0, 10, 20, 30]
    assert growing_count(10**6, 10**9, params) > counts[-1]
    # Nothing is formed anew where there are as many groups as clients.
    assert [growing_count(r, counts[2], params) for r in range(5)] == [*counts[:3], counts[2], counts[2]]
    assert [growing(r, counts[2], params) for r in range(5)] == [True, True, True, False, False]
