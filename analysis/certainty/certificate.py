"""Reading the folder of a certificate (``docs/certify.md`` says what is in it). The only place that knows its files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from analysis.certainty.measured import Measured
from analysis.certainty.worldwise import Worldwise, compare
from emulator.errors import InputError, quote_all, suggestion
from emulator.measures import ACCURACY, Measure

if TYPE_CHECKING:
    import pandas as pd

ABOUT = "certificate.yaml"
VERSION = 1
KNOWN = ("replayed", "trained")  # statuses of outcomes that have figures
STATUSES = (*KNOWN, "order differs", "failed")
DRAWN, SALTELLI = "drawn", "saltelli"
WRITTEN, AS_WRITTEN = "written", -1  # the world as the scenario has it, and its number
TIPPING = ("better", "than", "measure", "quantity", "at", "side")


_PREFIXES = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def scaled_text(value: float, unit: str) -> str:
    """Three digits with the prefix that suits: ``12.5 Mbit/s``, ``865 ns``, ``1,200 s``; without a unit, the number."""
    if not unit or not value or not math.isfinite(value):
        return f"{value:.3g}{f' {unit}' if unit else ''}"
    name, size = prefixed(value, unit)
    number = value / size
    return f"{f'{number:,.0f}' if abs(number) >= 999.5 else f'{number:.3g}'} {name}"


def prefixed(value: float, unit: str) -> tuple[str, float]:
    """A unit with the prefix that suits a value, and how much of the unit that is; seconds have none above one."""
    prefixes = {p: size for p, size in _PREFIXES.items() if size <= 1 or unit != "s"}
    fitting = [p for p, size in prefixes.items() if abs(value) >= 0.9995 * size]
    prefix = fitting[-1] if fitting else "n"
    return f"{prefix}{unit}", prefixes[prefix]


@dataclass(frozen=True)
class Quantity:
    """An unknown of the world. ``labels`` are the texts of a choice, empty for numbers; ``source`` says who gives its spread."""

    name: str
    text: str
    unit: str
    scale: str
    factor: bool
    source: str
    middle: float
    labels: tuple[str, ...]

    def value_text(self, value: Any) -> str:
        """A value with its unit, for people."""
        if isinstance(value, str):
            return value
        if self.factor:
            return f"{float(value):.3g} times"
        return scaled_text(float(value), self.unit)

    def axis(self, largest: float) -> tuple[str, float]:
        """The label of an axis that reaches ``largest``, and by what values are divided there."""
        if self.factor or not self.unit:
            return self.title, 1.0
        unit, size = prefixed(largest, self.unit)
        return f"{self.name} ({unit})", size

    @property
    def title(self) -> str:
        """Its name, with what it is where it is a factor."""
        return f"{self.name} (factor)" if self.factor else self.name


@dataclass(frozen=True, eq=False)
class Certificate:
    """What stands in a certificate's folder. Tables are as ``docs/certify.md`` has them; ``curves`` may be missing."""

    folder: Path
    name: str
    methods: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    without_effect: tuple[str, ...]
    correlated: frozenset[str]  # quantities that are correlated with another one
    design: str
    base: int  # base points of the Saltelli design, 0 without one
    measures: tuple[Measured, ...]
    worlds: pd.DataFrame
    outcomes: pd.DataFrame
    baseline: pd.DataFrame
    tipping: pd.DataFrame
    curves: pd.DataFrame | None
    listed: tuple[Mapping[str, Any], ...]  # the runs, as certificate.yaml has them

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All pairs of methods, in their order."""
        return tuple((a, b) for i, a in enumerate(self.methods) for b in self.methods[i + 1 :])

    @property
    def drawn(self) -> pd.DataFrame:
        """The worlds that shares are of."""
        return self.worlds[self.worlds["part"] == DRAWN]

    def quantity(self, name: str) -> Quantity:
        """The quantity of this name; raises `InputError` where there is none."""
        found = {each.name: each for each in self.quantities}
        if name not in found:
            raise InputError(f"unknown quantity '{name[:60]}'; {suggestion(name, found)}")
        return found[name]

    def measure(self, column: str) -> Measured:
        """The measure of this column; raises `InputError` where there is none. The first one where ``column`` is empty."""
        found = {each.column: each for each in self.measures}
        if column and column not in found:
            raise InputError(f"unknown measure '{column[:60]}'; {suggestion(column, found)}")
        return found[column] if column else self.measures[0]

    def method(self, name: str) -> str:
        """``name``, if it is a method of this certificate; raises `InputError` otherwise."""
        if name not in self.methods:
            raise InputError(f"unknown method '{name[:60]}'; {suggestion(name, self.methods)}")
        return name

    def seeds(self, *methods: str) -> tuple[int, ...]:
        """The seeds that all these methods were trained with."""
        each = [{run["seed"] for run in self.listed if run["method"] == method} for method in methods]
        return tuple(sorted(set.intersection(*each)))

    def figures(self, method: str, measure: Measured, seeds: Sequence[int], part: str = DRAWN) -> np.ndarray:
        """A measure of a method: [worlds of a part, seeds]; infinite where it was never reached, nan where it is unknown."""
        worlds = [AS_WRITTEN] if part == WRITTEN else self.worlds.loc[self.worlds["part"] == part, "world"]
        table = self._tables[measure.column, method]
        return table.reindex(index=worlds, columns=list(seeds)).to_numpy(dtype=float)

    def against(self, a: str, b: str, measure: Measured, part: str = DRAWN) -> Worldwise:
        """Two methods side by side in all worlds of a part (`WRITTEN`: in the world as it is written).

        Raises `InputError` where no seed was trained with both.
        """
        key = (a, b, measure.column, part)
        if key not in self._compared:
            seeds = self.seeds(a, b)
            if not seeds:
                raise InputError(f"'{a}' and '{b}' have no seed in common: nothing pairs their runs")
            ours, theirs = (self.figures(method, measure, seeds, part) for method in (a, b))
            self._compared[key] = compare(ours, theirs, measure.ratios, measure.higher)
        return self._compared[key]

    def tips(self, a: str, b: str, measure: Measured) -> pd.DataFrame:
        """The rows of ``tipping`` about a pair, whichever of the two is better."""
        table = self.tipping
        pair = ((table["better"] == a) & (table["than"] == b)) | ((table["better"] == b) & (table["than"] == a))
        return table[pair & (table["measure"] == measure.column)]

    def unknown_share(self, a: str, b: str, measure: Measured) -> float:
        """In which share of the drawn worlds nothing can be said of a pair."""
        return float(1 - self.against(a, b, measure).known.mean())

    @cached_property
    def kept(self) -> float:
        """The share of the drawn worlds in which every run has its figures: none would learn anything else there."""
        return float(self._by_world(KNOWN).mean())

    @cached_property
    def impossible(self) -> float:
        """The share of the drawn worlds that do not exist, for example because a negative bandwidth was drawn."""
        rows = self.outcomes[self.outcomes["status"] == "failed"]
        return float(self.drawn["world"].isin(rows["world"]).mean())

    @cached_property
    def trained(self) -> int:
        """In how many of the drawn worlds a run was trained afresh."""
        rows = self.outcomes[self.outcomes["status"] == "trained"]
        return int(self.drawn["world"].isin(rows["world"]).sum())

    def _by_world(self, statuses: Sequence[str]) -> np.ndarray:
        good = self.outcomes["status"].isin(statuses).groupby(self.outcomes["world"]).all()
        return np.asarray(good.reindex(self.drawn["world"], fill_value=False), dtype=bool)

    @cached_property
    def _tables(self) -> dict[tuple[str, str], pd.DataFrame]:
        found = {}
        import pandas as pd

        every = pd.concat([self.baseline.assign(world=AS_WRITTEN), self.outcomes], ignore_index=True)
        for method, rows in every.groupby("method", sort=False):
            known = rows["status"].isin(KNOWN)
            for measure in self.measures:
                values = rows.assign(value=rows[measure.column].where(known, math.nan))
                found[measure.column, str(method)] = values.pivot(index="world", columns="seed", values="value")
        return found

    @cached_property
    def _compared(self) -> dict[tuple[str, str, str, str], Worldwise]:
        return {}


def is_certificate(folder: Path | str) -> bool:
    """Whether a folder is that of a certificate."""
    return (Path(folder) / ABOUT).is_file()


def one_certificate(folders: Sequence[Path | str]) -> Certificate | None:
    """The certificate that these folders are, or None where none of them is one.

    Raises `InputError` where a certificate is given with anything else, and as `load`.
    """
    found = [folder for folder in folders if is_certificate(folder)]
    if found and len(folders) > 1:
        raise InputError(f"'{found[0]}' is the folder of a certificate: give it alone")
    return load(found[0]) if found else None


def load(folder: Path | str) -> Certificate:
    """Reads a certificate; raises `InputError` where the folder is none, or is damaged or of another version."""
    folder = Path(folder)
    path = folder / ABOUT
    if not path.is_file():
        raise InputError(f"'{folder}' is no certificate: it has no {ABOUT}")
    try:
        about = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    if not isinstance(about, dict) or about.get("version") != VERSION:
        raise InputError(f"'{path}' was written by another version: this one reads version {VERSION}")
    try:
        runs = tuple(dict(each) for each in about["runs"])
        quantities = tuple(_quantity(each) for each in about["quantities"])
        measures = tuple(_measured(each, _judged(about["measures"])) for each in about["measures"])
        design = about["design"]
        kind, base = str(design["kind"]), int(design.get("saltelli") or 0)
        methods = tuple(dict.fromkeys(str(run["method"]) for run in runs))
        _ = [int(run["seed"]) for run in runs]
        correlated = frozenset(str(name) for each in about.get("correlations") or () for name in each["between"])
        idle = tuple(str(each["name"]) for each in about.get("without_effect") or ())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"'{path}' is damaged or of another version: {type(error).__name__}: {error}") from None
    if len(methods) < 1 or not measures:
        raise InputError(f"'{path}' is damaged: it names no run or no measure")
    worlds = _table(folder, "worlds", ["world", "part", *(q.name for q in quantities)])
    columns = ["world", "run", "method", "seed", "status", *(m.column for m in measures)]
    outcomes = _table(folder, "outcomes", columns)
    odd = sorted(set(outcomes["status"].astype(str)) - set(STATUSES))
    if odd:
        raise InputError(f"'{folder / 'outcomes.parquet'}' is damaged: there is no status {quote_all(odd)}")
    if outcomes.duplicated(["world", "method", "seed"]).any():
        raise InputError(
            f"'{folder / 'outcomes.parquet'}' is damaged: it has a method with the same seed twice in a world"
        )
    saltelli = int((worlds["part"] == SALTELLI).sum())
    if saltelli != base * (len(quantities) + 2):
        raise InputError(
            f"'{folder / 'worlds.parquet'}' is damaged: it has {saltelli} worlds for Sobol indices, and {base} base points of "
            f"{len(quantities)} quantities have {base * (len(quantities) + 2)}"
        )
    return Certificate(
        folder, str(about.get("name") or folder.name), methods, quantities, idle, correlated, kind, base,
        measures, worlds, outcomes, _table(folder, "baseline", columns), _tipping(folder),
        _table(folder, "curves", ["world", "run", "method", "seed", "round", "time_s", "accuracy"])
        if (folder / "curves.parquet").is_file() else None,
        runs,
    )  # fmt: skip


def _quantity(said: Mapping[str, Any]) -> Quantity:
    middle = said.get("middle")
    return Quantity(
        str(said["name"]), str(said.get("text") or ""), str(said.get("unit") or ""), str(said.get("scale") or "linear"),
        bool(said.get("factor")), str(said.get("source") or ""),
        float(middle) if isinstance(middle, int | float) else math.nan, tuple(map(str, said.get("labels") or ())),
    )  # fmt: skip


def _judged(measures: Sequence[Mapping[str, Any]]) -> Measure:
    """What tells how good a model is; only figures on a budget say which way is better, and whether it is a share."""
    names = {str(each.get("measure", ACCURACY.name)) for each in measures}
    if names == {ACCURACY.name}:
        return ACCURACY
    if len(names) != 1:
        raise ValueError(f"models are judged by different measures: {quote_all(sorted(names))}")
    on_budget = [each for each in measures if each["kind"] == "at"]
    lower = any(each.get("better") == "lower" for each in on_budget)
    share = any(each.get("unit") == "share" for each in on_budget)
    return Measure(names.pop(), "lower" if lower else "higher", share)


def _measured(said: Mapping[str, Any], judged: Measure) -> Measured:
    of = str(said["kind"])
    if of not in ("to", "at"):
        raise ValueError(f"a measure is of no kind '{of}'")
    better = str(said.get("better") or ("lower" if of == "to" else "higher"))
    amount = float(said["target"] if of == "to" else said["budget"])
    return Measured(str(said["column"]), of, str(said["axis"]), amount, judged, better == "higher")


def _table(folder: Path, name: str, columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise InputError(f"'{folder}' is no whole certificate: it has no {path.name}")
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError, TypeError, LookupError, MemoryError) as error:  # what pyarrow says of a damaged file
        raise InputError(f"'{path}' is damaged: {error}") from None
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise InputError(f"'{path}' was written by another version: it has no column {quote_all(missing)}")
    return table


def _tipping(folder: Path) -> pd.DataFrame:
    import pandas as pd

    path = folder / "tipping.csv"
    if not path.is_file():
        return pd.DataFrame({name: pd.Series(dtype=float if name == "at" else str) for name in TIPPING})
    try:
        table = pd.read_csv(
            path, keep_default_na=False, na_values={"at": [""]}, dtype={n: str for n in TIPPING if n != "at"}
        )
        table = table.astype({"at": float})
    except (ValueError, OSError, KeyError) as error:
        raise InputError(f"'{path}' is damaged: {error}") from None
    missing = [column for column in TIPPING if column not in table.columns]
    if missing:
        raise InputError(f"'{path}' was written by another version: it has no column {quote_all(missing)}")
    return table
