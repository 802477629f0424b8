"""Runs that outlive a trace: what the file or the scenario says counts; where nobody says anything, that is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario.command import TINY, Done, hfl

from emulator.errors import InputError
from emulator.learning.memo import Memo
from emulator.run import execute
from emulator.scenario import Loaded, dump, loads
from emulator.world.endings import check
from emulator.world.played import played

Small = Callable[..., Loaded]
TRACE = "time [s],bandwidth [Mbit/s]\n0,8\n1,4\n3,6\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def access(path: Path, more: str = "start: together") -> str:
    return f"topology.links.access.trace={{file: {path}, {more}}}"


@pytest.mark.parametrize("limit", ["3 s", "1 h"])
def test_a_run_that_is_bound_to_outlive_a_trace_does_not_begin(
    small: Small, trace: Path, tmp_path: Path, limit: str
) -> None:
    loaded = small(access(trace), f"stop={{time: {limit}}}")
    said = (
        f"--set {access(trace)}: topology.links.access.trace.end: {trace} ends after 3 s, and the run goes on until 'stop.time' "
        f"({limit}) at least; the file does not say what comes then, so say 'end: repeat' or 'end: hold'"
    )
    with pytest.raises(InputError) as caught:
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    assert str(caught.value) == said
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError) as seen:
        check(loaded.scenario)
    assert str(loaded.locate(seen.value)) == said


def test_a_run_that_outlives_a_trace_ends_there_and_keeps_what_was_done(
    small: Small, trace: Path, tmp_path: Path
) -> None:
    trace.write_text(TRACE + "12,5\n")
    loaded = small(access(trace), "stop={rounds: 50}")
    check(loaded.scenario)
    with pytest.raises(
        InputError, match=r"trace\.end: .* ends after 12 s, and the run goes on; the file does not say what"
    ):
        execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert 1 <= summary["rounds"] < 50
    assert 0 < summary["final"]["time_s"] <= 12


def test_a_run_that_ends_before_the_trace_needs_no_rule(small: Small, trace: Path, tmp_path: Path) -> None:
    trace.write_text(TRACE + "3600,5\n")
    loaded = small(access(trace), "stop={rounds: 1, time: 59 min}")
    assert execute(loaded, tmp_path / "run", Memo(None), max_workers=1)["status"] == "complete"


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("# end: hold\n", "start: together"),
        ("# end: repeat after 5 s\n", "start: random"),
        ("", "start: together, end: hold"),
        ("", "end: repeat"),
        ("# end: hold\n", "end: repeat"),
        ("", "start: together, format: {kind: csv, repeat_after: 5 s}"),
    ],
)
def test_a_rule_of_the_file_or_of_the_scenario_will_do(
    small: Small, trace: Path, tmp_path: Path, head: str, more: str
) -> None:
    trace.write_text(head + TRACE)
    loaded = small(access(trace, more), "stop={time: 6 s}")
    assert execute(loaded, tmp_path / "run", Memo(None), max_workers=1)["stopped_by"] == "time"
    assert loads(dump(loaded.scenario)).scenario == loaded.scenario


def test_the_scenario_counts_before_the_file(small: Small, trace: Path) -> None:
    trace.write_text("# end: repeat after 5 s\n" + TRACE)
    held = played(small(access(trace, "start: together, end: hold")).scenario.topology, 0).bandwidths["client-0/up"]
    assert [held.at(t) for t in (0, 1, 3, 5, 1e6)] == [8e6, 4e6, 6e6, 6e6, 6e6]
    trace.write_text("# end: hold\n" + TRACE)
    again = played(small(access(trace, "start: together, end: repeat")).scenario.topology, 0).bandwidths["client-0/up"]
    assert again.period_s == 3 + 1.5  # the steps before last for 1 and 2 seconds
    assert [again.at(t) for t in (0, 1, 4, 4.5, 5.5)] == [8e6, 4e6, 6e6, 8e6, 4e6]


def test_the_first_trace_to_end_is_named(small: Small, trace: Path, tmp_path: Path) -> None:
    speed = tmp_path / "speed.csv"
    speed.write_text("time [s],speed [1]\n0,1\n2,0.5\n")
    loaded = small(access(trace), f"topology.speed={{file: {speed}, start: together}}", "stop={time: 1 min}")
    with pytest.raises(InputError, match=r"^topology\.speed\.end: .*speed\.csv ends after 2 s"):
        check(loaded.scenario)


def test_a_trace_that_never_changes_may_be_played_for_ever(small: Small, trace: Path) -> None:
    trace.write_text("time [s],bandwidth [Mbit/s]\n0,8\n")
    for more in ("start: together", "start: random", "end: repeat"):
        check(small(access(trace, more), "stop={time: 1 d}").scenario)


BAD = [
    ("time [s],bandwidth [Mbit/s]\n0,1\n2,1\n1,1\n", ":4: time 1 comes after 2; time goes backwards"),
    ("time [s],bandwidth [Mbit/s]\n0,-1\n", ":2: bandwidth is -1; it must not be negative"),
    ("time [s],bandwidth [Mbit/s]\n0,nan\n", ":2: bandwidth is 'nan'; it must be a finite number"),
    (
        "time [s],bandwidth up [Mbit/s],bandwidth down [kbit/s]\n0,1,1\n",
        ":1: units are mixed: 'bandwidth down' is in [kbit/s], other bandwidth in [Mbit/s]; use one unit",
    ),
    ("", ": the file is empty"),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_every_command_says_what_is_wrong_with_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(text)
    scenario = TINY.replace("latency: 20 ms}", "latency: 20 ms, trace: {file: t.csv}}")
    Path("s.yaml").write_text(scenario)
    line = scenario[: scenario.index("t.csv")].count("\n") + 1
    column = scenario.split("\n")[line - 1].index("t.csv") + 1
    place = f"s.yaml:{line}:{column}: topology.links.access.trace.file: "
    assert hfl("traces", "inspect", "t.csv") == Done(2, "", f"error: t.csv{said}\n")
    assert hfl("validate", "s.yaml") == Done(2, "", f"error: {place}t.csv{said}\n")
    done = hfl("run", "s.yaml", "--no-memo", "--out", "run")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"error: {place}t.csv{said}\n")
    assert not Path("run").exists()


def test_validate_sees_a_trace_that_is_too_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: Path) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = TINY.replace("latency: 20 ms}", "latency: 20 ms, trace: {file: trace.csv, start: together}}")
    Path("s.yaml").write_text(scenario.replace("stop: {rounds: 2}", "stop: {time: 1 h}"))
    done = hfl("validate", "s.yaml")
    assert done.code == 2
    assert done.err.startswith("error: s.yaml:12:61: topology.links.access.trace.end: trace.csv ends after 3 s")
    assert hfl("validate", "s.yaml", "--set", "topology.links.access.trace.end=hold").code == 0
