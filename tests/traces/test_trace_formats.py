"""Every format: small files by hand, real files where they are there, and telling formats apart."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import UCC, real, write

from emulator.contracts.files import TraceFormat, trace_formats
from emulator.errors import InputError
from traces.content import DeviceMix, LatencyMatrix, Trace, label, weighted_median
from traces.formats.own_csv import as_csv
from traces.reading import detect, read
from traces.step import StepFunction

BEHAVIOUR = {
    "duration": 98, "active": [12, 100], "inactive": [65, 145], "finish_time": 200, "model": "CPH1801",
}  # fmt: skip


def trace(path: Path, kind: str | None = None, **params: Any) -> Trace:
    content = read(path, kind, trace_formats[kind].params.model_validate(params) if kind else None)
    assert isinstance(content, Trace)
    return content


def steps(function: StepFunction) -> list[tuple[float, float]]:
    return list(zip(function.times_s.tolist(), function.values.tolist(), strict=True))


# Our own CSV.


def test_csv_columns_have_quantities_names_and_units(tmp_path: Path) -> None:
    text = """# a comment
# end: repeat after 10 min
time [min],bandwidth up [Mbit/s],bandwidth down [Mbit/s],latency [ms],availability client 7 [%],speed [1]
0,1,2.5,40,100,1
# another
1.5,0,8e1,41,0,.5

