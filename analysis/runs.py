"""Reading run folders.

A run folder holds ``metrics.csv`` (a row for each evaluation), ``summary.json`` (what the run was and how it
ended), ``manifest.json``, ``scenario.yaml`` and ``ledger.parquet``. A run that was killed has no summary: it
still loads, with the status `UNFINISHED`, and is named by its manifest, its scenario or its folder. If such a
run died while it wrote a row, that row is left out. A run without training has neither accuracies nor losses.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.folders import run_folders
from analysis.tabular import read_ledger, read_table
from emulator import yamlfile
from emulator.errors import InputError, quote_all, suggestion
from emulator.files import changed_files, read_json
from emulator.measures import ACCURACY, Measure
from emulator.priced import CURRENCY, MONEY, PRICED, applied

if TYPE_CHECKING:
    import pandas as pd

METRICS = "metrics.csv"
SUMMARY = "summary.json"
MANIFEST = "manifest.json"
SCENARIO = "scenario.yaml"
LEDGER = "ledger.parquet"
GROUPS = "groups.csv"
GROUPINGS = "groupings.csv"
CLUSTERS = "clusters.csv"
STABILITY = "stability.csv"
SIMILARITY = "similarity.csv"
TRIALS = "trials.csv"
RECOVERED = "recovered.csv"
ATTACKERS = "attackers.csv"
ARRIVALS = "arrivals.csv"
GROUP_ARRIVALS = "group_arrivals.csv"
SELECTIONS = "selections.csv"

COMPLETE = "complete"
UNFINISHED = "unfinished"  # without a summary: killed, or still running
STATUSES = (COMPLETE, "interrupted", "failed")

COLUMNS = (
    "round", "time_s", "accuracy", "loss",
    "bytes_server_client", "bytes_client_server", "bytes_client_client",
    "bytes_cloud_edge", "bytes_edge_cloud", "bytes_total",
    "cost_training_s", "cost_group_s", "cost_s", "energy_j",
)  # fmt: skip
# Of the tables that clustered methods write, what the analysis reads.
CLUSTER_COLUMNS = ("cluster", "parents", "reason", "round", "time_s", "layer", "reference", "size", "members")
STABILITY_COLUMNS = ("round", "cluster", "layer", "stability", "weights_kept", "weights")
SIMILARITY_COLUMNS = ("round", "cluster", "layer", "client", "other", "cosine")
TRIAL_COLUMNS = ("round", "cluster", "ripe", "purity")
ATTACKER_COLUMNS = ("client", "group", "swaps")
ARRIVAL_COLUMNS = ("round", "time_s", "group", "client", "staleness", "weight", "used")
OF_ARRIVALS = {ARRIVALS: "from_round", GROUP_ARRIVALS: "group_round"}  # the column that tells them apart
SELECTION_COLUMNS = ("round", "time_s", "group", "client", "chosen")
RECOVERED_COLUMNS = ("at", "round", "accuracy", "distance", "untrained", "own", "floor")
USUAL = ("metrics", "energy", "groups", "groupings", "topology", "ledger")  # tables that any run may have
MAY_BE_UNKNOWN = ("loss", "energy_j")  # a loss may overflow, and a device may have no power figures


@dataclass(frozen=True, eq=False)
class Run:
    """A run as its folder tells it.

    ``metrics`` has the columns `COLUMNS` (and whatever else the file has, and money and CO2 where a price list was applied), in
    the order of the evaluations: ``accuracy`` is a share from 0 to 1 (where the run is judged by another ``measure``, that stands
    in its place), ``cost_*`` are client-seconds, ``time_s`` is emulated time. ``seed`` is None where no file says it. Where
    ``training`` is false, every measure and loss is nan. The other tables are read when they are first asked for; each raises
    `InputError` where its file is missing, damaged or of another version. `tables` names all that there are, and `table` reads
    any of them.
    """

    folder: Path
    name: str
    label: str  # the method, for legends
    seed: int | None
    status: str  # one of STATUSES, or UNFINISHED
    metrics: pd.DataFrame
    training: bool = True
    measure: Measure = ACCURACY

    @property
    def judged(self) -> pd.Series[float]:
        """What each evaluation found of the measure by which the run is judged."""
        return self.metrics[self.measure.name]

    @cached_property
    def ledger(self) -> pd.DataFrame:
        """Everything that happened on the emulated clock: the columns of `emulator.ledger.Row`."""
        return read_ledger(self._file(LEDGER))

    @cached_property
    def energy(self) -> pd.DataFrame:
        """Seconds and joules of each client by state; see `analysis.energy`."""
        from analysis.energy import load_energy

        return load_energy(self)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """A row for each group of each formation: ``round``, ``group``, ``size``, ``cov``, ``label_0`` (samples) and so on."""
        from emulator.grouping.diagnostics import GROUP_COLUMNS

        return self._table(GROUPS, GROUP_COLUMNS)

    @cached_property
    def groupings(self) -> pd.DataFrame:
        """A row for each formation of groups, with figures of all of them."""
        from emulator.grouping.diagnostics import GROUPING_COLUMNS

        return self._table(GROUPINGS, GROUPING_COLUMNS)

    @cached_property
    def clusters(self) -> pd.DataFrame:
        """A row for each cluster as it came to be: its parents, why, when, by which layer and client, and its members."""
        return self._table(CLUSTERS, CLUSTER_COLUMNS, "its method makes no clusters")

    @cached_property
    def stability(self) -> pd.DataFrame:
        """How stable the updates of each cluster's members are, by round and layer."""
        return self._table(STABILITY, STABILITY_COLUMNS, "its method does not watch the clients' updates")

    @cached_property
    def similarity(self) -> pd.DataFrame:
        """The cosines of clients' updates, by round and layer, where a scenario asks for them."""
        why = "name the rounds in 'method.record_similarity' of a clustered method"
        return self._table(SIMILARITY, SIMILARITY_COLUMNS, why)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """How each cluster would have been split in each round, where a scenario asks for it."""
        return self._table(TRIALS, TRIAL_COLUMNS, "say 'method.trial: true' in the scenario of a clustered method")

    @cached_property
    def recovered(self) -> pd.DataFrame:
        """A row for each model from which an attacker recovered images: its accuracy, and how far these are from private ones."""
        why = "its scenario has no attack 'gan-recovery', or no evaluation reached an accuracy in 'attacks.at'"
        return self._table(RECOVERED, RECOVERED_COLUMNS, why)

    @cached_property
    def attackers(self) -> pd.DataFrame:
        """Clients that swap labels: their groups, and which labels."""
        return self._table(ATTACKERS, ATTACKER_COLUMNS, "its scenario has no attack 'label-flip', or nobody attacks")

    @cached_property
    def arrivals(self) -> pd.DataFrame:
        """A row for each update that came to an asynchronous server, the cloud or those of groups.

        ``client`` is -1 where several clients made it.
        """
        why = "its method is not asynchronous, or does not note what arrives"
        name = self._arrivals or ARRIVALS
        return self._table(name, (*ARRIVAL_COLUMNS, OF_ARRIVALS[name]), why, optional=("client",))

    @property
    def has_arrivals(self) -> bool:
        """Whether updates came to a server one by one."""
        return self._arrivals is not None

    @property
    def _arrivals(self) -> str | None:
        return next((name for name in OF_ARRIVALS if (self.folder / name).is_file()), None)

    @cached_property
    def selections(self) -> pd.DataFrame:
        """A row for each client that was there when a server chose some, and whether it was chosen."""
        return self._table(SELECTIONS, SELECTION_COLUMNS, "its method does not note whom it chooses")

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables that the run has: those that any run may have, and those that its method and attack declared."""
        declared = [f"{name}.csv" for name in self.manifest.get("tables", ())]
        stated = [name for name in self.summary.get("files", ()) if name.endswith(".csv")]
        older = [CLUSTERS, STABILITY, SIMILARITY, TRIALS, ATTACKERS, RECOVERED]  # of folders that state nothing
        files = {name: f"{name}.csv" for name in USUAL} | {"ledger": LEDGER}
        files |= {file.removesuffix(".csv"): file for file in (*older, *declared, *stated) if Path(file).name == file}
        return tuple(name for name, file in files.items() if (self.folder / file).is_file())

    def table(self, name: str) -> pd.DataFrame:
        """A table of the run by its name, one of `tables`. Raises `InputError` where there is none, or it is damaged."""
        if name not in self.tables:
            raise InputError(
                f"the run in '{self.folder}' has no table '{name}'; {suggestion(name, self.tables, 'it has')}"
            )
        if name in USUAL and name != "topology":
            found: pd.DataFrame = getattr(self, name)
            return found
        return read_table(self._file(f"{name}.csv"), ())

    @cached_property
    def summary(self) -> dict[str, Any]:
        """How the run ended; empty for one that was killed, or still runs."""
        return read_json(self.folder / SUMMARY) or {}

    @property
    def budget(self) -> dict[str, float]:
        """What the run was to spend at most, in SI units, by the names in `emulator.standing.SPENT`; mostly empty."""
        return dict(self.summary.get("budget", {}))

    @property
    def accuracy_last_rounds(self) -> float:
        """The mean accuracy (or other measure) over the last rounds (``evaluate.last_rounds``); nan where it does not say."""
        found = self.summary.get("last_rounds", {}).get(self.measure.name)
        return math.nan if found is None else float(found)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """How the run was made: versions, command, machine; empty where the folder has none."""
        return read_json(self.folder / MANIFEST) or {}

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The scenario with all its defaults, as plain data; empty where the folder has none."""
        return _read_scenario(self.folder / SCENARIO)

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            ended = "it is of another version" if self.status == COMPLETE else f"it is {self.status}"
            raise InputError(f"the run in '{self.folder}' has no {name}: {ended}")
        return path

    def _table(
        self,
        name: str,
        columns: Sequence[str],
        why: str = "its method forms no groups",
        optional: Sequence[str] = (),
    ) -> pd.DataFrame:
        """A table of the run folder; ``why`` says what it means that a complete run has none."""
        if self.status == COMPLETE and not (self.folder / name).is_file():
            raise InputError(f"the run in '{self.folder}' has no {name}: {why}")
        return read_table(self._file(name), columns, optional=optional)


