"""The study language: a base scenario, what is varied, the seeds, and what is drawn of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.files import Figure
from emulator.errors import InputError, quote_all, suggestion
from emulator.registry import Params
from emulator.scenario.budget import Budget
from emulator.scenario.uncertain_schema import Uncertain
from emulator.scenario.words import Name
from emulator.study.names import short_names, text_of
from emulator.study.quantities import QUANTITIES

MOST_RUNS = 10_000
PICTURES = (".png", ".svg", ".pdf")

Seed = Annotated[int, Field(ge=0, lt=2**53)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=60)]
Goal = float  # an accuracy (a share), or a value of what runs are judged by; who knows that checks it


def _counted(given: Any) -> Any:
    """A number of seeds as the seeds 0, 1, 2, ..."""
    if isinstance(given, int) and not isinstance(given, bool):
        if not 1 <= given <= MOST_RUNS:
            raise PydanticCustomError("seeds", "expected a list of seeds, or how many there are to be, from 1 up")
        return tuple(range(given))
    if not isinstance(given, tuple) or not given:
        raise PydanticCustomError("seeds", "expected a list of seeds, or how many there are to be")
    return given


def _base(given: Any) -> str | dict[str, Any]:
    if (isinstance(given, str) and given) or isinstance(given, dict):
        return given
    raise PydanticCustomError("base", "expected the name of a scenario, a path beside this file, or a whole scenario")


def _changes(given: Any) -> dict[str, Any]:
    if given is None:  # `hierfavg:` with nothing after it: the scenario as it is
        return {}
    if isinstance(given, dict):
        return given
    raise PydanticCustomError("changes", "expected a mapping from scenario keys to values, such as {stop.rounds: 20}")


def _values(given: Any) -> list[Any] | dict[str, Any]:
    if isinstance(given, list | dict) and given:
        return given
    raise PydanticCustomError("values", "expected a list of values, or a mapping from names to values")


def _side(given: Any) -> Any:
    if (isinstance(given, str | int | float) and not isinstance(given, bool) and given != "") or (
        isinstance(given, dict) and given
    ):
        return given
    what = "expected a variant, a value of something varied, or a mapping such as {alpha: 0.1}"
    raise PydanticCustomError("side", "{what}", {"what": what})


def _quantity(given: str) -> str:
    if given not in QUANTITIES:
        hint = suggestion(given, QUANTITIES)
        raise PydanticCustomError("quantity", "unknown quantity '{given}'; {hint}", {"given": given[:60], "hint": hint})
    return given


def _least(given: Any) -> float | str:
    if isinstance(given, str):
        return given
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
        return float(given)
    raise PydanticCustomError("by", "expected a number, or a quantity with its unit")


def one_or_more(given: Any) -> Any:
    """A single text as a list of one."""
    return (given,) if isinstance(given, str) else given


Changes = Annotated[dict[str, Any], PlainValidator(_changes)]
Values = Annotated[Any, PlainValidator(_values)]
Texts = Annotated[tuple[str, ...], BeforeValidator(one_or_more)]


class FigureParams(Params):
    """What every kind of figure has."""

    file: Texts = Field((), description="file names ending in .png, .svg or .pdf; by default the kind's name as PNG")
    title: str = Field("", description="what stands above the picture")
    where: dict[str, Any] = Field({}, description="draw only runs with these values of what the study varies")

    def named_columns(self) -> Iterator[tuple[str, str]]:
        """Pairs of a parameter and a name of something varied that stands in it."""
        yield from (("where", name) for name in self.where)

    def told_apart(self, columns: Sequence[str]) -> list[str]:
        """By what the figure tells runs apart, beside the seed, in a study that varies ``columns``."""
        return list(columns)

    def wrong(self, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
        """What is wrong with these values in a study that varies ``columns``: pairs of a key and a message."""
        for name in self.file:
            if "/" in name or "\\" in name or not name.lower().endswith(PICTURES):
                yield "file", f"'{name}' is no plain file name that ends in one of {', '.join(PICTURES)}"
        for key, name in self.named_columns():
            try:
                column_named(name, columns)
            except InputError as error:
                yield key, error.message


Side = Annotated[Any, PlainValidator(_side)]


class Claim(Params):
    """That one method is better than another; the study's runs judge it."""

    better: Side = Field(
        description="a variant, a value of something varied, or a mapping from what is varied to values"
    )
    than: Side = Field(description="what it is better than, of the same kind")
    quantity: Annotated[str, AfterValidator(_quantity)] = Field(alias="in", description="in what it is better")
    where: dict[str, Any] = Field({}, description="only runs with these values; by default every grid point by itself")
    target: Goal | None = Field(
        None, description="the accuracy (a share) or other measure of '...-to-target'; by default the study's"
    )
    budget: Budget | None = Field(
        None, description="that of 'accuracy-at-budget'; by default the study's, or the runs' own"
    )
    by: Annotated[float | str, PlainValidator(_least)] = Field(0, description="the least difference that matters")
    source: Annotated[str, StringConstraints(max_length=1000)] = Field(
        "", description="free text: who says so, and where"
    )


class Tune(Params):
    """A key whose value is chosen for each variant and grid point, with a seed that the results do not have."""

    key: Annotated[str, StringConstraints(min_length=1)] = Field(description="a key of the scenario, dotted")
    values: Values = Field(description="the values that are tried")
    seed: Seed = Field(description="the seed of these runs; none of the study's")
    set: Changes = Field({}, description="changes for these runs alone, by dotted key, such as {stop.rounds: 20}")
    by: Literal["accuracy", "best-accuracy", "accuracy-last-rounds", "accuracy-clusters", "accuracy-at-budget"] = Field(
        "accuracy", description="of what the highest wins; of equal ones the first in 'values'"
    )


class WhatIf(Params):
    """Finished runs, replayed in every world of a grid."""

    runs: Texts = Field(
        (),
        strict=False,
        description="run folders, relative to this file, also patterns such as runs/*; by default those of the study",
    )
    set: Changes = Field({}, description="changes for all worlds, by dotted key")
    worlds: Annotated[dict[Label, Changes], Field(min_length=1)] | None = Field(
        None, description="named changes; each is a world"
    )
    grid: dict[str, Values] = Field({}, description="values of dotted keys; every combination is a world")
    targets: tuple[Goal, ...] = Field(
        (),
        strict=False,
        description="accuracies (shares), or values of another measure; the table says what reaching each took",
    )
    train: bool = Field(False, description="whether what is not known may be trained")
    claims: tuple[Claim, ...] = Field((), description="what is said of methods, and is to be judged in the worlds")
    figures: tuple[Figure, ...] = Field((), description="pictures that are drawn of the worlds")


class Study(Params):
    """A whole study."""

    name: Name = Field(description="names the study and its default folder; without it, the name of the file does")
    notes: Annotated[str, StringConstraints(max_length=10_000)] = Field("", description="free text")
    scenario: Annotated[Any, PlainValidator(_base)] = Field(
        None, description="the base: a ready scenario's name, a path relative to this file, or a whole scenario"
    )
    set: Changes = Field({}, description="changes for all runs, by dotted key")
    variants: Annotated[dict[Label, Changes], Field(min_length=1)] | None = Field(
        None, description="named changes; each is run"
    )
    grid: dict[str, Values] = Field({}, description="values of dotted keys; every combination is run")
    seeds: Annotated[tuple[Seed, ...] | None, BeforeValidator(_counted)] = Field(
        None, description="the seeds, or how many; by default the scenario's own"
    )
    target: Goal | None = Field(
        None, description="an accuracy (a share), or a value of another measure; the summary says what reaching it took"
    )
    baseline: dict[str, Any] = Field(
        {},
        description="values of what is varied; the summary says by how much accuracy drops against the runs that have them",
    )
    figures: tuple[Figure, ...] = Field((), description="the pictures that are drawn")
    budget: Budget | None = Field(
        None,
        description="what runs may spend; the summary has their accuracy there. By default time, cost and bytes of 'stop'",
    )
    claims: tuple[Claim, ...] = Field((), description="what is said of methods, and is to be judged")
    tune: Tune | None = Field(None, description="a key whose value is chosen for each variant and grid point")
    whatif: WhatIf | None = Field(None, description="worlds in which finished runs are replayed")
    uncertain: Uncertain | None = Field(
        None,
        description="what is not known for sure about the world, for hfl certify; in place of what the scenario says",
    )

    @model_validator(mode="after")
    def _of_something(self) -> Study:
        if self.scenario is None and not (self.whatif and self.whatif.runs):
            raise PydanticCustomError("study", "give a 'scenario' to run, or run folders to replay in 'whatif.runs'")
        if self.scenario is None:
            useless = [
                k
                for k in type(self).model_fields
                if k in self.model_fields_set and k not in ("name", "notes", "scenario", "whatif")
            ]
            if useless:
                raise PydanticCustomError(
                    "study",
                    "{keys}: there is no 'scenario' to run, so say it in 'whatif'",
                    {"keys": quote_all(useless)},
                )
        return self


def column_named(name: str, columns: Sequence[str]) -> str:
    """The column that is meant: its whole name, or the short one of a grid key. Raises `InputError` if there is none."""
    if name in (*columns, "method", "seed"):
        return name
    short = {s: column for column, s in short_names(columns).items()}
    if name in short:
        return short[name]
    hint = suggestion(name, {*columns, *short, "method", "seed"})
    raise InputError(f"'{name[:60]}' is nothing that this study varies; {hint}")


def same_value(given: Any, stored: Any) -> bool:
    """Whether a value in ``where`` means the value of a run."""
    return given == stored or text_of(given) == text_of(stored)
