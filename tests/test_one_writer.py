"""A run folder has one writer at a time, a full disk loses nothing, and a folder that is gone is no success."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario.command import ROOT, TINY, hfl, started, stated

from emulator import checkpoint
from emulator.errors import HflError, InputError
from emulator.files import HeldError, held, naming, read_json, replacing, unsealed_text, write_json, write_text
from emulator.learning.memo import Memo
from emulator.ledger import Ledger
from emulator.run import Watcher, execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
SLOW = (
    "--set",
    "stop.rounds=100000",
    "--set",
    "output.plot=false",
    "--set",
    "output.checkpoint=0 s",
    "--no-memo",
    "--workers",
    "1",
)


def test_a_second_writer_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    out = tmp_path / "out"
    process = started(tmp_path, "run", tmp_path / "tiny.yaml", "--out", out, *SLOW)
    try:
        while not (out / "checkpoint.safetensors").exists():
            assert process.poll() is None
        for words in (SLOW, (*SLOW, "--overwrite")):
            second = hfl("run", tmp_path / "tiny.yaml", "--out", out, *words)
            assert (second.code, second.out) == (2, "")
            assert f"{out} is being written by process {process.pid} on " in second.err
            assert "tiny.yaml" in second.err  # its command
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=60)
    with held(out):  # whoever is killed lets go
        pass


def test_runs_in_one_process_keep_out_of_each_other(small: Small, tmp_path: Path) -> None:
    loaded = small()

    def run_again(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        with pytest.raises(HeldError, match=f"process {os.getpid()}"):
            prepare(tmp_path / "run", loaded.scenario)
        with pytest.raises(HeldError, match=f"process {os.getpid()}"):
            execute(loaded, tmp_path / "run", Memo(None), max_workers=1)

    execute(loaded, tmp_path / "run", Memo(None), Watcher(on_round=run_again), max_workers=1)
    assert stated(tmp_path / "run")["status"] == "complete"
    assert not prepare(tmp_path / "run", loaded.scenario)


def test_a_folder_that_cannot_be_written_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with held(tmp_path):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"), held(tmp_path / "file"):
        pass


def test_spill_files_have_names_of_their_own(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "CHUNK", 10)
    seen = set()

    def look(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        seen.update(path.name for path in (tmp_path / "run").glob(".ledger*"))

    for _ in range(2):
        execute(small(), tmp_path / "run", Memo(None), Watcher(on_round=look), max_workers=1)
    assert len(seen) == 2
    assert not list((tmp_path / "run").glob(".ledger*"))


# A disk without space.


def full(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on one file cannot be written."""
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if Path(target) == folder / name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "memory.json", "metrics.csv"])
def test_no_space_for_a_checkpoint_does_not_end_the_run(
    small: Small, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = small("output.checkpoint=0 s", "stop.rounds=40")
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)

    def fill(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 1:
            full(tmp_path / "run", name, monkeypatch)
        if round == 40:
            monkeypatch.undo()

    execute(loaded, tmp_path / "run", Memo(None), Watcher(on_round=fill), max_workers=1)
    assert f"cannot write '{tmp_path / 'run' / name}': No space left on device; the run goes on" in caplog.text
    for file in ("metrics.csv", "ledger.parquet", "summary.json"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize(
    "name", ["metrics.csv", "groups.csv", "ledger.parquet", "energy.csv", "summary.json", "memory.json"]
)
def test_no_space_for_a_result_fails_and_loses_nothing(
    small: Small, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = small(
        "method={preset: group-fel, formation: {min_size: 2}, sampling: {groups: 2}}", "output.checkpoint=0 s"
    )
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    with monkeypatch.context() as patch:
        full(tmp_path / "run", name, patch)
        with pytest.raises(HflError, match=f"cannot write '.*/{name}': No space left on device") as refused:
            execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
        assert refused.value.exit_code == 1
        assert not (tmp_path / "run" / "summary.json").exists()
        assert not list((tmp_path / "run").glob(".*.part*"))
    assert prepare(tmp_path / "run", loaded.scenario)
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    for file in ("metrics.csv", "ledger.parquet", "summary.json", "memory.json"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["hfl", *sys.argv[2:]]
from emulator.cli import main
main()
"""


def test_what_the_system_says_of_a_file_that_cannot_grow_is_told(tmp_path: Path) -> None:
    """The real writers, pyarrow's and safetensors' among them, under a limit of the system."""
    (tmp_path / "tiny.yaml").write_text(TINY.replace("hidden: [8]", "hidden: [4000]"))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path)}
    words = [
        "200000", "run", "tiny.yaml", "--out", "out", "--no-memo", "--workers", "1",
        "--set", "output.plot=false", "--set", "output.checkpoint=0 s",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "Traceback" not in done.stderr
    assert "cannot write 'out/checkpoint.safetensors': " in done.stderr.replace("\n", " ")
    assert done.returncode == 0  # checkpoints could not be written, results could


def test_a_ledger_that_cannot_be_spilled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", refuse)
    with pytest.raises(HflError, match=r"cannot write '.*spill\.parquet': No space left"):
        Ledger(tmp_path / "spill.parquet").write(tmp_path / "ledger.parquet")


@pytest.mark.parametrize("how", ["removed", "replaced"])
@pytest.mark.parametrize("every", ["0 s", "1 h"])
def test_a_folder_that_goes_away_is_no_success(small: Small, tmp_path: Path, how: str, every: str) -> None:
    run = tmp_path / "run"

    def remove(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 1:
            shutil.rmtree(run)
            if how == "replaced":
                (tmp_path / "other").mkdir()
                run.mkdir()
                (run / "mine.txt").write_text("mine")

    with pytest.raises(HflError, match="was removed or replaced while the run was writing it"):
        execute(
            small("stop.rounds=3", f"output.checkpoint={every}"),
            run,
            Memo(None),
            Watcher(on_round=remove),
            max_workers=1,
        )
    assert [path.name for path in tmp_path.glob("run/*")] == (["mine.txt"] if how == "replaced" else [])


# Files that carry their own checksum.


def test_a_json_file_shows_every_change(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    write_json(path, {"sha256": "mine", "a": 1.5, "ü": [None, {"sha256": "deep"}]})
    assert read_json(path) == {"a": 1.5, "ü": [None, {"sha256": "deep"}]}
    raw = path.read_bytes()
    for place in range(len(raw)):
        for bits in (1, 32):
            changed = bytearray(raw)
            changed[place] ^= bits
            path.write_bytes(bytes(changed))
            with pytest.raises(InputError, match=r"a\.json' is damaged"):
                read_json(path)
    for text in ("", "[]", "{}", '{"sha256": ""}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"a\.json' is damaged"):
            read_json(path)


def test_a_sealed_text_is_bound_to_its_key() -> None:
    for stored in (None, 1, "", "!", "AAAA", "A" * 24, "ü"):
        assert unsealed_text("key", stored) is None


def test_errors_of_writing_name_the_file_and_tell_whose_fault_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write '.*/file/x\.txt': "):
        write_text(tmp_path / "file" / "x.txt", "")
    with pytest.raises(HflError, match=r"cannot write 'x': odd") as error, naming(Path("x")):
        raise OSError("odd")
    assert error.value.exit_code == 1
    with pytest.raises(ValueError, match="mine"), replacing(tmp_path / "y.txt"):
        raise ValueError("mine")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_checkpoint_rewritten_by_another_tool_is_not_used(
    small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    def stop(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 1:
            raise KeyboardInterrupt

    loaded = small("output.checkpoint=0 s")
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    with pytest.raises(KeyboardInterrupt):
        execute(loaded, tmp_path / "part", Memo(None), Watcher(on_round=stop), max_workers=1)
    file = tmp_path / "part" / checkpoint.VALUES
    values = load_file(file)
    with safe_open(file, "pt") as opened:
        checks = opened.metadata()
    (nan,) = (key for key in list(values)[:1])
    odd = {
        "int8": {key: value.to(torch.int8) for key, value in values.items()},
        "bfloat16": {key: value.to(torch.bfloat16) for key, value in values.items()},
        "reshaped": {key: value.reshape(1, -1) for key, value in values.items()},
        "nan": {key: value * (float("nan") if key == nan else 1) for key, value in values.items()},
        "renamed": dict(zip(values, reversed(list(values.values())), strict=True)),
        "without checksums": values,
    }
    for name, content in odd.items():
        save_file({k: v.clone() for k, v in content.items()}, file, checks if name != "without checksums" else None)
        caplog.clear()
        shutil.copytree(tmp_path / "part", tmp_path / name)
        execute(loaded, tmp_path / name, Memo(None), max_workers=1)
        assert (tmp_path / name / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()
        assert "checkpoint.safetensors is damaged, or of another version" in caplog.text
