"""Tables over runs: what reaching an accuracy took, and which accuracy a budget buys.

Nothing is interpolated: only evaluations that took place count. A model is known to be as good as it was
tested, when it was tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from analysis.quantities import (
    AXES,
    axis_named,
    bytes_text,
    carbon_text,
    charged_in,
    cost_text,
    currency_of,
    energy_text,
    money_text,
    time_text,
)
from analysis.runs import Run, check_trained, measure_of, unique_labels
from analysis.texttable import TextTable
from emulator.errors import InputError
from emulator.measures import ACCURACY, Measure
from emulator.priced import CARBON, CURRENCY, MONEY
from emulator.standing import SPENT, last_within

if TYPE_CHECKING:
    import pandas as pd

NOT_REACHED = "not reached"
LAST_ROUNDS = "accuracy_last_rounds"  # mean over evaluations at the end
AT_BUDGET = "accuracy_at_budget"  # of the last evaluation within a budget
UNKNOWN = "unknown"
NO_EVALUATION = "no evaluation"
BUDGET_AXES = (
    "cost",
    "time",
    "bytes",
)  # where the runs are set on an equal footing unless the caller says otherwise


class Reach(TypedDict):
    """The evaluation at which an accuracy was reached, counted from the start. Unknown energy is nan."""

    round: int
    time_s: float
    bytes_total: float
    cost_s: float
    energy_j: float
    money: NotRequired[float]  # where there are prices
    carbon_g: NotRequired[float]


def first_reach(metrics: pd.DataFrame, target: float, measure: Measure = ACCURACY) -> Reach | None:
    """The first evaluation that is as good as ``target`` (of accuracies, a share) or better, or None if there is none.

    Raises `InputError` if it can be no target, such as an accuracy that is not a share from 0 to 1.
    """
    goal = measure.check(target)
    reached = measure.sign * metrics[measure.name].to_numpy(dtype=float) >= measure.sign * goal
    if not reached.any():
        return None
    row = metrics.iloc[int(reached.argmax())]
    found = Reach(
        round=int(row["round"]),
        time_s=float(row["time_s"]),
        bytes_total=float(row["bytes_total"]),
        cost_s=float(row["cost_s"]),
        energy_j=float(row["energy_j"]),
    )
    for column in (MONEY, CARBON):
        if column in row:
            found[column] = float(row[column])  # type: ignore[literal-required]
    return found


def at_budget(metrics: pd.DataFrame, axis: str, budget: float, measure: Measure = ACCURACY) -> float:
    """The best accuracy (a share), or other measure, among the evaluations that took at most ``budget``; nan if there is none.

    ``axis`` is ``time`` (seconds), ``bytes``, ``cost`` (client-seconds), ``energy`` (joules), ``money``,
    ``carbon`` (grams) or ``round``. Raises `InputError` for another axis or a budget that is negative or no number.
    """
    column = axis_named(axis).column
    if column not in metrics:
        axis_named(axis).check_known(metrics)
    if not budget >= 0:
        raise InputError(f"a budget of {axis} is a number from 0 up, not {budget:g}")
    return measure.best(metrics.loc[metrics[column] <= budget, measure.name].to_list())


def accuracy_at_budget(run: Run) -> float:
    """The accuracy (or other measure) of a run's last evaluation within the budget of its scenario; nan where there is none."""
    return float(with_budget(run.metrics, run.budget, run.measure)[AT_BUDGET].iloc[0]) if run.budget else math.nan


def with_budget(metrics: pd.DataFrame, limits: Mapping[str, float], measure: Measure = ACCURACY) -> pd.DataFrame:
    """The evaluations of one run with a column `AT_BUDGET`: the accuracy of the last one within all ``limits``, or nan.

    ``limits`` are in SI units, by the names in `emulator.standing.SPENT`.
    """
    columns = [measure.name, *SPENT.values()]
    last = last_within(metrics.reindex(columns=columns).to_dict("records"), limits)  # type: ignore[type-var]
    return metrics.assign(**{AT_BUDGET: math.nan if last is None else float(last[measure.name])})


def common_target(runs: Sequence[Run]) -> float:
    """The best accuracy that all runs reached, rounded down to a whole per cent, as a share; or so of another measure."""
    measure = measure_of(runs)
    worst = min((measure.best(run.judged) for run in runs), key=lambda value: measure.sign * value)
    return measure.whole(worst)


def common_budget(runs: Sequence[Run], axis: str) -> float:
    """The most of ``axis`` that every run has spent: the smallest final value over the runs."""
    column = axis_named(axis).column
    return min(float(run.metrics[column].iloc[-1]) for run in runs)


