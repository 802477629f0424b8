"""Reading study folders: all evaluations of all runs as one table, and means over seeds.

A study folder holds a run folder for each run and ``study.json``, which says what the runs are. Only complete runs count; runs
that the study does not name (any more) are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from analysis.cluster_history import CLUSTER_METRICS, clustering_rounds, weights_kept
from analysis.drops import DROP, with_drops
from analysis.quantities import accuracy_text, bytes_text, charged_in, cost_text, currency_of, time_text
from analysis.runs import COLUMNS, COMPLETE, GROUPINGS, Run, load_run, measure_of
from analysis.seeds import mean_and_interval
from analysis.tables import AT_BUDGET, LAST_ROUNDS, NOT_REACHED, TO_TARGET_PRICED, first_reach, with_budget
from analysis.texttable import TextTable
from emulator.errors import InputError
from emulator.files import read_json, replacing, write_text
from emulator.measures import ACCURACY, Measure
from emulator.priced import CURRENCY
from emulator.scenario.budget import Budget
from emulator.study.names import FAILURES, short_names, text_of
from emulator.study.schema import Claim

if TYPE_CHECKING:
    import pandas as pd

INDEX = "study.json"
CLAIMS = "claims.csv"

NOTHING = "–"  # of a method that makes no clusters, or a run without a baseline
SHOWN = 5  # runs that a message names

FINAL = ("time_s", "bytes_total", "cost_s", "energy_j")  # of the last evaluation
# Of the last formation of groups: what the study calls it, and its column in groupings.csv.
GROUPS = {
    "group_size": "mean_size", "group_cov": "mean_cov", "intra_cs": "intra_cs", "inter_cs": "inter_cs", "vts": "vts",
}  # fmt: skip
# Of clustered learning: metrics of the last evaluation, and what the run folder tells of its clusters.
CLUSTERED = (*CLUSTER_METRICS, "clustering_rounds", "weights_kept")
# Of the last evaluation, where clients fine-tune before a test (evaluate.personal).
PERSONAL = ("served_accuracy", "personal_accuracy", "personal_lowest")
# What reaching the target took, and where an evaluation has it.
TO_TARGET = {
    "round_to_target": "round", "time_to_target_s": "time_s", "bytes_to_target": "bytes_total",
    "cost_to_target_s": "cost_s", "energy_to_target_j": "energy_j",
}  # fmt: skip
TUNED = "tuned_"  # the column of what was tuned begins so


@dataclass(frozen=True, eq=False)
class StudyResults:
    """A study as its folder tells it.

    ``table`` has a row for each evaluation of each complete run: ``run``, what is varied (``columns``), ``method``, ``seed``, and
    the metrics (see `analysis.runs.COLUMNS`), the figures of its last groups (`GROUPS`), those of its clusters (`CLUSTERED`), its
    mean accuracy over its last rounds (`LAST_ROUNDS`), what accuracy it loses, where the study has a baseline (`DROP`), and its
    accuracy at the budget (`AT_BUDGET`), where the study or its runs have one. Where a key was tuned, a column ``tuned_...`` has
    the chosen value. ``missing`` are the runs that are not complete. ``folders`` are the folders of the others, by ``run``.
    ``stated`` are the claims of the study. Where runs are judged by another ``measure`` than the accuracy, that has a column of
    its own name, and ``accuracy`` stands for it in the names of figures (``final_accuracy``); in files it has its own there too.
    """

    folder: Path
    name: str
    columns: tuple[str, ...]  # what the runs differ in beside the seed: "variant" and the grid's keys
    target: float | None
    table: pd.DataFrame
    missing: tuple[str, ...]
    folders: Mapping[str, Path] = field(default_factory=dict)
    stated: tuple[Claim, ...] = ()
    planned: tuple[Mapping[str, Any], ...] = ()  # what all runs have in the columns, also those that are missing
    measure: Measure = ACCURACY

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each run (see `per_run`)."""
        return per_run(self)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """A row for each variant and grid point, with means over seeds (see `summarise`)."""
        return summarise(self)

    @cached_property
    def claims(self) -> pd.DataFrame:
        """A row for each claim of the study at each point where it is judged, with the verdict (see `analysis.claims`)."""
        from analysis.claims import judge_all

        return judge_all(self, self.stated)


