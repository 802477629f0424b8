"""Runs of apps that only pass arrays around: time, bytes, faults, errors, memory of replies."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: ./dev test-flower")

from flower_apps import APPS, Play, play  # noqa: F401 (a fixture)

from emulator.errors import HflError, InputError
from emulator.files import read_json
from emulator.flower.edges import FEDAVG

PLAIN = APPS / "plain"
ONE_EDGE = ("topology.edges=1", "topology.clients=3")
DOWN, UP = 16e6, 8e6  # bit/s of a client's own link, the narrowest on its way


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv")


def test_a_round_takes_what_bytes_links_and_devices_say(play: Play) -> None:  # noqa: F811
    """Alone on its links a message takes latencies and bits over the narrowest; a client's samples their rate."""
    made = play(PLAIN, *ONE_EDGE, client_time="samples:200", workers=2)
    replies = table(made.folder, "replies")
    assert len(replies) == 9
    took_s = replies["arrived_s"] - replies["pushed_s"]
    np.testing.assert_allclose(took_s, 0.025 + 8 * replies["down_bytes"] / DOWN, rtol=1e-9)
    np.testing.assert_allclose(replies["done_s"] - replies["arrived_s"], replies["samples"] / 200, rtol=1e-9)
    np.testing.assert_allclose(replies["back_s"] - replies["done_s"], 0.025 + 8 * replies["up_bytes"] / UP, rtol=1e-9)
    assert (replies["down_bytes"] > 4000).all()
    run = made.run
    ledger = run.ledger
    sent = ledger[ledger["kind"] == "transfer"].groupby("hop")["bytes"].sum()
    assert sent["server-client"] == sent["cloud-edge"] == replies["down_bytes"].sum()
    assert sent["client-server"] == sent["edge-cloud"] == replies["up_bytes"].sum()
    rows = ledger[ledger["kind"] == "compute"]
    assert set(rows["what"]) == {"training (by rate)"}
    last = table(made.folder, "rounds").iloc[-1]
    assert last["time_s"] == replies["back_s"].max()
    assert last["bytes_total"] == 2 * (replies["down_bytes"] + replies["up_bytes"]).sum()
    assert last["cost_s"] == pytest.approx((replies["samples"] / 200).sum())
    assert last["train_turns"] == 3  # the mean of what the clients report, where no strategy does
    assert not run.training  # it reports no accuracy
    assert made.summary["replies"] == {"run": 9, "remembered": 0, "second_tries": 1, "deterministic": True}


def test_links_are_shared(play: Play) -> None:  # noqa: F811
    """Three clients behind one edge whose link is the narrowest: each gets a third of it."""
    narrow = ("topology.links.backhaul.down=1 Mbit/s", "topology.links.backhaul.up=1 Mbit/s")
    made = play(PLAIN, *ONE_EDGE, *narrow, client_time="none")
    first = table(made.folder, "replies").query("round == 1")
    took_s = first["arrived_s"] - first["pushed_s"]
    np.testing.assert_allclose(took_s, 0.025 + 8 * first["down_bytes"].sum() / 1e6, rtol=1e-6)


def test_the_same_again_and_a_narrower_world_without_client_code(play: Play, tmp_path: Path) -> None:  # noqa: F811
    """The same app twice has the same clock and bytes, whoever computes; another world is answered from what is remembered."""
    store = tmp_path / "store"
    first = play(PLAIN, client_time="samples:200", replies=store, workers=2)
    again = play(PLAIN, client_time="samples:200", workers=1)
    for name in ("ledger.parquet", "rounds.csv", "replies.csv", "scenario.yaml", "energy.csv", "summary.json"):
        assert (first.folder / name).read_bytes() == (again.folder / name).read_bytes(), name
    assert first.summary["replies"]["run"] == again.summary["replies"]["run"] == 12
    slow = [f"topology.links.access.{way}={rate}" for way, rate in (("up", "800 kbit/s"), ("down", "1.6 Mbit/s"))]
    slower = play(PLAIN, *slow, client_time="samples:200", replies=store)
    assert slower.summary["replies"] == {"run": 0, "remembered": 12, "second_tries": 0, "deterministic": True}
    bytes_then, bytes_now = (table(made.folder, "rounds")["bytes_total"] for made in (first, slower))
    pd.testing.assert_series_equal(bytes_then, bytes_now)
    assert table(slower.folder, "rounds")["time_s"].iloc[-1] > table(first.folder, "rounds")["time_s"].iloc[-1]
    other = play(PLAIN, client_time="samples:200", replies=store, config=("size=1001",))
    assert other.summary["replies"]["remembered"] == 0  # another configuration is another question