def compare(
    runs: Sequence[Run], target: float | None = None, budget: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """A row for each run: how it ended, what the target accuracy took, and its accuracy at equal budgets.

    Where runs are judged by another measure, that takes the place of ``accuracy`` in the names of columns (``final_mae``).
    ``target`` is a share, by default `common_target`. ``budget`` maps axes (see `at_budget`) to budgets, by default
    `common_budget` for cost, time and bytes, and for money and CO2 where all runs know them. Both stand in columns of their own
    (``target_accuracy``, ``budget_cost_s`` and so on), so that the table says what it compares. `AT_BUDGET` is the accuracy at
    the budget of the run's own scenario, where one has any. Where the target is not reached, ``round_to_target`` and the others
    are missing (NA); so is an accuracy at a budget within which nothing was evaluated. Raises `InputError` if there are no runs,
    a run has no accuracies, money is in several currencies, or a value makes no sense.
    """
    import pandas as pd

    if not runs:
        raise InputError("give at least one run to compare")
    check_trained(runs)
    measure = measure_of(runs)
    goal = common_target(runs) if target is None else measure.check(target)
    charged = charged_in(run.metrics for run in runs)
    priced = [axis for axis, column in (("money", MONEY), ("carbon", CARBON)) if all(column in r.metrics for r in runs)]
    budgets = {a: common_budget(runs, a) for a in (*BUDGET_AXES, *priced)} if budget is None else dict(budget)
    rows: list[dict[str, Any]] = []
    for run, label in zip(runs, unique_labels(runs), strict=True):
        reach = first_reach(run.metrics, goal, measure)
        row: dict[str, Any] = {
            "label": label,
            "seed": run.seed,
            "status": run.status,
            "final_accuracy": float(run.judged.iloc[-1]),
            "best_accuracy": measure.best(run.judged),
            LAST_ROUNDS: run.accuracy_last_rounds,
            **({AT_BUDGET: accuracy_at_budget(run)} if run.budget else {}),
            "target_accuracy": goal,
            "round_to_target": reach["round"] if reach else None,
            "time_to_target_s": reach["time_s"] if reach else math.nan,
            "bytes_to_target": reach["bytes_total"] if reach else math.nan,
            "cost_to_target_s": reach["cost_s"] if reach else math.nan,
            "energy_to_target_j": reach["energy_j"] if reach else math.nan,
            **{TO_TARGET_PRICED[c]: reach.get(c, math.nan) if reach else math.nan for c in charged},
            **({CURRENCY: run.metrics[CURRENCY].iloc[0]} if CURRENCY in run.metrics else {}),
        }
        for axis, limit in budgets.items():
            row[f"accuracy_at_{axis}"] = at_budget(run.metrics, axis, limit, measure)
            row[_budget_column(axis)] = float(limit)
        rows.append(row)
    table = pd.DataFrame(rows).astype({"seed": "Int64", "round_to_target": "Int64"})
    return table.rename(columns=measure.named)


def as_text(table: pd.DataFrame, measure: Measure = ACCURACY) -> str:
    """A table of `compare` for a terminal: three small tables under each other, in units for people."""
    return "\n\n".join(section.text() for section in _sections(table, measure)) + "\n"


def as_markdown(table: pd.DataFrame, measure: Measure = ACCURACY) -> str:
    """A table of `compare` in Markdown: the same three small tables as `as_text`."""
    return "\n\n".join(section.markdown() for section in _sections(table, measure)) + "\n"


def as_csv(table: pd.DataFrame) -> str:
    """A table of `compare` as CSV, all columns in SI units and in full precision.

    A target that was not reached reads ``not reached`` (for pandas: ``read_csv(..., na_values="not
    reached")``); what is not known is left empty.
    """
    cells = table.astype(object).where(table.notna(), None)
    missed = table["round_to_target"].isna()
    for column in (c for c in (*_TO_TARGET, *TO_TARGET_PRICED.values()) if c in cells):
        cells.loc[missed, column] = NOT_REACHED
    return str(cells.to_csv(index=False, lineterminator="\n"))


def charges(runs: Sequence[Run], names: Sequence[str] | None = None) -> pd.DataFrame:
    """A row for each run, also without training: its rounds, and the time, bytes, cost and energy that they took.

    ``names`` are what the runs are called, by default `unique_labels`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for run, name in zip(runs, names or unique_labels(runs), strict=True):
        last = run.metrics.iloc[-1]
        rows.append({"label": name, "seed": run.seed, "status": run.status, "round": int(last["round"])})
        rows[-1] |= {column: float(last[column]) for column in (*_CHARGES, *charged_in([run.metrics]))}
        rows[-1] |= {CURRENCY: last[CURRENCY]} if CURRENCY in last else {}
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def charges_as_text(table: pd.DataFrame) -> str:
    """A table of `charges` for a terminal."""
    charged = _CHARGES | charged_in([table])
    rows = [
        (
            row["label"],
            row["status"],
            f"{row['round']:.0f}",
            *(UNKNOWN if _missing(row[c]) else text(row[c]) for c, (_, text) in charged.items()),
        )
        for row in table.to_dict("records")
    ]
    header = ("run", "status", "rounds", *(title for title, _ in charged.values()))
    return TextTable("What it took", header, tuple(rows), (False, False, *(True for _ in header[2:]))).text() + "\n"


_CHARGES: dict[str, tuple[str, Callable[[float], str]]] = {
    "time_s": ("time", time_text),
    "bytes_total": ("data", bytes_text),
    "cost_s": ("cost", cost_text),
    "energy_j": ("energy", energy_text),
}
_TO_TARGET: dict[str, tuple[str, Callable[[float], str]]] = {
    "round_to_target": ("round", lambda value: f"{value:.0f}"),
    "time_to_target_s": ("time", time_text),
    "bytes_to_target": ("data", bytes_text),
    "cost_to_target_s": ("cost", cost_text),
    "energy_to_target_j": ("energy", energy_text),
}
TO_TARGET_PRICED = {MONEY: "money_to_target", CARBON: "carbon_to_target_g"}
_BUDGET_TEXT: dict[str, Callable[[float], str]] = {
    "cost": cost_text,
    "time": time_text,
    "bytes": bytes_text,
    "energy": energy_text,
    "carbon": carbon_text,
    "round": lambda value: f"round {value:.0f}",
}


def _sections(table: pd.DataFrame, measure: Measure) -> list[TextTable]:
    """The parts of a comparison, each narrow enough for a terminal, with the figures written for people."""
    usual = ("final_accuracy", "best_accuracy", "target_accuracy", LAST_ROUNDS, AT_BUDGET)
    table = table.rename(columns={measure.named(c): c for c in (*usual, *(f"accuracy_at_{axis}" for axis in AXES))})
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    more = {LAST_ROUNDS: "last rounds", AT_BUDGET: "at its budget"}
    more = {column: name for column, name in more.items() if column in table.columns and table[column].notna().any()}
    ends = TextTable(
        measure.heading,
        ("run", "seed", "status", "final", *more.values(), "best"),
        tuple(
            (
                row["label"],
                UNKNOWN if _missing(row["seed"]) else str(row["seed"]),
                row["status"],
                measure.text(row["final_accuracy"]),
                *(_budget_text(row[column], measure) for column in more),
                measure.text(row["best_accuracy"]),
            )
            for row in rows
        ),
        (False, True, False, True, True, *(True for _ in more)),
    )
    charged = charged_in([table.rename(columns={name: c for c, name in TO_TARGET_PRICED.items()})])
    taken = _TO_TARGET | {TO_TARGET_PRICED[column]: how for column, how in charged.items()}
    target = TextTable(
        f"To reach {measure.goal_text(rows[0]['target_accuracy'])}",
        ("run", *(title for title, _ in taken.values())),
        tuple((row["label"], *(_reach_text(row, c, text) for c, (_, text) in taken.items())) for row in rows),
        (False, *(True for _ in taken)),
    )
    axes = [axis for axis in AXES if f"accuracy_at_{axis}" in table.columns]
    if not axes:
        return [ends, target]
    texts = _BUDGET_TEXT | {"money": partial(money_text, currency=currency_of([table]))}
    budgets = TextTable(
        f"Best {measure.called} within equal budgets",
        ("run", *(texts[axis](rows[0][_budget_column(axis)]) for axis in axes)),
        tuple((row["label"], *(_budget_text(row[f"accuracy_at_{axis}"], measure) for axis in axes)) for row in rows),
        (False, *(True for _ in axes)),
    )
    return [ends, target, budgets]


def _missing(value: Any) -> bool:
    """Whether a cell is empty: None, nan or pandas' NA, which alone of the three cannot be compared."""
    import pandas as pd

    return bool(pd.isna(value))


def _reach_text(row: Mapping[str, Any], column: str, text: Callable[[float], str]) -> str:
    if _missing(row["round_to_target"]):
        return NOT_REACHED
    return UNKNOWN if _missing(row[column]) else text(row[column])


def _budget_text(value: float, measure: Measure) -> str:
    return NO_EVALUATION if _missing(value) else measure.text(value)


def _budget_column(axis: str) -> str:
    units = {"cost": "_s", "time": "_s", "energy": "_j", "carbon": "_g"}
    return f"budget_{axis}{units.get(axis, '')}"
