from __future__ import annotations

import contextlib
import multiprocessing
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import PATIENCE_S

from emulator.files import CHECK_BYTES
from emulator.learning.memo import Memo, RunMemory, default_path


def test_remembers_across_openings(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "memo.sqlite"
    memo = Memo(path)
    assert memo.get("a") is None
    memo.put("a", "kind", b"1")
    memo.put("a", "kind", b"2")
    memo.close()
    again = Memo(path)
    assert again.get("a") == b"1"
    assert (again.hits, again.misses) == (1, 0)
    again.close()


def test_the_default_is_in_the_cache_folder(tmp_path: Path) -> None:
    assert default_path() == tmp_path / "cache" / "hfl-emulator" / "memo.sqlite"


def test_a_damaged_file_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memo.sqlite"
    path.write_bytes(b"this is no database, " * 500)
    memo = Memo(path)
    memo.put("a", "kind", b"1")
    assert memo.get("a") == b"1"
    memo.close()
    assert "is damaged" in caplog.text
    assert len(list(tmp_path.glob("memo.sqlite.damaged-*"))) == 1


def test_a_file_damaged_in_the_middle_is_set_aside_when_it_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memo.sqlite"
    memo = Memo(path)
    for i in range(500):
        memo.put(f"key-{i}", "kind", bytes(200))
    memo.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    path.write_bytes(bytes(raw))
    again = Memo(path)
    assert again.get("key-7") is None
    again.put("key-7", "kind", b"new")
    assert again.get("key-7") == b"new"
    again.close()
    assert "is damaged" in caplog.text


def test_a_place_that_cannot_be_written_costs_only_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    memo = Memo(tmp_path / "file" / "memo.sqlite")
    memo.put("a", "kind", b"1")
    assert memo.get("a") == b"1"
    assert memo.path is None
    assert "going on without it" in caplog.text


def _fill(path: Path, word: str) -> None:
    memo = Memo(path)
    for i in range(200):
        memo.put(f"{word}-{i}", "kind", word.encode())
        memo.put(f"both-{i}", "kind", b"same")
    memo.close()


def test_two_processes_share_it(tmp_path: Path) -> None:
    path = tmp_path / "memo.sqlite"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(path, word), daemon=True) for word in ("left", "right")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert [w.exitcode for w in workers] == [0, 0]
    memo = Memo(path)
    assert all(memo.get(f"{w}-{i}") == w.encode() for w in ("left", "right") for i in range(200))
    memo.close()


def _open(barrier: threading.Barrier, path: Path) -> bool:
    barrier.wait(PATIENCE_S)
    memo = Memo(path)
    memo.close()
    return memo.path is not None


def test_many_may_begin_it_at_once(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        for i in range(50):
            path = tmp_path / f"{i}.sqlite"
            assert all(pool.map(lambda _, path=path: _open(barrier, path), range(4)))


def test_forgetting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memo = Memo(tmp_path / "memo.sqlite")
    monkeypatch.setattr("emulator.learning.memo._today", lambda: 1000)
    memo.put("old", "evaluation", b"12")
    memo.put("used", "evaluation", b"345")
    monkeypatch.setattr("emulator.learning.memo._today", lambda: 1100)
    memo.put("new", "facts", b"6")
    assert memo.stats() == {"evaluation": (2, 5 + 2 * CHECK_BYTES), "facts": (1, 1 + CHECK_BYTES)}
    assert memo.get("used") == b"345"
    assert memo.forget(unused_days=90) == 1
    assert (memo.get("old"), memo.get("used"), memo.get("new")) == (None, b"345", b"6")
    assert memo.forget() == 2
    assert memo.stats() == {}
    memo.close()


def test_a_run_keeps_what_it_used() -> None:
    memo = Memo(None)
    memo.put("before", "kind", b"\x00\xff")
    run = RunMemory(memo)
    assert (run.get("before"), run.get("unknown")) == (b"\x00\xff", None)
    run.put("mine", "kind", b"new")
    assert memo.get("mine") == b"new"
    data = run.to_json()
    assert sorted(data) == ["before", "mine"]
    assert RunMemory.entries_from_json(data) == ({"before": b"\x00\xff", "mine": b"new"}, 0)
    swapped = {"before": data["mine"], "mine": data["mine"], "x": "!!!", "y": None}
    assert RunMemory.entries_from_json(swapped) == ({"mine": b"new"}, 3)
    with pytest.raises(ValueError, match="expected an object"):
        RunMemory.entries_from_json([])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE memo SET value = x''",
        "UPDATE memo SET value = 100000000000",
        "UPDATE memo SET value = 'text'",
        "UPDATE memo SET value = (SELECT value FROM memo WHERE key = 'b') WHERE key = 'a'",
        "UPDATE memo SET key = 'c' WHERE key = 'a'; UPDATE memo SET key = 'a' WHERE key = 'b'",
        "UPDATE memo SET value = CAST(REPLACE(HEX(value), '31', '32') AS BLOB)",
    ],
)
def test_a_damaged_entry_is_forgotten(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memo.sqlite"
    memo = Memo(path)
    memo.put("a", "kind", b"1")
    memo.put("b", "kind", b"1")
    memo.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(damage)
    memo = Memo(path)
    assert memo.get("a") is None
    memo.put("a", "kind", b"new")
    assert (memo.get("a"), memo.damaged) == (b"new", 1)
    assert caplog.text.count("holds damaged results") == 1
    memo.close()


def test_a_memo_of_an_earlier_version_is_set_aside_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memo.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TABLE memo (key TEXT PRIMARY KEY, kind TEXT, value BLOB, used_day INTEGER) WITHOUT ROWID"
        )
        connection.execute("INSERT INTO memo VALUES ('a', 'kind', x'31', 20000)")
        connection.commit()
    for _ in range(2):
        memo = Memo(path)
        assert memo.get("b") is None
        memo.put("a", "kind", b"new")
        assert memo.get("a") == b"new"
        memo.close()
    assert caplog.text.count("WARNING") == 1
    assert "is of another version; it is set aside as memo.sqlite.damaged-" in caplog.text
    (aside,) = tmp_path.glob("memo.sqlite.damaged-*")
    with contextlib.closing(sqlite3.connect(aside)) as connection:
        assert connection.execute("SELECT key FROM memo").fetchall() == [("a",)]


def test_of_two_that_find_it_damaged_one_sets_it_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "memo.sqlite"
    first, second = Memo(path), Memo(path)
    for memo in (first, second):
        memo._connection.execute("DROP TABLE IF EXISTS memo")
        memo.put("a", "kind", b"1")
    assert second.get("a") == b"1"
    assert len(list(tmp_path.glob("memo.sqlite.damaged-*"))) == 1
    first.close()
    second.close()
