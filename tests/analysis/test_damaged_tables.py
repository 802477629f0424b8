"""Damaged tables of run folders: every reader names the file, and the line where there is one; no command ends otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from analysis_samples import make_run, metrics
from cluster_samples import TREE, stability_rows, write_clustered
from ledger_samples import write_run
from scenario.command import hfl

from analysis.plots.topology import read_topology
from analysis.runs import Run
from analysis.tabular import NEEDED, TEXTS, WHOLE
from emulator.errors import InputError
from emulator.grouping.diagnostics import GROUPING_COLUMNS

# Rows as the emulator writes them.
TABLES = {
    "groups": "round,group,aggregator,size,samples,cov,gamma,p,log_p,label_0\n"
    "1,0,edge-0,2,30,0.5,1,1,0,30\n1,1,cloud,1,8,,1,0.5,-inf,8\n",
    "groupings": f"{','.join(GROUPING_COLUMNS)}\n"
    "1,5,0,3,10,6.0,0.9,1.04,1.14,265.1,,,,,\n2,5,1,3,10,6.0,0.9,1.04,1.14,265.1,nan,,,,\n",
    "clusters": "cluster,parents,reason,round,time_s,layer,reference,size,members\n"
    "0,,start,0,0.0,,,2,0 1\n1,0,split,1,2.5,7,0,1,0\n",
    "stability": "round,cluster,layer,stability,weights_kept,weights\n1,0,,,,\n3,0,7,0.25,50,100\n",
    "similarity": "round,cluster,layer,client,other,cosine\n1,0,all,0,1,0.37\n1,0,7,0,1,-0.5\n",
    "trials": "round,cluster,ripe,purity\n1,0,0,0.5\n2,0,1,\n",
    "arrivals": "round,time_s,group,client,from_round,staleness,weight,used\n3,2.5,0,,0,2,0.2,1\n5,3.0,1,4,1,3,nan,0\n",
    "selections": "round,time_s,group,client,chosen,statistical,system,utility,tier\n1,0.0,0,3,1,,,,\n2,1.5,0,4,0,0.5,1,0.5,2\n",
    "attackers": "client,group,swaps\n2,3,0-1\n5,2,0-1 3-5\n",
    "recovered": "at,round,accuracy,distance,untrained,own,floor\n0.01,0,0.175,652.9,625.5,167.5,3.4\n0.5,3,0.6,1,2,3,4\n",
    "energy": "client,device,idle_s,compute_s,send_s,receive_s,idle_j,compute_j,send_j,receive_j\n"
    'client-0,"pi, or\nso",1,2,3,4,1,2,3,4\nclient-1,NA,1,2,3,4,,,,\n',
    "topology": "round,group,client,header,kind,label,samples,images\n1,0,1,1,-1,7,36,0\n1,0,5,1,8,6,37,10\n",
}  # fmt: skip

UNREAD = ("statistical", "system", "utility", "tier")  # columns that nothing here looks at


# What is drawn of any run.
KINDS = (
    "breakdown",
    "cost-accuracy",
    "grid-table",
    "groups",
    "pareto",
    "participation",
    "recovered",
    "recovery",
    "staleness",
    "stragglers",
    "timeline",
    "topology",
)


def read(folder: Path, name: str, text: str | bytes) -> pd.DataFrame:
    """A table of a run that has not ended, so that nothing but the table itself says that it is damaged."""
    path = folder / f"{name}.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if name == "topology":
        return read_topology(folder)
    run: Run = make_run(metrics([0.1]), folder=str(folder), status="interrupted")
    table: pd.DataFrame = getattr(run, name)
    return table


def refusal(folder: Path, name: str, text: str | bytes) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, name, text)
    said = str(caught.value)
    assert said.startswith(f"'{folder / name}.csv' ")
    return said.partition(".csv' ")[2]


@pytest.mark.parametrize("name", TABLES)
def test_what_the_emulator_writes_is_read(tmp_path: Path, name: str) -> None:
    table = read(tmp_path, name, TABLES[name])
    assert len(table) == 2
    assert list(table.columns) == TABLES[name].partition("\n")[0].split(",")
    assert all(table[c].dtype == np.int64 for c in table if c in WHOLE and name != "energy")
    assert all(isinstance(value, str) for c in table if c in TEXTS for value in table[c])


def test_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    assert list(read(tmp_path, "energy", TABLES["energy"])["device"]) == ["pi, or\nso", "NA"]
    assert list(read(tmp_path, "clusters", TABLES["clusters"])["parents"]) == ["", "0"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "is damaged: it is empty"),
        (lambda text: text.encode()[:-1], "is damaged: its end is cut off"),
        (lambda text: text.encode()[:-2] + b"\xff\n", "is damaged: 'utf-8' codec can't decode byte 0xff"),
        (lambda text: text.encode()[:-2] + b"\0\n", "is damaged: it is not text"),
        (lambda text: text[: text.index("\n") + 1], "has no rows"),
        (lambda text: text + "1\n", "is damaged: line "),
        (lambda text: text + "1" + "," * text.partition("\n")[0].count(",") + ",\n", "is damaged: line "),
        (lambda text: "x" + text, "was written by another version: it has no column "),
    ],
    ids=["empty", "cut", "not UTF-8", "null", "no rows", "few fields", "many fields", "other column"],
)
@pytest.mark.parametrize("name", TABLES)
def test_files_that_are_no_such_table(
    tmp_path: Path, name: str, damage: Callable[[str], str | bytes], said: str
) -> None:
    assert refusal(tmp_path, name, damage(TABLES[name])).startswith(said)


@pytest.mark.parametrize("name", TABLES)
def test_numbers_that_are_none_are_named_with_their_line(tmp_path: Path, name: str) -> None:
    header, *_ = TABLES[name].split("\n")
    last = TABLES[name].rstrip("\n").rpartition("\n")[2].split(",")
    texts = ("client", "device") if name == "energy" else TEXTS
    for place, column in enumerate(header.split(",")):
        if name == "selections" and column in UNREAD:
            continue
        whole = column in WHOLE or column.startswith("label_")
        wrong = ["x", "True", "1_0", "0x1", *(["2.5", "-2", "", "1e300", "9" * 30] if whole else [])]
        if (name, column) == ("arrivals", "client"):
            wrong.remove("")  # several clients
        for given in (
            []
            if column in texts
            else [*wrong, *(["inf", "-1", ""] if column.endswith("_s") or column in NEEDED else [])]
        ):
            line = ",".join([*last[:place], given, *last[place + 1 :]])
            body = f"{header}\n{','.join(last)}\n{line}\n"
            said = refusal(tmp_path, name, body)
            shown = "nothing" if given == "" else "'"
            assert said.startswith(f"is damaged: line 3: '{column}' is {shown}"), (given, said)
            assert said.endswith("it must be a whole number" if whole else "it must be a number")


def folder_with(tmp_path: Path, name: str) -> Path:
    """A run that has not ended, with all tables of its kind."""
    if name in ("clusters", "stability", "similarity", "trials"):
        cosines = [
            {"round": 3, "cluster": 0, "layer": "7", "client": a, "other": b, "cosine": 0.5}
            for a in range(8)
            for b in range(a)
        ]
        trials = [{"round": k, "cluster": 0, "ripe": 0, "purity": 0.5} for k in (1, 2)]
        tables: dict[str, Any] = {
            "stability": stability_rows({"7": [0.5, 0.4]}),
            "similarity": cosines,
            "trials": trials,
        }
        return write_clustered(tmp_path / "run", TREE, tables=tables, status=None)
    folder = write_run(tmp_path / "run", status=None)
    (folder / "groupings.csv").write_text(TABLES["groupings"])
    (folder / "recovered.csv").write_text(TABLES["recovered"])
    np.save(folder / "recovered.npy", np.zeros((2, 2, 3, 1, 4, 4)))
    for table in ("topology", "arrivals", "selections"):
        (folder / f"{table}.csv").write_text(TABLES[table])
    return folder


@pytest.mark.parametrize(
    ("file", "words"),
    [
        *(("groupings.csv", ("plot", kind)) for kind in KINDS),
        ("groupings.csv", ("plot", "to-target", "--set", "targets=[0.4]")),
        ("groupings.csv", ("table", "totals")),
        ("groupings.csv", ("report",)),
        ("groupings.csv", ("export", "--csv", "csv")),
        ("groups.csv", ("plot", "groups")),
        ("energy.csv", ("energy",)),
        ("energy.csv", ("table", "stragglers")),
        ("ledger.parquet", ("plot", "timeline")),
        ("ledger.parquet", ("table", "breakdown")),
        ("metrics.csv", ("compare",)),
        ("scenario.yaml", ("plot", "pareto")),
        ("topology.csv", ("topology", "--plot", "x.png")),
        ("topology.csv", ("plot", "topology")),
        ("arrivals.csv", ("plot", "staleness")),
        ("arrivals.csv", ("table", "participation")),
        ("selections.csv", ("plot", "participation")),
        ("recovered.csv", ("plot", "recovery")),
        ("recovered.npy", ("plot", "recovered")),
        ("clusters.csv", ("plot", "clusters")),
        ("clusters.csv", ("table", "clusters")),
        ("stability.csv", ("plot", "stability")),
        ("similarity.csv", ("plot", "similarity")),
        ("trials.csv", ("plot", "trials")),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else value,
)  # fmt: skip
def test_commands_name_a_damaged_file_and_draw_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folder_with(tmp_path, file.partition(".")[0])
    kinds = words[:2] if words[0] in ("plot", "table") else words[:1]
    command = (*kinds, folder, *words[len(kinds) :])
    done = hfl(*command)
    assert done.code == 0, done.err  # before anything is damaged
    whole = (folder / file).read_bytes()
    other = b"a: " + b"[" * 99_999 + b"\n" if file == "scenario.yaml" else whole[: len(whole) // 2]
    for damaged in (b"\xff\xfe" + whole[: len(whole) // 2], other, *([b""] if file != "scenario.yaml" else [])):
        (folder / file).write_bytes(damaged)
        for path in set(tmp_path.iterdir()) - {folder}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        done = hfl(*command)
        assert (done.code, done.out) == (2, ""), damaged[:20]
        assert file in done.err
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and folder not in path.parents]


def test_members_of_clusters_and_names_of_clients_that_are_none(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "clusters")
    text = (folder / "clusters.csv").read_text()
    for damaged in (text.replace("4 6", "4 x"), text.replace("4 6", "46")):
        (folder / "clusters.csv").write_text(damaged)
        done = hfl("plot", "clusters", folder, "--out", tmp_path / "x.png")
        assert done.code == 2
        assert "clusters.csv' is damaged: the members or parents of cluster 1 are no numbers, or not as" in done.err
    said = refusal(tmp_path, "energy", TABLES["energy"].replace("client-1", "client-one"))
    assert said == "is damaged: 'client-one' is no name of a client"
