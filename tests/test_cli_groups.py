"""``hfl groups``: groups without training, by one rule or many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from patience import PATIENCE_S
from scenario.command import ROOT, TINY, hfl

from emulator.assembly import assemble
from emulator.cli import grouping
from emulator.contracts.grouping import FormationFacts, formations
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.registry import NoParams
from emulator.scenario import load

LARGER = TINY.replace("clients: 8", "clients: 40").replace(
    "preset: hierfavg", "preset: group-fel\n  formation: {min_size: 4, max_cov: 0.8}"
)


@pytest.fixture
def larger(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(LARGER)
    return path


def rows_of(text: str) -> list[list[str]]:
    """The cells of a printed table, a list a row."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("---")) + 1
    return [line.split() for line in lines[start:] if line and not line.startswith("wrote")]


def test_the_scenarios_own_rule_makes_the_groups_of_its_run(larger: Path, tmp_path: Path) -> None:
    done = hfl("groups", larger, "--csv", tmp_path / "groups.csv")
    assert done.code == 0
    assert done.out.startswith(
        "tiny: 40 clients, 2 edges, seed 3; overhead of a client in a group round: secure-aggregation\n"
    )
    [row] = rows_of(done.out)
    table = pd.read_csv(tmp_path / "groups.csv")
    loaded = load(larger, ["stop.rounds=1"])
    session = assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    figures = session.groupings[0].summary()
    for name, value in figures.items():
        assert name == "round" or table[name][0] == pytest.approx(value, rel=1e-12)
    assert row[:2] == ["cov", str(figures["groups"])]
    # The overhead of all clients is what the run charges them, where all groups take part.
    loaded = load(larger, ["stop.rounds=1", "method.sampling=all", "method.group_rounds=1"])
    session = assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    assert table["overhead_s"][0] == pytest.approx(session.metrics[-1]["cost_group_s"] / 40, rel=1e-9)


def test_all_rules_are_tuned_to_about_as_many_groups(larger: Path, tmp_path: Path) -> None:
    done = hfl("groups", larger, "--all-rules", "--csv", tmp_path / "t.csv", "--plot", tmp_path / "t.png")
    assert done.code == 0
    assert f"wrote {tmp_path / 't.csv'}\nwrote {tmp_path / 't.png'}\n" in done.out
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "t.csv").set_index("rule")
    assert list(table.index) == [row[0] for row in rows_of(done.out)]
    assert list(table.index)[:2] == ["cov", "cdg"]
    assert {"cdg", "cov", "kld", "qcid", "random"} <= set(table.index)
    assert not {"all", "single"} & set(table.index)
    own = table.loc["cov"]
    for _, row in table.iterrows():
        assert row["groups"] == pytest.approx(own["groups"], abs=1.5)
        assert row["mean_size"] == pytest.approx(40 / row["groups"])
    assert table.loc["random", "mean_cov"] > own["mean_cov"]


def test_rules_with_parameters_are_told_apart(larger: Path) -> None:
    done = hfl(
        "groups", larger, "--rule", "{kind: cov, min_size: 10}", "--rule", "cov", "--rule", "{kind: random, size: 20}"
    )
    rows = rows_of(done.out)
    assert [row[0] for row in rows] == ["cov", "cov", "random"]
    assert rows[0][1] == "min_size=10"
    assert rows[2][1:3] == ["2", "20"]
    # Of the scenario's own kind, what is not given stays as it is there: the limit of 0.8.
    same = hfl("groups", larger, "--set", "method.formation.min_size=10")
    assert rows_of(same.out)[0][1:5] == rows[0][2:6]


def test_seed_and_changes(larger: Path) -> None:
    first, other = hfl("groups", larger), hfl("groups", larger, "--seed", "8")
    assert "seed 8" in other.out
    assert rows_of(first.out)[0][:6] != rows_of(other.out)[0][:6]
    changed = hfl("groups", larger, "--set", "method.group_operation=none", "--rule", "all")
    assert rows_of(changed.out)[0][:5] == ["all", "2", "20", "20.00", rows_of(changed.out)[0][4]]
    assert rows_of(changed.out)[0][5:7] == ["0", "s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "cvo"], "--rule: unknown formation 'cvo'; did you mean 'cov'?"),
        (["--rule", "[3]"], "--rule [3]: write a name, or a mapping with 'kind'"),
        (["--rule", "{min_size: 3}"], "write a name, or a mapping with 'kind'"),
        (
            ["--rule", "{kind: cov, min_sze: 3}"],
            "--rule: method.formation.min_sze: unknown key; did you mean 'min_size'?",
        ),
        (["--rule", "{kind: kld, min_size: 21}"], "--rule: method.formation: groups of at least 21 clients"),
        (["--rule", "{kind: cov"], "--rule {kind: cov"),
        (["--set", "method.formation.max_cov=-1"], "method.formation.max_cov: "),
        (["--plot", "picture.jpg"], "the name must end in one of"),
        (["--plot", "nowhere/picture.png"], "there is no folder"),
    ],
)
def test_what_is_wrong_is_said(larger: Path, arguments: list[str], message: str) -> None:
    done = hfl("groups", larger, *arguments)
    assert done.code == 2
    assert message in done.err


def test_rules_that_need_what_only_a_run_learns_are_refused(larger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formations.names()
    monkeypatch.setattr(formations, "_plugins", dict(formations._plugins))
    formations.register("by-taste", NoParams, FormationFacts(needs=("signature",), smallest=lambda params: 1))(
        lambda *_: []
    )
    done = hfl("groups", larger, "--rule", "by-taste")
    assert (
        done.code,
        "--rule: the formation 'by-taste' needs 'signature', which only a run can learn" in done.err,
    ) == (
        2,
        True,
    )
    done = hfl("groups", larger, "--set", "method.formation=by-taste")
    assert done.code == 2
    assert "method.formation: the formation 'by-taste' needs 'signature'" in done.err
    assert "by-taste" not in grouping._sized_rules()


def test_groups_are_formed_without_torch(larger: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from emulator.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch imported:', 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "groups", str(larger), "--memo", str(tmp_path / "memo.sqlite")]
    free = ["--set", "method.group_operation=none"]
    done = subprocess.run([*command, *free], capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE_S)
    assert "torch imported: False" in done.stdout
    # The overhead asks how large the model is; that is remembered.
    assert hfl("groups", larger, "--memo", tmp_path / "memo.sqlite").code == 0
    again = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE_S)
    assert "torch imported: False" in again.stdout
