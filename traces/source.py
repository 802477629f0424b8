"""The files that formats read: whole, as text or bytes, with messages that name file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import InputError

MAX_BYTES = 1_000_000_000
HEAD_BYTES = 65_536
LARGEST = 1e18  # of any number in a file: what is larger is a mistake, and might not add up
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Head:
    """The beginning of a file, by which its format can be told. ``lines`` are its first full lines; none if it is not text."""

    raw: bytes
    lines: tuple[str, ...]


def wrong(path: Path, line: int, message: str) -> InputError:
    """An error about a line of a file (from 1), or about the whole file (0)."""
    return InputError(f"{path}:{line}: {message}" if line else f"{path}: {message}")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Up to ``limit`` bytes of a file; raises `InputError` where it is missing, no file, empty or larger than a gigabyte."""
    try:
        if path.is_dir():
            raise wrong(path, 0, "this is a folder, not a file")
        if path.exists() and not path.is_file():
            raise wrong(path, 0, "this is not a file")
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except FileNotFoundError:
        raise wrong(path, 0, "there is no such file") from None
    except (OSError, ValueError) as error:
        raise wrong(path, 0, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not raw.strip():
        raise wrong(path, 0, "the file is empty")
    if len(raw) > limit == MAX_BYTES:
        raise wrong(path, 0, f"is larger than {MAX_BYTES:,} bytes")
    return raw[:limit]


def read_text(path: Path) -> str:
    """A text file in UTF-8; raises `InputError` as `read_bytes`, and with the line where there is something else in it."""
    raw = read_bytes(path)
    at = raw.find(b"\0")
    try:
        if at < 0:
            text = raw.decode("utf-8-sig")
            if not text.strip():  # there are blanks that bytes do not know
                raise wrong(path, 0, "the file is empty")
            return text
    except UnicodeDecodeError as error:
        at = error.start
    raise wrong(path, raw.count(b"\n", 0, at) + 1, "is not text in UTF-8; this is another kind of file")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that hold something, with their numbers from 1; raises `InputError` as `read_text`."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r")


def read_head(path: Path) -> Head:
    """The beginning of a file; raises `InputError` as `read_bytes`."""
    raw = read_bytes(path, HEAD_BYTES)
    full = raw if len(raw) < HEAD_BYTES else raw[: raw.rfind(b"\n") + 1]
    try:
        text = "" if b"\0" in full else full.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = ""
    return Head(raw, tuple(line for line in text.split("\n") if line.strip()))


def is_number(text: str) -> bool:
    """Whether a text is a plain decimal number."""
    return _NUMBER.fullmatch(text.strip()) is not None


def number(path: Path, line: int, text: str, what: str) -> float:
    """A finite number that is not negative; raises `InputError` for anything else. ``what`` is its name in messages."""
    short = text.strip()[:40]
    if not short:
        raise wrong(path, line, f"{what} is missing")
    if not is_number(text):
        if short.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise wrong(path, line, f"{what} is '{short}'; it must be a finite number")
        head = _NUMBER.match(short)
        if head is not None and re.match(r"\s*[A-Za-z%µ]", short[head.end() :]):
            raise wrong(path, line, f"{what} is '{short}'; write a number without a unit: one unit holds for the file")
        raise wrong(path, line, f"{what} is '{short}'; it must be a number")
    value = float(text)
    if abs(value) > LARGEST:
        raise wrong(path, line, f"{what} is '{short}'; that is too large")
    if value < 0:
        raise wrong(path, line, f"{what} is {short}; it must not be negative")
    return value


def later(path: Path, line: int, time: float, before: Sequence[float]) -> None:
    """Raises `InputError` unless ``time`` comes after all the times ``before``, of which the last is the latest."""
    if before and time <= before[-1]:
        what = "is there twice" if time == before[-1] else f"comes after {before[-1]:.15g}; time goes backwards"
        raise wrong(path, line, f"time {time:.15g} {what}")
