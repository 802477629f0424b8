"""In which keys of their scenarios runs differ: what `hfl compare` says first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis_samples import metrics, write_folder
from scenario.command import hfl

from analysis.differences import ABSENT, differences, table_of
from emulator import yamlfile


def write(folder: Path, seed: int = 0, **scenario: Any) -> Path:
    write_folder(folder, metrics([0.1, 0.5]), label=scenario["method"]["preset"], seed=seed)
    (folder / "scenario.yaml").write_text(yamlfile.dump({"seed": seed, "name": folder.name, **scenario}))
    return folder


def test_keys_are_dotted_and_what_one_does_not_have_is_absent() -> None:
    one = {
        "seed": 1,
        "name": "a",
        "method": {"preset": "fedavg", "local": {"epochs": 2, "momentum": None}},
        "stop": {"rounds": 3},
    }
    other = {
        "seed": 2,
        "name": "b",
        "method": {"preset": "fedprox", "local": {"epochs": 2, "mu": 0.1}},
        "stop": {"rounds": 3},
    }
    assert differences([one, other]) == {
        "method.preset": ("fedavg", "fedprox"),
        "method.local.mu": (ABSENT, "0.1"),
    }  # fmt: skip
    assert differences([one, one | {"seed": 7, "notes": "again"}]) == {}


def test_keys_of_the_method_come_first_and_all_of_them_and_seeds_are_no_difference(tmp_path: Path) -> None:
    many = {f"k{i}": i for i in range(20)}
    folders = [
        write(tmp_path / "a", data=dict.fromkeys(many, 0), method={"preset": "fedavg", **dict.fromkeys(many, "x")}),
        write(tmp_path / "b", data=many | {"k0": 5}, method={"preset": "fedseq", **many}),
        write(tmp_path / "b1", 1, data=many | {"k0": 5}, method={"preset": "fedseq", **many}),
    ]
    table, left = table_of(folders)
    assert table is not None
    assert len(table.header) == 3  # b and b1 are one
    assert [row[0] for row in table.rows[:21]] == ["method.preset", *(f"method.k{i}" for i in range(20))]
    assert table.rows[0][1:] == ("fedavg", "fedseq")
    assert [row[0] for row in table.rows[21:]] == [f"data.k{i}" for i in range(12)]
    assert left == "and in 8 more keys: " + ", ".join(f"data.k{i}" for i in range(12, 20))
    assert table_of(folders[1:]) == (None, "")


def test_of_many_runs_a_cell_says_which_have_a_value(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / f"run-{i}", method={"preset": "fedavg", "local": {"epochs": 2 + i // 3, "rate": i}})
        for i in range(5)
    ]
    table, _ = table_of(folders)
    assert table is not None
    assert table.header == ("key", "values")
    (epochs,) = [row[1] for row in table.rows if row[0] == "method.local.epochs"]
    assert epochs == "2: fedavg (run-0), fedavg (run-1), fedavg (run-2); 3: fedavg (run-3), fedavg (run-4)"


def test_compare_lists_them(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / name, method={"preset": name, "local": {"epochs": n}})
        for name, n in (("fedavg", 1), ("fedprox", 5))
    ]
    done = hfl("compare", *folders, "--out", tmp_path / "out")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert done.out.startswith("In what the methods differ\n")
    assert ["method.preset", "fedavg", "fedprox"] in rows
    assert ["method.local.epochs", "1", "5"] in rows
