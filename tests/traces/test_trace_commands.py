"""``hfl traces`` from outside, the bundled samples, and what people are told about a function."""

from __future__ import annotations

import itertools
import math
import pickle
import re
import shlex
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from scenario.command import Done, hfl
from trace_samples import UCC, real, write

from emulator.contracts.files import trace_formats
from traces.content import DeviceMix, LatencyMatrix, Trace
from traces.reading import bundled, read
from traces.step import StepFunction
from traces.summary import Summary, from_afar, mean_of, summarise

GENERATED = ("daily-load", "lte-like", "lte-like-latency", "phone-availability", "wifi-with-drops")


def series(path: Path) -> Trace:
    content = read(path)
    assert isinstance(content, Trace)
    return content


# inspect


def test_inspect_says_what_a_file_holds(tmp_path: Path) -> None:
    path = write(tmp_path, "[x].csv", UCC)
    assert hfl("traces", "inspect", path) == Done(
        0,
        f"{path}: ucc-5g, 3 series\n"
        "bandwidth up\n"
        "  values     10 kbit/s to 20 kbit/s, mean 18 kbit/s\n"
        "  time       5 s in 2 steps of 2.5 s (median), then it starts over\n"
        "  gaps       none\n"
        "bandwidth down\n"
        "  values     200 kbit/s to 500 kbit/s, mean 260 kbit/s\n"
        "  time       5 s in 2 steps of 2.5 s (median), then it starts over\n"
        "  gaps       none\n"
        "latency\n"
        "  values     20 ms to 30 ms, mean 22 ms\n"
        "  time       5 s in 2 steps of 2.5 s (median), then it starts over\n"
        "  gaps       none\n",
        "",
    )


def test_inspect_tells_of_gaps_zeros_and_the_end(tmp_path: Path) -> None:
    rows = "".join(f"{t},{v}\n" for t, v in ((0, 1), (1, 0), (2, 0), (3, 1), (4, 0), (20, 1)))
    path = write(tmp_path, "x.csv", "time [s],availability client-3 [1]\n" + rows)
    assert hfl("traces", "inspect", path).out == (
        f"{path}: csv, 1 series\n"
        "availability client-3\n"
        "  values     0 % to 100 %, mean 10 %\n"
        "  time       20 s in 5 steps of 1 s (median), and no word about what comes then\n"
        "  gaps       1 step longer than 5 times the median, the longest 16 s\n"
        "  at zero    90 % of the time, at longest 16 s\n"
    )
    held = write(tmp_path, "h.csv", "# end: hold\ntime [s],availability [1]\n" + rows)
    assert "(median), then the last value holds\n" in hfl("traces", "inspect", held).out
    path = write(tmp_path, "y.csv", "time [s],speed [1]\n0,0.5\n")
    assert hfl("traces", "inspect", path).out.endswith("  time       0 s without a step, then the last value holds\n")


def test_inspect_takes_formats_and_parameters(tmp_path: Path) -> None:
    path = write(tmp_path, "x.down", "0\n100\n200\n")
    assert "in 2 steps of 0.1 s" in hfl("traces", "inspect", path).out
    assert "in 4 steps of 0.05 s" in hfl("traces", "inspect", path, "--format", "mahimahi", "--set", "bin=50 ms").out
    for arguments, said in (
        (["--format", "mahimai"], "unknown trace format 'mahimai'; did you mean 'mahimahi'?"),
        (["--set", "bin=50"], "--set bin=50: bin: 50 has no unit; write for example '15 ms'"),
        (["--set", "bni=50 ms"], "--set bni=50 ms: bni: unknown key; did you mean 'bin'?"),
        (["--set", "bin"], "--set bin: write it as key.path=value, for example --set stop.rounds=20"),
        (["--format", "tabbed"], f"{path}:1: has 1 cells; a row is seconds, a tab, and Mbit/s"),
    ):
        assert hfl("traces", "inspect", path, *arguments) == Done(2, "", f"error: {said}\n")
    assert hfl("traces", "inspect", tmp_path / "no").code == 2


