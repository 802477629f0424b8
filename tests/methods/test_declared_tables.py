"""Tables and columns that methods declare: what is written, read, deleted and refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scenario.command import hfl

import emulator
from emulator import checkpoint
from emulator.contracts.methods import methods
from emulator.errors import InputError
from emulator.files import read_json
from emulator.run_folder import FILES, files_of
from emulator.tables import RESERVED, Table

METHOD = '''
from emulator.contracts.methods import MethodFacts, MethodParams, methods
from emulator.tables import Table

DELAYS = Table("delays", ("round", "client", "delay_s", "why"))

@methods.register("waiting", MethodParams, MethodFacts(tables=(DELAYS,), columns=("staleness", "idle_s")))
def waiting(session, params):
    """Waits, and says how long."""
    model = session.lab.initial()
    session.begin(model)
    for t in (1, 2):
        yield session.env.timeout(t)
        session.note("delays", {"why": "slow, or so", "round": t, "client": 3, "delay_s": t / 2})
        if session.end_round(t, model, staleness=t / 4):
            return
'''
RUN = ("run", "s.yaml", "--set", "method={kind: waiting}", "--plugin", "own.py", "--no-memo", "--out", "out")


def test_a_method_has_tables_and_columns_of_its_own(plugin_home: Path) -> None:
    (plugin_home / "own.py").write_text(METHOD)
    assert hfl(*RUN).code == 0
    assert (plugin_home / "out" / "delays.csv").read_text() == (
        'round,client,delay_s,why\n1,3,0.5,"slow, or so"\n2,3,1.0,"slow, or so"\n'
    )
    run = emulator.load_run("out")
    assert list(run.metrics.columns)[-2:] == ["staleness", "idle_s"]
    assert run.metrics["staleness"].fillna(-1).tolist() == [-1, 0.25, 0.5]
    assert run.metrics["idle_s"].isna().all()
    assert run.tables == ("metrics", "energy", "ledger", "delays")
    assert run.table("delays")["why"].tolist() == ["slow, or so"] * 2
    with pytest.raises(InputError, match="has no table 'delay'; did you mean 'delays'"):
        run.table("delay")
    assert hfl("export", "out", "--csv", "csv").code == 0
    pd.testing.assert_frame_equal(pd.read_csv("csv/delays.csv"), run.table("delays"))
    assert read_json(plugin_home / "out" / "manifest.json")["tables"] == ["delays"]  # type: ignore[index]

    (plugin_home / "out" / "delays.csv").write_text("round,client,delay_s,why\n")
    done = hfl(*RUN)
    assert done.code == 2
    assert "'delays.csv' in out changed after the run ended" in done.err
    words = ("--set", "method=hierfavg", "--out", "out", "--no-memo", "--overwrite")
    assert hfl("run", "s.yaml", *words).code == 0
    assert not (plugin_home / "out" / "delays.csv").exists()


def test_tables_of_a_run_that_was_killed_are_deleted_too(tmp_path: Path) -> None:
    from emulator.files import write_json

    write_json(tmp_path / "manifest.json", {"tables": ["delays", "../elsewhere"]})
    names = files_of(tmp_path)
    assert (names[0], "delays.csv" in names, names[-1]) == ("summary.json", True, "scenario.yaml")
    assert all(Path(name).name == name for name in names)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (
            'note("delays"',
            'note("delayes"',
            "ValueError: table 'delayes' is not declared; declared: 'delays'; declare it where the method (or the attack) is "
            "registered: MethodFacts(tables=(Table('delayes', ('why', 'round', 'client', 'delay_s')),))",
        ),
        (
            '"delay_s": t / 2',
            '"delay": t / 2',
            "ValueError: a row of table 'delays' without 'delay_s'; with unknown 'delay'; its columns are",
        ),
        ("staleness=t / 4", "stale=1.0", "ValueError: metrics.csv has no column 'stale' of this method"),
    ],
)
def test_what_was_not_declared_is_refused_with_its_place(plugin_home: Path, was: str, now: str, said: str) -> None:
    (plugin_home / "own.py").write_text(METHOD.replace(was, now))
    done = hfl(*RUN)
    assert done.code == 1
    assert "error: method 'waiting' (own.py:" in done.err
    assert said in done.err


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ('Table("delays"', 'Table("metrics"', "table 'metrics': every run may have a file of this name"),
        ('Table("delays"', 'Table("a/b"', "table 'a/b': a name begins with a letter"),
        ('"client", "delay_s"', '"round", "delay_s"', "table 'delays': there is a column 'round' already"),
        ('("round", "client", "delay_s", "why")', '"round"', "table 'delays': columns are a tuple of names"),
        ('("staleness",', '("accuracy",', "method 'waiting': there is a column 'accuracy' already"),
    ],
)
def test_names_that_are_taken_or_no_names_are_refused(plugin_home: Path, was: str, now: str, said: str) -> None:
    (plugin_home / "own.py").write_text(METHOD.replace(was, now))
    done = hfl(*RUN)
    assert done.code == 2
    assert said in done.err
    assert not (plugin_home / "out").exists()


def test_two_that_write_the_same_table_do_not_go_together(plugin_home: Path) -> None:
    text = METHOD.replace('("delays", ("round", "client", "delay_s", "why"))', '("attackers", ("client",))')
    (plugin_home / "own.py").write_text(text)
    attack = "attacks={kind: label-flip, superclients: 1.0, clients: 0.5, swap: [[0, 2]]}"
    done = hfl(*RUN, "--set", attack)
    assert done.code == 2
    assert "attack and method both write the table 'attackers'" in done.err


def test_no_table_takes_the_name_of_another_file() -> None:
    stems = {Path(name).stem for name in (*FILES, checkpoint.VALUES)}
    for stem in stems - {"recovered", Path(checkpoint.VALUES).stem}:  # recovered.npy has a table beside it
        assert stem in RESERVED
        with pytest.raises(InputError):
            Table(stem, ("round",))
    for name in methods.names():
        assert all(isinstance(table, Table) for table in methods[name].facts.tables)
