"""The network clock is held to what packets took: figures of ns-3 and of the kernel, recorded by ``benchmarks/fidelity.py``."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "fidelity.py"
PAGE = SCRIPT.parent.parent / "docs" / "validation.md"
PACKETS = ("ns3", "kernel")


@pytest.fixture(scope="module")
def fidelity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fidelity_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def errors(fidelity: ModuleType, referee: str, group: str) -> dict[str, dict[str, Any]]:
    """By case: the errors of `tcp` and of `fluid` for the first, the middle and the last flow."""
    found = {}
    for one in fidelity.recorded(referee, group):
        measured = fidelity.shown(fidelity.by_order(one["output"]["repeats"]))
        as_tcp, as_fluid = fidelity.emulated(one["input"])
        found[one["name"]] = {"tcp": fidelity.off(as_tcp, measured), "fluid": fidelity.off(as_fluid, measured)}
    return found


# Cases in which a packet referee is more than 5 % away, and why (docs/validation.md).
ACKNOWLEDGED_LATE = {f"100 kB at 100 Mbit/s, {delay} ms": 0.20 for delay in (5, 15, 50)}
LOST_AT_THE_END = {"1 MB at 10 Mbit/s, 50 ms": 0.06}
AFTER_A_LOSS = {
    "1 MB at 100 Mbit/s, 50 ms": 0.10,
    "10 MB at 100 Mbit/s, 15 ms": 0.12,
    "10 MB at 100 Mbit/s, 50 ms": 0.10,
}
WITHIN = {"ns3": ACKNOWLEDGED_LATE | LOST_AT_THE_END, "kernel": AFTER_A_LOSS}


@pytest.mark.parametrize("referee", PACKETS)
def test_a_single_transfer_is_within_5_per_cent_but_for_what_is_explained(fidelity: ModuleType, referee: str) -> None:
    found = errors(fidelity, referee, "single")
    assert len(found) == 27
    for name, off in found.items():
        assert abs(off["tcp"][0]) <= WITHIN[referee].get(name, 0.05), name
        assert abs(off["tcp"][0]) <= abs(off["fluid"][0]) + 1e-3, name


@pytest.mark.parametrize("referee", PACKETS)
def test_the_last_of_equal_flows_is_within_4_per_cent_and_the_first_within_15(
    fidelity: ModuleType, referee: str
) -> None:
    found = errors(fidelity, referee, "equal")
    assert len(found) == 6
    for name, off in found.items():
        if "100 Mbit/s" in name:  # its queue holds less than the link: packets lose a sixth of it to losses
            assert -0.20 <= off["tcp"][-1] <= 0
            continue
        first, middle, last = off["tcp"]
        assert abs(last) <= 0.04, name
        assert abs(middle) <= 0.15, name
        assert abs(first) <= 0.15, name
    first = [abs(off["tcp"][0]) for name, off in found.items()]
    assert statistics.median(first) < statistics.median(abs(off["fluid"][0]) for off in found.values()) / 2


def test_every_place_of_equal_flows_is_within_15_per_cent(fidelity: ModuleType) -> None:
    cases = fidelity.order_statistics({"equal": {name: fidelity.recorded(name, "equal") for name in PACKETS}})
    for name, answers in cases.items():
        if "100 Mbit/s" not in name:
            says = fidelity.by_order(answers["tcp"])
            assert all(
                abs(off) <= 0.15 for who in PACKETS for off in fidelity.off(says, fidelity.by_order(answers[who]))
            ), name


def test_a_round_is_within_5_per_cent_of_the_kernel_and_its_first_half_within_15(fidelity: ModuleType) -> None:
    (off,) = errors(fidelity, "kernel", "round").values()
    _, middle, last = off["tcp"]
    assert abs(last) <= 0.05
    assert abs(middle) <= 0.15
    assert off["fluid"][-1] < -0.10  # without headers, set-up and slow start


@pytest.mark.parametrize("group", ["single", "equal", "trips", "round"])
def test_the_fluid_is_that_of_simgrid(fidelity: ModuleType, group: str) -> None:
    from emulator.contracts.world import Transport

    for one in fidelity.recorded("simgrid", group):
        said = fidelity.ours(one["input"], Transport())
        assert said == pytest.approx(one["output"]["repeats"][0], rel=1e-8), one["name"]


def test_a_referee_that_is_missing_is_skipped_with_its_reason(fidelity: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(fidelity.SkippedError, match="No such file"):
        fidelity.ask([str(tmp_path / "no-such-python")], {})
    with pytest.raises(fidelity.SkippedError, match="the input has no 'links'"):
        fidelity.ask([sys.executable, str(fidelity.REFEREES / "kernel.py")], {})


def test_rows_say_where_packet_referees_are_apart(fidelity: ModuleType) -> None:
    answers = {name: fidelity.recorded(name, "round") for name in PACKETS}
    *_, row = fidelity.rows("round", answers)
    assert row.rstrip("| ").endswith("%")


@pytest.mark.parametrize("group", ["single", "equal", "trips", "round"])
def test_the_page_has_the_figures_of_this_version(fidelity: ModuleType, group: str) -> None:
    answers = {name: fidelity.recorded(name, group) for name in PACKETS}
    page = PAGE.read_text(encoding="utf-8").splitlines()
    for row in fidelity.rows(group, answers):
        assert row in page


def test_the_picture_has_the_medians_of_every_place(fidelity: ModuleType, tmp_path: Path) -> None:
    answers = {"trips": {name: fidelity.recorded(name, "trips") for name in PACKETS}}
    cases = fidelity.order_statistics(answers)
    ((name, found),) = cases.items()
    figure = fidelity.plot(cases, tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes()[:4] == b"\x89PNG"
    (axes,) = figure.axes
    assert "".join(axes.get_title().split()) == "".join(name.split())
    (fluid,) = map(sorted, found["fluid"])
    assert [len(found[who]) for who in found] == [15, 5, fidelity.SEEDS, 1]
    for who, line in zip(found, axes.lines, strict=True):
        drawn = [float(share) * seconds for share, seconds in zip(line.get_ydata(), fluid, strict=True)]
        assert drawn == pytest.approx(fidelity.by_order(found[who]), rel=1e-12)


def test_a_picture_that_cannot_be_drawn_is_refused_before_anybody_is_asked(
    fidelity: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, why in (
        (["--plot", "x.gif"], "must end in one of"),
        (["--only", "single", "--plot", "x.png"], "several"),
    ):
        monkeypatch.setattr(sys, "argv", ["fidelity.py", *words])
        with pytest.raises(SystemExit, match="2"):
            fidelity.main()
        assert why in capsys.readouterr().err
