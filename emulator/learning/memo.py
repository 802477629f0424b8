"""Small results, remembered on disk by content key: evaluations, facts about data and models.

A key is a hash of everything that determines the result (see `emulator.learning.lab`), so an entry never goes stale and
several processes may share one file. A damaged file is set aside with a warning; the run goes on with a new one.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import platformdirs

log = logging.getLogger(__name__)
T = TypeVar("T")

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS memo (key TEXT PRIMARY KEY, kind TEXT NOT NULL, value BLOB NOT NULL) WITHOUT ROWID"
)


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
        row = self._guarded(lambda c: c.execute("SELECT value FROM memo WHERE key = ?", (key,)).fetchone())
        if row is None:
            self.misses += 1
            return None
        self.hits += 1
        return bytes(row[0])

    def put(self, key: str, kind: str, value: bytes) -> None:
        """Remembers a value. The first value under a key stays: equal keys mean equal results."""
        self._guarded(lambda c: c.execute("INSERT OR IGNORE INTO memo VALUES (?, ?, ?)", (key, kind, value)))

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            return _connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _connect(str(self.path))
        except sqlite3.OperationalError as error:
            # A folder that cannot be written to is no reason to stop a run: it only costs the memory of earlier runs.
            log.warning("the memo %s cannot be used (%s); going on without it", self.path, error)
        except OSError as error:
            log.warning("the memo %s cannot be used (%s); going on without it", self.path, error.strerror)
        except sqlite3.DatabaseError as error:
            return self._set_aside(error)
        self.path = None
        return _connect(":memory:")

    def _guarded(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return action(self._connection)
        except sqlite3.OperationalError:
            raise
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
