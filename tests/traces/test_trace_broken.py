"""Broken files: each gives an `InputError` that names file and line. Pickles that would run code are not run."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import UCC, write

from emulator.contracts.files import trace_formats
from emulator.errors import InputError
from traces.content import DeviceMix, Trace
from traces.reading import bundled, detect, find, read

HEAD = "time [s],bandwidth [Mbit/s]\n"
MIX = "device,share [%],speed [1]\n"
LIKE_THIS = "write for example 'device,share [%],speed [1],bandwidth [Mbit/s]'"
FORMATS = (
    "csv", "device-mix", "fedscale-behaviour", "fedscale-capacity", "flash-scores", "latency-matrix", "mahimahi", "tabbed",
    "ucc-5g",
)  # fmt: skip


def message(path: Path, kind: str | None = None, **params: Any) -> str:
    """What is said about a file, without its path."""
    chosen = trace_formats[kind].params.model_validate(params) if kind else None
    with pytest.raises(InputError) as caught:
        read(path, kind, chosen)
    said = str(caught.value)
    assert said.startswith(str(path))
    return said.removeprefix(str(path))


CSV = [
    (HEAD + "0,1\n2,1\n1,1\n", ":4: time 1 comes after 2; time goes backwards"),
    (HEAD + "0,1\n2,1\n2,1\n", ":4: time 2 is there twice"),
    (HEAD + "1,1\n", ":2: the first time is 1; it must be 0"),
    (HEAD + "0,-3\n", ":2: bandwidth is -3; it must not be negative"),
    (HEAD + "0,nan\n", ":2: bandwidth is 'nan'; it must be a finite number"),
    (HEAD + "0,-inf\n", ":2: bandwidth is '-inf'; it must be a finite number"),
    (HEAD + "0,1e400\n", ":2: bandwidth is '1e400'; that is too large"),
    (HEAD + "0,1\n1,\n", ":3: bandwidth is missing"),
    (HEAD + "0,x\n", ":2: bandwidth is 'x'; it must be a number"),
    (HEAD + "0,1_0\n", ":2: bandwidth is '1_0'; it must be a number"),
    (HEAD + "0,5 kbit/s\n", ":2: bandwidth is '5 kbit/s'; write a number without a unit: one unit holds for the file"),
    (HEAD + "0,1,2\n", ":2: has 3 cells; the header has 2"),
    (HEAD + "# note\n\n0,1\n3\n", ":5: has 1 cells; the header has 2"),
    (HEAD, ":1: no row follows the header"),
    ("# only a comment\n", ": has no header; write for example 'time [s],bandwidth [Mbit/s]'"),
    (
        "time,bandwidth [Mbit/s]\n0,1\n",
        ":1: the first column is 'time'; it must be the time with its unit: write for example "
        "'time [s],bandwidth [Mbit/s]'",
    ),
    ("time [s],bandwidth\n0,1\n", ":1: column 'bandwidth' has no unit; write for example 'bandwidth [Mbit/s]'"),
    (
        "time_s,bandwidth_mbit_s\n0,1\n",
        ":1: column 'bandwidth_mbit_s' is no quantity with a unit; write for example 'time [s],bandwidth [Mbit/s]'",
    ),
    ("time [s]\n0\n", ":1: has no column beside the time; write for example 'time [s],bandwidth [Mbit/s]'"),
    ("time [s],bandwith [Mbit/s]\n0,1\n", ":1: unknown quantity 'bandwith'; did you mean 'bandwidth'?"),
    (
        "time [s],bandwidth [Mb/s]\n0,1\n",
        ":1: unknown unit 'Mb/s' of bandwidth; say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)",
    ),
    (
        "time [s],bandwidth [ms]\n0,1\n",
        ":1: 'ms' is a unit of time, not of bandwidth; write for example '20 Mbit/s'",
    ),
    (
        "time [s],bandwidth up [Mbit/s],bandwidth down [kbit/s]\n0,1,1\n",
        ":1: units are mixed: 'bandwidth down' is in [kbit/s], other bandwidth in [Mbit/s]; use one unit",
    ),
    ("time [s],speed [1],speed [1]\n0,1,1\n", ":1: has more than one column 'speed'"),
    ("time [s],availability [%]\n0,101\n", ":2: availability is 101; nothing is available more than always"),
    ("# end: never\n" + HEAD + "0,1\n", ":1: the end is 'never'; write 'end: hold' or, for example, 'end: repeat after 600 s'"),
    ("# end: repeat after 3\n" + HEAD + "0,1\n", ":1: '3' has no unit; write for example '15 ms'"),
    ("# end: repeat after 0 s\n" + HEAD + "0,1\n", ":1: it cannot repeat after 0 s"),
    (HEAD + "0,1\n5,1\n# end: repeat after 5 s\n", ":4: starts over after 5 s, before its last row (5 s)"),
]  # fmt: skip
OTHERS = [
    ("mahimahi", "0\n5\n4\n", ":3: time 4 comes after 5; time goes backwards"),
    ("mahimahi", "0\n-5\n", ":2: '-5' is no time; each line is one whole number of milliseconds"),
    ("mahimahi", "0\n1 2\n", ":2: '1 2' is no time; each line is one whole number of milliseconds"),
    ("mahimahi", "0\n1.5\n", ":2: '1.5' is no time; each line is one whole number of milliseconds"),
    ("mahimahi", "0\n0\n", ":2: all packets pass at time 0; a trace must last some time"),
    (
        "mahimahi",
        "0\n999999999999999\n",
        ":2: lasts 999,999,999,999,999 ms, more than 10,000,000 bins of 0.1 s; take longer bins",
    ),
    ("tabbed", "0\t1\n1\t2\n0.5\t1\n", ":3: time 0.5 comes after 1; time goes backwards"),
    ("tabbed", "0\t1\n1 2\n", ":2: has 1 cells; a row is seconds, a tab, and Mbit/s"),
    ("tabbed", "0\t1\n1\t-2\n", ":2: bandwidth is -2; it must not be negative"),
    ("tabbed", "0\t1\n1\tNaN\n", ":2: bandwidth is 'NaN'; it must be a finite number"),
    ("tabbed", "0\t1\n", ":1: is the only row; a trace needs two"),
    ("ucc-5g", UCC.replace("23.59.59", "23.59.57"), ":4: is earlier than the row before it; time goes backwards"),
    ("ucc-5g", UCC.replace(",20,D", ",-20,D"), ":4: UL_bitrate is -20; it must not be negative"),
    ("ucc-5g", UCC.replace(",20,D", ",x,D"), ":4: UL_bitrate is 'x'; it must be a number"),
    ("ucc-5g", UCC.replace(",20,D", ",D"), ":4: has 5 cells; the header has 6"),
    (
        "ucc-5g",
        UCC.replace("2019.12.02_23.59.59", "2019-12-02"),
        ":4: Timestamp is '2019-12-02'; it must be of the form 2019.12.02_07.26.15",
    ),
    (
        "ucc-5g",
        "Time,DL_bitrate\n",
        ":1: the header must name 'Timestamp' and at least one of 'UL_bitrate', 'DL_bitrate', 'PINGAVG'",
    ),
    (
        "ucc-5g",
        "Timestamp,DL_bitrate\n2019.12.02_07.26.15,-\n",
        ": has no value in the columns 'DL_bitrate'",
    ),
    ("ucc-5g", UCC + '"', ":6: is not CSV: unexpected end of data"),
    ("latency-matrix", "1,2\n3\n", ":2: has 1 cells; the rows before have 2"),
    ("latency-matrix", "1,2\n3,4\n5,6\n", ":3: there are 3 rows of 2 cells; the matrix must be square"),
    ("latency-matrix", "1,2\n-3,4\n", ":2: cell 1 is -3; it must not be negative"),
    ("latency-matrix", "1,2\n3,nan\n", ":2: cell 2 is 'nan'; it must be a finite number"),
    ("latency-matrix", "-1,-1\n-1,2\n", ": nothing is known about site 1"),
    ("latency-matrix", "# to be written\n", ": has nothing but comments"),
    ("device-mix", MIX + "a,60,1\nb,30,2\n", ": the shares add up to 0.9; they must add up to 1"),
    ("device-mix", MIX + "a,60,1\na,40,2\n", ":3: device 'a' is there twice"),
    ("device-mix", MIX + "a,60,1\n,40,2\n", ":3: the device has no name"),
    ("device-mix", MIX + "a,100,0\n", ":2: speed is 0; it must be greater than zero"),
    ("device-mix", MIX + "a,-100,1\n", ":2: share is -100; it must not be negative"),
    ("device-mix", MIX + "a,nan,1\n", ":2: share is 'nan'; it must be a finite number"),
    ("device-mix", MIX + "a,100 %,1\n", ":2: share is '100 %'; write a number without a unit: one unit holds for the file"),
    ("device-mix", MIX + "a,100\n", ":2: has 2 cells; the header has 3"),
    ("device-mix", MIX, ":1: no row follows the header"),
    ("device-mix", "# nothing\n", f":1: has no header; {LIKE_THIS}"),
    ("device-mix", "kind,share [%]\n", f":1: the first column is 'kind'; it must be 'device': {LIKE_THIS}"),
    ("device-mix", "device,share [%]\na,100\n", f":1: has no column 'speed'; {LIKE_THIS}"),
    ("device-mix", "device,share,speed [1]\n", f":1: column 'share' is no quantity with a unit; {LIKE_THIS}"),
    ("device-mix", "device,share [%],sped [1]\n", ":1: unknown column 'sped'; did you mean 'speed'?"),
    ("device-mix", "device,share [%],share [1]\n", ":1: has more than one column 'share'"),
    (
        "device-mix",
        MIX.replace("speed [1]", "speed [1],bandwidth [ms]"),
        ":1: 'ms' is a unit of time, not of bandwidth; write for example '20 Mbit/s'",
    ),
    ("flash-scores", '{"a": 1,\n b}', ":2: is not JSON: Expecting property name enclosed in double quotes"),
    ("flash-scores", '{"a": -5}', ": the score of 'a' is '-5'; it must be a number greater than zero"),
    ("flash-scores", '{"a": NaN}', ": the score of 'a' is 'nan'; it must be a number greater than zero"),
    ("flash-scores", '{"a": true}', ": the score of 'a' is 'True'; it must be a number greater than zero"),
    ("flash-scores", '[{"Model": "a"}]', ": the score of 'a' is 'None'; it must be a number greater than zero"),
    (
        "flash-scores",
        '[{"Model": "a", "AI_Score": "76,206"}]',
        ": the score of 'a' is '76,206'; it must be a number greater than zero",
    ),
    ("flash-scores", "[3]", ": entry 1 must be a mapping with 'Model' and 'AI_Score'"),
    (
        "flash-scores",
        "[]",
        ": must be a list of phones with 'Model' and 'AI_Score', or a mapping of phones to scores",
    ),
    ("flash-scores", "[" * 100_000, ": is JSON that is nested too deeply, or has a number of thousands of digits"),
]  # fmt: skip
BEHAVIOUR = {"active": [1, 5], "inactive": [2, 6], "finish_time": 9}
PICKLES: list[tuple[str, Any, str]] = [
    ("fedscale-capacity", {}, ": must be a dict of clients with at least one of them"),
    ("fedscale-capacity", [1], ": must be a dict of clients with at least one of them"),
    ("fedscale-capacity", {1: 3}, ": client 1: must be a dict with the keys 'computation', 'communication'"),
    (
        "fedscale-capacity",
        {1: {"computation": 0, "communication": 1}},
        ": client 1: 'computation' is '0'; it must be a number greater than zero",
    ),
    (
        "fedscale-capacity",
        {"x": {"computation": 1, "communication": float("nan")}},
        ": client x: 'communication' is 'nan'; it must be a number greater than zero",
    ),
    (
        "fedscale-capacity",
        {"x": {"computation": 1, "communication": 10**400}},
        f": client x: 'communication' is '1{39 * '0'}'; it must be a number greater than zero",
    ),
    (
        "fedscale-capacity",
        {"x": {"computation": True, "communication": 1}},
        ": client x: 'computation' is 'True'; it must be a number greater than zero",
    ),
    (
        "fedscale-behaviour",
        {1: {"active": [1], "inactive": []}},
        ": client 1: must be a dict with the keys 'active', 'inactive', 'finish_time'",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "active": [1]}},
        ": client 1: has 1 times in 'active' and 2 in 'inactive'; they come in pairs",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "active": [5, 1]}},
        ": client 1: time goes backwards: active[1] (1) is before active[0] (5)",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "inactive": [0.5, 6]}},
        ": client 1: inactive[0] (0.5) is before active[0] (1)",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "active": [-1, 5]}},
        ": client 1: 'active' must be a list of times that are not negative",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "active": "15"}},
        ": client 1: 'active' must be a list of times that are not negative",
    ),
    (
        "fedscale-behaviour",
        {1: {**BEHAVIOUR, "finish_time": 0}},
        ": client 1: 'finish_time' is '0'; it must be a number greater than zero",
    ),
]


@pytest.mark.parametrize(("text", "said"), CSV)
def test_csv(tmp_path: Path, text: str, said: str) -> None:
    assert message(write(tmp_path, "t.csv", text), "csv") == said


@pytest.mark.parametrize(("kind", "text", "said"), OTHERS)
def test_other_formats(tmp_path: Path, kind: str, text: str, said: str) -> None:
    assert message(write(tmp_path, "t", text), kind) == said


@pytest.mark.parametrize(("kind", "data", "said"), PICKLES)
def test_pickles_of_something_else(tmp_path: Path, kind: str, data: Any, said: str) -> None:
    assert message(write(tmp_path, "t", pickle.dumps(data)), kind) == said


@pytest.mark.parametrize("kind", [None, *FORMATS])
def test_what_is_no_file_of_any_format(tmp_path: Path, kind: str | None) -> None:
    assert message(tmp_path / "nowhere", kind) == ": there is no such file"
    assert message(tmp_path, kind) == ": this is a folder, not a file"
    assert message(write(tmp_path, "a", ""), kind) == ": the file is empty"
    assert message(write(tmp_path, "b", "\n \n"), kind) == ": the file is empty"
    assert message(Path("/dev/null"), kind) == ": this is not a file"
    rubbish = write(tmp_path, "c", b"12\n\x00\xff\xfe\x93" + bytes(range(256)) * 20)
    said = message(rubbish, kind)
    if kind is None:
        assert said == f": is in none of the formats {', '.join(repr(f) for f in FORMATS)}"
    elif kind.startswith("fedscale"):
        assert said.startswith((": is not a pickle: ", ": refused: "))
    else:
        assert said == ":2: is not text in UTF-8; this is another kind of file"


def test_latin_1_is_not_utf_8(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", HEAD.encode() + "0,1\n# Größe\n".encode("latin-1"))
    assert message(path, "csv") == ":3: is not text in UTF-8; this is another kind of file"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", b"\xef\xbb\xbf" + HEAD.encode() + b"0,1\n")
    assert isinstance(read(path), Trace)


def test_a_parameter_may_contradict_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", HEAD + "0,1\n5,1\n")
    assert message(path, "csv", repeat_after="3 s") == ": starts over after 3 s, before its last row (5 s)"
    path = write(tmp_path, "l.txt", "0,-1\n2,0\n")
    assert message(path, "latency-matrix", missing="refuse") == ":1: cell 2 is -1; it must not be negative"
    path = write(tmp_path, "s.json", json.dumps({"a": 1}))
    write(tmp_path, "codes.json", json.dumps({"x": "b"}))
    with pytest.raises(InputError) as caught:
        read(path, "flash-scores", trace_formats["flash-scores"].params.model_validate({"models": "codes.json"}))
    assert str(caught.value) == f"{tmp_path / 'codes.json'}: names no phone that has a score in {path}"


def test_a_sample_that_there_is_not_gives_a_hint() -> None:
    assert find("lte-like") == bundled()["lte-like"]
    with pytest.raises(InputError) as caught:
        find("lte-lik")
    assert str(caught.value) == "lte-lik: there is no such file and no such sample; did you mean 'lte-like'?"


def outcome(ask: Callable[[], object]) -> str:
    """``read``, or what was refused."""
    try:
        ask()
    except InputError as error:
        return str(error)
    return "read"


# Pickles from strangers.


class Runs:
    """Unpickled the usual way, it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("kind", ["fedscale-capacity", "fedscale-behaviour"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_code_is_refused_and_not_run(tmp_path: Path, kind: str, protocol: int) -> None:
    mark = tmp_path / "was-here"
    data = {1: {"computation": 1.0, "communication": 1.0, **BEHAVIOUR, "model": Runs(f"touch {mark}")}}
    raw = pickle.dumps(data, protocol)
    path = write(tmp_path, "t", raw)
    said = message(path, kind)
    assert said.startswith(": refused: at byte ")
    assert "GLOBAL" in said
    assert said.endswith("; only dicts, lists, tuples, texts, numbers, true, false and None are read")
    assert not mark.exists()
    pickle.loads(raw)  # noqa: S301 (to show that the test would have seen it)
    assert mark.exists()


@pytest.mark.parametrize(
    "thing",
    [{1, 2}, frozenset({1}), b"bytes", bytearray(b"x"), 1j, np.float64(3), np.zeros(2), Path("x"), len, range(3)],
    ids=lambda thing: type(thing).__name__,
)
def test_whatever_is_not_plain_data_is_refused(tmp_path: Path, thing: Any) -> None:
    data = {1: {"computation": 1.0, "communication": 1.0, "more": thing}}
    assert message(write(tmp_path, "t", pickle.dumps(data, 5)), "fedscale-capacity").startswith(": refused: at byte ")


def test_all_plain_data_is_read(tmp_path: Path) -> None:
    data = {
        1: {"computation": 1.0, "communication": 2, "more": [None, True, False, (), (1,), "ü" * 300, 10**30, -5, {}]}
    }
    assert isinstance(read(write(tmp_path, "t", pickle.dumps(data)), "fedscale-capacity"), DeviceMix)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x80\x04Nr\xff\xff\xff\x7f.", ": is a broken pickle: at byte 3 it keeps a value as number 2147483647"),
        (b"\x80\x04.", ": is a broken pickle: "),
        (b"\x80\x04]K\x01s.", ": is a broken pickle: "),
        (b"\x80\x04}]K\x01s.", ": is a broken pickle: unhashable type: 'list'"),
        (b"\x80\x04h\x05.", ": is a broken pickle: "),
        (b"\x80\x04K", ": is not a pickle: "),
        (b"\x80\x04}", ": is not a pickle: "),
        (b"\x80\x04cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", ": refused: at byte 2 the pickle asks for GLOBAL ('os system'); "),
        (b"\x80\x04\x82\x01.", ": refused: at byte 2 the pickle asks for EXT1 ('1'); "),
        (b"Pid\n.", ": refused: at byte 0 the pickle asks for PERSID ('id'); "),
        (pickle.dumps({1: {"computation": 10**5000}}), ": refused: at byte 31 there is a number of thousands of digits"),
        (pickle.dumps({-(10**5000): {}}), ": refused: at byte 13 there is a number of thousands of digits"),
        (b"(dL" + b"9" * 6000 + b"L\nNs.", ": refused: there is a number of thousands of digits"),
        (b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.", ": refused: at byte 1004 tuples are nested deeper than 1000 levels"),
        (b"\x80\x04})" + b"\x94h\x00\x94\x86" * 200_000 + b"Ns.", ": refused: at byte "),
        (b"\x80\x04})q\x00" + b"h\x00\x85q\x00" * 1100 + b"Ns.", ": refused: at byte "),
        (b"\x80\x04})Ns.", ": the name of a client is of the type tuple; it must be a number or a text"),
        (
            b"\x80\x04}K\x01}(\x8c\x0bcomputation" + b"]" * 100_000 + b"a" * 99_999 + b"\x8c\rcommunicationK\x01us.",
            ": client 1: 'computation' is of the type list; it must be a number greater than zero",
        ),
    ],
)  # fmt: skip
def test_broken_and_cunning_pickles(tmp_path: Path, raw: bytes, said: str) -> None:
    assert message(write(tmp_path, "t", raw), "fedscale-capacity").startswith(said)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(FORMATS))
def test_rubbish_never_does_more_than_be_refused(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, kind: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "rubbish"
    path.write_bytes(raw)
    for ask in (partial(detect, path), partial(read, path, kind)):
        assert outcome(ask).startswith((str(path), "read"))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789.,-+e\t\n #atimebndw[]s/Mk:", max_size=40), st.sampled_from(FORMATS))
def test_text_that_is_almost_right_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, kind: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "almost"
    path.write_text(HEAD + text if kind == "csv" else text)
    assert outcome(partial(read, path, kind)).startswith((str(path), "read"))
