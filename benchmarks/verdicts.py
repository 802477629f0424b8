"""The tables of docs/verdicts.md and docs/papers.md: what each seed of a finished study gave, and what became of its claims.

    python benchmarks/verdicts.py studies/visit-middle-tables [studies/...]

Prints Markdown. ``--quantity accuracy_clusters`` lists that figure of every seed instead of the final accuracy (of a study with a
what-if: of its worlds). The studies are not run: ``hfl study NAME`` does that.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable
from pathlib import Path

from analysis.claims import table_of
from analysis.quantities import bytes_text, energy_text, time_text
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


def _figure(quantity: str) -> Text:
    return (lambda value: f"{100 * value:.1f} %") if "accuracy" in quantity else (lambda value: f"{value:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--quantity", default="final_accuracy", help="a column of summary.csv without its _mean")
    given = parser.parse_args()
    for folder in given.studies:
        found = [load_study(folder)]
        with contextlib.suppress(InputError):  # of a study without a what-if
            found += [study] if (study := load_worlds(folder).study) is not None else []
        for results in found:
            print(f"### {results.name}, {', '.join(results.columns)}\n")
            known = f"{given.quantity}_mean" in results.summary
            print(by_seed(results, given.quantity if known else "final_accuracy").markdown() + "\n")
            if results.target is not None:
                print(to_target(results).markdown() + "\n")
            if results.stated:
                print(table_of(results.claims).markdown() + "\n")


if __name__ == "__main__":
    main()