def check_trained(runs: Iterable[Run]) -> None:
    """Raises `InputError` where a run has no accuracies because it is one without training."""
    for run in runs:
        if not run.training:
            raise InputError(f"the run in '{run.folder}' is one without training: it has no accuracy")


def measure_of(runs: Iterable[Run]) -> Measure:
    """By what all of these runs are judged; raises `InputError` where that is not the same for all."""
    found = {run.measure: run for run in runs}
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise InputError(
            f"the run in '{first.folder}' is judged by {one.name}, the one in '{second.folder}' by {other.name}"
        )
    return next(iter(found), ACCURACY)


def load_run(folder: Path | str) -> Run:
    """Reads a run folder, also of a run that ended badly; raises `InputError` if it is none or damaged.

    Every result file that the summary holds a SHA-256 of must be as it was when the run ended. Plug-ins that its manifest names
    are imported, where they are as they were (`emulator.recorded`).
    """
    folder = Path(folder)
    if not folder.exists():
        raise InputError(f"there is no folder '{folder}'")
    if not folder.is_dir():
        raise InputError(f"'{folder}' is a file; give the folder of a run")
    summary = read_json(folder / SUMMARY)
    changed = changed_files(folder, summary or {})
    if changed:
        places = quote_all(str(folder / name) for name in changed)
        raise InputError(
            f"{places} changed after the run ended: its figures cannot be trusted; restore it, or run it again"
        )
    if not (folder / METRICS).is_file():
        raise InputError(_no_metrics(folder, summary))
    from emulator.recorded import load_to_read

    load_to_read(folder)
    name, label, seed = _identity(folder, summary)
    status = UNFINISHED if summary is None else summary.get("status")
    if status not in (*STATUSES, UNFINISHED):
        raise _other_version(folder / SUMMARY, f"'status' is {status!r}, not one of {quote_all(STATUSES)}")
    said = read_json(folder / MANIFEST) or {} if summary is None else summary
    training = bool(said.get("training", True))
    try:
        measure = Measure.from_json(said.get("measure"))
    except TypeError:
        raise _other_version(
            folder / (MANIFEST if summary is None else SUMMARY), "'measure' is of another form"
        ) from None
    metrics = _with_prices(folder, _read_metrics(folder / METRICS, summary is None, training, measure))
    return Run(folder, name, label, seed, status, metrics, training, measure)


