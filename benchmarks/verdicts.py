"""The figures of docs/verdicts.md and docs/papers.md: what finished studies gave, and what became of their claims.

    python benchmarks/verdicts.py studies/visit-middle-tables [studies/...]
    python benchmarks/verdicts.py --lines final_accuracy round_to_target -- studies/*
    python benchmarks/verdicts.py --check docs/papers.md studies/*

The first prints Markdown tables for docs/verdicts.md. ``--quantity accuracy_clusters`` lists that figure of every seed instead of
the final accuracy (of a study with a what-if: of its worlds). The second prints a line for each study and quantity, as
docs/papers.md has them; ``accuracy@cost_s=300`` is the accuracy of the last evaluation within so much, ``cost_s@accuracy=0.9``
what was spent when it was first reached. ``--pair HiCFL IFCA --lines accuracy_clusters@time_s=60`` prints by how much one is
ahead of the other there, on pairs of runs with the same seed. The third holds a page to studies: it says which lines of each
the page has, which studies it has no line of, and which cells of its tables have a ± that is in no line of any of them; it ends
with 1 where there are such. ``--lines`` adds quantities such as ``round@accuracy=0.68``. The studies are not run: ``hfl study
NAME`` does that.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from analysis.claims import table_of
from analysis.quantities import bytes_text, energy_text, time_text
from analysis.seeds import mean_and_interval
from analysis.studies import StudyResults, load_study, with_interval
from analysis.texttable import TextTable
from analysis.worlds import load_worlds
from emulator.errors import InputError
from emulator.study.names import short_names, text_of

Text = Callable[[float], str]
SPENT: dict[str, tuple[str, Text]] = {
    "time_s": ("time", time_text), "bytes_total": ("data", bytes_text), "energy_j": ("energy", energy_text),
}  # fmt: skip
TO_TARGET: dict[str, tuple[str, Text]] = {
    "round_to_target": ("rounds", lambda value: f"{value:.3g}"), "time_to_target_s": ("time", time_text),
    "bytes_to_target": ("data", bytes_text), "energy_to_target_j": ("energy", energy_text),
}  # fmt: skip


def by_seed(results: StudyResults, quantity: str) -> TextTable:
    """A row for each variant and grid point: the figure of every seed, its mean, and what the whole runs took."""
    runs, summary = results.runs, results.summary
    columns = list(results.columns) or ["method"]
    tuned = [c for c in summary.columns if c.startswith("tuned_")]
    names = short_names(columns)
    rows = []
    for row in summary.to_dict("records"):
        own = runs
        for column in columns:
            own = own[own[column] == row[column]]
        figures = own.sort_values("seed")[quantity].to_list()
        rows.append(
            (
                *(text_of(row[c]) for c in columns),
                *(text_of(row[c]) for c in tuned),
                ", ".join("–" if math.isnan(f) else _figure(quantity)(f) for f in figures),
                with_interval(row[f"{quantity}_mean"], row[f"{quantity}_ci95"], _figure(quantity), "–"),
                *(text(row[f"{c}_mean"]) for c, (_, text) in SPENT.items()),
            )
        )
    header = (
        *(names.get(c, c) for c in columns), *(c.removeprefix("tuned_").replace("_", " ") for c in tuned),
        "by seed", "mean", *(name for name, _ in SPENT.values()),
    )  # fmt: skip
    title = f"{quantity.replace('_', ' ').capitalize()}, and what whole runs took"
    return TextTable(title, header, tuple(rows), (False,) * len(header))


def to_target(results: StudyResults) -> TextTable:
    """What reaching the study's target took, over the seeds that reached it."""
    columns = list(results.columns) or ["method"]
    rows = tuple(
        (
            *(text_of(row[c]) for c in columns),
            f"{row['reached']} of {row['seeds']}",
            *(
                with_interval(row[f"{c}_mean"], row[f"{c}_ci95"], text, "not reached")
                for c, (_, text) in TO_TARGET.items()
            ),
        )
        for row in results.summary.to_dict("records")
    )
    header = (*(short_names(columns).get(c, c) for c in columns), "reached", *(name for name, _ in TO_TARGET.values()))
    return TextTable(f"To reach {100 * (results.target or 0):.4g} %", header, rows, (False,) * len(header))


def line(results: StudyResults, quantity: str) -> str:
    """The means of a study in one line: ``A 94.5 ± 0.8, B 92.0 ± 1.1 %``, by what is varied beside the first column."""
    first, *rest = list(results.columns) or ["method"]
    names, parts = short_names(results.columns), dict[str, list[str]]()
    for row in (_read_off(results, quantity) if "@" in quantity else results.summary).to_dict("records"):
        where = ", ".join(f"{names[c]} {text_of(row[c])}" for c in rest)
        mean, half = row[f"{quantity}_mean"], row[f"{quantity}_ci95"]
        figure = with_interval(mean, half, _figure(quantity), "never").removesuffix(" %")
        counted = (
            "reached"
            if "@" in quantity or quantity in TO_TARGET
            else "clustered"
            if quantity == "clustering_rounds"
            else "seeds"
        )
        if 0 < row[counted] < row["seeds"]:
            figure += f" in {row[counted]}"
        named = text_of(row[first]) if first in ("variant", "method") else f"{names[first]} {text_of(row[first])}"
        parts.setdefault(where, []).append(f"{named} {figure}")
    unit = " %" if "accuracy" in quantity.partition("@")[0] else ""
    seeds = sorted({int(row["seeds"]) for row in results.summary.to_dict("records")})
    said = "; ".join(
        f"{where}: {', '.join(cells)}{unit}" if where else ", ".join(cells) + unit for where, cells in parts.items()
    )
    return f"{said} ({'/'.join(map(str, seeds))} seeds)"