def load_study(folder: Path | str) -> StudyResults:
    """Reads a study folder; raises `InputError` if it is none, damaged, or without a single complete run."""
    import pandas as pd

    folder = Path(folder)
    about = read_json(folder / INDEX)
    if about is None:
        raise InputError(f"'{folder}' is not the folder of a study: it has no {INDEX}")
    try:
        columns, target = tuple(str(c) for c in about["columns"]), about["target"]
        baseline = dict(about.get("baseline", {}))
        limits = Budget.model_validate(about["budget"]).limits if "budget" in about else {}
        stated = tuple(Claim.model_validate(each) for each in about.get("claims", ()))
        tuned = TUNED + short_names([*columns, about["tune"]["key"]])[about["tune"]["key"]] if "tune" in about else ""
        runs = [_identity(columns, run, tuned) for run in about["runs"]]
        name = str(about["name"])
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise InputError(f"'{folder / INDEX}' was written by another version: {error}") from None
    found: list[pd.DataFrame] = []
    missing: list[str] = []
    folders: dict[str, Path] = {}
    complete: list[Run] = []
    for identity in runs:
        place = folder / identity["run"]
        if tuned and identity[tuned] is None:
            missing.append(identity["run"])  # it waits for tuning; what is in its folder is of another choice
            continue
        run = load_run(place) if (place / "summary.json").is_file() and (place / "metrics.csv").is_file() else None
        if run is None or run.status != COMPLETE:
            missing.append(identity["run"])
            continue
        complete.append(run)
        found.append(evaluations(run, identity, limits))
        folders[identity["run"]] = place
    if not found:
        states = [f"\n  {run}: {state}" for run, state in list(states_of(folder, missing).items())[:SHOWN]]
        states += [f"\n  ... and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
        raise InputError(f"no run of the study in '{folder}' is complete{''.join(states)}")
    table, measure = pd.concat(found, ignore_index=True), measure_of(complete)
    if baseline:
        table = with_drops(table, columns, baseline, measure)
    return StudyResults(folder, name, columns, target, table, tuple(missing), folders, stated, tuple(runs), measure)


def states_of(folder: Path, missing: Sequence[str]) -> dict[str, str]:
    """How far the runs are that a study has not completed, by name: why they failed, or that they were cut off or never begun."""
    failures = read_json(folder / FAILURES) or {}
    found = {}
    for name in missing:
        summary = read_json(folder / name / "summary.json") or {}
        if name in failures or summary.get("status") == "failed":
            found[name] = f"failed: {failures.get(name) or summary.get('error') or 'it does not say why'}"
        elif summary or (folder / name).is_dir():
            found[name] = "cut off; the same 'hfl study' goes on with it"
        else:
            found[name] = "not begun"
    return found


def evaluations(run: Run, identity: Mapping[str, Any], limits: Mapping[str, float] | None = None) -> pd.DataFrame:
    """The part of a study's table that one run makes: ``identity`` in the first columns.

    ``limits`` are a budget (see `analysis.tables.with_budget`); without one, that of the run counts, if it has any.
    """
    unjudged = {name: math.nan for name in CLUSTER_METRICS if name not in run.metrics}
    found = {"clustering_rounds": clustering_rounds(run), "weights_kept": weights_kept(run)}
    found[LAST_ROUNDS] = run.accuracy_last_rounds
    table = run.metrics.copy().assign(**_last_groups(run), **unjudged, **found)
    if limits or run.budget:
        table = with_budget(table, limits or run.budget, run.measure)
    for i, (column, value) in enumerate(identity.items()):
        table.insert(i, column, value)
    return table


def _last_groups(run: Run) -> dict[str, float]:
    """The figures of the groups that a run formed last; nan where it formed none, or where they were not measured."""
    last: Mapping[Any, Any] = dict(run.groupings.iloc[-1]) if (run.folder / GROUPINGS).is_file() else {}
    return {name: float(last.get(column, math.nan)) for name, column in GROUPS.items()}


def each_run(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The evaluations of each run, in the order of the study."""
    for _, rows in table.groupby("run", sort=False):
        yield rows


def per_run(results: StudyResults) -> pd.DataFrame:
    """A row for each run: what it is, its final and best accuracy, what it took in all and, with a target, to the target.

    Time is in seconds, cost in client-seconds, energy in joules. ``final_accuracy`` and ``best_accuracy`` are on the common test
    set; ``accuracy_clusters`` and ``accuracy_clients`` are means over clusters and over clients, each on data of its own
    distribution, at the last evaluation. What was not measured is nan, and so is what a run took to a target that it did
    not reach. With a baseline, `DROP` is what final accuracy is lost against it (see `analysis.drops`). With a budget,
    `AT_BUDGET` is the accuracy of the last evaluation within it. `LAST_ROUNDS` is the mean over the evaluations
    of the last rounds (``evaluate.last_rounds``).
    """
    import pandas as pd

    rows, measure = [], results.measure
    final, to_target = _charged(results.table)
    for run in each_run(results.table):
        first, last = run.iloc[0], run.iloc[-1]
        row: dict[str, Any] = {c: first[c] for c in _identifying(results.table)}
        row |= {"final_accuracy": float(last[measure.name]), "best_accuracy": measure.best(run[measure.name])}
        row |= {column: float(last.get(column, math.nan)) for column in (*final, *GROUPS, *CLUSTERED)}
        row |= {
            column: float(last[column])
            for column in (LAST_ROUNDS, DROP, AT_BUDGET, *PERSONAL)
            if column in results.table
        }
        if results.target is not None:
            reach: Mapping[str, Any] = first_reach(run, results.target, measure) or {}
            row |= {name: float(reach.get(column, math.nan)) for name, column in to_target.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def summarise(results: StudyResults) -> pd.DataFrame:
    """A row for each variant and grid point: means over its seeds, and how sure they are.

    ``seeds`` says how many runs there are. Each quantity of `per_run` has two columns: ``..._mean``, and ``..._ci95``, half the
    width of its 95 % interval by Student's t (nan for one seed). ``clustered`` says in how many runs clients were ever put into
    other clusters, and, with a target, ``reached`` how many reached it; rounds of clustering and quantities to the target are
    those of these runs alone.
    """
    import pandas as pd

    runs = per_run(results)
    final, to_target = _charged(results.table)
    columns = list(results.columns)
    groups = [group for _, group in runs.groupby(columns, sort=False)] if columns else [runs]
    rows = []
    for group in groups:
        row: dict[str, Any] = {column: group[column].iloc[0] for column in columns}
        if CURRENCY in results.table:
            row[CURRENCY] = currency_of([results.table])
        if "method" not in columns:
            row["method"] = group["method"].iloc[0]
        row |= {column: group[column].iloc[0] for column in _tuned(runs)}
        row["seeds"] = len(group)
        quantities = ["final_accuracy", "best_accuracy", *final, *GROUPS, *CLUSTERED]
        quantities += [column for column in (LAST_ROUNDS, AT_BUDGET, DROP, *PERSONAL) if column in runs]
        if results.target is not None:
            row |= {"target_accuracy": results.target, "reached": int(group["round_to_target"].notna().sum())}
            quantities += to_target
        group = group.assign(clustering_rounds=group["clustering_rounds"].where(lambda rounds: rounds > 0))
        row["clustered"] = int(group["clustering_rounds"].notna().sum())
        for name in quantities:
            row[f"{name}_mean"], row[f"{name}_ci95"] = mean_and_interval(group[name].to_list())
        rows.append(row)
    return pd.DataFrame(rows)


def write_tables(results: StudyResults) -> list[str]:
    """Writes the table and the summary of a study into its folder; returns the names of the files."""
    named = results.measure.named
    table, summary = results.table.rename(columns=named), results.summary.rename(columns=named)
    write_text(results.folder / "results.csv", table.to_csv(index=False, lineterminator="\n"))
    with replacing(results.folder / "results.parquet") as aside:
        table.to_parquet(aside, index=False)
    write_text(results.folder / "summary.csv", summary.to_csv(index=False, lineterminator="\n"))
    written = ["results.csv", "results.parquet", "summary.csv"]
    if not results.stated:
        (results.folder / CLAIMS).unlink(missing_ok=True)
        return written
    write_text(results.folder / CLAIMS, results.claims.to_csv(index=False, lineterminator="\n"))
    return [*written, CLAIMS]


def as_text(summary: pd.DataFrame, columns: Sequence[str], measure: Measure = ACCURACY) -> str:
    """A table of `summarise` for a terminal; ``columns`` are what the study varies."""
    rows = [{str(key): value for key, value in row.items()} for row in summary.to_dict("records")]
    shorter = short_names(columns)
    who = [*columns] if columns else ["method"]
    header = tuple(shorter.get(column, column) for column in who)
    several = any(row["seeds"] > 1 for row in rows)
    charged = charged_in([summary.rename(columns={f"{column}_mean": column for column in TO_TARGET_PRICED})])

    def section(title: str, parts: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> str:
        cells = tuple((*(text_of(row[c]) for c in who), *(text(row) for text in parts.values())) for row in rows)
        right = (*(False for _ in who), *(True for _ in parts))
        return TextTable(title, (*header, *parts), cells, right).text()

    def pair(name: str, text: Callable[[float], str], nothing: str = NOT_REACHED) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: with_interval(row[f"{name}_mean"], row[f"{name}_ci95"], text, nothing, several)

    texts = section(
        "Mean over seeds ± half of the 95 % interval" if several else "One seed each: single runs, no means",
        {
            **{
                f"{column.removeprefix(TUNED)} (tuned)": lambda row, column=column: text_of(row[column])  # type: ignore[misc]
                for column in _tuned(summary)
            },
            "seeds": lambda row: str(row["seeds"]),
            f"final {measure.called}": pair("final_accuracy", measure.text),
            **({"at the budget": pair(AT_BUDGET, measure.text, NOTHING)} if f"{AT_BUDGET}_mean" in summary else {}),
            **({"last rounds": pair(LAST_ROUNDS, measure.text, NOTHING)} if _known(summary, LAST_ROUNDS) else {}),
            f"best {measure.called}": pair("best_accuracy", measure.text),
            **({f"{measure.called} drop": pair(DROP, measure.text, NOTHING)} if f"{DROP}_mean" in summary else {}),
            "time": pair("time_s", time_text),
            "data": pair("bytes_total", bytes_text),
            "cost": pair("cost_s", cost_text),
            **{name: pair(column, text) for column, (name, text) in charged.items()},
        },
    )
    if summary["clusters_mean"].notna().any():
        texts += "\n\n" + section(
            "Clusters at the end; accuracies on data as clusters or clients hold it",
            {
                "clusters": pair("clusters", lambda value: f"{value:.1f}", NOTHING),
                "adjusted Rand": pair("adjusted_rand", lambda value: f"{value:.2f}", NOTHING),
                "rounds": pair("clustering_rounds", lambda value: f"{value:.1f}", NOTHING),
                "mean over clusters": pair("accuracy_clusters", accuracy_text, NOTHING),
                "mean over clients": pair("accuracy_clients", accuracy_text, NOTHING),
            },
        )
    if "reached" not in summary:
        return texts + "\n"
    to_target = section(
        f"To reach {measure.goal_text(rows[0]['target_accuracy'])}, over the seeds that did",
        {
            "reached": lambda row: f"{row['reached']} of {row['seeds']}",
            "round": pair("round_to_target", lambda value: f"{value:.1f}"),
            "time": pair("time_to_target_s", time_text),
            "data": pair("bytes_to_target", bytes_text),
            "cost": pair("cost_to_target_s", cost_text),
            **{name: pair(TO_TARGET_PRICED[column], text) for column, (name, text) in charged.items()},
        },
    )
    return f"{texts}\n\n{to_target}\n"


def with_interval(
    mean: float, half: float, text: Callable[[float], str], nothing: str = NOT_REACHED, several: bool = True
) -> str:
    """A mean with half of its interval: ``92.2 ± 7.1 %``; ``nothing`` where it is nan.

    Without an interval it is the figure of one seed, and says so where it stands among means (``several``).
    """
    if math.isnan(mean):
        return nothing
    if math.isnan(half):
        return f"{text(mean)} (one seed)" if several else text(mean)
    first, second = text(mean), text(half if half > 1e-9 * abs(mean) else 0.0)  # equal but for rounding
    unit = f" {second.rpartition(' ')[2]}"
    if first.count(" ") == second.count(" ") == 1:
        first = first.removesuffix(unit)  # "92.2 ± 7.1 %" says the unit once
    return f"{first} ± {second}"


def _charged(table: pd.DataFrame) -> tuple[tuple[str, ...], dict[str, str]]:
    """`FINAL` and `TO_TARGET` with money and CO2, where the runs of a study have them."""
    priced = [column for column in TO_TARGET_PRICED if column in table]
    return (*FINAL, *priced), TO_TARGET | {TO_TARGET_PRICED[column]: column for column in priced}


def _identity(columns: Sequence[str], run: Mapping[str, Any], tuned: str) -> dict[str, Any]:
    """The first columns of the table: the run, what is varied, the method unless it is varied itself, the seed, what is tuned."""
    named = {"variant": run["variant"], **run["point"]}
    varied = {column: named[column] for column in columns}
    method = {} if "method" in varied else {"method": run["method"]}
    chosen = {tuned: run.get("tuned")} if tuned else {}
    return {"run": str(run["run"]), **varied, **method, "seed": run["seed"], **chosen}


def _known(summary: pd.DataFrame, quantity: str) -> bool:
    """Whether any row of a summary has a figure of it."""
    return bool(f"{quantity}_mean" in summary and summary[f"{quantity}_mean"].notna().any())


def _tuned(table: pd.DataFrame) -> list[str]:
    return [str(c) for c in table.columns if str(c).startswith(TUNED)]


def _identifying(table: pd.DataFrame) -> list[str]:
    return [str(c) for c in table.columns[: list(table.columns).index(COLUMNS[0])]]
