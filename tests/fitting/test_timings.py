"""Measured seconds from a ledger and from files: what counts, and what is refused with its line and column."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from emulator.errors import InputError
from emulator.fitting import timings
from emulator.fitting.timings import BACKHAUL_UP, DOWN, GROUP, TRAIN, UP
from emulator.ledger import (
    BROKEN,
    CLIENT_CLIENT,
    CLIENT_SERVER,
    COMPUTE,
    EDGE_CLOUD,
    EVALUATION,
    GROUP_OPERATION,
    SERVER_CLIENT,
    TRANSFER,
    Ledger,
    Tag,
    read,
)

CLIENTS = ("client-0", "client-1")
HEADER = "round,client,phase,start [s],end [s],bytes,samples,batch_size,group_size\n"


def test_a_ledger_gives_what_was_done(tmp_path: Path) -> None:
    ledger, tag = Ledger(), Tag("training", 1, 0, 0)
    ledger.add(TRANSFER, "edge-0", 0, 1, tag.with_purpose("model"), "client-0", 500, 0, SERVER_CLIENT)
    ledger.add(COMPUTE, "client-0", 1, 3, tag, samples=40)
    ledger.add(COMPUTE, "client-1", 1, 2, tag, samples=20, status=BROKEN)
    ledger.add(COMPUTE, "client-1", 1, 2, tag.with_purpose("measurement"), samples=20)
    for client in CLIENTS:
        ledger.add(GROUP_OPERATION, client, 3, 4, tag.with_purpose("secure-aggregation"))
        ledger.add(GROUP_OPERATION, client, 5, 6.5, Tag("secure-aggregation", 1, 0, 1))
        ledger.add(GROUP_OPERATION, client, 7, 7.5, Tag("secure-aggregation", 1, 0, 1))  # a further step
    ledger.add(TRANSFER, "client-0", 7, 9, tag.with_purpose("model"), "edge-0", 500, 0, CLIENT_SERVER)
    ledger.add(TRANSFER, "edge-0", 9, 10, tag.with_purpose("model"), "cloud", 500, 0, EDGE_CLOUD)
    ledger.add(COMPUTE, "edge-0", 9, 9, tag.with_purpose("formation"))
    ledger.add(EVALUATION, "cloud", 10, 10, tag)
    ledger.write(tmp_path / "ledger.parquet")
    found = timings.from_ledger(read(tmp_path / "ledger.parquet"), CLIENTS)
    assert found.groupby("phase")["seconds"].apply(list).to_dict() == {
        DOWN: [1], TRAIN: [2], GROUP: [1, 2, 1, 2],
        UP: [2], BACKHAUL_UP: [1],
    }  # fmt: skip
    assert set(found[found["phase"] == GROUP]["group_size"]) == {2}
    assert found[found["phase"] == TRAIN][["client", "samples", "round"]].to_numpy().tolist() == [["client-0", 40, 1]]


def test_hops_of_longer_ways_are_told(tmp_path: Path) -> None:
    ledger, tag = Ledger(), Tag("model", 1, 0, 0)
    ledger.add(TRANSFER, "client-0", 0, 2, tag, "edge-0", 500, 0, CLIENT_SERVER)
    ledger.add(TRANSFER, "edge-0", 0, 2, tag, "cloud", 500, 0, EDGE_CLOUD)
    ledger.add(TRANSFER, "client-1", 0, 2, tag, "edge-1", 500, 0, CLIENT_SERVER)  # no further than its edge
    ledger.add(TRANSFER, "client-0", 3, 4, tag, "client-1", 500, 0, CLIENT_CLIENT)
    ledger.add(TRANSFER, "edge-0", 3, 4, tag, "cloud", 500, 0, EDGE_CLOUD)
    ledger.add(TRANSFER, "edge-0", 5, 7, tag, "cloud", 500, 0, EDGE_CLOUD)
    ledger.write(tmp_path / "ledger.parquet")
    found = timings.from_ledger(read(tmp_path / "ledger.parquet"), CLIENTS)
    assert found[["phase", "client", "start_s", "through"]].to_numpy().tolist() == [
        [UP, "client-0", 0, True], [UP, "client-1", 0, False], [BACKHAUL_UP, "edge-0", 5, False],
    ]  # fmt: skip


def write(folder: Path, *lines: str) -> Path:
    file = folder / "timings.csv"
    file.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


def test_a_file_gives_them_too(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "1,client-0,down,0,0.5 s,1000,,,",
        "1,0,train,500 ms,2.5,,40,10,",
        "1,client-1,group,3,3.5,,,,2",
        "2,1,up,4,5,1000,,,",
    )
    found = timings.from_file(file, CLIENTS)
    expected = pd.DataFrame(
        {
            "round": [1, 1, 1, 2], "client": ["client-0", "client-0", "client-1", "client-1"], "phase": [DOWN, TRAIN, GROUP, UP],
            "start_s": [0, 0.5, 3, 4], "seconds": [0.5, 2, 0.5, 1], "bytes": [1000, 0, 0, 1000], "samples": [0, 40, 0, 0],
            "batch_size": [0, 10, 0, 0], "group_size": [0, 0, 2, 0], "through": [False] * 4,
        }
    )  # fmt: skip
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,client-0,dwn,0,1,5,,,", ":2: column \"phase\": unknown phase 'dwn'; did you mean 'down'"),
        ("1,client-7,down,0,1,5,,,", ":2: column \"client\": the scenario has no client 'client-7'"),
        ("1,client-0,down,2,1,5,,,", ':2: column "end": an activity must end after it starts'),
        ("1,client-0,up,0,1,,,,", ":2: column \"bytes\": the phase 'up' needs it"),
        ("1,client-0,train,0,1,5,,,", ":2: column \"samples\": the phase 'train' needs it"),
        ("1,client-0,group,0,1,5,,,", ":2: column \"group_size\": the phase 'group' needs it"),
        ("1.5,client-0,down,0,1,5,,,", ":2: column \"round\": '1.5': write a whole number from 0"),
        ("1,client-0,down,0,1 kB,5,,,", ":2: column \"end\": 'kB' is a unit of size"),
        ("1,client-0,down,0,-1,5,,,", ":2: column \"end\": '-1': a time here must not be negative"),
        ("1,client-0,down,,1,5,,,", ':2: column "start": is missing'),
        ("1,client-0,down,0,1,5,,", ":2: has 8 fields; the header has 9"),
    ],
)
def test_what_is_wrong_in_a_file_has_its_place(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        timings.from_file(write(tmp_path, line), CLIENTS)
    assert says in str(error.value)


def test_a_file_without_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("round,client,start [s],end [s]\n1,client-0,0,1\n")
    with pytest.raises(InputError, match="has no column 'phase'"):
        timings.from_file(tmp_path / "t.csv", CLIENTS)