def _at(curve: pd.DataFrame, wanted: str, at: str, limit: float) -> list[float]:
    within = curve[curve[at] <= limit].tail(1) if wanted.startswith("accuracy") else curve[curve[at] >= limit].head(1)
    return list(within[wanted])


def difference(results: StudyResults, quantity: str, first: str, second: str) -> str:
    """By how much one is ahead of another on pairs of runs with the same seed, at each point: mean and its 95 % interval."""
    wanted, at, limit = quantity.replace("@", "=").split("=")
    column = next(c for c in results.columns if {first, second} <= set(results.table[c].map(text_of)))
    rest = [c for c in results.columns if c != column]
    said = []
    for _, own in results.table.groupby(rest, sort=False) if rest else [("", results.table)]:
        pairs = [{text_of(n): c for n, c in pair.groupby(column)} for _, pair in own.groupby("seed")]
        ahead = [
            100 * (_at(p[first], wanted, at, float(limit))[0] - _at(p[second], wanted, at, float(limit))[0])
            for p in pairs
        ]
        mean, half = mean_and_interval(ahead)
        where = ", ".join(f"{short_names(results.columns)[c]} {text_of(own[c].iloc[0])}" for c in rest)
        said.append(f"{where}: {mean:.1f} points ({mean - half:.1f} to {mean + half:.1f})".removeprefix(": "))
    return f"{first} over {second}: {'; '.join(said)}"


def _read_off(results: StudyResults, quantity: str) -> pd.DataFrame:
    """The means over seeds of one column where another is first reached, or of accuracy at the last evaluation within a limit."""
    wanted, _, (at, _, limit) = (part.partition("=") if "=" in part else part for part in quantity.partition("@"))
    columns, rows = list(results.columns) or ["method"], []
    for _, own in results.table.groupby(columns, sort=False):
        values = []
        for _, curve in own.groupby("seed"):
            values += _at(curve, wanted, at, float(limit))
        mean, half = mean_and_interval(values)
        rows.append(
            {c: own[c].iloc[0] for c in columns}
            | {
                f"{quantity}_mean": mean,
                f"{quantity}_ci95": half,
                "seeds": own["seed"].nunique(),
                "reached": len(values),
            }
        )
    return pd.DataFrame(rows)


def quantities_of(results: StudyResults) -> list[str]:
    """What a study has means of."""
    means = [c for c in results.summary.columns if c.endswith("_mean") and results.summary[c].notna().any()]
    return [c.removesuffix("_mean") for c in means]


def held_to(
    page: str, studies: Iterable[StudyResults], further: Sequence[str] = ()
) -> tuple[dict[str, list[str]], list[str]]:
    """The quantities whose lines a page has, by study; and the cells of its tables with a ± that is in no such line."""
    found: dict[str, list[str]] = {}
    lines = set[str]()
    for results in studies:
        own = {q: line(results, q) for q in [*quantities_of(results), *(q for q in further if "@" in q)]}
        found[results.name] = [q for q, text in own.items() if text in page]
        lines |= set(own.values())
    for text in sorted(lines, key=len, reverse=True):
        page = page.replace(text, "")
    cells = [cell.strip() for row in page.splitlines() if row.startswith("|") for cell in row.split("|")]
    return found, [cell for cell in cells if "±" in cell]


def _figure(quantity: str) -> Text:
    if "accuracy" in quantity.partition("@")[0]:
        return lambda value: f"{100 * value:.1f} %"
    return bytes_text if "bytes" in quantity else lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--quantity", default="final_accuracy", help="a column of summary.csv without its _mean")
    parser.add_argument("--lines", nargs="+", metavar="QUANTITY", help="print a line for each of these, and no tables")
    parser.add_argument("--pair", nargs=2, metavar="NAME", help="print by how much the first is ahead in --lines")
    parser.add_argument("--check", type=Path, metavar="PAGE", help="look for the lines in a page")
    given = parser.parse_args()
    if given.check is not None:
        found, strays = held_to(
            given.check.read_text(encoding="utf-8"), map(load_study, given.studies), given.lines or ()
        )
        for name, quantities in found.items():
            print(f"{name}: {', '.join(quantities) or f'no line of it is in {given.check}'}")
        print("\n".join(f"in no line of these studies: {cell}" for cell in strays))
        raise SystemExit(bool(strays) or not all(found.values()))
    for folder in given.studies:
        if given.pair:
            print("\n".join(f"{q}: {difference(load_study(folder), q, *given.pair)}" for q in given.lines))
        elif given.lines:
            results = load_study(folder)
            known = [q for q in given.lines if "@" in q or q in quantities_of(results)]
            print("\n".join(f"{results.name}, {q}: {line(results, q)}" for q in known))
        else:
            _tables(folder, given.quantity)


def _tables(folder: Path, quantity: str) -> None:
    found = [load_study(folder)]
    with contextlib.suppress(InputError):  # of a study without a what-if
        found += [study] if (study := load_worlds(folder).study) is not None else []
    for results in found:
        print(f"### {results.name}, {', '.join(results.columns)}\n")
        print(by_seed(results, quantity if quantity in quantities_of(results) else "final_accuracy").markdown() + "\n")
        if results.target is not None:
            print(to_target(results).markdown() + "\n")
        if results.stated:
            print(table_of(results.claims).markdown() + "\n")


if __name__ == "__main__":
    main()