def load_runs(folders: Iterable[Path | str]) -> list[Run]:
    """Reads run folders in the given order, and those in the folder of a comparison (`run_folders`).

    Raises `InputError` as `load_run`, and if one is given twice.
    """
    runs: list[Run] = []
    seen: set[Path] = set()
    for folder in run_folders(folders):
        run = load_run(folder)
        place = run.folder.resolve()
        if place in seen:
            raise InputError(f"the run folder '{folder}' is given twice")
        seen.add(place)
        runs.append(run)
    return runs


def unique_labels(runs: Sequence[Run]) -> list[str]:
    """A different label for each run, in the order of the runs.

    Where labels are equal, the name is added, then the seed, then the folder; each only if it tells some of
    these runs apart.
    """
    details: list[list[str]] = [[] for _ in runs]

    def texts() -> list[str]:
        return [f"{r.label} ({', '.join(d)})" if d else r.label for r, d in zip(runs, details, strict=True)]

    columns = (
        [r.name for r in runs],
        [f"seed {'unknown' if r.seed is None else r.seed}" for r in runs],
        [r.folder.name for r in runs],
        [str(r.folder) for r in runs],
    )
    for column in columns:
        for members in _equal(texts()):
            if len({column[i] for i in members}) > 1:
                for i in members:
                    details[i].append(column[i])
    # The same run twice, or a label that looks like another with its details: only a number is left.
    number = 2
    while groups := _equal(texts()):
        for members in groups:
            for i in members[1:]:
                details[i].append(f"no. {number}")
                number += 1
    return texts()


