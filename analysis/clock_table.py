"""The errors of a clock (`analysis.clock_errors`) as a table for people, and as one for programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from analysis import clock_errors
from analysis.clock_errors import ClockErrors
from analysis.printed import Printed
from analysis.quantities import bytes_text, cost_text, time_text
from analysis.series import Given, as_series
from analysis.tables import UNKNOWN
from analysis.texttable import TextTable
from emulator.contracts.files import printed_tables
from emulator.errors import InputError
from emulator.registry import NoParams

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 20  # that a table for people shows
_TEXT = {"s": time_text, "bytes": bytes_text, "client-s": cost_text}
# The columns of the table for programs. Errors are shares of the second run's figures.
COLUMNS = (
    "section", "what", "unit", "first", "second", "error", "error_ci95", "error_absolute", "matched", "only_first", "only_second",
    "rows_first", "rows_second",
    "pairs", "same_order", "swapped", "tied", "kendall_tau", "turns", "same_first",
)  # fmt: skip


@printed_tables.register("clock")
def clock(given: Sequence[Given], target: float | None, params: NoParams) -> Printed:
    """How far the clock of an emulated run is off a measured one, or off that of another world: phases, rounds, order, totals."""
    return printed(of_two(given))


def of_two(given: Sequence[Given]) -> ClockErrors:
    """The errors of two runs; raises `InputError` where there are not two, and as `clock_errors.compare`."""
    runs = [run for each in as_series(given) for run in each.runs]
    if len(runs) != 2:
        raise InputError(f"clocks are compared of two runs, an emulated and a measured one; here are {len(runs)}")
    return clock_errors.compare(*runs)


def printed(errors: ClockErrors) -> Printed:
    """The errors as tables: for people those of phases, rounds (the first ones, where there are many) and totals."""
    return Printed(_data(errors), (_phases(errors), _rounds(errors), _totals(errors)))


def _phases(errors: ClockErrors) -> TextTable:
    one, other = errors.names
    header = (
        "phase", "in both", f"only {one}", f"only {other}", f"{one}, mean", f"{other}, mean", "error", "each is off by",
    )  # fmt: skip
    rows = tuple(
        (
            row["phase"], *(f"{row[c]:,}" for c in ("matched", "only_first", "only_second")),
            *(_time(row[c]) for c in ("first_s", "second_s")), _error(row["error"], row["ci95"]), _share(row["absolute"]),
        )
        for row in errors.phases.to_dict("records")
    )  # fmt: skip
    title = f"Phases; errors are ({one} - {other}) / {other} ± half of the 95 % interval of their mean over rounds"
    return TextTable(title, header, rows, (False, *(True for _ in header[1:])))


def _rounds(errors: ClockErrors) -> TextTable:
    one, other = errors.names
    header = (
        "round",
        one,
        other,
        "error",
        "arrived in both",
        "in one alone",
        "same order",
        "Kendall's tau",
        "same first",
    )
    arrivals: dict[int, Any] = {row["round"]: row for row in errors.arrivals.to_dict("records")}
    rows = [
        (
            str(row["round"]), _time(row["first_s"]), _time(row["second_s"]), _error(row["error"]),
            *_arrived(arrivals.get(row["round"])),
        )
        for row in errors.rounds.head(ROUNDS).to_dict("records")
    ]  # fmt: skip
    mean, half, absolute = errors.round_error
    known = errors.rounds.dropna()
    every = _together(errors.arrivals)
    rows.append(
        ("all", _time(known["first_s"].mean()), _time(known["second_s"].mean()), _error(mean, half), *_arrived(every))
    )
    left = len(errors.rounds) - ROUNDS
    cut = f"; the first {ROUNDS} of {len(errors.rounds)}" if left > 0 else ""
    title = (
        f"Rounds, and the order in which what clients sent came to their servers{cut}. A round's length is off by "
        f"{_share(absolute)} in the mean"
    )
    return TextTable(title, header, tuple(rows), (False, *(True for _ in header[1:])))


def _together(arrivals: pd.DataFrame) -> dict[str, Any] | None:
    """The arrivals of all rounds as one; tau is the mean over rounds."""
    if arrivals.empty:
        return None
    sums: dict[str, Any] = {str(name): values.sum() for name, values in arrivals.items()}
    return sums | {"tau": float(arrivals["tau"].mean())}


def _arrived(row: dict[str, Any] | None) -> tuple[str, ...]:
    if row is None:
        return (UNKNOWN,) * 5
    apart = row["same"] + row["swapped"]
    order = f"{100 * row['same'] / apart:.1f} % of {apart:,.0f} pairs" if apart else "" if row["tied"] else "no pairs"
    order += f"{', ' if apart else 'all '}{row['tied']:,.0f} tied" if row["tied"] else ""
    tau = UNKNOWN if math.isnan(row["tau"]) else f"{row['tau']:.3f}"
    return (
        f"{row['matched']:,.0f}", f"{row['only_first'] + row['only_second']:,.0f}", order, tau,
        f"{row['same_first']:,.0f} of {row['turns']:,.0f}",
    )  # fmt: skip


def _totals(errors: ClockErrors) -> TextTable:
    rows = [
        (row["what"], *(_TEXT[row["unit"]](row[c]) for c in ("first", "second")), _error(row["error"]))
        for row in errors.totals.to_dict("records")
    ]
    title = "Totals of the whole runs"
    if errors.first.training and errors.second.training:
        count, apart = clock_errors.largest_difference(errors.first, errors.second)
        measure = errors.first.measure.called
        same = "is the same to the last bit" if apart == 0 else f"differs by {apart:.3g} at most"
        title += f"; the {measure} {same} in {count} evaluations" if count else f"; no {measure} of the same round"
    return TextTable(title, ("", *errors.names, "error"), tuple(rows), (False, True, True, True))


def _data(errors: ClockErrors) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(_lines(errors)), columns=list(COLUMNS))


def _lines(errors: ClockErrors) -> Iterator[dict[str, Any]]:
    for row in errors.phases.to_dict("records"):
        yield {
            "section": "phase", "what": row["phase"], "unit": "s", "first": row["first_s"], "second": row["second_s"],
            "error": row["error"], "error_ci95": row["ci95"], "error_absolute": row["absolute"],
            **{c: row[c] for c in ("matched", "only_first", "only_second", "rows_first", "rows_second")},
        }  # fmt: skip
    for row in errors.rounds.to_dict("records"):
        yield {
            "section": "round", "what": row["round"], "unit": "s", "first": row["first_s"], "second": row["second_s"],
            "error": row["error"],
        }  # fmt: skip
    known = errors.rounds.dropna()
    mean, half, absolute = errors.round_error
    yield {
        "section": "rounds", "what": "all", "unit": "s", "first": known["first_s"].mean(), "second": known["second_s"].mean(),
        "error": mean, "error_ci95": half, "error_absolute": absolute, "matched": len(known),
        "only_first": int(errors.rounds["second_s"].isna().sum()), "only_second": int(errors.rounds["first_s"].isna().sum()),
    }  # fmt: skip
    for row in errors.arrivals.to_dict("records"):
        yield {
            "section": "arrivals", "what": row["round"], "same_order": row["same"], "kendall_tau": row["tau"],
            **{
                c: row[c]
                for c in ("matched", "only_first", "only_second", "pairs", "swapped", "tied", "turns", "same_first")
            },
        }  # fmt: skip
    for row in errors.totals.to_dict("records"):
        yield {"section": "total", **{str(name): value for name, value in row.items()}}


def _time(seconds: float) -> str:
    return UNKNOWN if math.isnan(seconds) else time_text(seconds)


def _share(share: float) -> str:
    return UNKNOWN if math.isnan(share) else f"{100 * share:.1f} %"


def _error(share: float, half: float = math.nan) -> str:
    """``+2.3 %``, ``-0.4 ± 0.2 %``."""
    if math.isnan(share):
        return UNKNOWN
    about = "" if math.isnan(half) else f" ± {100 * half:.1f}"
    return f"{100 * share:+.1f}{about} %"
