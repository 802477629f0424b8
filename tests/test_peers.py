"""What ``benchmarks/peers.py`` does without any peer: turns, skipping, and its table."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from patience import PATIENCE_S

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "peers.py"


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("peers_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peers_script"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def answer(seconds: str = "[0.3, 0.2]", losses: str = "[2.3, 2.1]") -> str:
    return f'{{"seconds": {seconds}, "losses": {losses}}}'


def test_systems_are_measured_in_turn_and_one_that_cannot_run_is_left_out_with_its_reason(peers: ModuleType) -> None:
    calls: list[str] = []

    def measure(name: str) -> object:
        calls.append(name)
        if name == "fluke" or (name == "pfl" and calls.count("pfl") == 2):
            raise peers.SkippedError("out of luck")
        return peers.Measured((1.0,), (2.3, 2.1))

    results, skipped = peers.rotate(["ours", "fluke", "pfl"], 3, measure)
    assert calls == ["ours", "fluke", "pfl", "ours", "pfl", "ours", "pfl"]
    assert {name: len(found) for name, found in results.items()} == {"ours": 3, "pfl": 2}  # what it had counts
    assert skipped == {"fluke": "out of luck"}


def test_the_table_compares_the_best_rounds_and_names_what_was_skipped(peers: ModuleType) -> None:
    seconds: dict[str, list[tuple[float, ...]]] = {
        "plain": [(0.9, 0.8), (1.0,)],
        "ours": [(0.2,), (0.3,)],
        "pfl": [(0.7,)],
        "flower": [(2.0,)],
    }
    results = {n: [peers.Measured(s, (2.3, 2.1)) for s in found] for n, found in seconds.items()}
    lines = peers.table(results, {"fedjax": "no network"}).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:6]] == [
        "| this emulator", "| pfl-research 0.6.0", "| plain PyTorch loop", "| Flower 1.41.0",
    ]  # fmt: skip
    assert lines[2] == "| this emulator | 0.200 | 4.00 | 2.300, 2.100 |"
    assert lines[6] == "| FedJAX 0.0.17 | skipped: no network | | |"
    assert lines[8].startswith("3.50 times the speed of the best peer, pfl-research 0.6.0; the goal of 4 times is not")
    assert "4 times is reached" in peers.verdict({"ours": 0.1, "pfl": 0.4})
    assert "Nothing to compare" in peers.verdict({"ours": 0.1, "plain": 0.4})


def test_what_drivers_print_is_read_past_other_lines_and_must_show_learning(peers: ModuleType) -> None:
    assert peers.read_answer(f"a warning\n{answer()}\nbye").best == 0.2
    for printed, why in (
        ("", "no times"), (answer(losses="[2.3, 2.3]"), "does not learn"), (answer(losses="[2.3, NaN]"), "does not learn"),
        (answer(seconds="[]"), "no round"),
    ):  # fmt: skip
        with pytest.raises(peers.SkippedError, match=why):
            peers.read_answer(printed)


def test_a_command_that_fails_is_skipped_with_the_line_that_says_why(peers: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(peers.SkippedError, match=r"^ValueError: no such thing$"):
        peers.run([sys.executable, "-c", "raise ValueError('no such thing')"])
    assert peers.last_words("Looking\nERROR: No matching distribution\nWARNING: old pip\n") == (
        "ERROR: No matching distribution"
    )
    assert peers.python_of("ours", peers.SYSTEMS["ours"], tmp_path) == Path(sys.executable)
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    peers: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 2)
    note = tmp_path / "child"
    starts = f"import pathlib, subprocess; child = subprocess.Popen(['sleep', '60']); pathlib.Path({str(note)!r})"
    with pytest.raises(peers.SkippedError, match="more than 2 s"):
        peers.run([sys.executable, "-c", f"{starts}.write_text(str(child.pid)); child.wait()"])
    deadline = time.monotonic() + PATIENCE_S
    while alive(int(note.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def test_an_environment_with_these_versions_is_used_again(peers: ModuleType, tmp_path: Path) -> None:
    system = peers.System("one", "run_one.py", ("one==1",))
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "installed.json").write_text('["one==1"]')
    assert peers.python_of("one", system, tmp_path).is_relative_to(tmp_path / "one")


def test_every_system_has_a_driver_and_pinned_versions(peers: ModuleType) -> None:
    for system in peers.SYSTEMS.values():
        assert (peers.DRIVERS / system.driver).is_file()
        assert all("==" in word for word in system.installs)
