"""``hfl prepared``: data sets that are kept on this machine as they are trained on."""

from __future__ import annotations

from datetime import datetime

import typer
from rich.markup import escape
from rich.table import Table

from emulator.cli.app import app, out

commands = typer.Typer(no_args_is_help=True, help="Show or clear the prepared data sets that are kept on this machine.")
app.add_typer(commands, name="prepared")


@commands.command()
def stats() -> None:
    """Show what is kept, and how much of it may be."""
    from analysis.quantities import bytes_text
    from emulator.learning.data.prepared import PLACE, entries, limit_bytes, place

    folder, found = place(), entries()
    if folder is None:
        out.print(f"nothing is kept: {PLACE} is 'off'")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("data set", "last used", "size"):
        table.add_column(column, justify="right" if column == "size" else "left")
    for entry in reversed(found):
        used = datetime.fromtimestamp(entry.used_s).isoformat(sep=" ", timespec="minutes")
        table.add_row(escape(entry.kind), used, bytes_text(entry.size_bytes))
    total = bytes_text(sum(entry.size_bytes for entry in found))
    out.print(f"{escape(str(folder))}: {total} of {bytes_text(limit_bytes())}")
    out.print(table if found else "nothing is kept yet")


@commands.command()
def clear() -> None:
    """Delete all of it; runs that use some keep it until they end."""
    from emulator.learning.data import prepared

    count = prepared.clear()
    out.print(f"{count:,} data set{'' if count == 1 else 's'} deleted")
