from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from emulator.units import CLIENT_TIME, POWER, RATE, SIZE, SPEED, TIME, BitsPerSecond, Dimension, Seconds


@pytest.mark.parametrize(
    ("dimension", "text", "value"),
    [
        (TIME, "15 ms", 0.015),
        (TIME, "2 h", 7200.0),
        (TIME, "1.5min", 90.0),
        (TIME, "3 µs", 3e-6),
        (SIZE, "1.5 GB", 1.5e9),
        (SIZE, "1 GiB", 2.0**30),
        (SIZE, "1 kB", 1000.0),
        (SIZE, "1 KiB", 1024.0),
        (SIZE, "8 kbit", 1000.0),
        (RATE, "20 Mbit/s", 20e6),
        (RATE, "20 MB/s", 160e6),
        (RATE, "1 MiB/s", 8 * 2.0**20),
        (RATE, "1e3 kbit/s", 1e6),
        (SPEED, "9.6 GFLOP/s", 9.6e9),
        (POWER, "650 mW", 0.65),
        (CLIENT_TIME, "2 client-h", 7200.0),
    ],
)
def test_reads_units_in_powers_of_1000_and_1024_bits_and_bytes(dimension: Dimension, text: str, value: float) -> None:
    assert dimension.parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("dimension", "text", "message"),
    [
        (TIME, "15", "'15' has no unit; write for example '15 ms'"),
        (TIME, "soon", "'soon' is not a time; write a number and a unit, such as '15 ms'"),
        (TIME, "15 msec", "unknown unit 'msec' of time; did you mean 'ms'?"),
        (TIME, "12:30:00", "unknown unit ':30:00' of time; known units: 's', 'ms', 'us', 'µs', 'ns', 'min', 'h', 'd'"),
        (
            RATE,
            "20 Mb/s",
            "unknown unit 'Mb/s' of bandwidth; say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)",
        ),
        (
            RATE,
            "20 Mbps",
            "unknown unit 'Mbps' of bandwidth; say 'Mbit/s' (bits) or 'MB/s' (bytes, eight times as much)",
        ),
        (RATE, "20 KB/s", "unknown unit 'KB/s' of bandwidth; say 'kB/s' (1000) or 'KiB/s' (1024)"),
        (SIZE, "2 KB", "unknown unit 'KB' of size; say 'kB' (1000) or 'KiB' (1024)"),
        (SIZE, "2 Gb", "unknown unit 'Gb' of size; say 'Gbit' (bits) or 'GB' (bytes, eight times as much)"),
        (TIME, "1e400 s", "'1e400 s' is too large"),
    ],
)
def test_refuses_what_could_be_read_in_two_ways(dimension: Dimension, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        dimension.parse(text)


@given(st.sampled_from([TIME, SIZE, RATE, SPEED, POWER, CLIENT_TIME]), st.floats(0, 1e18, allow_nan=False))
def test_what_is_written_reads_back_exactly(dimension: Dimension, value: float) -> None:
    assert dimension.parse(dimension.format(value)) == value


def test_writes_the_shortest_text() -> None:
    assert RATE.format(20e6) == "20 Mbit/s"
    assert TIME.format(0.015) == "15 ms"
    assert SIZE.format(1.5e9) == "1.5 GB"
    assert TIME.format(0.0) == "0 s"


def _message(kind: object, given_value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(given_value)
    return str(caught.value.errors()[0]["msg"])


def test_fields_refuse_bare_negative_and_absurd_values() -> None:
    assert _message(BitsPerSecond, 20) == "20 has no unit; write for example '20 Mbit/s'"
    assert _message(BitsPerSecond, "0 Mbit/s") == "0 Mbit/s: a bandwidth here must be greater than zero"
    assert _message(Seconds, "-3 ms") == "-3 ms: a time here must not be negative"
    assert _message(Seconds, True) == "expected a time such as '15 ms'"
    assert _message(Seconds, [1]) == "expected a time such as '15 ms'"
    assert _message(Seconds, math.nan) == "nan has no unit; write for example '15 ms'"


def test_zero_needs_no_unit_where_zero_is_allowed() -> None:
    assert TypeAdapter(Seconds).validate_python(0) == 0.0
