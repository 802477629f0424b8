"""Accuracy against epsilon: an axis, and a budget, of runs with privacy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.plots import cost_accuracy, pareto
from analysis.runs import Run, load_run
from analysis.tables import at_budget, with_budget
from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario import Loaded

PRIVATE = ("method.group_operation=none", "privacy={at: server, clip: 0.3, noise_multiplier: 2.0}")


@pytest.fixture
def runs(small: Callable[..., Loaded], tmp_path: Path) -> tuple[Run, Run]:
    """One with privacy, and one without."""
    for name, changes in (("private", PRIVATE), ("clear", ())):
        execute(small("output.plot=false", "stop.rounds=4", *changes), tmp_path / name, Memo(None), max_workers=1)
    return load_run(tmp_path / "private"), load_run(tmp_path / "clear")


def test_accuracy_is_drawn_against_epsilon(runs: tuple[Run, Run]) -> None:
    private, clear = runs
    figure = cost_accuracy.plot([private], ("epsilon", "time"))
    (line,) = (each for each in figure.axes[0].lines if len(each.get_xdata()) == 5)
    assert list(line.get_xdata()) == private.metrics["epsilon"].tolist()
    assert figure.axes[0].get_xlabel() == "Privacy spent, ε"
    assert pareto.points([private], "epsilon")[0].x == private.metrics["epsilon"].iloc[-1]
    for draw in (lambda: cost_accuracy.plot([private, clear], ("epsilon",)), lambda: pareto.points([clear], "epsilon")):
        with pytest.raises(InputError, match="nothing is known of the epsilon"):
            draw()
    with pytest.raises(InputError, match="nothing is known of the epsilon"):
        at_budget(clear.metrics, "epsilon", 3.0)


def test_the_last_model_within_an_epsilon(runs: tuple[Run, Run]) -> None:
    private, clear = runs
    limit = float(private.metrics["epsilon"].iloc[2]) + 0.01
    assert with_budget(private.metrics, {"epsilon": limit}).iloc[0, -1] == private.metrics["accuracy"].iloc[2]
    assert math.isnan(with_budget(clear.metrics, {"epsilon": limit}).iloc[0, -1])  # what is not known is not within
    assert with_budget(clear.metrics, {"rounds": 2}).iloc[0, -1] == clear.metrics["accuracy"].iloc[2]