def test_an_app_of_chance_is_found_out_and_not_remembered(play: Play, tmp_path: Path) -> None:  # noqa: F811
    made = play(PLAIN, *ONE_EDGE, config=('what="chance"',), client_time="none", replies=tmp_path / "store")
    assert made.summary["replies"] == {"run": 9, "remembered": 0, "second_tries": 1, "deterministic": False}
    assert not list((tmp_path / "store").rglob("*.reply"))
    manifest = read_json(made.folder / "manifest.json") or {}
    assert manifest["replies"]["deterministic"] is False


def test_a_run_that_was_cut_off_goes_on_with_what_is_remembered(play: Play, tmp_path: Path) -> None:  # noqa: F811
    def cut(round_: int, _: object) -> None:
        if round_ == 2:
            raise KeyboardInterrupt

    store = tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        play(PLAIN, *ONE_EDGE, client_time="none", replies=store, on_round=cut, out="run")
    assert (read_json(tmp_path / "run" / "summary.json") or {})["status"] == "interrupted"
    made = play(PLAIN, *ONE_EDGE, client_time="none", replies=store, out="run")
    assert made.summary["status"] == "complete"
    assert made.summary["replies"]["remembered"] == 6
    whole = play(PLAIN, *ONE_EDGE, client_time="none")
    for name in ("ledger.parquet", "rounds.csv", "replies.csv"):
        assert (made.folder / name).read_bytes() == (whole.folder / name).read_bytes()


def test_waiting_and_timeouts_are_those_of_the_emulated_clock(play: Play) -> None:  # noqa: F811
    """Replies come after 0.5, 1 and 1.5 s and the way; the app waits 1.2 s, sees two, and its clock says so (the app checks)."""
    began = time.perf_counter()
    made = play(PLAIN, *ONE_EDGE, config=('what="timeout"', "seconds=1.2"), client_time="samples:200")
    assert table(made.folder, "rounds")["time_s"].iloc[-1] == 1.2
    assert len(table(made.folder, "replies")) == 2
    assert time.perf_counter() - began < 100
    late = play(PLAIN, *ONE_EDGE, config=('what="ttl"', "seconds=1.2"), client_time="samples:200")
    assert table(late.folder, "rounds")["time_s"].iloc[-1] == 1.2
    pulled = play(PLAIN, *ONE_EDGE, config=('what="busy-pulls"',), client_time="samples:200")
    assert table(pulled.folder, "rounds")["time_s"].iloc[-1] > 1.5


def test_servers_may_be_charged_too(play: Play) -> None:  # noqa: F811
    """Seconds of this host times a factor, as the ledger says; the round takes as much longer."""
    made = play(PLAIN, *ONE_EDGE, client_time="none", server_time="host:1000")
    rows = made.run.ledger.query("kind == 'compute' and who == 'cloud'")
    assert set(rows["what"]) == {"server (host time)"}
    assert (rows["end_s"] > rows["start_s"]).all()
    assert made.run.metrics["time_s"].iloc[-1] > (rows["end_s"] - rows["start_s"]).sum()
    assert made.run.metrics["cost_s"].iloc[-1] == 0  # servers are no clients


def test_threads_of_a_pool_wait_side_by_side(play: Play) -> None:  # noqa: F811
    """A server that asks each node in a thread takes no longer than one that asks all at once."""
    threads = play(PLAIN, *ONE_EDGE, config=('what="threads"',), client_time="samples:200")
    at_once = play(PLAIN, *ONE_EDGE, client_time="samples:200")
    first = table(at_once.folder, "replies").query("round == 1")
    assert table(threads.folder, "replies")["back_s"].tolist() == pytest.approx(first["back_s"].tolist())


