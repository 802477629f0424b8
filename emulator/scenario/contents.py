"""What the files hold that a scenario names: each is read once, and must be of the kind that its section needs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from emulator.contracts.files import TraceFormat, trace_formats
from emulator.errors import InputError, quote_all
from emulator.registry import Params
from traces.content import Content, DeviceMix, LatencyMatrix, Trace
from traces.reading import find, read

C = TypeVar("C", Trace, DeviceMix, LatencyMatrix)

_WHAT: dict[type[Content], str] = {
    Trace: "series over time",
    DeviceMix: "a mix of devices",
    LatencyMatrix: "latencies between sites",
}


def content(file: str, chosen: TraceFormat | None, wanted: type[C], key: str, file_key: str = "file") -> C:
    """What a file or a bundled sample holds; without a format it is told by the content.

    A relative path counts from the current folder. Raises `InputError` with the scenario key where the file cannot be read,
    or holds something else than what is ``wanted``: ``key`` names the section, ``file_key`` its key that names the file.
    """
    if chosen is not None and chosen.plugin.facts.gives is not wanted:
        able = quote_all(n for n in trace_formats.names() if trace_formats[n].facts.gives is wanted)
        raise InputError(f"format '{chosen.kind}' is not for {_WHAT[wanted]}; these are: {able}", f"{key}.format")
    try:
        path = find(file)
        held = _read(path, chosen and chosen.kind, chosen and chosen.params, state_of(path))
    except InputError as error:
        raise InputError(error.message, f"{key}.{file_key}") from error
    if not isinstance(held, wanted):
        raise InputError(f"{file} holds {_WHAT[type(held)]}, not {_WHAT[wanted]}", f"{key}.{file_key}")
    return held


@lru_cache(maxsize=8)
def _read(path: Path, kind: str | None, params: Params | None, state: tuple[int, int]) -> Content:
    """Checking a scenario and running it read the same files, and some of them take seconds."""
    return read(path, kind, params)


def state_of(path: Path | str) -> tuple[int, int]:
    """What changes when a file does: its size and when it was written. Whoever reads it says what is wrong with it."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return 0, 0
    return found.st_size, found.st_mtime_ns
