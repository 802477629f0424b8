"""Fleets in files: what is read, what is refused in which words, and that a written table is read back."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.errors import HflError, InputError
from emulator.scenario.fleet_table import FleetTable, read_clients, read_servers, write_table
from emulator.units import RATE, TIME

Reader = Callable[[str], FleetTable]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(text: str | bytes, file: str = "fleet.csv", read: Reader = read_clients) -> FleetTable:
    Path(file).write_bytes(text.encode() if isinstance(text, str) else text)
    return read(file)


def parquet(read: Reader = read_clients, **columns: Any) -> FleetTable:
    pq.write_table(pa.table({name.replace("__", " "): values for name, values in columns.items()}), "fleet.parquet")
    return read("fleet.parquet")


def refusal(text: str | bytes, file: str = "fleet.csv", read: Reader = read_clients) -> str:
    with pytest.raises(InputError) as caught:
        table(text, file, read)
    return str(caught.value)


def parquet_refusal(read: Reader = read_clients, **columns: Any) -> str:
    with pytest.raises(InputError) as caught:
        parquet(read, **columns)
    return str(caught.value)


def test_clients_with_every_column() -> None:
    read = table(
        "name,parent,device,trace,availability,owner,jitter_kind,up,down,latency,jitter,overhead,loss,speed,samples,x,y\n"
        "a,edge-0,phone,t.csv,u.csv,me,normal,10 Mbit/s,1 MB/s,30 ms,1 ms,0 s,0.02,1.5,600,-3,4.5\n"
        "b" + "," * 16 + "\n"
    )
    assert len(read) == 2
    assert read.file == "fleet.csv"
    assert {name: list(cells) for name, cells in read.texts.items()} == {
        "name": ["a", "b"], "parent": ["edge-0", ""], "device": ["phone", ""], "trace": ["t.csv", ""],
        "availability": ["u.csv", ""], "owner": ["me", ""], "jitter_kind": ["normal", ""],
    }  # fmt: skip
    assert {name: values[0] for name, values in read.numbers.items()} == {
        "up": 10e6, "down": 8e6, "latency": 0.03, "jitter": 0.001, "overhead": 0.0, "loss": 0.02, "speed": 1.5,
        "samples": 600.0, "x": -3.0, "y": 4.5,
    }  # fmt: skip
    assert all(math.isnan(values[1]) and values.dtype == np.float64 for values in read.numbers.values())


def test_servers_with_every_column() -> None:
    read = table(
        "name,parent,tier,device,trace,jitter_kind,up,down,latency,jitter,overhead,loss,cell_up,cell_down,x,y\n"
        "cloud,,cloud,server,,,1 Gbit/s,1 Gbit/s,1 ms,0 s,0 s,0,2 Gbit/s,3 Gbit/s,0,0\n",
        read=read_servers,
    )
    assert read.texts["tier"] == ["cloud"]
    assert read.numbers["cell_up"][0] == 2e9
    assert read.numbers["cell_down"][0] == 3e9


def test_columns_that_a_file_does_not_have_are_missing() -> None:
    read = table("name\na\n")
    assert set(read.texts) == {"name"}
    assert not read.numbers


def test_places_for_further_messages() -> None:
    read = table("# mine\n\nname,up [Mbit/s]\na,1\n# two\nb,2\n")
    assert read.lines == [4, 6]
    assert read.place(1, "up") == 'fleet.csv:6: column "up"'
    assert read.place(0) == "fleet.csv:4"
    rows = parquet(name=["a", "b"])
    assert rows.lines == [1, 2]
    assert rows.place(1, "up") == 'fleet.parquet: row 2: column "up"'
    assert table("- name: a\n\n- name: b\n  x: 1\n", "fleet.yaml").place(1, "x") == 'fleet.yaml:3: column "x"'


def test_header_names_are_taken_in_any_spelling() -> None:
    read = table(" NAME ,Cell Up,cell-down [Mbit/s],Jitter  Kind\nedge,1 Mbit/s,2,normal\n", read=read_servers)
    assert read.numbers["cell_up"][0] == 1e6
    assert read.numbers["cell_down"][0] == 2e6
    assert read.texts["jitter_kind"] == ["normal"]


@pytest.mark.parametrize("header", ["up [Mbit/s]", "up (Mbit/s)", "up[Mbit/s]", "Up [ Mbit/s ] "])
def test_units_in_headers_count_unless_a_cell_has_one(header: str) -> None:
    read = table(f"name,{header}\na,10\nb,5 kbit/s\nc,\nd,1e-3\n")
    np.testing.assert_array_equal(read.numbers["up"], [10e6, 5e3, math.nan, 1e3])


def test_a_bare_number_is_refused_with_both_ways_to_write_it() -> None:
    assert refusal("name,up,latency\na,10,0\n") == (
        "fleet.csv:2: column \"up\": '10' has no unit; write it in the cell ('10 Mbit/s') or in the header ('up [Mbit/s]')\n"
        "fleet.csv:2: column \"latency\": '0' has no unit; write it in the cell ('0 ms') or in the header ('latency [ms]')"
    )


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("up", "10 Mbps", "say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)"),
        ("up", "10 ms", "'ms' is a unit of time, not of bandwidth"),
        ("up", "fast", "'fast' is not a bandwidth; write a number and a unit"),
        ("up", "0 Mbit/s", "'0 Mbit/s': a bandwidth here must be greater than zero"),
        ("up", "1e-400 Mbit/s", "must be greater than zero"),
        ("down", "-1 Mbit/s", "must be greater than zero"),
        ("latency", "-1 ms", "'-1 ms': a time here must not be negative"),
        ("jitter", "-1 ms", "must not be negative"),
        ("overhead", "-1 ms", "must not be negative"),
        ("latency [ms]", "nan", "'nan' is not a finite number; leave it out"),
        ("latency", "inf s", "'inf s' is not a finite number"),
        ("latency", "1e400 s", "'1e400 s' is too large"),
        ("latency [s]", "1e400", "'1e400 s' is too large"),
        ("up", "1e19 bit/s", "'1e19 bit/s' is too large"),
        ("loss", "1", "'1': write a share from 0 to below 1, such as 0.02"),
        ("loss", "-0.1", "write a share from 0 to below 1"),
        ("loss", "2 %", "'2 %' is not a plain number; write a share from 0 to below 1"),
        ("speed", "0", "'0': write a factor greater than zero"),
        ("speed", "fast", "'fast' is not a plain number; write a factor"),
        ("samples", "0", "'0': write a whole number from 1"),
        ("samples", "2.5", "'2.5': write a whole number from 1"),
        ("samples", "NaN", "'NaN' is not a finite number"),
        ("x", "-Infinity", "'-Infinity' is not a finite number"),
        ("x", "1e400", "'1e400' is too large"),
        ("y", "3 m", "'3 m' is not a plain number; write a number without a unit, such as -12.5"),
        ("x", "1_000", "'1_000' is not a plain number"),
        ("x", "9" * 90, "9...' is too large"),
        ("x", "9" * 3000, "9...' is too long for a number"),
        ("up", "1 M" + " " * 100_000 + "b", "' is too long for a number"),
        ("x", '"1,5"', "'1,5' has a comma in its number; write '3.5', or '3500' for thousands"),
        ("up", '"3,5 Mbit/s"', "'3,5 Mbit/s' has a comma in its number"),
        ("up", '"1.234,5 Mbit/s"', "'1.234,5 Mbit/s' has signs between thousands; write digits and one point"),
        ("up", "1.234.567 bit/s", "has signs between thousands"),
    ],
)
def test_numbers_that_are_refused(column: str, cell: str, message: str) -> None:
    said = refusal(f"name,{column}\na,{cell}\n")
    assert said.startswith(f'fleet.csv:2: column "{column.split()[0]}": ')
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("upp", "column \"upp\": unknown column of clients; did you mean 'up'?"),
        ("tier", 'column "tier": unknown column of clients; '),
        ("zzz", "known columns: 'availability', 'device'"),
        ("up,Up [Mbit/s]", 'column "Up [Mbit/s]": the column is there twice'),
        ("up [Mbps]", "column \"up [Mbps]\": unknown unit 'Mbps' of bandwidth; say 'Mbit/s'"),
        ("up [ms]", "'ms' is a unit of time"),
        ("latency []", "the brackets are empty; write for example 'latency [ms]'"),
        ("x" + " " * 100_000 + "y", "unknown column"),
        ("up(Mbit/s)[x]", "unknown column"),
        ("loss [%]", "column \"loss [%]\": this column has no unit; write 'loss' as its header"),
        ("device [x]", "this column has no unit"),
        ("", 'column "number 2": has no name in the header'),
    ],
)
def test_headers_that_are_refused(header: str, message: str) -> None:
    said = refusal(f"# mine\nname,{header}\na{',' * (header.count(',') + 1)}\n")
    assert said.startswith("fleet.csv:2: ")
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,\n ,", 'fleet.csv:3: column "name": the name is missing'),
        ("a,\nb,\na,", "fleet.csv:4: column \"name\": 'a' is there twice (first in line 2); names are unique"),
        ("a/b,", "fleet.csv:2: column \"name\": 'a/b': a name has no '/', no '>' and no control characters in it"),
        ("a>b,", "'a>b': a name has"),
        ('"a\nb",', "'a\\nb': a name has"),
        ("a\x7fb,", "'a\\x7fb': a name has"),
        ("a" * 81 + ",", "has 81 characters; a name has at most 80"),
        ("cloud,", "a client cannot be called 'cloud'; choose another name"),
    ],
)
def test_names_that_are_refused(rows: str, message: str) -> None:
    said = refusal(f"name,parent\n{rows}\n")
    assert message in said
    assert "\n" not in said


def test_names_that_are_taken() -> None:
    names = ["a" * 80, "Ünï çødé", "7", "Cloud", "A", "a"]
    assert table("name\n" + "\n".join(names)).texts["name"] == names
    assert table("name\ncloud\n", read=read_servers).texts["name"] == ["cloud"]


def test_a_table_without_names_is_refused() -> None:
    assert refusal("parent,up\ne,1 Mbit/s\n") == "fleet.csv:1: has no column 'name'; every row needs a name"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_line_ends_and_byte_order_marks(separator: str, end: str, mark: str) -> None:
    lines = [
        '# a comment, with; a "quote',
        "",
        "name,parent,up",
        '"a, b",e,1 Mbit/s',
        "   ",
        "# more",
        "c,e,2.5 Mbit/s",
    ]
    lines = [line if '"' in line else line.replace(",", separator) for line in lines]
    lines[3] = separator.join(['"a, b"', "e", "1 Mbit/s"])
    read = table(mark + end.join(lines) + end)
    assert read.texts == {"name": ["a, b", "c"], "parent": ["e", "e"]}
    assert read.numbers["up"].tolist() == [1e6, 2.5e6]
    assert read.lines == [4, 7]


def test_quoted_fields_may_hold_quotes_breaks_and_hashes() -> None:
    read = table('name,owner\n"#1","say ""hi""\n# not a comment\n\nend"\nb,c\n')
    assert read.texts["name"] == ["#1", "b"]
    assert read.texts["owner"] == ['say "hi"\n# not a comment\n\nend', "c"]
    assert read.lines == [2, 6]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_where_no_comma_separates(separator: str) -> None:
    rows = ["name,up,latency [ms],loss", "a,3.5 Mbit/s,1.5,0.25", "b,1 Mbit/s,2,0.5"]
    text = "\n".join(row.replace(",", separator).replace("3.5", "3,5").replace("1.5", "1,5") for row in rows)
    read = table(text.replace("0.25", "0,25"))
    assert [values.tolist() for values in read.numbers.values()] == [[3.5e6, 1e6], [0.0015, 0.002], [0.25, 0.5]]
    said = refusal(separator.join(["name", "up"]) + "\n" + separator.join(["a", "1.234,5 Mbit/s"]))
    assert "'1.234,5 Mbit/s' has signs between thousands; write digits and one point, such as '1234.5'" in said


def test_a_decimal_comma_between_commas_is_told() -> None:
    assert refusal("name,up,parent\na,3,5 Mbit/s,e\n") == (
        "fleet.csv:2: has 4 fields; the header has 3; is there a decimal comma? Write '3.5' for '3,5', or put ';' between fields"
    )


def test_rows_of_another_length_are_refused() -> None:
    assert refusal("name,up\na\nb,1 Mbit/s\nc,1 Mbit/s,x\n") == (
        "fleet.csv:2: has 1 fields; the header has 2\nfleet.csv:4: has 3 fields; the header has 2"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name,up\n"a,1 Mbit/s\nb,c\n', "fleet.csv:2: a quote is opened and never closed"),
        ('name,up\n"a"b,1 Mbit/s\n', "fleet.csv:2: is no CSV: "),
        (f"name\n{'a' * 140_000}\n", "fleet.csv:2: a field has more than 131,072 characters"),
        ("", "fleet.csv: the file is empty"),
        (" \n\n", "fleet.csv: the file is empty"),
        ("# nothing\n", "fleet.csv: has no header; write for example 'name,parent,up [Mbit/s]'"),
        ("\nname,up\n# nothing\n", "fleet.csv:2: no row follows the header"),
        (b"name\n\xff\xfe\n", "fleet.csv:2: is not text in UTF-8"),
        (b"name\na\0b\n", "fleet.csv:2: is not text in UTF-8"),
    ],
)
def test_files_that_are_no_tables(text: str | bytes, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize("suffix", ["csv", "yaml", "parquet"])
def test_folders_and_files_that_are_not_there(suffix: str) -> None:
    with pytest.raises(InputError, match=rf"^fleet\.{suffix}: there is no such file$"):
        read_clients(f"fleet.{suffix}")
    Path(f"fleet.{suffix}").mkdir()
    with pytest.raises(InputError, match=rf"^fleet\.{suffix}: this is a folder, not a file$"):
        read_clients(f"fleet.{suffix}")
    with pytest.raises(InputError, match="cannot be read"):
        read_clients(f"a\0b.{suffix}")


def test_all_problems_are_said_at_once_in_the_order_of_the_file() -> None:
    said = refusal("name,upp,latency,loss\na,1,3,2\nb\na,,1 ms,0\n").splitlines()
    assert [line.split(": ")[0] + line.split('"')[1] if '"' in line else line.split(": ")[0] for line in said] == [
        "fleet.csv:1upp", "fleet.csv:2latency", "fleet.csv:2loss", "fleet.csv:3", "fleet.csv:4name",
    ]  # fmt: skip


def test_more_than_twenty_problems_are_counted() -> None:
    said = refusal("name,up\n" + "".join(f"c{i},5\n" for i in range(50))).splitlines()
    assert len(said) == 21
    assert said[19].startswith("fleet.csv:21: ")
    assert said[20] == "... and 30 more"
    exactly = refusal("name,up\n" + "".join(f"c{i},5\n" for i in range(20))).splitlines()
    assert len(exactly) == 20
    assert exactly[19].startswith("fleet.csv:21: ")


def test_parquet_with_numbers_texts_and_gaps() -> None:
    read = parquet(
        name=["a", "b"],
        parent=pa.array(["e", None]).dictionary_encode(),
        owner=[7, None],
        up=["1 Mbit/s", None],
        **{"down [Mbit/s]": [2.5, None], "latency (ms)": pa.array([3, 4], pa.int16()), "jitter [ms]": ["1", "2 s"]},
        loss=pa.array([0.25, 0.5], pa.float32()),
        speed=[Decimal("1.5"), Decimal("2")],
        samples=[5, None],
        overhead=pa.nulls(2),
    )
    assert read.texts == {"name": ["a", "b"], "parent": ["e", ""], "owner": ["7", ""]}
    expected = {
        "up": [1e6, math.nan], "down": [2.5e6, math.nan], "latency": [0.003, 0.004], "jitter": [0.001, 2.0],
        "loss": [0.25, 0.5], "speed": [1.5, 2.0], "samples": [5.0, math.nan], "overhead": [math.nan, math.nan],
    }  # fmt: skip
    assert set(read.numbers) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(read.numbers[name], values)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"up": [1.0]},
            "fleet.parquet: column \"up\": has numbers without a unit; write it in the header: 'up [Mbit/s]'",
        ),
        ({"up": ["1"]}, "fleet.parquet: row 1: column \"up\": '1' has no unit"),
        (
            {"up [Mbit/s]": [math.nan]},
            "fleet.parquet: row 1: column \"up\": 'nan' is not a finite number; leave it out",
        ),
        ({"x": [math.inf]}, "'inf' is not a finite number"),
        ({"x": [True]}, 'fleet.parquet: column "x": has values of type bool; it must have text or numbers'),
        ({"x": [[1.0]]}, "has values of type list<"),
        ({"parent": [1.5]}, 'column "parent": has values of type double; it must have text or whole numbers'),
        ({"parent": [{"a": 1}]}, "has values of type struct<"),
        ({"upp": [True]}, 'fleet.parquet: column "upp": unknown column of clients; did you mean'),
    ],
)
def test_parquet_columns_that_are_refused(columns: dict[str, Any], message: str) -> None:
    said = parquet_refusal(name=["a"], **columns)
    assert said.startswith("fleet.parquet: ")
    assert message in said
    assert "\n" not in said


def test_parquet_names_are_checked_by_row() -> None:
    assert "fleet.parquet: row 2: column \"name\": 'a' is there twice (first in row 1)" in parquet_refusal(
        name=["a", "a"]
    )
    assert 'row 1: column "name": the name is missing' in parquet_refusal(name=[None, "a"])
    assert parquet_refusal(name=[1.5]).count("\n") == 0
    assert "a name has no" in parquet_refusal(name=["a\0b"])
    assert parquet_refusal(name=pa.array([], pa.string())) == "fleet.parquet: has no rows"
    assert "has no column 'name'" in parquet_refusal(x=[1])


@pytest.mark.parametrize("raw", [b"name,up\na,1 Mbit/s\n", b"PAR1 and nothing else PAR1", b"PAR1"])
def test_parquet_files_that_are_none(raw: bytes) -> None:
    said = refusal(raw, "fleet.parquet")
    assert said.startswith("fleet.parquet: is not a Parquet file, or is damaged: ")
    assert "\n" not in said


def test_yaml_lists_and_sections() -> None:
    rows = "- {name: a, up: 10 Mbit/s, loss: 0.25, samples: 5, x: -1e3}\n- name: b\n  parent: e\n  up:\n"
    for text in (rows, "clients:\n" + rows + "servers:\n- name: e\n"):
        read = table(text, "fleet.yaml")
        assert read.texts == {"name": ["a", "b"], "parent": ["", "e"]}
        assert {name: values[0] for name, values in read.numbers.items()} == {
            "up": 10e6, "loss": 0.25, "samples": 5.0, "x": -1000.0,
        }  # fmt: skip
        assert all(math.isnan(values[1]) for values in read.numbers.values())
    both = "servers:\n- name: e\n  tier: edge\nclients:\n- name: a\n"
    assert table(both, "fleet.yml", read_servers).texts == {"name": ["e"], "tier": ["edge"]}
    assert table("- {name: e, Cell Up: 1 Gbit/s}\n", "fleet.yaml", read_servers).numbers["cell_up"][0] == 1e9
    assert table("- {name: e, 'up [Mbit/s]': 3}\n", "fleet.yaml").numbers["up"][0] == 3e6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers:\n- name: e\n", "fleet.yaml: has no 'clients:'"),
        ("client:\n- name: a\n", "fleet.yaml:1: unknown key 'client'; did you mean 'clients'?"),
        ("clients:\n", "fleet.yaml:1: has no list of clients; write each as '- {name: a, up: 10 Mbit/s}'"),
        ("clients: []\n", "fleet.yaml:1: has no list of clients"),
        ("clients: {a: 1}\n", "fleet.yaml:1: has no list of clients"),
        ("just text\n", "fleet.yaml: has no list of clients"),
        ("# nothing\n", "fleet.yaml: has no list of clients"),
        ("[]\n", "fleet.yaml: has no list of clients"),
        ("", "fleet.yaml: the file is empty"),
        ("- name: a\n- b\n", "fleet.yaml:2: is not a mapping; write each row as"),
        ("- name: a\n  up: 10\n", "fleet.yaml:1: column \"up\": '10' has no unit; write it in the cell ('10 Mbit/s')"),
        ("- name: a\n  latency: .inf\n", "'inf' is not a finite number"),
        ("- name: a\n  x: .nan\n", "'nan' is not a finite number"),
        ("- name: a\n  x: 1e400\n", "the number is too large"),
        ("- name: a\n  x: [1]\n", 'fleet.yaml:2: column "x": must be a number or a text'),
        ("- name: a\n  loss: true\n", 'column "loss": must be a number or a text'),
        ("- name: a\n  parent: {b: c}\n", 'fleet.yaml:2: column "parent": must be text; put it in quotes'),
        ("- name: a\n  parent: 7\n", 'column "parent": must be text; put it in quotes'),
        ("- name: 7\n", 'column "name": must be text; put it in quotes'),
        ("- name: a\n  upp:\n", 'fleet.yaml:2: column "upp": unknown column of clients'),
        ("- name: a\n  up: 1 Mbit/s\n  Up: 1 Mbit/s\n", 'fleet.yaml:3: column "Up": the column is there twice'),
        ("- name: a\n  name: b\n", "the key stands twice in this mapping"),
        ("[{name: a}, {name: a}]\n", "'a' is there twice (first in line 1)"),
        ("- x: 1\n", "fleet.yaml:1: has no column 'name'"),
        ("- {name: a\n", "is not valid YAML"),
        ("- name: a\n# " + "x" * 1_000_000, "is too large for YAML; write a fleet of this size as CSV or Parquet"),
    ],
)
def test_yaml_that_is_refused(text: str, message: str) -> None:
    said = refusal(text, "fleet.yaml")
    assert said.startswith("fleet.yaml")
    assert message in said
    assert "\n" not in said or "unknown key" in said


CELLS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20).map(str.strip)
NAMES = (
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="/>"), max_size=80)
    .map(str.strip)
    .filter(lambda name: name not in ("", "cloud"))
)
HERE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def fleets(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, list[float]], dict[str, list[str]]]:
    """Texts, numbers, and the same numbers as they are written."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    nan = st.just(math.nan)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=len(names), max_size=len(names)))

    texts = {"name": names} | {
        name: column(CELLS) for name in draw(st.sets(st.sampled_from(("parent", "device", "owner"))))
    }
    kinds = {
        "up": (st.floats(1e-3, 1e18), RATE.format),
        "latency": (st.floats(0, 1e18), TIME.format),
        "loss": (st.floats(0, 1, exclude_max=True), repr),
        "samples": (st.integers(1, 2**53).map(float), repr),
        "x": (st.floats(-1e18, 1e18), repr),
    }
    numbers = {name: column(values | nan) for name, (values, _) in kinds.items() if draw(st.booleans())}
    written = {n: ["" if math.isnan(v) else kinds[n][1](v) for v in values] for n, values in numbers.items()}
    return texts, numbers, written


