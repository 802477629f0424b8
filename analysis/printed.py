"""Tables over methods, with means over seeds, as text, CSV, Markdown and LaTeX.

A kind of table is a function from series of runs (and a target accuracy) to the figures and how people read them. It registers
itself in `emulator.contracts.files.printed_tables`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis import activity, participation
from analysis.cluster_history import CLUSTER_METRICS, clustering_rounds
from analysis.quantities import accuracy_text, bytes_text, charged_in, cost_text, energy_text, time_text
from analysis.runs import Run, check_trained, measure_of
from analysis.seeds import mean_and_interval
from analysis.series import Given, as_series
from analysis.studies import NOTHING, with_interval
from analysis.tables import AT_BUDGET, UNKNOWN, accuracy_at_budget, common_target, first_reach
from analysis.texttable import TextTable
from emulator.contracts.files import PrintedTableChoice, printed_tables
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure
from emulator.registry import NoParams

if TYPE_CHECKING:
    import pandas as pd

SLOWEST = 10  # clients that a table of stragglers shows


@dataclass(frozen=True, eq=False)
class Printed:
    """A table twice: ``data`` in SI units and full precision, ``sections`` for people."""

    data: pd.DataFrame
    sections: tuple[TextTable, ...]

    def text(self) -> str:
        """For a terminal."""
        return "\n\n".join(section.text() for section in self.sections) + "\n"

    def markdown(self) -> str:
        """In Markdown."""
        return "\n\n".join(section.markdown() for section in self.sections) + "\n"

    def latex(self) -> str:
        """In LaTeX; the tables need the package ``booktabs``."""
        return "\n\n".join(section.latex() for section in self.sections) + "\n"

    def csv(self) -> str:
        """As CSV: all columns in SI units and full precision; what is not known, or was not reached, is empty."""
        return str(self.data.to_csv(index=False, lineterminator="\n"))


FORMATS: dict[str, Callable[[Printed], str]] = {
    "text": Printed.text, "csv": Printed.csv, "markdown": Printed.markdown, "latex": Printed.latex,
}  # fmt: skip

_Text = Callable[[float], str]
# Columns of metrics.csv, what they are called, and how they are written.
_TAKEN: dict[str, tuple[str, _Text]] = {
    "round": ("round", lambda value: f"{value:.3g}"),
    "time_s": ("time", time_text),
    "bytes_total": ("data", bytes_text),
    "cost_s": ("cost", cost_text),
    "energy_j": ("energy", energy_text),
}


@printed_tables.register("cost-to-target")
def cost_to_target(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """What reaching an accuracy took each method: rounds, time, data, cost and energy; means over the seeds that reached it.

    ``target`` is a share, by default the highest whole per cent that all runs reach. Nothing is interpolated: the first
    evaluation with at least this accuracy counts. Raises `InputError` where a run has no accuracies or the target is no share.
    """
    series = as_series(given)
    check_trained(run for each in series for run in each.runs)
    runs = [run for each in series for run in each.runs]
    measure = measure_of(runs)
    taken = _TAKEN | charged_in(run.metrics for run in runs)
    goal = common_target(runs) if target is None else measure.check(target)
    rows = []
    for each in series:
        reached = [reach for run in each.runs if (reach := first_reach(run.metrics, goal, measure)) is not None]
        row: dict[str, Any] = {
            "label": each.label, "target_accuracy": goal, "seeds": len(each.runs), "reached": len(reached),
        }  # fmt: skip
        for column in taken:
            row |= _mean(column, [float(reach.get(column, math.nan)) for reach in reached])  # type: ignore[arg-type]
        rows.append(row)
    title = _titled(
        f"To reach {measure.goal_text(goal)} test {measure.called}",
        rows,
        "mean of the seeds that did ± half of the 95 % interval",
    )
    cells = tuple(
        (
            row["label"],
            f"{row['reached']} of {row['seeds']}",
            *(_pair(row, column, text, rows, bool(row["reached"])) for column, (_, text) in taken.items()),
        )
        for row in rows
    )
    return _printed(rows, title, ("method", "reached", *(name for name, _ in taken.values())), cells, 1, measure)


@printed_tables.register("totals")
def totals(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """How each method ended: final and best accuracy, rounds, time, data, cost and energy of the whole run; means over seeds.

    Where runs stop by time, cost or bytes, also the accuracy at that budget.
    """
    rows = []
    series = as_series(given)
    budgets = any(run.budget for each in series for run in each.runs)
    measure = measure_of(run for each in series for run in each.runs)
    taken = _TAKEN | charged_in(run.metrics for each in series for run in each.runs)
    for each in series:
        row: dict[str, Any] = {"label": each.label, "seeds": len(each.runs)}
        row |= _mean("final_accuracy", [float(run.judged.iloc[-1]) for run in each.runs])
        if budgets:
            row |= _mean(AT_BUDGET, [accuracy_at_budget(run) for run in each.runs])
        row |= _mean("best_accuracy", [measure.best(run.judged) for run in each.runs])
        for column in taken:
            row |= _mean(column, [float(run.metrics.iloc[-1].get(column, math.nan)) for run in each.runs])
        rows.append(row)
    title = _titled("Whole runs", rows)
    accuracies = {
        "final_accuracy": f"final {measure.called}", AT_BUDGET: "at its budget", "best_accuracy": f"best {measure.called}",
    }  # fmt: skip
    shown = {c: (name, measure.text) for c, name in accuracies.items() if c != AT_BUDGET or budgets} | taken
    header = ("method", "seeds", *(name for name, _ in shown.values()))
    cells = tuple(
        (row["label"], str(row["seeds"]), *(_pair(row, c, text, rows) for c, (_, text) in shown.items()))
        for row in rows
    )
    return _printed(rows, title, header, cells, 1, measure)


@printed_tables.register("breakdown")
def breakdown(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """Where the clients' time goes by method, in client-seconds over the whole run; means over seeds."""
    rows = []
    for each in as_series(given):
        seconds = [activity.totals(run) for run in each.runs]
        row: dict[str, Any] = {"label": each.label, "seeds": len(each.runs)}
        for part, column in activity.COLUMNS.items():
            row |= _mean(column, [s[part] for s in seconds])
        rows.append(row)
    columns = [c for c in activity.COLUMNS.values() if any(row[f"{c}_mean"] > 0 for row in rows)]
    names = [part for part, column in activity.COLUMNS.items() if column in columns]
    title = _titled("Time of the clients in client-seconds", rows, "mean of the seeds")
    cells = tuple((row["label"], *(f"{row[f'{c}_mean']:,.1f}" for c in columns)) for row in rows)
    return _printed(rows, title, ("method", *names), cells, 1)


