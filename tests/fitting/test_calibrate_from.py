"""``hfl calibrate from``: a run of another world, written as a measured one, is predicted by what was fitted to it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from scenario.command import TINY, hfl

from emulator.files import read_json, write_json
from emulator.ledger import read

TRUE = (
    "topology.links.access={up: 5 Mbit/s, down: 9 Mbit/s, latency: 35 ms}", "topology.links.backhaul={up: 90 Mbit/s, "
    "down: 90 Mbit/s, latency: 10 ms}", "topology.clients=[{count: 4, speed: 0.6}, {count: 4, speed: 1.3}]",
)  # fmt: skip
GUESSED = (
    "topology.clients=8",
    "topology.links.access.up=8 Mbit/s",
    "topology.links.backhaul.up=1 Gbit/s",
)


def changed(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a world that nobody knows, as a testbed would leave it."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "s.yaml").write_text(TINY.replace("rounds: 2", "rounds: 6").replace("hidden: [8]", "hidden: [300]"))
    done = hfl("run", folder / "s.yaml", "--no-training", "--out", folder / "run", *changed(*TRUE))
    assert done.code == 0, done.err
    manifest = read_json(folder / "run" / "manifest.json")
    assert manifest is not None
    write_json(folder / "run" / "manifest.json", manifest | {"clock": "measured"})
    return folder


def held_out(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "held-out.csv").set_index("what")


def test_a_world_that_nobody_knows_is_found_and_predicts_rounds_left_out(measured: Path, tmp_path: Path) -> None:
    done = hfl("calibrate", "from", measured / "run", "--out", tmp_path / "fit", "--no-memo", *changed(*GUESSED))
    assert done.code == 0, done.err
    found = held_out(tmp_path / "fit")
    assert set(found.index) >= {"down", "train", "group", "up", "round"}
    assert found.loc["round", "rounds"] == 6
    assert found["error"].abs().max() < 1e-3
    overlay = tmp_path / "fit" / "overlay.yaml"
    done = hfl("run", measured / "s.yaml", "--no-training", "--out", tmp_path / "again", "--set", f"@{overlay}")
    assert done.code == 0, done.err
    done = hfl("compare", "--clock", tmp_path / "again", measured / "run", "--format", "csv")
    assert done.code == 0, done.err
    table = pd.read_csv(pd.io.common.StringIO(done.out))
    assert table[table["section"].isin(("phase", "round", "total"))]["error"].abs().max() < 1e-3
    profile = yaml.safe_load((tmp_path / "fit" / "raspberry-pi-4b.yaml").read_text())
    assert "the measured run 'run' (6 rounds" in profile["source"]


def test_timings_in_a_file_do_as_well(measured: Path, tmp_path: Path) -> None:
    rows = read(measured / "run" / "ledger.parquet").astype(
        {"who": str, "peer": str, "hop": str, "kind": str, "what": str}
    )
    lines = ["round;client;phase;start [ms];end [ms];bytes;samples;group_size"]
    for row in rows.to_dict("records"):
        phase = {"compute": "train", "group-operation": "group"}.get(row["kind"], "")
        phase = {"client-server": "up", "server-client": "down"}.get(row["hop"], phase)
        client = row["peer"] if phase == "down" else row["who"]
        if phase and client.startswith("client-"):
            size = {"train": f";{row['samples']};", "group": ";;4"}.get(phase, ";;")
            times = f"{1e3 * row['start_s']!r};{1e3 * row['end_s']!r}"
            lines.append(f"{row['round']};{client};{phase};{times};{row['bytes'] or ''}{size}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    words = ["calibrate", "from", tmp_path / "t.csv", "--scenario", measured / "s.yaml", "--out", tmp_path / "fit"]
    done = hfl(*words, "--parts", "2")
    assert done.code == 0, done.err
    found = held_out(tmp_path / "fit")
    assert found.loc[["down", "train", "group", "up"], "error"].abs().max() < 1e-3
    # The rounds of the file begin when clients get their models, which is later than the cloud begins to send them.
    assert found.loc["round", "error"] == pytest.approx(0, abs=0.2)


def test_one_round_is_too_few_to_leave_some_out(measured: Path, tmp_path: Path) -> None:
    words = ["run", measured / "s.yaml", "--no-training", "--out", tmp_path / "one", "--set", "stop.rounds=1"]
    assert hfl(*words).code == 0
    done = hfl("calibrate", "from", tmp_path / "one", "--out", tmp_path / "fit")
    assert done.code == 0, done.err
    assert "it takes at least two" in done.err
    assert not (tmp_path / "fit" / "held-out.csv").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "there is no folder and no file 'nothing'"),
        (["s.yaml"], "say which scenario with --scenario"),
        (["run", "--scenario", "s.yaml"], "a run folder has its own"),
        (["run", "--parts", "1"], "at least 2 parts"),
        (["run", "--out", "run"], "exists already"),
        (["run", "--set", "topology.links.access.trace.file=wifi-with-drops"], "cannot be fitted"),
        (["s.yaml", "--scenario", "s.yaml"], "s.yaml"),
    ],
)
def test_bad_input_is_refused(measured: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str) -> None:
    monkeypatch.chdir(measured)
    done = hfl("calibrate", "from", *words, *([] if "--out" in words else ["--out", "new"]))
    assert done.code == 2
    assert says in done.err
    assert not (measured / "new").exists()


def test_changes_come_from_files_too(measured: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("stop: {rounds: 3}\ntopology:\n  clients: null\n  fleet: f.csv\n")
    from emulator.scenario.load import parse_changes

    keys = {key: given.data for key, given in parse_changes(f"@{tmp_path / 'c.yaml'}")}
    assert keys == {"stop.rounds": 3, "topology.clients": None, "topology.fleet": "f.csv"}
    (tmp_path / "c.yaml").write_text(json.dumps({"topology": {"devices": {"a.yaml": 1.0}}}))
    assert [key for key, _ in parse_changes(f"@{tmp_path / 'c.yaml'}")] == ["topology.devices"]
    (tmp_path / "bad.yaml").write_text("stop:\n  rounds: many\n")
    run = ["run", measured / "s.yaml", "--no-training", "--out", tmp_path / "out", "--set"]
    done = hfl(*run, f"@{tmp_path / 'bad.yaml'}")
    assert done.code == 2
    assert "bad.yaml:2:11" in done.err
    (tmp_path / "list.yaml").write_text("- 1\n")
    for name, says in (("list.yaml", "is not a mapping"), ("none.yaml", "there is no such file")):
        done = hfl(*run, f"@{tmp_path / name}")
        assert done.code == 2
        assert says in done.err


def test_timings_that_tell_nothing_are_refused(measured: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("round,client,phase,start [s],end [s],bytes\n1,client-0,up,0,1,500\n")
    done = hfl("calibrate", "from", tmp_path / "t.csv", "--scenario", measured / "s.yaml", "--out", tmp_path / "fit")
    assert done.code == 2
    assert "tells nothing of devices or links" in done.err
    assert not (tmp_path / "fit").exists()


def test_transfers_through_an_edge_are_one_transfer(measured: Path, tmp_path: Path) -> None:
    """FedAvg's clients talk to the cloud: both hops of a transfer are one way, over a backhaul that the scenario knows."""
    fedavg = changed("method=fedavg", *TRUE)
    assert hfl("run", measured / "s.yaml", "--no-training", "--out", tmp_path / "run", *fedavg).code == 0
    guess = changed(*GUESSED[:2], "topology.links.access.latency=35 ms")
    done = hfl("calibrate", "from", tmp_path / "run", "--out", tmp_path / "fit", "--parts", "2", *guess)
    assert done.code == 0, done.err
    found = held_out(tmp_path / "fit")
    assert "edge to cloud" not in found.index
    assert found["error"].abs().max() < 1e-3
