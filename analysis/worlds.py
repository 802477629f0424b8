"""Reading the what-if of a study: one row for each replay, and all its evaluations as the table of a study, for figures.

``study.json`` says which replays there are; each has a file with what came of it (see ``docs/studies.md``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.quantities import bytes_text, cost_text, time_text
from analysis.runs import load_run
from analysis.studies import CLUSTERED, GROUPS, INDEX, StudyResults
from analysis.tables import LAST_ROUNDS, UNKNOWN, first_reach, with_budget
from analysis.texttable import TextTable
from emulator.errors import InputError, quote_all
from emulator.files import read_json
from emulator.measures import ACCURACY, Measure
from emulator.priced import CARBON, MONEY
from emulator.study.names import short_names, text_of
from emulator.study.schema import Claim

if TYPE_CHECKING:
    import pandas as pd

TOTALS = ("time_s", "bytes_total", "cost_s", "energy_j")
AGAINST = {"time_vs_run": "time_s", "bytes_vs_run": "bytes_total", "cost_vs_run": "cost_s"}
# What reaching a target took: how its column is called, where an evaluation has it, and the unit at the end of the name.
TO_TARGETS = (
    ("round", "round", ""), ("time", "time_s", "_s"), ("bytes", "bytes_total", ""), ("cost", "cost_s", "_s"),
    ("money", MONEY, ""), ("carbon", CARBON, "_g"),
)  # fmt: skip
WHOLE = ("replayed", "trained")  # states of replays whose every number is known
SHOWN = 25  # rows that a terminal shows


@dataclass(frozen=True, eq=False)
class WorldResults:
    """The what-if of a study.

    ``table`` has a row for each replay: ``run``, what runs and worlds differ in (``columns``), ``method``, ``seed``; its
    ``status`` (`WHOLE`, or ``needs training``); final and best accuracy, totals, and those as multiples of the run's own
    (``..._vs_run``); money and CO2 where there are prices; for each target what reaching it took; and the local trainings that
    were asked for, reused, trained and missing. What is not known is nan. ``study`` holds the evaluations of those that are known
    as a whole; None where there are none.
    """

    columns: tuple[str, ...]
    targets: tuple[float, ...]
    table: pd.DataFrame
    study: StudyResults | None
    missing: tuple[str, ...]  # replays without any result
    measure: Measure = ACCURACY


def load_worlds(folder: Path | str) -> WorldResults:
    """Reads the what-if in a study's folder; raises `InputError` where there is none or it is damaged."""
    import pandas as pd

    folder = Path(folder)
    about = read_json(folder / INDEX)
    if about is None or "whatif" not in about:
        raise InputError(f"'{folder}' holds no study with a what-if")
    try:
        whatif = about["whatif"]
        columns, targets = tuple(map(str, whatif["columns"])), tuple(map(float, whatif["targets"]))
        entries, name, target = list(whatif["replays"]), str(about["name"]), about["target"]
        stated = tuple(Claim.model_validate(each) for each in whatif.get("claims", ()))
        rows: list[dict[str, Any]] = []
        curves: list[pd.DataFrame] = []
        missing: list[str] = []
        originals: dict[str, pd.Series] = {}
        measures: set[Measure] = set()
        for entry in entries:
            said = read_json(folder / entry["file"])
            label = f"{entry['run']} in {entry['world']}"
            if said is None or said.get("key") != entry["key"]:
                missing.append(label)
                continue
            if entry["source"] not in originals:
                source = load_run(folder / entry["source"])
                measures.add(source.measure)
                originals[entry["source"]] = source.metrics.iloc[-1]
            measure = _only(measures)
            identity = {c: entry["values"][c] for c in dict.fromkeys((*columns, "method", "seed"))}
            metrics = pd.DataFrame(said["metrics"]).astype(float)
            rows.append(
                {"run": entry["run"], **identity} | _row(said, metrics, originals[entry["source"]], targets, measure)
            )
            if said["status"] in WHOLE:
                unjudged = {name: math.nan for name in (*GROUPS, *CLUSTERED) if name not in metrics}
                curve = metrics.assign(**unjudged).astype({"round": "int64"})
                at_end = said["summary"].get("last_rounds", {}).get(measure.name)
                curve[LAST_ROUNDS] = math.nan if at_end is None else float(at_end)
                if said["summary"].get("budget"):
                    curve = with_budget(curve, said["summary"]["budget"], measure)
                for i, (column, value) in enumerate({"run": label, **identity}.items()):
                    curve.insert(i, column, value)
                curves.append(curve)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the what-if in '{folder}' was written by another version: {error}") from None
    study = None
    if curves:
        first = targets[0] if targets else target
        table = pd.concat(curves, ignore_index=True)
        study = StudyResults(
            folder, name, columns, first, table, tuple(missing), _NoFolders(), stated, _planned(about, entries, columns),
            _only(measures),
        )  # fmt: skip
    return WorldResults(columns, targets, pd.DataFrame(rows), study, tuple(missing), _only(measures))


