"""Traces on links: what a run makes of them, and what cannot be played."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario import Loaded
from emulator.world.played import bandwidths

Small = Callable[..., Loaded]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_each_client_plays_the_trace_from_its_own_instant(small: Small, tmp_path: Path) -> None:
    path = written(
        tmp_path, "# end: repeat after 10 s\ntime [s],bandwidth up [Mbit/s],bandwidth down [Mbit/s]\n0,8,20\n4,2,10\n"
    )
    topology = small(
        f"topology.links.access.trace={{file: {path}}}", "topology.links.access.loss=0.5"
    ).scenario.topology
    played = bandwidths(topology, 3)
    assert sorted(played) == sorted(f"client-{c}/{d}" for c in range(8) for d in ("up", "down"))
    for client in range(8):
        up, down = played[f"client-{client}/up"], played[f"client-{client}/down"]
        assert up.integrate(0, 10) == pytest.approx(0.5 * (4 * 8e6 + 6 * 2e6))  # half is lost
        assert {(up.at(t), down.at(t)) for t in (0.0, 2.5, 5.0, 7.5)} == {
            (4e6, 10e6),
            (1e6, 5e6),
        }  # both from one instant
    assert len({f.offset_s for f in played.values()}) == 8
    assert [f.offset_s for f in bandwidths(topology, 3).values()] == [f.offset_s for f in played.values()]
    assert [f.offset_s for f in bandwidths(topology, 4).values()] != [f.offset_s for f in played.values()]


def test_a_slower_trace_makes_a_slower_run_and_trains_the_same(small: Small, tmp_path: Path) -> None:
    path = written(tmp_path, "time [s],bandwidth [kbit/s]\n0,100\n")
    plain = execute(small(), tmp_path / "plain", Memo(None), max_workers=1)
    changes = (f"topology.links.access.trace={{file: {path}, start: together}}", "topology.links.access.latency=20 ms")
    slow = execute(small(*changes), tmp_path / "slow", Memo(None), max_workers=1)
    # Two rounds of two group rounds, each with the model down and up on the access link; the rest is secure aggregation's bytes.
    model = pd.read_parquet(tmp_path / "plain" / "ledger.parquet").query("what == 'model'")["bytes"].max()
    added = slow["final"]["time_s"] - plain["final"]["time_s"]
    models_alone = 2 * 2 * 8 * model * (2 / 100e3 - 1 / 16e6 - 1 / 8e6)
    assert models_alone <= added < 2 * models_alone
    assert slow["final"]["accuracy"] == plain["final"]["accuracy"]
    assert slow["final"]["bytes_total"] == plain["final"]["bytes_total"]


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (
            "time [s],bandwidth [Mbit/s]\n0,5\n3,0\n",
            ", start: together",
            "the bandwidth up is 0 for ever after its last step",
        ),
        ("# end: repeat after 5 s\ntime [s],bandwidth [Mbit/s]\n0,0\n", "", "the bandwidth up is always 0"),
        (
            "time [s],bandwidth [Mbit/s]\n0,5\n3,1\n",
            "",
            "it does not start over, so it cannot be played from random instants",
        ),
        ("time [s],latency [ms]\n0,5\n", "", "the trace has no bandwidth; it has 'latency'"),
        ("time [s],bandwidth [Mbit/s]\n0,5\n0,6\n", "", "trace.csv:3:"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_trains(
    small: Small, tmp_path: Path, text: str, more: str, message: str
) -> None:
    loaded = small(f"topology.links.access.trace={{file: {written(tmp_path, text)}{more}}}")
    with pytest.raises(InputError) as caught:
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    assert message in str(caught.value)
    assert "topology.links.access.trace" in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_dedicated_links_take_no_trace(small: Small) -> None:
    with pytest.raises(InputError, match=r"topology\.links\.access\.trace: traces need 'topology\.sharing: max-min'"):
        small("topology.links.access.trace={file: lte-like}", "topology.sharing=dedicated")


def test_a_missing_trace_names_the_samples(small: Small) -> None:
    with pytest.raises(InputError, match="there is no such file and no such sample; did you mean 'lte-like'"):
        bandwidths(small("topology.links.access.trace={file: lte-liek}").scenario.topology, 0)
