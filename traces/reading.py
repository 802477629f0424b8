"""From a path to what a trace file holds: bundled samples, the format by its content, reading."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from emulator.contracts.files import TraceFormatChoice, trace_formats
from emulator.errors import InputError, quote_all, suggestion
from emulator.registry import Params
from traces.content import Content
from traces.source import read_head, wrong


def bundled() -> dict[str, Path]:
    """The sample traces that come with the project, by name. All of them are synthetic."""
    return {path.stem: path for path in sorted(Path(str(files("traces") / "samples")).glob("*.csv"))}


def find(name: str) -> Path:
    """The file that the user means: a path, or the name of a bundled sample. Raises `InputError` if it is neither."""
    path, known = Path(name), bundled()
    try:
        there = path.exists()
    except (OSError, ValueError):
        return path  # whoever opens it will say what is wrong with it
    if not there and name in known:
        return known[name]
    if not there:
        hint = suggestion(name.removesuffix(".csv"), known, "samples")
        raise InputError(f"{name}: there is no such file and no such sample; {hint}")
    return path


def detect(path: Path) -> str:
    """The name of the format of a file, told by its content. Raises `InputError` where none or several fit."""
    head = read_head(path)
    names = trace_formats.names()
    fitting = [name for name in names if (fits := trace_formats[name].facts.fits) is not None and fits(head)]
    if not fitting:
        raise wrong(path, 0, f"is in none of the formats {quote_all(names)}")
    if len(fitting) > 1:
        how = f"say which with '--format {fitting[0]}', or in a scenario with 'format: {fitting[0]}' beside its file"
        raise wrong(path, 0, f"could be any of {quote_all(fitting)}; {how}")
    return fitting[0]


def read(path: Path, kind: str | None = None, params: Params | None = None) -> Content:
    """What a file holds. Without a ``kind`` the format is told by the content; without ``params`` they are the defaults.

    Raises `InputError` with file and line for whatever is wrong, and for a format that does not do without parameters.
    """
    plugin = trace_formats[kind or detect(path)]
    if params is None:
        try:
            params = plugin.params()
        except ValidationError as error:
            needed = quote_all(".".join(map(str, each["loc"])) for each in error.errors())
            raise InputError(f"format '{plugin.name}' needs the parameters {needed}") from None
    return TraceFormatChoice(plugin.name, params)(path)