def test_inspect_mixes_and_latencies_and_many_clients(tmp_path: Path) -> None:
    data = {i: {"computation": float(c), "communication": 1000 * c} for i, c in ((1, 100), (2, 200), (3, 400))}
    path = write(tmp_path, "capacity", pickle.dumps(data))
    assert hfl("traces", "inspect", path).out == (
        f"{path}: fedscale-capacity, a mix of 3 devices\n"
        "  speed      0.5 to 2 times the median\n"
        "  bandwidth  100 Mbit/s to 400 Mbit/s, median 200 Mbit/s\n"
        "  inference  100 ms to 400 ms, median 200 ms a sample\n"
    )
    path = write(tmp_path, "l.txt", "0,10\n-0.5,0\n")
    assert hfl("traces", "inspect", path).out == (
        f"{path}: latency-matrix, the latencies between 2 sites\n"
        "  latency    10 ms to 10 ms, median 10 ms\n"
        "  missing    1 of 4 entries, filled in\n"
    )
    many = {i: {"active": [i], "inactive": [i + 5], "finish_time": 100} for i in range(1, 31)}
    path = write(tmp_path, "behave", pickle.dumps(many))
    done = hfl("traces", "inspect", path)
    assert done.out.startswith(f"{path}: fedscale-behaviour, 30 series\navailability 1\n")
    assert done.out.endswith("and 20 more series\n")
    assert hfl("traces", "plot", path, tmp_path / "b.png").code == 0


def test_a_format_of_the_users_own(tmp_path: Path) -> None:
    plugin = tmp_path / "own_trace_format.py"
    plugin.write_text(
        "from emulator.contracts.files import TraceFormatFacts, trace_formats\n"
        "from traces.content import Trace\n"
        "from traces.step import StepFunction\n"
        "@trace_formats.register('own', facts=TraceFormatFacts(gives=Trace, fits=lambda head: head.raw.startswith(b'OWN')))\n"
        "def own(path, params):\n"
        "    '''My own.'''\n"
        "    return Trace({('speed', ''): StepFunction.constant(2)})\n"
    )
    path = write(tmp_path, "x.own", "OWN")
    try:
        assert hfl("traces", "inspect", path, "--plugin", plugin).out.startswith(f"{path}: own, 1 series\nspeed\n")
    finally:
        trace_formats._plugins.pop("own", None)
        sys.modules.pop("own_trace_format", None)


# convert


def test_convert_adds_no_word_about_the_end(tmp_path: Path) -> None:
    for end in ("", "# end: hold\n", "# end: repeat after 5 s\n"):
        path, to = write(tmp_path, "x.csv", f"{end}time [s],speed [1]\n0,1\n2,3\n"), tmp_path / "y.csv"
        for series_of in ((), ("--series", "speed")):
            assert hfl("traces", "convert", path, to, *series_of).code == 0
            assert series(to).end_stated == bool(end)
            assert ("# end:" in to.read_text()) == bool(end)


def test_convert_keeps_everything(tmp_path: Path) -> None:
    path, to = write(tmp_path, "x.csv", UCC), tmp_path / "new" / "y.csv"
    assert hfl("traces", "convert", path, to) == Done(0, f"wrote {to}\n", "")
    before, after = series(path), series(to)
    assert list(before.series) == list(after.series)
    for key, function in before.series.items():
        assert after.series[key].period_s == function.period_s
        times = np.arange(0, 12, 0.25)
        assert np.array_equal(after.series[key].sample(times), function.sample(times))
    assert to.read_text().startswith("# Converted from x.csv (ucc-5g).\n# end: repeat after 5 s\ntime [s],bandwidth up")


def test_convert_a_real_file_and_back(tmp_path: Path) -> None:
    path, to = real("mahimahi/ATT-LTE-driving-2016.up"), tmp_path / "y.csv"
    assert hfl("traces", "convert", path, to, "--set", "bin=1 s").code == 0
    mahimahi = trace_formats["mahimahi"]
    wanted = mahimahi.function(path, mahimahi.params.model_validate({"bin": "1 s"})).get("bandwidth", "up")
    got = series(to).get("bandwidth", "up")
    assert np.array_equal(got.values, wanted.values)
    assert np.array_equal(got.times_s, wanted.times_s)
    assert got.period_s == wanted.period_s