def _equal(texts: Sequence[str]) -> list[list[int]]:
    """The positions of equal texts, for each text that occurs more than once."""
    places: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        places.setdefault(text, []).append(i)
    return [members for members in places.values() if len(members) > 1]


def _no_metrics(folder: Path, summary: dict[str, Any] | None) -> str:
    if summary is not None or (folder / MANIFEST).exists():
        return f"the run in '{folder}' has no {METRICS}: it ended before its first evaluation"
    inside = [run.name for run in run_folders([folder]) if run != folder]
    if inside:
        more = ", ..." if len(inside) > 5 else ""
        return f"'{folder}' is not a run folder, but it holds some: {quote_all(inside[:5])}{more}"
    return f"'{folder}' is not a run folder: it has no {METRICS}"


def _identity(folder: Path, summary: dict[str, Any] | None) -> tuple[str, str, int | None]:
    """The name, label and seed of a run: from its summary, or if it is unfinished from the next best file."""
    if summary is not None:
        for key, kind in (("name", str), ("label", str), ("seed", int)):
            if not isinstance(summary.get(key), kind):
                raise _other_version(folder / SUMMARY, f"'{key}' is missing or of another type")
        return summary["name"], summary["label"], summary["seed"]
    known = {**_read_scenario(folder / SCENARIO), **(read_json(folder / MANIFEST) or {})}
    name = known["name"] if isinstance(known.get("name"), str) else folder.resolve().name
    label = known["label"] if isinstance(known.get("label"), str) else name
    return name, label, known["seed"] if isinstance(known.get("seed"), int) else None