"""
    t = trace(write(tmp_path, "t.csv", text))
    assert [label(s) for s in t.series] == [
        "bandwidth up", "bandwidth down", "latency", "availability client 7", "speed",
    ]  # fmt: skip
    assert steps(t.get("bandwidth", "up")) == [(0, 1e6), (90, 0)]
    assert steps(t.get("bandwidth", "down")) == [(0, 2.5e6), (90, 80e6)]
    assert steps(t.get("latency")) == [(0, 0.04), (90, pytest.approx(0.041))]
    assert steps(t.get("availability", "client 7")) == [(0, 1), (90, 0)]
    assert {f.period_s for f in t.series.values()} == {600}


@pytest.mark.parametrize("end", ["", "# end: hold\n"])
def test_csv_holds_its_last_value_unless_it_says_otherwise(tmp_path: Path, end: str) -> None:
    path = write(tmp_path, "t.csv", f"{end}time_s,bandwidth [kB/s]\r\n0,1\r\n2,3\r\n")
    assert steps(trace(path).get("bandwidth")) == [(0, 8000), (2, 24000)]
    assert trace(path).get("bandwidth").end == "hold"
    assert trace(path).end_stated == bool(end)
    assert trace(path).open_end_s == (None if end else 2)
    repeated = trace(path, "csv", repeat_after="5 s")
    assert repeated.get("bandwidth").period_s == 5
    assert repeated.open_end_s is None


def test_a_trace_that_never_changes_has_no_end(tmp_path: Path) -> None:
    constant = trace(write(tmp_path, "t.csv", "time [s],speed [1]\n0,1\n"))
    assert not constant.end_stated
    assert constant.open_end_s is None
    assert constant.ending("repeat").get("speed").at(1e9) == 1


def test_a_trace_takes_another_end(tmp_path: Path) -> None:
    silent = trace(write(tmp_path, "t.csv", "time [s],bandwidth [bit/s],speed [1]\n0,1,5\n2,3,6\n3,4,7\n9,5,8\n"))
    repeated = silent.ending("repeat")
    assert {f.period_s for f in repeated.series.values()} == {9 + 2}  # the last value lasts as long as the median step
    assert [repeated.get("bandwidth").at(t) for t in (0, 2, 9, 10.9, 11, 13)] == [1, 3, 5, 5, 1, 3]
    assert repeated.open_end_s is None
    held = repeated.ending("hold")
    assert [held.get("speed").at(t) for t in (0, 9, 11, 1e6)] == [5, 8, 8, 8]
    assert held.get("speed").end == "hold"
    assert repeated.ending("repeat").get("speed").period_s == 11


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(0, 1e12), st.floats(0, 1)), min_size=1, max_size=6),
    st.booleans(),
)
def test_csv_reads_back_what_it_wrote_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float, float]], repeat: bool
) -> None:
    edges = np.cumsum([0.0, *(width for width, _, _ in rows)])
    period = float(edges[-1]) if repeat else None
    one = StepFunction.of(edges[:-1], [value for _, value, _ in rows], period)
    other = StepFunction.of(edges[:1], [rows[0][2]], period)  # with fewer steps of its own
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(as_csv(Trace({("bandwidth", ""): one, ("availability", "x"): other}), ["made for a test"]))
    again = trace(path)
    assert steps(again.get("bandwidth")) == steps(one)
    assert again.get("bandwidth").period_s == period
    assert set(again.get("availability", "x").values) == {rows[0][2]}


def test_csv_writes_a_shifted_function_as_it_is_seen(tmp_path: Path) -> None:
    shifted = StepFunction.of([0, 1, 3], [1, 2, 3], 4).shifted(1.5).scaled(10)
    path = write(tmp_path, "t.csv", as_csv(Trace({("speed", ""): shifted})))
    assert steps(trace(path).get("speed")) == [(0, 20), (1.5, 30), (2.5, 10), (3.5, 20)]


def test_csv_has_one_end() -> None:
    functions = {("speed", name): StepFunction.of([0], [1], period) for name, period in (("a", 3), ("b", 4))}
    with pytest.raises(InputError, match="end at different times"):
        as_csv(Trace(functions))  # type: ignore[arg-type]


# Mahimahi.


def test_mahimahi_counts_packets_in_bins(tmp_path: Path) -> None:
    path = write(tmp_path, "x.up", "0\n99\n100\n100\n250\n330\n")
    f = trace(path).get("bandwidth", "up")
    assert steps(f) == [(0, 240e3), (0.1, 240e3), (0.2, pytest.approx(24000 / 0.13))]  # the last bin takes the rest
    assert f.period_s == 0.33
    assert f.integrate(0, 0.33) == pytest.approx(6 * 12000, rel=1e-14)
    one = trace(path, "mahimahi", bin="1 h").get("bandwidth", "up")
    assert steps(one) == [(0, pytest.approx(72000 / 0.33))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.sampled_from(["1 ms", "7 ms", "100 ms", "0.3333 s"]))
def test_mahimahi_keeps_every_bit(tmp_path_factory: pytest.TempPathFactory, times: list[int], width: str) -> None:
    times = [*sorted(times), 5001]
    path = write(tmp_path_factory.mktemp("m"), "x", "".join(f"{t}\n" for t in times))
    f = trace(path, "mahimahi", bin=width).get("bandwidth")
    assert f.integrate(0, 5.001) == pytest.approx(len(times) * 12000, rel=1e-12)
    assert f.integrate(5.001, 5.001 * 1001) == pytest.approx(1000 * len(times) * 12000, rel=1e-12)


@pytest.mark.parametrize("name", ["ATT-LTE-driving-2016", "Verizon-LTE-short"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_mahimahi_real_files(name: str, direction: str) -> None:
    path = real(f"mahimahi/{name}.{direction}")
    assert detect(path) == "mahimahi"
    times = np.array([int(line) for line in path.read_text().split()])
    f = trace(path).get("bandwidth", direction)
    assert f.period_s == times[-1] / 1000
    assert f.integrate(0, f.period_s) == pytest.approx(len(times) * 12000, rel=1e-12)
    for bin_end in (0.1, 7.3, 100.0):  # up to the end of any bin, all packets before it have passed
        assert f.integrate(0, bin_end) == pytest.approx(12000 * (times < round(1000 * bin_end)).sum(), rel=1e-12)


# Tabs.


def test_tabbed_values_were_measured_before_their_row(tmp_path: Path) -> None:
    path = write(tmp_path, "x.log", "66.5\t9.9\n68.5\t0.5\n69\t2\n")
    assert steps(trace(path).get("bandwidth")) == [(0, 0.5e6), (2, 2e6)]
    assert trace(path).get("bandwidth").period_s == 2.5
    after = trace(path, "tabbed", covers="after").get("bandwidth")
    assert steps(after) == [(0, 9.9e6), (2, 0.5e6), (2.5, 2e6)]
    assert after.period_s == 2.5 + 1.25


@pytest.mark.parametrize("name", ["norway_bus_13_part0.log", "norway_bus_13_part1.log", "norway_car_10_part2.log"])
def test_tabbed_real_files(name: str) -> None:
    path = real(f"hsdpa/{name}")
    assert detect(path) == "tabbed"
    rows = np.loadtxt(path)
    f = trace(path).get("bandwidth")
    assert f.times_s[0] == 0
    assert f.period_s == pytest.approx(rows[-1, 0] - rows[0, 0])
    assert f.integrate(0, f.period_s) == pytest.approx(1e6 * (rows[1:, 1] * np.diff(rows[:, 0])).sum(), rel=1e-9)


# University College Cork.


def test_ucc_averages_a_second_and_bridges_what_is_missing(tmp_path: Path) -> None:
    t = trace(write(tmp_path, "x.csv", UCC))
    assert steps(t.get("bandwidth", "down")) == [(0, 200e3), (4, 500e3)]
    assert steps(t.get("bandwidth", "up")) == [(0, 10e3), (1, 20e3)]
    assert steps(t.get("latency")) == [(0, 0.02), (4, 0.03)]  # half a round trip; the first known counts from the start
    assert {f.period_s for f in t.series.values()} == {5}


def test_ucc_real_file() -> None:
    path = real("ucc5g/B_2019.12.02_07.26.15.csv")
    assert detect(path) == "ucc-5g"
    t = trace(path)
    assert [label(s) for s in t.series] == ["bandwidth up", "bandwidth down"]  # it has no ping
    down = t.get("bandwidth", "down")
    assert (down.period_s, down.at(0), len(down.times_s)) == (2049, 28e3, 1810)
    assert down.at(1) == pytest.approx(184e3)  # the mean of 28 and 340 kbit/s


# FedScale.


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscale_capacity(tmp_path: Path, protocol: int) -> None:
    data = {i: {"computation": c, "communication": 5648.5} for i, c in ((1, 100.0), (2, 50), (7, 400.0))}
    path = write(tmp_path, "client_device_capacity", pickle.dumps(data, protocol))
    assert detect(path) == "fedscale-capacity"
    mix = read(path)
    assert isinstance(mix, DeviceMix)
    assert mix.names == ("1", "2", "7")
    assert mix.relative_speeds.tolist() == [1, 2, 0.25]
    assert mix.shares.tolist() == pytest.approx([1 / 3] * 3)
    assert mix.sample_s is not None
    assert mix.sample_s.tolist() == [0.1, 0.05, 0.4]
    assert mix.bandwidth_bps is not None
    assert mix.bandwidth_bps.tolist() == [5648.5e3] * 3
    first = read(path, "fedscale-capacity", trace_formats["fedscale-capacity"].params.model_validate({"clients": 2}))
    assert isinstance(first, DeviceMix)
    assert first.names == ("1", "2")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_fedscale_behaviour(tmp_path: Path, protocol: int) -> None:
    data = {
        3: BEHAVIOUR,
        "b": {
            "active": [0, 50, 60, 190],
            "inactive": [10, 60, 70, 250],
            "finish_time": 200,
        },  # touching, beyond the end
        "c": {"active": [], "inactive": [], "finish_time": 10.5},
        "d": {"active": [5, 5, 8], "inactive": [5, 20, 22], "finish_time": 50},  # empty, overlapping
    }
    path = write(tmp_path, "client_behave_trace", pickle.dumps(data, protocol))
    assert detect(path) == "fedscale-behaviour"
    t = trace(path)
    assert steps(t.get("availability", "3")) == [(0, 0), (12, 1), (65, 0), (100, 1), (145, 0)]
    assert steps(t.get("availability", "b")) == [(0, 1), (10, 0), (50, 1), (70, 0), (190, 1)]
    assert steps(t.get("availability", "c")) == [(0, 0)]
    assert steps(t.get("availability", "d")) == [(0, 0), (5, 1), (22, 0)]
    assert [f.period_s for f in t.series.values()] == [200, 200, 10.5, 50]


def test_fedscale_behaviour_agrees_with_its_definition(tmp_path: Path) -> None:
    t = trace(write(tmp_path, "x", pickle.dumps({1: BEHAVIOUR})))
    for now in np.arange(0.5, 900, 1.0):  # off the edges, where "until" and "until and with" differ
        inside = now % 200
        on = any(a <= inside <= b for a, b in ((12, 65), (100, 145)))
        assert t.get("availability", "1").at(float(now)) == on


# FLASH.


def test_flash_scores_are_cleaned_and_weighed(tmp_path: Path) -> None:
    rows = [
        {"Model": "A", "AI_Score": " 9000 1,6"}, {"Model": "B", "AI_Score": "200"}, {"Model": "C", "AI_Score": "400 "},
        {"Model": "A", "AI_Score": " 100 2"},
    ]  # fmt: skip
    path = write(tmp_path, "raw.json", json.dumps(rows, indent=4))
    assert detect(path) == "flash-scores"
    mix = read(path)
    assert isinstance(mix, DeviceMix)
    assert mix.names == ("A", "B", "C")
    assert mix.relative_speeds.tolist() == [0.5, 1, 2]
    assert mix.shares.tolist() == pytest.approx([1 / 3] * 3)
    write(tmp_path, "codes.json", json.dumps({"x": "C", "y": "C", "z": "A", "u": "unknown", "v": "no score"}))
    weighed = read(path, "flash-scores", trace_formats["flash-scores"].params.model_validate({"models": "codes.json"}))
    assert isinstance(weighed, DeviceMix)
    assert weighed.names == ("A", "C")
    assert weighed.shares.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert weighed.relative_speeds.tolist() == [0.25, 1]  # the median user has a C


def test_lines_of_json_are_no_flash_scores(tmp_path: Path) -> None:
    (tmp_path / "rates.jsonl").write_text('{"t_ms": 0, "mbps": 1}\n{"t_ms": 5, "mbps": 2}\n')
    with pytest.raises(InputError, match="is in none of the formats"):
        detect(tmp_path / "rates.jsonl")


def test_flash_real_files_agree_with_each_other() -> None:
    raw, scores = real("flash/raw_ai_benchmark_list.json"), real("flash/benchmark2score.json")
    real("flash/real2benchmark.json")
    assert detect(raw) == detect(scores) == "flash-scores"
    one, other = read(raw), read(scores)
    assert isinstance(one, DeviceMix)
    assert isinstance(other, DeviceMix)
    assert len(one.names) == 307
    assert one.names == other.names
    assert np.array_equal(one.relative_speeds, other.relative_speeds)
    params = trace_formats["flash-scores"].params.model_validate({"models": "real2benchmark.json"})
    weighed = read(scores, "flash-scores", params)
    assert isinstance(weighed, DeviceMix)
    assert weighed.shares.sum() == pytest.approx(1)
    assert weighed_total(weighed) == 160  # of 772 codes: 610 are unknown and 2 name a phone without a score


def weighed_total(mix: DeviceMix) -> int:
    """How many codes the shares are made of: one code is the smallest share."""
    return round(1 / float(mix.shares.min()))


def test_a_mix_of_ones_own_has_shares_speeds_and_bandwidths(tmp_path: Path) -> None:
    rows = "slow,50,30,4\n# a comment\nplain,30,50,12\nfast,20,125,40\n"
    path = write(tmp_path, "m.csv", "# mine\ndevice,share [%],speed [%],bandwidth [Mbit/s]\n" + rows)
    assert detect(path) == "device-mix"
    mix = read(path)
    assert isinstance(mix, DeviceMix)
    assert mix.names == ("slow", "plain", "fast")
    assert mix.shares.tolist() == pytest.approx([0.5, 0.3, 0.2])
    assert mix.relative_speeds.tolist() == pytest.approx([1, 5 / 3, 125 / 30])  # half of the devices are slow ones
    assert mix.bandwidth_bps is not None
    assert mix.bandwidth_bps.tolist() == [4e6, 12e6, 40e6]
    without = read(write(tmp_path, "n.csv", "device,speed [1],share [1]\na,1,0.25\nb,2,0.75\n"))
    assert isinstance(without, DeviceMix)
    assert without.bandwidth_bps is None
    assert without.relative_speeds.tolist() == [0.5, 1]


def test_weighted_median() -> None:
    values = np.array([5.0, 1.0, 3.0])
    assert weighted_median(values, np.ones(3)) == 3
    assert weighted_median(values, np.array([3.0, 1.0, 1.0])) == 5


# Latencies.


def test_latency_matrix_fills_what_was_not_measured(tmp_path: Path) -> None:
    path = write(tmp_path, "l.txt", "0.02,180,-0.5,-1\n181,0.01,90,8\n30,-0.5,0.03,7\n-1,9,6,0\n")
    assert detect(path) == "latency-matrix"
    m = read(path)
    assert isinstance(m, LatencyMatrix)
    assert m.filled == 4
    ms = m.latency_s * 1e3
    assert ms[0, 2] == pytest.approx(30)  # as in the other direction
    assert ms[2, 1] == pytest.approx(90)
    assert ms[0, 3] == pytest.approx(np.median([0.02, 180, 30]))  # known in neither direction
    assert ms[3, 0] == pytest.approx(6)
    assert ms[1].tolist() == pytest.approx([181, 0.01, 90, 8])


def test_latency_matrix_may_have_comments(tmp_path: Path) -> None:
    path = write(tmp_path, "l.txt", "# two sites\n0,5\n# and back\n6,0\n")
    assert detect(path) == "latency-matrix"
    m = read(path)
    assert isinstance(m, LatencyMatrix)
    assert m.latency_s.tolist() == [[0, 0.005], [0.006, 0]]


def test_latency_matrix_real_file() -> None:
    path = real("latency/latencies.txt")
    assert detect(path) == "latency-matrix"
    m = read(path)
    assert isinstance(m, LatencyMatrix)
    assert m.latency_s.shape == (227, 227)
    assert m.filled == 51
    assert m.latency_s[0, 1] == pytest.approx(0.1836055)
    assert m.latency_s.min() > 0
    assert m.latency_s.max() == pytest.approx(0.811835)


# All of them.


def test_every_format_says_what_it_gives_and_how_it_is_told() -> None:
    names = trace_formats.names()
    assert set(names) >= {
        "csv", "device-mix", "fedscale-behaviour", "fedscale-capacity", "flash-scores", "latency-matrix", "mahimahi",
        "tabbed", "ucc-5g",
    }  # fmt: skip
    for name in names:
        assert trace_formats[name].facts.gives in (Trace, DeviceMix, LatencyMatrix)
        assert callable(trace_formats[name].facts.fits)


def test_a_scenario_can_choose_a_format(tmp_path: Path) -> None:
    from emulator.registry import Params

    class Section(Params):
        format: TraceFormat

    chosen = Section.model_validate({"format": {"kind": "mahimahi", "bin": "50 ms"}}).format
    f = chosen(write(tmp_path, "x.down", "0\n100\n")).get("bandwidth", "down")
    assert len(f.times_s) == 2


def test_a_series_without_a_name_is_for_all_and_others_are_named(tmp_path: Path) -> None:
    t = Trace({("bandwidth", ""): StepFunction.constant(1), ("latency", "a"): StepFunction.constant(2)})
    assert t.get("bandwidth", "up").at(0) == 1
    for ask, said in (
        (("latency", "b"), "the trace has no latency 'b'; it has 'a'"),
        (("latency", ""), "the trace has no latency without a name; it has 'a'"),
        (("speed", ""), "the trace has no speed; it has 'bandwidth', 'latency'"),
    ):
        with pytest.raises(InputError) as caught:
            t.get(*ask)  # type: ignore[arg-type]
        assert str(caught.value) == said


def test_thousands_of_clients_play_one_trace(tmp_path: Path) -> None:
    f = trace(write(tmp_path, "x.down", "".join(f"{t}\n" for t in range(0, 60_001, 3)))).get("bandwidth", "down")
    clients = [f.shifted(offset).scaled(0.5) for offset in np.linspace(0, 1000, 5000)]
    assert len({id(c._steps) for c in clients}) == 1
    ends = [c.time_to_accumulate(1e5, 8e6) for c in clients]
    assert all(math.isfinite(end) for end in ends)


def examples() -> dict[str, str]:
    """The indented examples of the documentation, by the format that they stand under."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "traces.md").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    name = ""
    for line in text.partition("## Formats")[2].partition("## Generators")[0].split("\n"):
        if line.startswith("**`"):
            name = line.split("`")[1]
        elif line.startswith("    ") and name:
            found[name] = found.get(name, "") + line[4:] + "\n"
        elif line.startswith("To add"):
            break
    return found


@pytest.mark.parametrize("name", ["csv", "device-mix", "mahimahi", "tabbed", "latency-matrix"])
def test_the_examples_of_the_documentation_are_what_they_claim_to_be(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, "example", examples()[name])
    assert detect(path) == name
    assert isinstance(read(path), trace_formats[name].facts.gives)