def test_convert_refuses_what_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", UCC)
    latencies = write(tmp_path, "l.txt", "0,10\n10,0\n")
    two = {i: {"active": [1], "inactive": [2], "finish_time": 10 + i} for i in (1, 2)}
    behave = write(tmp_path, "behave", pickle.dumps(two))
    to = tmp_path / "y.csv"
    for arguments, said in (
        ([path, path], f"{path}: this is the file that is read; write another one"),
        ([path, tmp_path / "y.txt"], f"{tmp_path / 'y.txt'}: the name must end in .csv"),
        ([path, to, "--series", "bandwith up"], "unknown series 'bandwith up'; did you mean 'bandwidth up'?"),
        (
            [latencies, to],
            f"{latencies}: latency-matrix is the latencies between 2 sites, no series over time; it cannot become CSV",
        ),
        ([behave, to], "the series end at different times, and a CSV file has one end; choose one series"),
    ):
        assert hfl("traces", "convert", *arguments) == Done(2, "", f"error: {said}\n")
    assert not to.exists()
    assert path.read_text() == UCC
    assert hfl("traces", "convert", behave, to, "--series", "availability 2").code == 0
    assert series(to).get("availability", "2").period_s == 12
    assert hfl("traces", "convert", path, to, "--series", "latency", "--series", "bandwidth up").code == 0
    assert list(series(to).series) == [("latency", ""), ("bandwidth", "up")]


# plot


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_plot_draws_every_content(tmp_path: Path, kind: str) -> None:
    files = [write(tmp_path, "x.csv", UCC), write(tmp_path, "l.txt", "0,10\n10,0\n")]
    files.append(write(tmp_path, "s.json", '{"a": 1, "b": 5}'))
    files.append(write(tmp_path, "long.down", "".join(f"{t}\n" for t in range(0, 200_000, 40))))
    for path in files if kind == "png" else files[:1]:
        to = tmp_path / f"{path.stem}.{kind}"
        assert hfl("traces", "plot", path, to) == Done(0, f"wrote {to}\n", "")
        assert to.stat().st_size > 2000


def test_plot_labels_have_units(tmp_path: Path) -> None:
    to = tmp_path / "x.svg"
    assert hfl("traces", "plot", write(tmp_path, "x.csv", UCC), to).code == 0
    text = to.read_text()
    for label in ("Bandwidth up (kbit/s)", "Bandwidth down (kbit/s)", "Latency (ms)", "Time (s)", "x.csv"):
        assert label in text


def test_plot_refuses_a_picture_that_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path, "x.csv", UCC)
    done = hfl("traces", "plot", path, tmp_path / "x.doc")
    assert (done.code, done.out) == (2, "")
    assert "must end in one of '.png', '.svg', '.pdf'" in done.err


# generate


def test_generate_writes_the_same_file_for_the_same_seed(tmp_path: Path) -> None:
    arguments = ["--duration", "1 h", "--set", "mean_on=5 min", "--set", "mean_off=10 min"]
    texts = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        to = tmp_path / f"{name}.csv"
        assert hfl("traces", "generate", "markov", to, "--seed", seed, *arguments).code == 0
        texts.append(to.read_text().split("\n", 2)[2])
    assert texts[0] == texts[1] != texts[2]
    f = series(tmp_path / "a.csv").get("availability")
    assert set(f.values) == {0, 1}
    assert f.period_s == 3600
    head = (tmp_path / "a.csv").read_text().split("\n")[:2]
    assert head == [
        "# Synthetic; not measured. Made by:",
        "# hfl traces generate markov a.csv --duration '1 h' --seed 3 --column 'availability [1]' --set 'mean_on=300 s' "
        "--set 'mean_off=600 s' --set 'on=1.0' --set 'off=0.0' --set 'start=stationary'",
    ]


def test_generate_gives_levels_the_unit_of_the_column(tmp_path: Path) -> None:
    to = tmp_path / "a.csv"
    done = hfl(
        "traces", "generate", "constant", to, "--duration", "1 h", "--set", "level=30.0", "--column", "latency [ms]"
    )
    assert done == Done(0, f"wrote {to}: 1 step\n", "")
    assert series(to).get("latency").at(5) == 0.03


