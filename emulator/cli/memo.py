"""``hfl memo``: what is remembered between runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from emulator.cli.app import MemoOption, app, out
from emulator.learning.memo import Memo, default_path

commands = typer.Typer(no_args_is_help=True, help="Show or clear the results that are remembered between runs.")
app.add_typer(commands, name="memo")


@commands.command()
def stats(memo: MemoOption = None) -> None:
    """Show how much is remembered."""
    from analysis.quantities import bytes_text

    opened = Memo(memo or default_path())
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("kind", "entries", "size"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, (count, size) in opened.stats().items():
        table.add_row(escape(kind), f"{count:,}", bytes_text(size))
    out.print(f"{escape(str(opened.path))}")
    out.print(table if table.row_count else "nothing is remembered yet")


@commands.command()
def clear(memo: MemoOption = None) -> None:
    """Forget everything."""
    opened = Memo(memo or default_path())
    out.print(f"{opened.forget():,} entries forgotten")


@commands.command()
def gc(
    memo: MemoOption = None,
    days: Annotated[int, typer.Option(min=1, help="Forget what was not used for so many days.")] = 90,
) -> None:
    """Forget what was not used for a long time."""
    opened = Memo(memo or default_path())
    out.print(f"{opened.forget(days):,} entries forgotten")
