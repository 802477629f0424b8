"""How a run ends when it does not end well."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from emulator.contracts.methods import MethodParams, methods
from emulator.errors import HflError, InputError
from emulator.learning.memo import Memo
from emulator.ledger import Tag, read
from emulator.methods.session import Session
from emulator.run import execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded
from emulator.world.world import Steps

Small = Callable[..., Loaded]


def waits_for_ever(session: Session, params: MethodParams) -> Steps:
    """Sends something, then waits for what never comes."""
    session.begin(session.lab.initial())
    yield session.world.send("client-0", "edge-0", 1000, Tag("test", 1))
    yield session.env.event()


def test_a_run_in_which_nothing_happens_any_more_ends_with_a_complete_ledger(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods.names()
    monkeypatch.setattr(methods, "_plugins", dict(methods._plugins))
    methods.register("waits-for-ever", MethodParams)(waits_for_ever)
    loaded = small("method={kind: waits-for-ever}")
    with pytest.raises(HflError, match=r"nothing happens any more after 0\.021 emulated seconds, in round 1"):
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 0)
    assert summary["error"].startswith("nothing happens any more after 0.021 emulated seconds, in round 1")
    assert list(read(tmp_path / "run" / "ledger.parquet")["kind"]) == ["evaluation", "transfer"]


def test_a_diverged_run_keeps_what_was_done(small: Small, tmp_path: Path) -> None:
    with pytest.raises(HflError, match="diverged in round 1"):
        execute(
            small("method.local.learning_rate=1e20", "method.local.epochs=5"),
            tmp_path / "run",
            Memo(None),
            max_workers=1,
        )
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 2


def test_bad_input_that_shows_late_leaves_no_folder(small: Small, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--set model=lenet5: model: lenet5 needs images of at least 16×16"):
        execute(small("model=lenet5"), tmp_path / "run", Memo(None), max_workers=1)
    assert not (tmp_path / "run").exists()
    assert prepare(tmp_path / "run", small().scenario)


def test_accuracy_at_the_budget_is_that_of_the_last_evaluation_within_it(small: Small, tmp_path: Path) -> None:
    free = execute(small("stop.rounds=6"), tmp_path / "free", Memo(None), max_workers=1)
    assert "accuracy_at_budget" not in free
    rows = pd.read_csv(tmp_path / "free" / "metrics.csv").to_dict("records")
    before, after = next((a, b) for a, b in itertools.pairwise(rows[1:]) if a["accuracy"] != b["accuracy"])
    limit = (before["cost_s"] + after["cost_s"]) / 2  # is crossed within a round
    summary = execute(small(f"stop={{rounds: 6, cost: {limit} client-s}}"), tmp_path / "run", Memo(None), max_workers=1)
    assert (summary["stopped_by"], summary["rounds"]) == ("cost", after["round"])
    assert summary["final"]["cost_s"] == after["cost_s"] > summary["budget"]["cost"]
    assert summary["accuracy_at_budget"] == before["accuracy"] != summary["final"]["accuracy"] == after["accuracy"]
