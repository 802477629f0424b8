"""Small results, remembered by content key: evaluations, facts about data and models.

A key is a hash of everything that determines the result (see `emulator.learning.lab`), so an entry never goes stale and
several processes may share one file. A damaged entry is forgotten, a damaged file set aside, with a warning; the run goes on.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from emulator.files import sealed, sealed_text, unsealed, unsealed_text

log = logging.getLogger(__name__)
T = TypeVar("T")

FORMAT = 2  # of the file: `user_version` of its header. Before 2 values had no checksum
PATIENCE_S = 60  # for another process that holds the file
TROUBLE = (sqlite3.Error, ValueError, OverflowError)  # a message of SQLite about a damaged schema may be no UTF-8
_SCHEMA = """CREATE TABLE IF NOT EXISTS memo (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, value BLOB NOT NULL, used_day INTEGER NOT NULL
) WITHOUT ROWID"""


def default_path() -> Path:
    """The memo in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("hfl-emulator")) / "memo.sqlite"


class Memo:
    """A table from keys to bytes. ``path`` None keeps it in memory, for one process and one run.

    Every row carries a checksum over its key and its value. A row that does not match it is forgotten.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self.damaged = 0  # rows that were forgotten because they did not match their checksum
        self._file: int | None = None  # which file it is that was opened
        self._connection = self._open()

    def get(self, key: str) -> bytes | None:
        """The value under ``key``, or None."""
        row = self._guarded(lambda c: c.execute("SELECT value, used_day FROM memo WHERE key = ?", (key,)).fetchone())
        value = None if row is None else unsealed(key, row[0])
        if value is None:
            self.misses += 1
            if row is not None:
                self._forget_damaged(key)
            return None
        self.hits += 1
        if row[1] != _today():
            self._guarded(lambda c: c.execute("UPDATE memo SET used_day = ? WHERE key = ?", (_today(), key)))
        return value

    def put(self, key: str, kind: str, value: bytes) -> None:
        """Remembers a value. The first value under a key stays: equal keys mean equal results."""
        entry = (key, kind, sealed(key, value), _today())
        self._guarded(lambda c: c.execute("INSERT OR IGNORE INTO memo VALUES (?, ?, ?, ?)", entry))

    def stats(self) -> dict[str, tuple[int, int]]:
        """Entries and their bytes, by kind."""
        query = "SELECT kind, COUNT(*), TOTAL(LENGTH(value)) FROM memo GROUP BY kind ORDER BY kind"
        return {str(k): (n, int(size)) for k, n, size in self._guarded(lambda c: c.execute(query).fetchall())}

    def forget(self, unused_days: int = 0) -> int:
        """Deletes entries that were not used for so many days (0: all) and gives the space back; returns how many."""
        limit = _today() - unused_days + (1 if unused_days == 0 else 0)
        count = self._guarded(lambda c: c.execute("DELETE FROM memo WHERE used_day < ?", (limit,)).rowcount)
        self._guarded(lambda c: c.execute("VACUUM"))
        return int(count)

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _forget_damaged(self, key: str) -> None:
        if not self.damaged:
            log.warning("the memo %s holds damaged results; they are forgotten and computed again", self.path)
        self.damaged += 1
        self._guarded(lambda c: c.execute("DELETE FROM memo WHERE key = ?", (key,)))

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return _connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = _connect(str(self.path))
            self._file = self.path.stat().st_ino
        except OSError as error:
            return self._do_without(error)
        except TROUBLE as error:
            return self._set_aside(f"is damaged ({error})") if _is_damage(error) else self._do_without(error)
        if connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            return connection
        connection.close()
        return self._set_aside("is of another version")

    def _do_without(self, error: Exception) -> sqlite3.Connection:
        """A full disk or a folder that cannot be written to is no reason to stop a run: it costs only the memory."""
        log.warning("the memo %s cannot be used (%s); going on without it", self.path, error)
        self.path = None
        return _connect(":memory:")

    def _guarded(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return action(self._connection)
        except TROUBLE as error:
            self._connection.close()
            damage = _is_damage(error)
            self._connection = self._set_aside(f"is damaged ({error})") if damage else self._do_without(error)
            return action(self._connection)

    def _set_aside(self, why: str) -> sqlite3.Connection:
        """Begins a new file. Of several processes that find the same file unusable one moves it away."""
        from filelock import FileLock, Timeout

        assert self.path is not None  # a memo in memory cannot be damaged
        aside = self.path.with_name(f"{self.path.name}.damaged-{os.getpid()}-{time.time_ns()}")
        try:
            with FileLock(f"{self.path}.lock", timeout=PATIENCE_S):
                if self.path.exists() and self._file in (None, self.path.stat().st_ino):
                    log.warning("the memo %s %s; it is set aside as %s", self.path, why, aside.name)
                    self.path.replace(aside)
                    for ending in ("-wal", "-shm"):
                        self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
                connection = _connect(str(self.path))
                self._file = self.path.stat().st_ino
                return connection
        except (*TROUBLE, OSError, Timeout) as error:
            return self._do_without(error)


class RunMemory:
    """What one run learned, on top of a memo: every entry that it used, to be kept with the run.

    With it a run folder answers for itself: an interrupted run goes on, and a what-if is answered, wherever the folder is.
    """

    def __init__(self, memo: Memo, entries: dict[str, bytes] | None = None) -> None:
        self.entries = dict(entries or {})
        self._memo = memo

    def get(self, key: str) -> bytes | None:
        """The value under ``key``, or None."""
        value = self.entries.get(key)
        if value is None:
            value = self._memo.get(key)
            if value is not None:
                self.entries[key] = value
        return value

    def put(self, key: str, kind: str, value: bytes) -> None:
        """Remembers a value, here and in the memo."""
        self.entries[key] = value
        self._memo.put(key, kind, value)

    def recall(self, key: str, compute: Callable[[], bytes]) -> bytes:
        """The value under ``key``, computed and remembered where it is not there. What comes before the colon is its kind."""
        known = self.get(key)
        if known is None:
            known = compute()
            self.put(key, key.partition(":")[0], known)
        return known

    def to_json(self) -> dict[str, str]:
        """The entries as plain data, each with its checksum."""
        return {key: sealed_text(key, value) for key, value in sorted(self.entries.items())}

    @staticmethod
    def entries_from_json(data: Any) -> tuple[dict[str, bytes], int]:
        """The entries that `to_json` wrote, and how many are left out because they are damaged.

        Raises ``ValueError`` for anything else than an object.
        """
        if not isinstance(data, dict):
            raise ValueError("expected an object")  # noqa: TRY004
        found = {key: value for key, stored in data.items() if (value := unsealed_text(key, stored)) is not None}
        return found, len(data) - len(found)


def _today() -> int:
    return int(time.time() // 86400)


def _connect(target: str) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=PATIENCE_S, isolation_level=None)
    connection.text_factory = lambda raw: raw.decode(errors="replace")
    try:
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        if _is_new(connection):
            connection.execute("BEGIN IMMEDIATE")
            if _is_new(connection):  # still: nobody else was quicker
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
    except TROUBLE:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switches the file to a write-ahead log. Of processes that switch at once SQLite refuses some without waiting."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _is_new(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]


def _is_damage(error: Exception) -> bool:
    """Whether an error is the file's, rather than the disk's or another process's."""
    return not isinstance(error, sqlite3.OperationalError) or str(error).startswith("no such ")