def _only(measures: set[Measure]) -> Measure:
    if len(measures) > 1:
        raise InputError(f"the runs are judged by different measures: {quote_all(sorted(m.name for m in measures))}")
    return next(iter(measures), ACCURACY)


def _planned(
    about: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """What all replays have in the columns, also those of runs that are not complete."""
    own = [c for c in columns if c not in about["columns"]]
    worlds = {entry["world"]: {c: entry["values"][c] for c in own} for entry in entries}
    runs = [{"variant": run["variant"], **run["point"]} for run in about["runs"]]
    every = [{**run, **world} for run in runs for world in worlds.values()]
    return (*every, *(dict(entry["values"]) for entry in entries))


class _NoFolders(dict[str, Path]):
    """Replays have no run folders, and figures that ask for them cannot be drawn."""

    def __missing__(self, run: str) -> Path:
        raise InputError("this kind of figure looks into run folders, and replays have none")


def _row(
    said: Mapping[str, Any], metrics: pd.DataFrame, original: pd.Series, targets: Sequence[float], measure: Measure
) -> dict[str, Any]:
    whole, counts, summary = said["status"] in WHOLE, said["trainings"], said["summary"]
    last: Any = metrics.iloc[-1] if counts["to_the_end"] and len(metrics) else None
    row: dict[str, Any] = {
        "status": said["status"],
        "rounds": math.nan if last is None else summary["rounds"],
        "stopped_by": "" if last is None else summary["stopped_by"],
        "final_accuracy": float(last[measure.name]) if whole else math.nan,
        "best_accuracy": measure.best(metrics[measure.name]) if whole else math.nan,
    }
    priced = [column for column in (MONEY, CARBON) if column in metrics]
    row |= {name: math.nan if last is None else float(last[name]) for name in (*TOTALS, *priced)}
    row |= {name: row[column] / original[column] if original[column] else math.nan for name, column in AGAINST.items()}
    for target in targets:
        reach = first_reach(metrics, target, measure) if whole else None
        row |= {
            f"{title}_to_{target:g}{unit}": math.nan if reach is None else float(reach[column])  # type: ignore[literal-required]
            for title, column, unit in TO_TARGETS
            if column not in (MONEY, CARBON) or column in priced
        }  # fmt: skip
    reused = counts["asked"] - counts["trained"] - counts["missing"]
    return row | {
        "trainings_asked": counts["asked"],
        "trainings_reused": reused,
        "trainings_trained": counts["trained"],
        "trainings_missing": counts["missing"],
    }


def as_text(results: WorldResults) -> str:
    """The replays for a terminal: what each took, how that compares with the run, and how much was reused."""
    shorter = short_names(results.columns)
    records = [{str(k): v for k, v in row.items()} for row in results.table.to_dict("records")]
    seeds = len({row["seed"] for row in records}) > 1
    one = len({row.get("source") for row in records}) == 1
    columns = [c for c in results.columns if c != "source" or not one]
    who = [*columns, *(["seed"] if seeds else [])] or ["method"]
    header = (*(shorter.get(c, c) for c in who), results.measure.called, "time", "", "data", "", "cost", "", "reused")
    rows = []
    for row in records[:SHOWN]:
        cells = [text_of(row[c]) for c in who]
        cells.append(UNKNOWN if math.isnan(row["final_accuracy"]) else results.measure.text(row["final_accuracy"]))
        for (against, column), text in zip(AGAINST.items(), (time_text, bytes_text, cost_text), strict=True):
            known = not math.isnan(row[column])
            cells += [text(row[column]) if known else UNKNOWN, change_text(row[against])]
        cells.append(f"{row['trainings_reused']:,} of {row['trainings_asked']:,}")
        rows.append(tuple(cells))
    right = (*(False for _ in who), *(True for _ in header[len(who) :]))
    title = "Replays, and how their totals compare with those of the runs"
    table, more = TextTable(title, header, tuple(rows), right).text(), len(records) - SHOWN
    return f"{table}\n... and {more} more\n" if more > 0 else f"{table}\n"


def change_text(ratio: float) -> str:
    """A multiple of the original as a change: ``+12 %``, ``-3.4 %``, ``x 25``; nothing where it is not known."""
    if math.isnan(ratio):
        return ""
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "="
    if ratio >= 10:
        return f"x {ratio:.3g}"
    return f"{change:+.0f} %" if abs(change) >= 9.95 else f"{change:+.1f} %"