@HERE
@given(fleets())
def test_a_written_table_reads_back_to_the_same_values(
    fleet: tuple[dict[str, list[str]], dict[str, list[float]], dict[str, list[str]]],
) -> None:
    texts, numbers, written = fleet
    write_table(Path("written.csv"), texts | written)
    read = read_clients("written.csv")
    assert read.texts == texts
    assert set(read.numbers) == set(numbers)
    for name, values in numbers.items():
        np.testing.assert_array_equal(read.numbers[name], values)


def test_a_table_is_written_whole_or_not_at_all() -> None:
    write_table(Path("made/fleet.csv"), {"name": ["#1", "b,c"], "up": ["1 Mbit/s", ""]})
    assert Path("made/fleet.csv").read_bytes() == b'name,up\n"#1",1 Mbit/s\n"b,c",\n'
    with pytest.raises(ValueError, match="zip"):
        write_table(Path("made/fleet.csv"), {"name": ["a"], "up": []})
    assert [path.name for path in Path("made").iterdir()] == ["fleet.csv"]
    assert read_clients("made/fleet.csv").texts["name"] == ["#1", "b,c"]
    with pytest.raises(HflError, match="cannot write"):
        write_table(Path("made"), {"name": ["a"]})


PIECES = st.sampled_from(
    [b"name", b"up", b"[Mbit/s]", b",", b";", b"\t", b"\n", b"\r", b'"', b"#", b"1", b"1,5", b" ms", b"nan", b"- ", b": ",
     b"{", b"}", b"clients:\n", b"\xff", b"\0", b"\xef\xbb\xbf", b"PAR1", b"&a ", b"*a", b"!x "]
)  # fmt: skip


