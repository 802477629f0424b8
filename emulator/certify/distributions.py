"""Distributions of what is uncertain about a world."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.uncertainty import DistributionFacts, DistributionParams, Floats, Frozen, distributions
from emulator.study.names import text_of
from emulator.units import Amount

MOST_ROWS = 1_000_000


def _positive(params: DistributionParams, *names: str) -> None:
    for name in names:
        amount = params.amounts.get(name)
        if amount is not None and not amount.value > 0:
            raise PydanticCustomError("support", "'{name}' must be greater than zero", {"name": name})


def _in_order(params: DistributionParams, *names: str) -> None:
    amounts = [(name, params.amounts[name].value) for name in names]
    for (low, a), (high, b) in itertools.pairwise(amounts):
        if a > b:
            context = {"low": low, "high": high}
            raise PydanticCustomError(
                "support", "'{low}' is greater than '{high}': no value lies between them", context
            )
    if amounts[0][1] == amounts[-1][1]:
        context = {"low": names[0], "high": names[-1]}
        raise PydanticCustomError("support", "'{low}' and '{high}' are equal: nothing is uncertain", context)


class NormalParams(DistributionParams):
    """A mean and a standard deviation."""

    mean: Amount
    sd: Amount = Field(description="standard deviation")

    @model_validator(mode="after")
    def _supported(self) -> NormalParams:
        _positive(self, "sd")
        return self


@distributions.register("normal", NormalParams)
def normal(params: NormalParams) -> Frozen:
    """A normal distribution. It has negative values too, unless 'least' cuts them off."""
    from scipy import stats

    return stats.norm(params.mean.value, params.sd.value)  # type: ignore[no-any-return]


class LogNormalParams(DistributionParams):
    """A median, and how far the values lie from it."""

    median: Amount
    spread: Annotated[float, Field(gt=1, le=1e6)] | None = Field(
        None, description="68 % of all values lie between median / spread and median · spread"
    )
    sigma: Annotated[float, Field(gt=0, le=14)] | None = Field(
        None, description="in place of 'spread': the standard deviation of the natural logarithm"
    )

    @model_validator(mode="after")
    def _supported(self) -> LogNormalParams:
        _positive(self, "median")
        if (self.spread is None) == (self.sigma is None):
            raise PydanticCustomError("spread", "give either 'spread' or 'sigma'")
        return self


@distributions.register("log-normal", LogNormalParams, DistributionFacts(logarithmic=True))
def log_normal(params: LogNormalParams) -> Frozen:
    """The logarithm is normal: as likely half as much as twice as much. Always positive."""
    from scipy import stats

    sigma = math.log(params.spread) if params.spread is not None else params.sigma
    return stats.lognorm(sigma, scale=params.median.value)  # type: ignore[no-any-return]


class RangeParams(DistributionParams):
    """Two ends."""

    low: Amount
    high: Amount

    @model_validator(mode="after")
    def _supported(self) -> RangeParams:
        _in_order(self, "low", "high")
        return self


@distributions.register("uniform", RangeParams)
def uniform(params: RangeParams) -> Frozen:
    """All values between two are as likely."""
    from scipy import stats

    return stats.uniform(params.low.value, params.high.value - params.low.value)  # type: ignore[no-any-return]


class PositiveRangeParams(RangeParams):
    """Two ends above zero."""

    @model_validator(mode="after")
    def _above_zero(self) -> PositiveRangeParams:
        _positive(self, "low")
        return self


@distributions.register("log-uniform", PositiveRangeParams, DistributionFacts(logarithmic=True))
def log_uniform(params: PositiveRangeParams) -> Frozen:
    """All orders of magnitude between two values are as likely."""
    from scipy import stats

    return stats.loguniform(params.low.value, params.high.value)  # type: ignore[no-any-return]


class TriangularParams(DistributionParams):
    """Two ends, and the likeliest value."""

    low: Amount
    mode: Amount = Field(description="the likeliest value")
    high: Amount

    @model_validator(mode="after")
    def _supported(self) -> TriangularParams:
        _in_order(self, "low", "mode", "high")
        return self


@distributions.register("triangular", TriangularParams)
def triangular(params: TriangularParams) -> Frozen:
    """Likeliest at one value, and less and less so towards two ends."""
    from scipy import stats

    low, width = params.low.value, params.high.value - params.low.value
    return stats.triang((params.mode.value - low) / width, low, width)  # type: ignore[no-any-return]


def _options(given: Any) -> Any:
    if isinstance(given, dict | list | tuple) and len(given) > 1:
        return given
    raise PydanticCustomError("options", "expected a list of at least two values, or a mapping from names to values")


class ChoiceParams(DistributionParams):
    """What is chosen from, and how likely each is."""

    of: Annotated[Any, PlainValidator(_options)] = Field(
        description="values of the key; or a mapping from names to them"
    )
    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None, description="how likely each is; by default all are as likely"
    )

    @model_validator(mode="after")
    def _one_each(self) -> ChoiceParams:
        labels = [label for label, _ in self.options]
        if len(set(labels)) < len(labels):
            raise PydanticCustomError("options", "two of the values of 'of' read the same; name them, as a mapping")
        if self.weights is not None and len(self.weights) != len(labels):
            context = {"weights": len(self.weights), "options": len(labels)}
            raise PydanticCustomError("weights", "there are {weights} weights for {options} values", context)
        if self.least is not None or self.most is not None:
            raise PydanticCustomError("bounds", "'least' and 'most' go with numbers")
        return self

    @property
    def options(self) -> list[tuple[str, Any]]:
        """Labels and values."""
        if isinstance(self.of, dict):
            return [(str(name), value) for name, value in self.of.items()]
        return [(text_of(value), value) for value in self.of]


@distributions.register("choice", ChoiceParams, DistributionFacts(stands_for=lambda params: params.options))
def choice(params: ChoiceParams) -> Frozen:
    """One of some values: traces, devices, fleets, or anything else that the key may have."""
    weights = np.array(params.weights or [1.0] * len(params.of))
    return _Steps(np.arange(len(weights), dtype=np.float64), weights)


class MeasuredParams(DistributionParams):
    """Values that were measured, in the file itself or in a column of another one."""

    values: tuple[Amount, ...] | None = Field(None, min_length=2, description="the values")
    file: str | None = Field(None, description="or a file (CSV or Parquet), counted from the current folder")
    column: str | None = Field(None, description="the column of the file")
    unit: str | None = Field(None, description="the unit of the column, such as Mbit/s; without it, plain numbers")

    @model_validator(mode="after")
    def _read(self) -> MeasuredParams:
        if (self.values is None) == (self.file is None):
            raise PydanticCustomError("measured", "give either 'values', or 'file' and 'column'")
        if self.file is None and (self.column is not None or self.unit is not None):
            raise PydanticCustomError("measured", "'column' and 'unit' go with 'file'; write values with their units")
        if self.file is not None and self.column is None:
            raise PydanticCustomError("measured", "'file' needs 'column'")
        numbers = self.numbers
        if len(np.unique(numbers)) < 2:
            raise PydanticCustomError("measured", "there are fewer than two different values: nothing is uncertain")
        return self

    @property
    def amounts(self) -> dict[str, Amount]:
        """As `DistributionParams.amounts`; of a file, one of them stands for all."""
        if self.unit is None:
            return super().amounts
        return {"unit": Amount.read(f"1 {self.unit}"), **super().amounts}

    @property
    def numbers(self) -> Floats:
        """The values in base units, sorted."""
        if self.values is not None:
            return np.sort([amount.value for amount in self.values])
        assert self.file is not None
        assert self.column is not None
        factor = 1.0 if self.unit is None else Amount.read(f"1 {self.unit}").value
        return np.sort(_column(Path(self.file), self.column)) * factor


def _column(path: Path, column: str) -> Floats:
    """The numbers in a column of a table. Raises ``PydanticCustomError`` where there are none."""
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            if column not in parquet.read_schema(path).names:
                raise KeyError(column)
            cells: Sequence[Any] = parquet.read_table(path, columns=[column])[column].to_pylist()
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file)
                if column not in (reader.fieldnames or ()):
                    raise KeyError(column)
                cells = [row[column] for row in reader]
        numbers = np.array([float(cell) for cell in cells if cell not in (None, "")])
    except KeyError:
        raise PydanticCustomError("column", "{file} has no column '{column}'", _where(path, column)) from None
    except (TypeError, ValueError):
        raise PydanticCustomError(
            "column", "column '{column}' of {file} is not all numbers", _where(path, column)
        ) from None
    except OSError as error:
        context = {"file": str(path), "why": error.strerror or str(error)}
        raise PydanticCustomError("file", "{file} cannot be read: {why}", context) from None
    if len(numbers) > MOST_ROWS or not np.isfinite(numbers).all():
        what = "has an infinite value or one that is no number" if len(numbers) <= MOST_ROWS else "is too long"
        context = _where(path, column) | {"what": what}
        raise PydanticCustomError("column", "column '{column}' of {file} {what}", context)
    return numbers


def _where(path: Path, column: str) -> dict[str, str]:
    return {"file": str(path), "column": column}


@distributions.register("measured", MeasuredParams)
def measured(params: MeasuredParams) -> Frozen:
    """One of some measured values, each as likely as it was measured often."""
    values, counts = np.unique(params.numbers, return_counts=True)
    return _Steps(values, counts.astype(np.float64))


class _Steps:
    """A distribution of some numbers, in ascending order."""

    def __init__(self, values: Floats, weights: Floats) -> None:
        self._values = values
        self._upto = np.cumsum(weights) / np.sum(weights)

    def ppf(self, shares: Floats) -> Floats:
        """The numbers that these shares of all values are at most."""
        places = np.searchsorted(self._upto, shares, "left")
        return self._values[np.minimum(places, len(self._values) - 1)]

    def cdf(self, values: Any) -> Any:
        """The shares of all values that are at most these."""
        places = np.searchsorted(self._values, values, "right")
        return np.concatenate([[0.0], self._upto])[places]
