"""What the kinds of figures share. A kind is a file in `analysis.plots`, or in a module of the user's own.

A kind registers itself in `emulator.contracts.files.figures` with options that derive from
`emulator.study.schema.FigureParams`. It is called with the results and the paths to draw to, by studies and by ``hfl plot``.
Nothing here, and nothing that registers a kind, imports matplotlib or pandas at its top: checking a study reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from analysis.series import Series, load_results, runs_of
from analysis.studies import StudyResults
from emulator.contracts.files import FigureChoice, figures
from emulator.errors import InputError, ScenarioError
from emulator.explain import explain
from emulator.study.names import short_names, text_of
from emulator.study.schema import FigureParams, Texts, column_named, same_value
from emulator.yamlfile import Document

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class SeriesFigure(FigureParams):
    """Options of a figure that has a line, a bar or a panel for each variant."""

    by: Texts = Field((), description="what the variants are; by default everything varied that is not in 'where'")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """The names in ``by`` and ``where``."""
        yield from (("by", name) for name in self.by)
        yield from super().named_columns()

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """The columns whose values make a variant."""
        if self.by:
            return [column_named(name, columns) for name in self.by]
        taken = {column_named(name, columns) for name in self.where}
        return [c for c in columns if c not in taken]


def series_of(results: StudyResults, params: SeriesFigure) -> list[Series]:
    """The runs that a figure shows, those of one variant together; raises `InputError` if there are none."""
    columns = params.told_apart(results.columns)
    names: dict[str, list[str]] = {}
    for name, rows in selected(results, params).groupby("run", sort=False):
        names.setdefault(label_of(results, columns, rows), []).append(str(name))
    return [Series(label, runs_of(results, each)) for label, each in names.items()]


def choose(kind: str, options: Document) -> FigureChoice:
    """A kind of figure with its options; raises `InputError` where there is no such kind, or an option is no good."""
    plugin = figures[kind]
    try:
        given = plugin.params.model_validate(options.data or {})
    except ValidationError as error:
        problems = explain(options, error.errors(include_url=False), plugin.params)
        raise ScenarioError(tuple(problems)) from None
    if not isinstance(given, FigureParams):
        raise InputError(f"figure '{kind}' must be registered with parameters that derive from FigureParams")
    return FigureChoice(kind, given)


def draw(chosen: FigureChoice, results: StudyResults, paths: Sequence[Path]) -> None:
    """Draws a figure of any results to each of these paths.

    Raises `InputError` where an option does not fit the results, different runs would be taken for seeds of one, or a path is no
    good.
    """
    from analysis.plots import style

    for path in paths:
        style.check_path(path)
    for key, message in chosen.params.wrong(results.columns):
        raise InputError(message, key)
    seen: dict[tuple[str, ...], str] = {}
    columns = chosen.params.told_apart(results.columns)
    for name, rows in selected(results, chosen.params).groupby("run", sort=False):
        place = tuple(text_of(rows[c].iloc[0]) for c in (*columns, "seed"))
        if place in seen:
            folders = f"'{results.folders[seen[place]]}' and '{results.folders[str(name)]}'"
            raise InputError(f"the runs in {folders} would be taken for one; say what tells them apart")
        seen[place] = str(name)
    chosen(results, paths)


def draw_folders(
    kind: str, folders: Sequence[Path | str], paths: Path | str | Sequence[Path | str], **options: Any
) -> None:
    """Draws a kind of figure of run folders, or of a study folder, to one or more files (PNG, SVG or PDF).

    ``options`` are those of the kind, as a study file has them. Raises `InputError` as `choose` and `draw`, and where a folder is
    no good.
    """
    results = load_results(folders)  # first: their plug-ins may have the kind
    draw(
        choose(kind, Document(kind, options)),
        results,
        [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)],
    )


def selected(results: StudyResults, params: FigureParams) -> pd.DataFrame:
    """The rows of the results that a figure draws; raises `InputError` if there are none."""
    table = results.table
    for name, wanted in params.where.items():
        column = column_named(name, results.columns)
        table = table[[same_value(wanted, value) for value in table[column]]]
    if table.empty:
        raise InputError("no complete run is of these values", "where")
    return table


def save_all(figure: Figure, paths: Sequence[Path]) -> None:
    """Writes a figure to each of these paths."""
    from analysis.plots import style

    for path in paths:
        style.save(figure, path)


def label_of(results: StudyResults, columns: Sequence[str], run: pd.DataFrame) -> str:
    """What the legend calls a line: variants and methods by their names, values with what they are values of."""
    return named(results, columns, run) or str(run["method"].iloc[0])


def named(results: StudyResults, columns: Sequence[str], run: pd.DataFrame) -> str:
    """The values of a run in these columns, for people."""
    return ", ".join(shown(results, column, run[column].iloc[0]) for column in columns)


def shown(results: StudyResults, column: str, value: Any) -> str:
    """A value with what it is a value of, unless it explains itself."""
    return text_of(value) if column in ("variant", "method") else f"{_short(results, column)} = {text_of(value)}"


def heading(results: StudyResults, column: str) -> str:
    """What stands beside rows or columns; names of variants and methods explain themselves."""
    return "" if column in ("", "variant", "method") else _short(results, column)


def _short(results: StudyResults, column: str) -> str:
    return short_names(results.columns).get(column, column).replace("_", " ")
