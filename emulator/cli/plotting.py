"""Commands that show what runs measured: plot and table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer.core import TyperCommand

from emulator.cli.app import PluginOption, app, import_plugins, out
from emulator.errors import InputError, suggestion
from emulator.files import write_text

FoldersArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Run folders, folders that hold some, or the folder of one study or certificate.",
        show_default=False,
    ),
]


def _with_kinds(kinds: Callable[[], list[tuple[str, str]]]) -> type[TyperCommand]:
    """A command whose help ends with the kinds that there are now: their names and what they are, a line each."""

    class WithKinds(TyperCommand):
        def format_help(self, ctx: typer.Context, formatter: object) -> None:  # type: ignore[override]
            super().format_help(ctx, formatter)  # type: ignore[arg-type]
            found = kinds()
            width = max(len(name) for name, _ in found)
            out.print("\nKinds:")
            for name, what in found:
                out.print(f"  {name.ljust(width)}  {escape(what)}")

    return WithKinds


def _plots() -> list[tuple[str, str]]:
    from analysis.certainty.figures import kinds
    from emulator.contracts.files import figures

    own = [(name, f"of a certificate: {kind.summary}") for name, kind in kinds().items()]
    return [(name, figures[name].summary) for name in figures.names()] + own


def _tables() -> list[tuple[str, str]]:
    from analysis.certainty.tables import TABLES, summary
    from emulator.contracts.files import printed_tables

    own = [(name, f"of a certificate: {summary(name)}") for name in TABLES]
    return [(name, printed_tables[name].summary) for name in printed_tables.names()] + own


@app.command(cls=_with_kinds(_plots), no_args_is_help=True)
def plot(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What to draw; see below, or 'hfl list plots'.")],
    folders: FoldersArgument,
    out_files: Annotated[
        list[Path] | None,
        typer.Option("--out", metavar="FILE", help="PNG, SVG or PDF. Repeatable. (default: KIND.png)"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of the kind, for example x=time. Repeatable."),
    ] = None,
    title: Annotated[str, typer.Option(help="What stands above the picture.")] = "",
    plugin: PluginOption = None,
) -> None:
    """Draw a picture of runs, of a study or of a certificate. Runs that differ in their seed alone are shown together."""
    import_plugins(plugin)
    from analysis.certainty import figures as certain
    from analysis.certainty.certificate import one_certificate
    from analysis.figures import choose, draw
    from analysis.series import load_results
    from emulator.contracts.files import figures
    from emulator.scenario.load import override
    from emulator.yamlfile import parse

    options = parse("{}", f"hfl plot {kind}")
    for change in changes or ():
        override(options, change)
    if title:
        options.data["title"] = title
    paths = out_files or [Path(f"{kind}.png")]
    certificate = one_certificate(folders)
    if certificate is not None:
        certain.draw(kind, certificate, options, paths)
    else:
        results = load_results(folders)  # first: their plug-ins may have the kind
        if kind in certain.kinds() and kind not in figures.names():
            raise InputError(f"'{kind}' is a picture of a certificate: give the folder of one (hfl certify)")
        chosen = choose(kind, options)
        if chosen.params.file:
            raise InputError("--set file: name the files with --out")
        draw(chosen, results, paths)
    out.print(f"wrote {', '.join(escape(str(path)) for path in paths)}")


@app.command(cls=_with_kinds(_tables), no_args_is_help=True)
def table(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which table; see below.")],
    folders: FoldersArgument,
    target: Annotated[
        float | None,
        typer.Option(
            help="Accuracy (a share) to reach. (default: the study's, or the highest that all runs reach)",
            show_default=False,
        ),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="One of text, csv, markdown and latex.")] = "text",
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it here instead.")] = None,
    plugin: PluginOption = None,
) -> None:
    """Print a table of runs or of a study, with means over seeds, or of a certificate."""
    import_plugins(plugin)
    from analysis import printed
    from analysis.certainty import tables as certain
    from analysis.certainty.certificate import one_certificate
    from analysis.figures import SeriesFigure, series_of
    from analysis.series import load_results
    from emulator.contracts.files import printed_tables

    if form not in printed.FORMATS:
        raise InputError(f"unknown format '{form[:60]}'; {suggestion(form, printed.FORMATS)}")
    certificate = one_certificate(folders)
    if certificate is not None:
        if target is not None:
            raise InputError("--target: a certificate has the targets that it was made for")
        made = certain.table(kind, certificate)
    else:
        results = load_results(folders)
        if kind in certain.TABLES and kind not in printed_tables.names():
            raise InputError(f"'{kind}' is a table of a certificate: give the folder of one (hfl certify)")
        made = printed.table(kind, series_of(results, SeriesFigure()), results.target if target is None else target)
    text = printed.FORMATS[form](made)
    if out_file is None:
        sys.stdout.write(text)
    else:
        write_text(out_file, text)
        out.print(f"wrote {escape(str(out_file))}")
