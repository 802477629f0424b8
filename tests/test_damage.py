"""Files that are read back, with random bytes changed: no figure is ever wrong, and nothing ends in a traceback.

A memo, a ``memory.json`` or a checkpoint that was damaged costs time alone: the files of the run are the same, byte for byte. A
damaged result of a finished run is named (exit code 2), or the command gives what it gives for the undamaged run.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario.command import Done, hfl

from emulator.learning.memo import Memo
from emulator.run import Watcher, execute
from emulator.scenario import Loaded, dump, load

SAME = ("metrics.csv", "groups.csv", "groupings.csv", "ledger.parquet", "energy.csv", "summary.json", "memory.json")
CHANGES = (
    "method={preset: group-fel, formation: {min_size: 2}, sampling: {groups: 2}, local: {kind: scaffold, batch_size: 4}}",
    "stop.rounds=4", "output.plot=false", "output.checkpoint=0 s",
)  # fmt: skip
WHATIF = ("--set", "topology.links.access.up=2 Mbit/s", "--no-memo")


def few_or(many: int) -> pytest.MarkDecorator:
    """Some in the suite, as many as it takes to be sure on demand."""
    return pytest.mark.parametrize(
        "count", [8, pytest.param(many, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME}


def damage(path: Path, chance: random.Random) -> None:
    """Changes one to five bytes of a file."""
    raw = bytearray(path.read_bytes())
    for _ in range(chance.randint(1, 5)):
        raw[chance.randrange(len(raw))] ^= chance.randint(1, 255)
    path.write_bytes(bytes(raw))


def tell(capsys: pytest.CaptureFixture[str], what: str, counts: Counter[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{what}: {', '.join(f'{n} {name}' for name, n in sorted(counts.items()))}\n")


@pytest.fixture
def scenario(small: Callable[..., Loaded], tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(dump(small(*CHANGES).scenario))
    return path


@few_or(200)
def test_damaged_memos(
    scenario: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded, kept = load(scenario), tmp_path / "kept.sqlite"
    memo = Memo(kept)
    execute(loaded, tmp_path / "whole", memo, max_workers=1)
    memo.close()
    expected, chance, counts = contents(tmp_path / "whole"), random.Random(1), Counter[str]()
    for number in range(count):
        path = tmp_path / f"memo-{number}.sqlite"
        shutil.copy(kept, path)
        damage(path, chance)
        caplog.clear()
        memo = Memo(path)
        again = execute(loaded, tmp_path / "again", memo, max_workers=1)
        assert contents(tmp_path / "again") == expected
        memo.stats()
        memo.forget()
        memo.close()
        noticed = "set aside" if "set aside" in caplog.text else "without it" if "without" in caplog.text else ""
        noticed = noticed or ("entries forgotten" if memo.damaged else "nothing noticed")
        counts[f"{noticed}, {'trained again' if again['trainings']['computed'] else 'all known'}"] += 1
        shutil.rmtree(tmp_path / "again")
    tell(capsys, f"{count} memos", counts)


@few_or(100)
def test_damaged_memories(
    scenario: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded, run = load(scenario), tmp_path / "run"
    execute(loaded, run, Memo(None), max_workers=1)
    assert hfl("whatif", run, *WHATIF, "--out", tmp_path / "other").code == 0
    expected, there = contents(run), contents(tmp_path / "other")
    chance, counts = random.Random(2), Counter[str]()
    for _ in range(count):
        shutil.copytree(run, tmp_path / "copy")
        damage(tmp_path / "copy" / "memory.json", chance)
        caplog.clear()
        done = hfl("whatif", tmp_path / "copy", *WHATIF, "--out", tmp_path / "what")
        assert done.code == 0
        assert contents(tmp_path / "what") == there
        (tmp_path / "copy" / "summary.json").unlink()  # as if it had been killed: it goes on
        assert hfl("run", scenario, "--out", tmp_path / "copy", "--no-memo").code == 0
        assert contents(tmp_path / "copy") == expected
        counts["noticed" if "damaged" in caplog.text else "not noticed, and without effect"] += 1
        shutil.rmtree(tmp_path / "copy")
        shutil.rmtree(tmp_path / "what")
    tell(capsys, f"{count} memory.json", counts)


@few_or(100)
def test_damaged_checkpoints(
    scenario: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop_after_round_2(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 2:
            raise KeyboardInterrupt

    loaded, part = load(scenario), tmp_path / "part"
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    with pytest.raises(KeyboardInterrupt):
        execute(loaded, part, Memo(None), Watcher(on_round=stop_after_round_2), max_workers=1)
    expected, chance, counts = contents(tmp_path / "whole"), random.Random(3), Counter[str]()
    for _ in range(count):
        shutil.copytree(part, tmp_path / "copy")
        damage(tmp_path / "copy" / "checkpoint.safetensors", chance)
        caplog.clear()
        again = execute(loaded, tmp_path / "copy", Memo(None), max_workers=1)
        assert contents(tmp_path / "copy") == expected
        noticed = "noticed" if "damaged" in caplog.text else "not noticed, and without effect"
        counts[f"{noticed}, {again['trainings']['computed']} trainings"] += 1
        shutil.rmtree(tmp_path / "copy")
    tell(capsys, f"{count} checkpoints", counts)


def commands(folder: Path, out: Path, scenario: Path) -> dict[str, tuple[str | Path, ...]]:
    """Every command that reads run folders, and where it writes."""
    plots = ("breakdown", "cost-accuracy", "groups", "pareto", "stragglers", "timeline")
    return {
        **{f"plot {kind}": ("plot", kind, folder, "--out", out / f"{kind}.svg") for kind in plots},
        **{
            f"table {kind}": ("table", kind, folder) for kind in ("totals", "cost-to-target", "breakdown", "stragglers")
        },
        "compare": ("compare", folder, "--out", out / "compared"),
        "energy": ("energy", folder),
        "report": ("report", folder, "--out", out / "report.html"),
        "export": ("export", folder, "--csv", out / "csv"),
        "whatif": ("whatif", folder, *WHATIF, "--out", out / "what"),
        "run": ("run", scenario, "--out", folder, "--no-memo"),
    }


def written(out: Path) -> dict[str, bytes]:
    """What a command has written, but for what differs from run to run."""
    skipped = ("manifest.json", ".lock")
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name not in skipped}


def outcome(words: tuple[str | Path, ...], out: Path) -> tuple[Done, dict[str, bytes]]:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(out)
    out.mkdir()
    return hfl(*words), written(out)


def figures(done: Done) -> list[str]:
    """What a command printed, but for how much it had to train."""
    return [line for line in done.out.splitlines() if not line.startswith("trainings reused")]


@few_or(100)
def test_damaged_files_of_finished_runs(
    scenario: Path,
    tmp_path: Path,
    count: int,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept, run, out = tmp_path / "kept", tmp_path / "run", tmp_path / "out"
    execute(load(scenario), kept, Memo(None), max_workers=1)
    shutil.copytree(kept, run)
    every = commands(run, out, scenario)
    expected = {name: outcome(words, out) for name, words in every.items()}
    assert {done.code for done, _ in expected.values()} == {0}
    files = (*SAME, "scenario.yaml", "manifest.json")
    chance, counts = random.Random(4), Counter[str]()
    for number in range(count):
        name = files[number % len(files)]
        for command in every if count > len(files) else chance.sample(list(every), 4):  # some in the suite
            words = every[command]
            shutil.rmtree(run)
            shutil.copytree(kept, run)
            damage(run / name, random.Random(chance.random()))
            caplog.clear()
            done, files_out = outcome(words, out)
            if done.code == 0 and command == "run":
                unread = {"memory.json"} if name == "memory.json" else set()  # a complete run does not look into it
                assert {f: raw for f, raw in contents(run).items() if f not in unread} == {
                    f: raw for f, raw in contents(kept).items() if f not in unread
                }
                assert "again" in caplog.text or done == expected[command][0]
                counts["played again"] += done != expected[command][0]
                counts["without effect"] += done == expected[command][0]
            elif done.code == 0:
                said = {n: raw for n, raw in files_out.items() if n != "report.html"}  # it shows the manifest
                there = {n: raw for n, raw in expected[command][1].items() if n != "report.html"}
                assert (command, name, figures(done), said) == (command, name, figures(expected[command][0]), there)
                counts["without effect"] += 1
            else:
                assert (done.code, name in done.err) == (2, True), (command, name, done)
                counts["refused by name"] += 1
    tell(capsys, f"{count} files of finished runs, {len(every)} commands each", counts)