def test_generate_refuses_what_cannot_be(tmp_path: Path) -> None:
    to = tmp_path / "a.csv"
    for arguments, said in (
        (["markof", to, "--duration", "1 h"], "unknown trace generator 'markof'; did you mean 'markov'?"),
        (
            ["markov", to, "--duration", "1 h", "--set", "mean_on=3"],
            "--set mean_on=3: mean_on: 3 has no unit; write for example '15 ms'\nmarkov: mean_off: is required",
        ),
        (
            ["random-walk", to, "--duration", "1 h", "--set", "low=5.0", "--set", "high=2.0"],
            "random-walk: 'low' must not be greater than 'high'",
        ),
        (["constant", to, "--duration", "60"], "--duration: '60' has no unit; write for example '15 ms'"),
        (["constant", to, "--duration", "0 s"], "--duration must be greater than zero, not '0 s'"),
        (["constant", tmp_path / "a.txt", "--duration", "1 s"], f"{tmp_path / 'a.txt'}: the name must end in .csv"),
        (
            ["constant", to, "--duration", "1 s", "--column", "bandwidth"],
            "column 'bandwidth' has no unit; write for example 'bandwidth [Mbit/s]'",
        ),
        (
            ["constant", to, "--duration", "1 s", "--column", "availability [1]", "--set", "level=2.0"],
            "'availability [1]' cannot be above 1; choose lower levels or another --column",
        ),
    ):
        assert hfl("traces", "generate", *arguments) == Done(2, "", f"error: {said}\n")
    assert not to.exists()


# Samples.


def test_samples_are_small_and_say_that_they_are_synthetic() -> None:
    assert set(bundled()) >= {*GENERATED, "phone-mix", "eight-sites"}
    assert sum(path.stat().st_size for path in bundled().values()) < 50_000
    for path in bundled().values():
        assert path.read_text().startswith("# Synthetic; not measured")


def test_the_sample_of_a_mix_is_what_its_head_says() -> None:
    mix = read(bundled()["phone-mix"])
    assert isinstance(mix, DeviceMix)
    assert mix.bandwidth_bps is not None
    tenths = [NormalDist().inv_cdf((i + 0.5) / 10) for i in range(10)]
    speeds = np.exp(0.6 * np.array(tenths))
    assert mix.shares.tolist() == pytest.approx([0.1] * 10)
    assert mix.relative_speeds == pytest.approx(speeds / speeds[4], rel=2e-3)
    assert np.sort(mix.bandwidth_bps) == pytest.approx(12e6 * np.exp(0.9 * np.array(tenths)), rel=2e-2)


def test_the_sample_of_latencies_is_what_its_head_says() -> None:
    path = bundled()["eight-sites"]
    matrix = read(path)
    assert isinstance(matrix, LatencyMatrix)
    sites = [(float(x), float(y)) for x, y in re.findall(r"\((-?\d+), (-?\d+)\)", path.read_text())]
    assert len(sites) == len(matrix.latency_s) == 8
    for (i, a), (j, b) in itertools.permutations(enumerate(sites), 2):
        assert matrix.latency_s[i, j] == pytest.approx(1e-3 + 7.5e-6 * math.dist(a, b), abs=1e-5)


@pytest.mark.parametrize("name", GENERATED)
def test_samples_can_be_made_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundled()[name]
    command = shlex.split(path.read_text().split("\n")[1].removeprefix("# "))
    monkeypatch.chdir(tmp_path)
    assert hfl(*command[1:]).code == 0
    made, kept = series(tmp_path / path.name), series(path)
    assert list(made.series) == list(kept.series)
    for key, function in kept.series.items():
        assert made.series[key].times_s == pytest.approx(function.times_s, rel=1e-9)
        assert made.series[key].values == pytest.approx(function.values, rel=1e-9)
        assert made.series[key].period_s == function.period_s
    assert hfl("traces", "inspect", name).out.startswith(f"{path}: csv, 1 series\n")


# Summaries.


def test_summary_by_hand() -> None:
    f = StepFunction.of([0, 1, 2, 3, 10], [4, 0, 0, 2, 0], 12)
    assert summarise(f) == Summary(0, 1.5, 4, 12, 5, 1, 7, 1, pytest.approx(4 / 12), 2)
    assert summarise(StepFunction.constant(3)) == Summary(3, 3, 3, 0, 0, 0, 0, 0, 0, 0)


def test_from_afar_keeps_the_mean_and_the_range() -> None:
    rng = np.random.default_rng(3)
    f = StepFunction.of(np.arange(1000.0), rng.random(1000), 1000.0)
    edges, mean, low, high = from_afar(f, 37)
    assert float((mean * np.diff(edges)).sum()) == pytest.approx(f.integrate(0, 1000))
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert low.min() == f.values.min()
    assert high.max() == f.values.max()


def test_the_mean_of_many_is_their_mean() -> None:
    on, off = StepFunction.of([0, 5], [1, 0], 10), StepFunction.of([0, 5], [0, 1], 10)
    _, values = mean_of([on, off, on, off], 20)
    assert set(values) == {0.5}
