"""Small results, remembered by content key: evaluations, facts about data and models.

A key is a hash of everything that determines the result (see `emulator.learning.lab`), so an entry never goes stale and
several processes may share one file. A damaged file is set aside with a warning; the run goes on with a new one.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import platformdirs

log = logging.getLogger(__name__)
T = TypeVar("T")

_SCHEMA = """CREATE TABLE IF NOT EXISTS memo (
    key TEXT PRIMARY KEY, kind TEXT NOT NULL, value BLOB NOT NULL, used_day INTEGER NOT NULL
) WITHOUT ROWID"""


def default_path() -> Path:
    """The memo in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("hfl-emulator")) / "memo.sqlite"


class Memo:
    """A table from keys to bytes. ``path`` None keeps it in memory, for one process and one run."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.hits = 0
        self.misses = 0
        self._connection = self._open()

    def get(self, key: str) -> bytes | None:
        """The value under ``key``, or None."""
        row = self._guarded(lambda c: c.execute("SELECT value, used_day FROM memo WHERE key = ?", (key,)).fetchone())
        if row is None:
            self.misses += 1
            return None
        self.hits += 1
        if row[1] != _today():
            self._guarded(lambda c: c.execute("UPDATE memo SET used_day = ? WHERE key = ?", (_today(), key)))
        return bytes(row[0])

    def put(self, key: str, kind: str, value: bytes) -> None:
        """Remembers a value. The first value under a key stays: equal keys mean equal results."""
        entry = (key, kind, value, _today())
        self._guarded(lambda c: c.execute("INSERT OR IGNORE INTO memo VALUES (?, ?, ?, ?)", entry))

    def stats(self) -> dict[str, tuple[int, int]]:
        """Entries and their bytes, by kind."""
        query = "SELECT kind, COUNT(*), SUM(LENGTH(value)) FROM memo GROUP BY kind ORDER BY kind"
        return {k: (n, size) for k, n, size in self._guarded(lambda c: c.execute(query).fetchall())}

    def forget(self, unused_days: int = 0) -> int:
        """Deletes entries that were not used for so many days (0: all) and gives the space back; returns how many."""
        limit = _today() - unused_days + (1 if unused_days == 0 else 0)
        count = self._guarded(lambda c: c.execute("DELETE FROM memo WHERE used_day < ?", (limit,)).rowcount)
        self._guarded(lambda c: c.execute("VACUUM"))
        return int(count)

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return _connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _connect(str(self.path))
        except (sqlite3.OperationalError, OSError) as error:
            return self._do_without(error)
        except sqlite3.DatabaseError as error:
            return self._set_aside(error)

    def _do_without(self, error: Exception) -> sqlite3.Connection:
        """A full disk or a folder that cannot be written to is no reason to stop a run: it costs only the memory."""
        log.warning("the memo %s cannot be used (%s); going on without it", self.path, error)
        self.path = None
        return _connect(":memory:")

    def _guarded(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return action(self._connection)
        except sqlite3.OperationalError as error:
            self._connection.close()
            self._connection = self._do_without(error)
            return action(self._connection)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            self._connection = self._set_aside(error)
            return action(self._connection)

    def _set_aside(self, error: sqlite3.DatabaseError) -> sqlite3.Connection:
        assert self.path is not None  # a memo in memory cannot be damaged
        aside = self.path.with_name(f"{self.path.name}.damaged-{os.getpid()}")
        log.warning("the memo %s is damaged (%s); it is set aside as %s", self.path, error, aside.name)
        if self.path.exists():
            self.path.replace(aside)
        for ending in ("-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        return _connect(str(self.path))


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
        """The entries as plain data."""
        return {key: b64encode(value).decode() for key, value in sorted(self.entries.items())}

    @staticmethod
    def entries_from_json(data: dict[str, str]) -> dict[str, bytes]:
        """The entries that `to_json` wrote; raises ``ValueError`` where they are damaged."""
        return {key: b64decode(value, validate=True) for key, value in data.items()}


def _today() -> int:
    return int(time.time() // 86400)


def _connect(target: str) -> sqlite3.Connection:
    connection = sqlite3.connect(target, timeout=60, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection
