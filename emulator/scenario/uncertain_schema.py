"""The section ``uncertain``: what is not known for sure about a world. A run does not heed it; certificates do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, StringConstraints, TypeAdapter, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.uncertainty import Distribution, DistributionChoice
from emulator.errors import suggestion
from emulator.registry import Params
from emulator.yamlfile import Path_

Label = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=r"^[^\s,][^\n,]*$")]
Correlation = Annotated[float, Field(ge=-1, le=1)]
Pair = Annotated[tuple[str, str], Field(strict=False)]
Row = Annotated[tuple[Correlation, ...], Field(strict=False)]

TOLERANCE = 1e-9  # an eigenvalue that is below zero by no more is zero, rounded


class Drawn(Params):
    """How a quantity is drawn: as a value, or as a factor on what the scenario says."""

    value: Distribution | None = None
    factor: Distribution | None = Field(
        None, description="factors on what stands there: a number, bandwidths of links, speeds of devices"
    )
    name: Label | None = Field(None, description="what tables and pictures call it; by default its key")
    whole: bool = Field(False, description="whether values are rounded to whole numbers")

    @model_validator(mode="after")
    def _one_of_both(self) -> Drawn:
        if (self.value is None) == (self.factor is None):
            raise PydanticCustomError("drawn", "give either 'value' or 'factor'")
        if self.factor is not None and (self.factor.dimension is not None or self.factor.stands_for is not None):
            raise PydanticCustomError("drawn", "a factor is a plain number, without a unit")
        if self.whole and (self.value is None or self.value.dimension is not None):
            raise PydanticCustomError("drawn", "'whole' goes with values that are plain numbers")
        return self


def _drawn(given: Any, _: Any) -> Any:
    """A distribution (a mapping with 'kind') is one of values; anything else says more."""
    if isinstance(given, dict) and "kind" in given:
        return Drawn.model_construct(value=_distribution.validate_python(given), factor=None, name=None, whole=False)
    return Drawn.model_validate(given)


_distribution: TypeAdapter[DistributionChoice] = TypeAdapter(Distribution)


class Correlated(Params):
    """Quantities that are not drawn independently: a pair with its correlation, or several with a matrix.

    Correlations are those of the normal variables behind the quantities (a Gaussian copula).
    """

    between: Pair | None = Field(None, description="two quantities, by their keys or names")
    value: Correlation | None = Field(None, description="the correlation of the pair, from -1 to 1")
    among: Annotated[tuple[str, ...], Field(strict=False, min_length=2)] | None = Field(
        None, description="in place of a pair: several quantities"
    )
    matrix: Annotated[tuple[Row, ...], Field(strict=False)] | None = Field(
        None, description="their correlations: a list of rows, in the order of 'among'"
    )

    @model_validator(mode="after")
    def _complete(self) -> Correlated:
        pair, several = (self.between, self.value), (self.among, self.matrix)
        whole = [all(each is not None for each in way) for way in (pair, several)]
        if any(each is not None for each in (several if whole[0] else pair)) or whole[0] == whole[1]:
            raise PydanticCustomError("correlated", "give either 'between' and 'value', or 'among' and 'matrix'")
        return self

    def pairs(self) -> Iterator[tuple[str, str, float]]:
        """Each pair of quantities with its correlation."""
        if self.between is not None and self.value is not None:
            yield *self.between, self.value
        for i, row in enumerate(self.matrix or ()):
            for j in range(i):
                assert self.among is not None
                yield self.among[j], self.among[i], row[j]

    def wrong(self) -> Iterator[tuple[Path_, str]]:
        """What is wrong with the form of a matrix."""
        if self.among is None or self.matrix is None:
            return
        if len(self.matrix) != len(self.among) or any(len(row) != len(self.among) for row in self.matrix):
            yield ("matrix",), f"must have {len(self.among)} rows of {len(self.among)} numbers, as 'among' has names"
            return
        for i, row in enumerate(self.matrix):
            if row[i] != 1:
                yield ("matrix", i, i), f"the correlation of '{self.among[i]}' with itself is 1, not {row[i]:g}"
            for j in range(i):
                if row[j] != self.matrix[j][i]:
                    what = f"is {row[j]:g} for '{self.among[i]}' and '{self.among[j]}', and {self.matrix[j][i]:g} the other way"
                    yield ("matrix", i, j), f"{what} round; a correlation is the same both ways"


class Uncertain(Params):
    """What is not known for sure about the world, and how it is distributed."""

    quantities: dict[str, Annotated[Drawn, WrapValidator(_drawn)]] = Field(
        {}, description="distributions, by keys of the scenario such as topology.links.access.up"
    )
    correlations: tuple[Correlated, ...] = Field((), strict=False, description="what is not drawn independently")
    profiles: bool = Field(
        True,
        description="whether the spreads that profiles of devices state are drawn too; that of secure aggregation always is",
    )

    @property
    def names(self) -> dict[str, str]:
        """What the quantities are called, by their keys."""
        return {key: drawn.name or key for key, drawn in self.quantities.items()}

    def key_of(self, name: str) -> str | None:
        """The key of a quantity that is given by its key or its name; None where there is none."""
        return next((key for key, called in self.names.items() if name in (key, called)), None)

    def correlation_matrix(self) -> npt.NDArray[np.float64]:
        """The correlations between all quantities, in their order; those that nobody states are 0."""
        places = {key: i for i, key in enumerate(self.quantities)}
        matrix = np.eye(len(places))
        for a, b, value in (pair for each in self.correlations for pair in each.pairs()):
            i, j = places[str(self.key_of(a))], places[str(self.key_of(b))]
            matrix[i, j] = matrix[j, i] = value
        return matrix

    def wrong(self) -> Iterator[tuple[Path_, str]]:
        """What does not fit together, each with its place in the section."""
        for key in self.quantities:
            if not all(key.split(".")):
                yield ("quantities", key), "expected a key of the scenario, such as 'topology.links.access.up'"
            elif key in ("seed", "name", "notes") or key.partition(".")[0] in ("output", "uncertain", "compute"):
                yield ("quantities", key), "is nothing that the world consists of"
            for other in self.quantities:
                if other != key and f"{other}.".startswith(f"{key}."):
                    yield ("quantities", other), f"lies in '{key}', which is uncertain too"
        names = list(self.names.values())
        for key, name in self.names.items():
            if names.count(name) > 1:
                yield ("quantities", key), f"two quantities are called '{name}'; give one of them another 'name'"
        found = list(self._wrong_correlations())
        yield from found
        if not found and self.correlations:
            yield from self._not_definite()

    def _wrong_correlations(self) -> Iterator[tuple[Path_, str]]:
        seen: set[frozenset[str]] = set()
        for number, each in enumerate(self.correlations):
            at: Path_ = ("correlations", number)
            named = ("between", each.between) if each.between is not None else ("among", each.among or ())
            unknown = [(i, name) for i, name in enumerate(named[1]) if self.key_of(name) is None]
            for i, name in unknown:
                hint = suggestion(name, {*self.quantities, *self.names.values()})
                yield (*at, named[0], i), f"'{name[:60]}' is none of the quantities; {hint}"
            wrong = list(each.wrong())
            yield from (((*at, *path), message) for path, message in wrong)
            if unknown or wrong:
                continue
            for a, b, _ in each.pairs():
                pair = frozenset((str(self.key_of(a)), str(self.key_of(b))))
                if len(pair) == 1:
                    yield (*at, named[0]), f"'{a}' is correlated with itself"
                elif pair in seen:
                    yield (*at, named[0]), f"the correlation of '{a}' and '{b}' is stated twice"
                seen.add(pair)

    def _not_definite(self) -> Iterator[tuple[Path_, str]]:
        """Correlations that contradict each other: no variables have them."""
        values, vectors = np.linalg.eigh(self.correlation_matrix())
        if values[0] < -TOLERANCE:
            weights = np.abs(np.outer(vectors[:, 0], vectors[:, 0])) * (self.correlation_matrix() != 0)
            np.fill_diagonal(weights, 0)
            i, j = np.unravel_index(int(np.argmax(weights)), weights.shape)
            names = list(self.names.values())
            message = (
                f"these are no correlations: the matrix has the negative eigenvalue {values[0]:.3g}. "
                f"'{names[i]}' and '{names[j]}' contribute most to it; bring their correlation nearer to what the others imply"
            )
            yield ("correlations",), message