def _read_scenario(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    data = yamlfile.load(path).data
    return data if isinstance(data, dict) else {}


def _read_metrics(path: Path, drop_cut_row: bool, training: bool, measure: Measure) -> pd.DataFrame:
    import pandas as pd

    try:
        text = path.read_text(encoding="utf-8")
    except ValueError as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    if drop_cut_row and not text.endswith("\n"):
        # A number that was cut off ("12" of "1234") cannot be told from a whole one, so the whole row goes.
        text = text[: text.rfind("\n") + 1]
    if not text.strip():
        raise InputError(f"'{path}' is empty: the run ended before its first evaluation")
    lines = text.splitlines()
    for number, line in enumerate(lines[1:], start=1):
        if line and line.count(",") != lines[0].count(","):
            raise InputError(f"'{path}' is damaged: row {number} has not as many fields as the header")
    header, *rows = [row for row in csv.reader(lines) if row]
    missing = [c for c in _columns(measure) if c not in header]
    if missing:
        raise _other_version(path, f"it has no column {quote_all(missing)}")
    if not rows:
        raise InputError(f"'{path}' has no rows: the run ended before its first evaluation")
    try:
        # float() gives back every digit that was written; not every version of pandas does by default.
        metrics = pd.DataFrame({c: _numbers(c, [row[i] for row in rows]) for i, c in enumerate(header)})
    except ValueError as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    problem = _problem(metrics, MAY_BE_UNKNOWN if training else (*MAY_BE_UNKNOWN, measure.name), measure)
    if problem:
        raise InputError(f"'{path}' is damaged: {problem}")
    return metrics.astype({"round": "int64"})


def _with_prices(folder: Path, metrics: pd.DataFrame) -> pd.DataFrame:
    """Evaluations with what a price list says that was applied to the run afterwards, and with the currency of their money."""
    said = applied(folder)
    try:
        if said is not None:
            metrics = metrics.assign(**{str(name): values for name, values in said["columns"].items()})
        if MONEY in metrics:
            currency = (_read_scenario(folder / SCENARIO)["prices"] if said is None else said)[CURRENCY]
            metrics = metrics.assign(**{CURRENCY: str(currency)})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _other_version(
            folder / (SCENARIO if said is None else PRICED), "its prices are of another form"
        ) from None
    return metrics


def _numbers(column: str, cells: Sequence[str]) -> list[float] | list[str]:
    """The cells of a column as numbers, nan where empty; a column that is not ours may hold anything."""
    try:
        return [float(cell) if cell.strip() else math.nan for cell in cells]
    except ValueError:
        if column in COLUMNS:
            raise ValueError(f"column '{column}' holds something that is not a number") from None
        return list(cells)


def _columns(measure: Measure) -> list[str]:
    return [measure.name if column == ACCURACY.name else column for column in COLUMNS]


def _problem(metrics: pd.DataFrame, may_be_unknown: Sequence[str], measure: Measure) -> str:
    """What is wrong with the values of a metrics table, or an empty text; rows count from 1."""
    import numpy as np

    for column in _columns(measure):
        if column == "loss":  # it may overflow
            continue
        values = metrics[column].to_numpy(dtype=float)
        free = column == measure.name and not measure.share  # which may be of any size
        bad = np.isinf(values) & (not free) | (values < 0) & (not free)
        if column not in may_be_unknown:
            bad |= np.isnan(values)
        if column == measure.name and measure.share:
            bad |= values > 1
        if column == "round":
            bad |= values != np.floor(values)
        if bad.any():
            row = int(bad.argmax())
            return f"column '{column}' has {values[row]:g} in row {row + 1}"
    for column in ("round", "time_s"):
        falls = np.diff(metrics[column].to_numpy(dtype=float)) < 0
        if falls.any():
            return f"column '{column}' goes back in row {int(falls.argmax()) + 2}"
    return ""


def _other_version(path: Path, what: str) -> InputError:
    return InputError(f"'{path}' was written by another version: {what}")