@HERE
@given(
    st.binary(max_size=200) | st.lists(PIECES, max_size=30).map(b"".join),
    st.sampled_from(["csv", "yaml", "parquet"]),
    st.sampled_from([read_clients, read_servers]),
)
def test_any_bytes_are_read_or_refused(raw: bytes, suffix: str, read: Reader) -> None:
    with suppress(InputError):
        assert len(table(raw, f"any.{suffix}", read)) > 0


@HERE
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_damaged_parquet_files_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    pq.write_table(pa.table({"name": ["a", "bö"], "x": [1.0, None], "up [Mbit/s]": ["1", "2"]}), "whole.parquet")
    raw = bytearray(Path("whole.parquet").read_bytes())
    for at, value in changes:
        raw[at % len(raw)] = value
    with suppress(InputError):
        table(bytes(raw), "damaged.parquet")


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_large_fleet(separator: str) -> None:
    rows = (f"c{i},edge-{i % 9},phone,{i % 50 + 1} Mbit/s,{i % 7 + 1} MB/s,{i % 90} ms" for i in range(20_000))
    read = table("\n".join(["name,parent,device,up,down,latency", *rows]).replace(",", separator))
    assert len(read) == 20_000
    assert read.numbers["up"][49] == 50e6
    assert read.lines[-1] == 20_001