def test_work_that_a_crash_cuts_off_is_lost(play: Play) -> None:  # noqa: F811
    """client-1 crashes in the midst of its work: that is lost, and only the message's time to live ends the wait."""
    crash = "faults=[{kind: client-crash, clients: [1], at: [200 ms], lasts: 5 s}]"
    config = ('what="ttl"', "seconds=100.0")
    made = play(PLAIN, *ONE_EDGE, crash, config=config, client_time="samples:200")
    rounds = table(made.folder, "rounds")
    assert rounds["time_s"].iloc[-1] == 100
    assert rounds["bytes_wasted"].iloc[-1] + rounds["cost_wasted_s"].iloc[-1] > 0


def test_the_run_ends_where_the_scenario_says(play: Play) -> None:  # noqa: F811
    by_rounds = play(PLAIN, *ONE_EDGE, "stop.rounds=2", client_time="none")
    assert (by_rounds.summary["stopped_by"], by_rounds.summary["rounds"]) == ("rounds", 2)
    by_time = play(PLAIN, *ONE_EDGE, "stop.time=700 ms", client_time="samples:200")
    assert by_time.summary["stopped_by"] == "time"
    assert table(by_time.folder, "rounds")["time_s"].iloc[-1] == pytest.approx(0.7)


# What goes wrong.


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("unknown-node", r"sends a message to node 12345 .*, and there is no such node"),
        ("more-nodes", r"never returns: .* 3 of 3 nodes are there, and it may want more"),
        ("pulls-forever", r"asks again and again, after 0 emulated seconds, for replies to 1 messages"),
        ("computes-forever", r"the app's server has computed for 2 real seconds without asking for anything"),
        (
            "server-raises",
            r"(?s)server code raised after .* in round 1:.*server.py.*ValueError: the server has had enough",
        ),
        (
            "client-raises",
            r"(?s)client code raised on node \d+ \(client-1\), 'train' of round 1:.*client.py.*in hand_in.*TypeError: 'NoneType'",
        ),
        ("client-hangs", r"node \d+ \(client-1\), 'train' of round 1: the app's client code has not returned for"),
        ("client-dies", r"a worker process died with the app's client code in it"),
    ],
)
def test_errors_are_the_apps_and_the_folder_stays(play: Play, tmp_path: Path, what: str, said: str) -> None:  # noqa: F811
    patience = {"computes-forever": 2.0, "client-hangs": 15.0}.get(what, 100.0)
    with pytest.raises(HflError, match=said) as found:
        play(PLAIN, *ONE_EDGE, config=(f'what="{what}"',), client_time="none", patience_s=patience, out="run")
    assert found.value.exit_code == 1
    summary = read_json(tmp_path / "run" / "summary.json") or {}
    assert summary["status"] == "failed"
    assert summary["error"] == str(found.value)
    assert (tmp_path / "run" / "ledger.parquet").is_file()


def test_a_client_error_may_be_the_apps_to_handle(play: Play) -> None:  # noqa: F811
    with pytest.raises(HflError, match=r"(?s)server code raised.*Message content is None"):
        play(PLAIN, *ONE_EDGE, config=('what="client-raises"',), client_time="none", errors="report")


def test_apps_that_cannot_be_imported(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import shutil

    monkeypatch.setenv("PLAIN_BROKEN", "import")
    with pytest.raises(HflError, match=r"(?s)client code raised .*client.py.*no client today"):
        play(PLAIN, *ONE_EDGE, client_time="none")
    shutil.copytree(PLAIN, tmp_path / "broken")
    (tmp_path / "broken" / "plain" / "server.py").write_text("import json\n\nnothing()\n")
    with pytest.raises(InputError, match=r"ServerApp 'plain.server:app' cannot be imported: NameError.*server.py:3"):
        play(tmp_path / "broken", out="never")
    (tmp_path / "broken" / "plain" / "server.py").write_text("app = 3\n")
    with pytest.raises(InputError, match="is a int, and a ServerApp is wanted"):
        play(tmp_path / "broken", out="never")
    assert not (tmp_path / "never").exists()


def test_edges_that_aggregate_need_edges(play: Play) -> None:  # noqa: F811
    with pytest.raises(InputError, match="the world has no edges"):
        play(PLAIN, "topology.edges=0", edges=FEDAVG)
    with pytest.raises(InputError, match="--edges nosuch:thing"):
        play(PLAIN, edges="nosuch:thing")
