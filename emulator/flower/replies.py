"""Clients' replies, remembered by what determines them, so that no client code runs twice for the same question.

A folder with a file for each reply, which carries a checksum; where they take more room than they may, those go first that
were not used for longest. A file that is damaged counts as none.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from emulator.errors import HflError
from emulator.files import replacing, sealed, unsealed

log = logging.getLogger(__name__)

FORMAT = 1
DEFAULT_BYTES = 4 * 10**9
_SHARE = 16  # files are counted anew after so much of the room was written


@dataclass(frozen=True)
class Reply:
    """What a client's code made of one message: its reply and its new state as bytes, and what that took.

    ``flops`` by kind of layer and ``steps`` of optimisers were counted; ``host_s`` are real seconds. ``trace`` is the
    traceback of an error of the app.
    """

    data: bytes
    is_error: bool
    state: bytes
    flops: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    host_s: float = 0.0
    trace: str = ""
    code: int = 0

    def same_as(self, other: Reply) -> bool:
        """Whether both say the same; how long they took does not matter."""
        mine, others = ((r.data, r.is_error, r.state, Counter(r.flops), r.steps) for r in (self, other))
        return mine == others

    def to_bytes(self) -> bytes:
        """One text line with figures and lengths, then reply and state."""
        head = [FORMAT, len(self.data), self.is_error, self.flops, self.steps, self.host_s, self.trace, self.code]
        return json.dumps(head).encode() + b"\n" + self.data + self.state

    @staticmethod
    def from_bytes(data: bytes) -> Reply | None:
        """What `to_bytes` wrote; None where it is of another version."""
        line, _, rest = data.partition(b"\n")
        head = json.loads(line)
        if head[0] != FORMAT:
            return None
        _, length, is_error, flops, steps, host_s, trace, code = head
        return Reply(rest[:length], is_error, rest[length:], flops, steps, host_s, trace, code)


def default_folder() -> Path:
    """The replies in the user's cache folder."""
    return Path(platformdirs.user_cache_dir("hfl-emulator")) / "flower-replies"


class Replies:
    """A store of replies of at most so many bytes; with ``folder`` None it remembers nothing."""

    def __init__(self, folder: Path | None, most_bytes: int = DEFAULT_BYTES) -> None:
        self.folder = folder
        self._most = most_bytes
        self._unseen = most_bytes  # written since files were counted last; so many that they are counted at once
        self._told = False

    def get(self, key: str) -> Reply | None:
        """The reply under a key, or None."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            value = unsealed(key, path.read_bytes())
            if value is None:
                log.warning("a remembered reply in %s is damaged; it is made again", self.folder)
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
            return Reply.from_bytes(value)
        except (OSError, ValueError):
            return None

    def has(self, key: str) -> bool:
        """Whether a reply is remembered under a key."""
        return self.folder is not None and self._path(key).is_file()

    def put(self, key: str, reply: Reply) -> None:
        """Remembers a reply. What cannot be written is not remembered, with a warning."""
        if self.folder is None:
            return
        value = sealed(key, reply.to_bytes())
        if len(value) > self._most:
            return
        self._unseen += len(value)
        if self._unseen > self._most / _SHARE:
            self._make_room(len(value))
        try:
            with replacing(self._path(key)) as aside:
                aside.write_bytes(value)
        except HflError as error:
            if not self._told:
                log.warning("%s; the run goes on without remembering replies", error)
            self._told = True

    def forget(self, key: str) -> None:
        """Forgets a reply."""
        if self.folder is not None:
            with suppress(OSError):
                self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.reply"

    def _make_room(self, wanted: int) -> None:
        assert self.folder is not None
        self._unseen = 0
        found = []
        for path in self.folder.glob("*/*.reply"):
            with suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime_ns, stat.st_size, path))
        room = self._most - self._most // _SHARE - wanted
        taken = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if taken <= room:
                return
            with suppress(OSError):
                path.unlink()
            taken -= size