@printed_tables.register("stragglers")
def stragglers(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """The slowest clients of each run: how long they are busy and wait in a group round, and how often they are the slowest."""
    import pandas as pd

    tables, sections = [], []
    runs: list[tuple[str, Run]] = [(each.title, each.first) for each in as_series(given)]
    for label, run in runs:
        table = activity.stragglers(run)
        table.insert(0, "label", label)
        tables.append(table)
        median_s = float(table["own_s"].median())
        cells = tuple(
            (
                f"client-{row['client']}", row["device"] or UNKNOWN, time_text(row["own_s"]), time_text(row["waiting_s"]),
                f"{row['own_s'] / median_s:.2f}" if median_s else UNKNOWN, f"{row['slowest']} of {row['turns']}",
            )
            for row in table.iloc[::-1].head(SLOWEST).to_dict("records")
        )  # fmt: skip
        header = ("client", "device", "busy", "waits", "times the median", "slowest of its group")
        title = f"{label}: slowest clients, mean of their group rounds"
        sections.append(TextTable(title, header, cells, (False, False, True, True, True, True)))
    return Printed(pd.concat(tables, ignore_index=True), tuple(sections))


@printed_tables.register("participation")
def participation_table(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """How evenly clients trained, and how stale updates of asynchronous methods were; means over seeds.

    The figures are those of `analysis.participation.figures`.
    """
    rows = []
    series = as_series(given)
    by_run = [[participation.figures(run) for run in each.runs] for each in series]
    columns = [c for c in (*participation.FIGURES, *participation.STALENESS) if any(c in each[0] for each in by_run)]
    for each, found in zip(series, by_run, strict=True):
        row: dict[str, Any] = {"label": each.label, "seeds": len(each.runs)}
        for column in columns:
            row |= _mean(column, [of.get(column, math.nan) for of in found])
        rows.append(row)
    names = {
        "jain": "Jain's index", "least": "least often", "median": "median", "most": "most often", "never": "never trained",
        "staleness_mean": "mean staleness", "staleness_p95": "95th percentile", "staleness_max": "largest", "dropped": "dropped",
    }  # fmt: skip
    texts: dict[str, _Text] = {"jain": "{:.3f}".format, "never": accuracy_text, "dropped": accuracy_text}
    cells = tuple(
        (row["label"], *(_pair(row, c, texts.get(c, "{:.3g}".format), rows, nothing=NOTHING) for c in columns))
        for row in rows
    )
    title = _titled("Local trainings of a client", rows)
    return _printed(rows, title, ("method", *(names[c] for c in columns)), cells, 1)


@printed_tables.register("clusters")
def clusters(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """How well each method has clustered its clients at the end, and its accuracies; means over seeds.

    The global accuracy is on the common test set; the means over clusters and over clients are of each one's model on data of
    its own distribution. Raises `InputError` where no run has measured any of it.
    """
    rows = []
    for each in as_series(given):
        row: dict[str, Any] = {"label": each.label, "seeds": len(each.runs)}
        for column in ("accuracy", *CLUSTER_METRICS):
            row |= _mean(column, [float(run.metrics.iloc[-1].get(column, math.nan)) for run in each.runs])
        row |= _mean("clustering_rounds", [clustering_rounds(run) or math.nan for run in each.runs])
        rows.append(row)
    if all(math.isnan(row["clusters_mean"]) for row in rows):
        raise InputError("no run has clusters: neither its method nor its partition makes any")
    texts: dict[str, tuple[str, _Text]] = {
        "accuracy": ("global accuracy", accuracy_text),
        "accuracy_clusters": ("accuracy, mean over clusters", accuracy_text),
        "accuracy_clients": ("accuracy, mean over clients", accuracy_text),
        "clusters": ("clusters", lambda value: f"{value:.3g}"),
        "adjusted_rand": ("adjusted Rand index", lambda value: f"{value:.2f}"),
        "clustering_rounds": ("rounds to the final clusters", lambda value: f"{value:.3g}"),
    }
    title = _titled("Clusters at the end", rows)
    cells = tuple(
        (row["label"], *(_pair(row, c, text, rows, nothing=NOTHING) for c, (_, text) in texts.items())) for row in rows
    )
    return _printed(rows, title, ("method", *(name for name, _ in texts.values())), cells, 1)


def table(kind: str, given: Sequence[Given], target: float | None = None) -> Printed:
    """A table of a kind; raises `InputError` where there is none of that name, and as the kinds do."""
    return PrintedTableChoice(kind, printed_tables[kind].params())(given, target)


def _mean(column: str, values: Sequence[float]) -> dict[str, float]:
    mean, half = mean_and_interval(values)
    return {f"{column}_mean": mean, f"{column}_ci95": half}


def _pair(
    row: Mapping[str, Any],
    column: str,
    text: _Text,
    rows: Sequence[Mapping[str, Any]],
    reached: bool = True,
    nothing: str = UNKNOWN,
) -> str:
    mean, half = row[f"{column}_mean"], row[f"{column}_ci95"]
    if half <= 1e-9 * abs(mean):  # all seeds alike
        return text(mean)
    return nothing if reached and math.isnan(mean) else with_interval(mean, half, text, several=_several(rows))


def _several(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["seeds"] > 1 for row in rows)


def _titled(
    title: str, rows: Sequence[Mapping[str, Any]], means: str = "mean of the seeds ± half of the 95 % interval"
) -> str:
    """A title that says what the cells are: means, or figures of single runs."""
    return f"{title}; {means if _several(rows) else 'one seed each'}"


def _printed(
    rows: Sequence[dict[str, Any]],
    title: str,
    header: tuple[str, ...],
    cells: tuple[tuple[str, ...], ...],
    left: int,
    measure: Measure = ACCURACY,
) -> Printed:
    import pandas as pd

    right = (*(False for _ in range(left)), *(True for _ in header[left:]))
    return Printed(pd.DataFrame(rows).rename(columns=measure.named), (TextTable(title, header, cells, right),))
