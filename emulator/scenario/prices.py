"""Price lists: the section ``prices`` of a scenario, or a file that it names. `emulator.accounting` applies them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from emulator.contracts.files import TraceFormat
from emulator.errors import InputError, ScenarioError, quote_all, suggestion
from emulator.hops import HOPS
from emulator.registry import Params
from emulator.scenario.contents import content
from emulator.scenario.roster import roster_of
from emulator.units import ENERGY, SIZE, TIME, Dimension, Seconds
from emulator.yamlfile import Document, Path_, load
from traces.content import Trace
from traces.step import StepFunction

if TYPE_CHECKING:
    from emulator.scenario.schema import Scenario

GRAMS = {"g": 1.0, "kg": 1000.0}
J_PER_KWH = 3.6e6
_PRICE = re.compile(r"\s*(.*?)\s*([^\W\d_]+)\s*/\s*(.*?)\s*", re.DOTALL)


@dataclass(frozen=True)
class Price:
    """``0.09 USD/GB``: so much of ``what`` (a currency, or g) for one base unit of something."""

    text: str
    each: float
    what: str


@dataclass(frozen=True, eq=False)
class _PerUnit:
    """Marks a field as an amount for each unit of a quantity. ``grams``: of CO2, in place of money."""

    dimension: Dimension
    example: str
    grams: bool = False

    def _read(self, given: Any) -> Price:
        advice = f"write for example '{self.example}'"
        if isinstance(given, Price):
            return given
        if not isinstance(given, str):
            if isinstance(given, int | float) and not isinstance(given, bool):
                raise _wrong(f"{given} has no unit; {advice}")
            raise _wrong(f"expected an amount for each unit; {advice}")
        found = _PRICE.fullmatch(given)
        if found is None:
            raise _wrong(f"'{given[:40]}' has no unit; {advice}")
        number, what, unit = found.groups()
        try:
            amount = float(number.replace("_", ""))
        except ValueError:
            raise _wrong(f"'{given[:40]}' does not begin with a number; {advice}") from None
        if unit not in self.dimension.units:
            known = quote_all(self.dimension.units)
            raise _wrong(f"'{unit[:20]}' is no unit of {self.dimension.name}; {advice} (known: {known})")
        if self.grams and what not in GRAMS:
            raise _wrong(f"'{what[:20]}' is no mass; {advice}")
        if not 0 <= amount < float("inf"):
            raise _wrong(f"{given[:40]}: must not be negative" if amount < 0 else f"{given[:40]}: must be finite")
        each = amount * GRAMS.get(what, 1.0) / self.dimension.units[unit]
        return Price(given, each, "g" if self.grams else what)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A validator that reads the text, and a serializer that writes it back."""
        return core_schema.no_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(lambda price: price.text)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A string with a pattern, for editors."""
        units = "|".join(self.dimension.units)
        what = "|".join(GRAMS) if self.grams else "[A-Z]{3}"
        pattern = rf"^\s*\+?[0-9_.]+([eE][+-]?[0-9]+)?\s*({what})\s*/\s*({units})\s*$"
        return {"type": "string", "pattern": pattern, "examples": [self.example]}


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("price", "{message}", {"message": message})


PerByte = Annotated[Price, _PerUnit(SIZE, "0.09 USD/GB")]
PerSecond = Annotated[Price, _PerUnit(TIME, "0.05 USD/h")]
PerJoule = Annotated[Price, _PerUnit(ENERGY, "0.30 USD/kWh")]
GramsPerJoule = Annotated[Price, _PerUnit(ENERGY, "350 g/kWh", grams=True)]


class CarbonTrace(Params):
    """Grams of CO2 for each kWh over time, from a trace with a column ``carbon [g/kWh]``."""

    file: str = Field(description="a trace file")
    format: TraceFormat | None = Field(None, description="its format; without it the format is told by the content")
    start: Seconds = Field(0.0, description="which instant of the trace is the beginning of a run")
    end: Literal["repeat", "hold"] | None = Field(
        None, description="after its end it starts over, or keeps its last value; without it the file must say which"
    )


class Prices(Params):
    """What a run costs in money, and the CO2 that the energy of its clients stands for."""

    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] | None = Field(
        None, description="of all prices: three capital letters, such as USD"
    )
    traffic: dict[str, PerByte] = Field({}, description="for the bytes of each kind of hop; others cost nothing")
    devices: PerSecond | None = Field(
        None, description="for each client, while it trains or takes part in a group operation"
    )
    servers: dict[str, PerSecond] = Field(
        {}, description="for each server of a tier, from the beginning of a run to its end; other tiers cost nothing"
    )
    energy: PerJoule | None = Field(None, description="for the energy of the clients")
    carbon: GramsPerJoule | None = Field(None, description="CO2 for the energy of the clients, at all times alike")
    carbon_trace: CarbonTrace | None = Field(None, description="in place of 'carbon': over time")

    @cached_property
    def priced(self) -> dict[Path_, Price]:
        """Every price, by its path in the list."""
        found: dict[Path_, Price] = {("traffic", hop): price for hop, price in self.traffic.items()}
        found |= {("servers", tier): price for tier, price in self.servers.items()}
        alone = {("devices",): self.devices, ("energy",): self.energy}
        return found | {path: price for path, price in alone.items() if price is not None}

    @cached_property
    def carbon_over_time(self) -> tuple[StepFunction, float | None] | None:
        """Grams of CO2 for each joule, from the beginning of a run on, and when that ends without a word about what comes then.

        None where the list has no trace. Raises `InputError` with the scenario key where it cannot be read.
        """
        given, key = self.carbon_trace, "prices.carbon_trace"
        if given is None:
            return None
        held = content(given.file, given.format, Trace, key)
        held = held if given.end is None else held.ending(given.end)
        try:
            function = held.get("carbon").scaled(1 / J_PER_KWH).shifted(given.start)
        except InputError as error:
            raise InputError(f"{given.file}: {error.message}", f"{key}.file") from error
        return function, None if held.open_end_s is None else held.open_end_s - given.start


def outlived(given: CarbonTrace, end_s: float) -> str:
    """What is wrong where a run goes on after ``end_s`` seconds, when its carbon trace ends."""
    advice = "the file does not say what comes then, so say 'end: repeat' or 'end: hold'"
    return f"{given.file} ends {TIME.format(max(0.0, end_s))} after the beginning of the run, which goes on; {advice}"


def problems_of(scenario: Scenario) -> Iterator[tuple[Path_, str]]:
    """Prices in no currency or another one, hops and tiers that the topology does not have, traces that cannot be played."""
    prices, here = scenario.prices, ("prices",)
    if prices is None:
        return
    if not prices.priced and prices.carbon is None and prices.carbon_trace is None:
        yield here, f"has no price; give at least one of {quote_all(n for n in Prices.model_fields if n != 'currency')}"
    if prices.priced and prices.currency is None:
        yield here, "has prices and no currency; say for example 'currency: USD'"
    for path, price in prices.priced.items():
        if prices.currency is not None and price.what != prices.currency:
            yield (
                (*here, *path),
                f"'{price.text}' is in {price.what[:20]}; the currency of the list is {prices.currency}",
            )
    roster = roster_of(scenario.topology)
    for section, named, known, what in (
        ("traffic", prices.traffic, (*HOPS, *roster.hops), "kind of hop"),
        ("servers", prices.servers, tuple(roster.tiers), "tier of servers"),
    ):
        for name in (n for n in named if n not in known):
            yield (*here, section, name), f"there is no {what} '{name[:60]}' here; {suggestion(name, known)}"
    if prices.carbon_trace is None:
        return
    if prices.carbon is not None:
        yield (*here, "carbon_trace"), "give either 'carbon' or 'carbon_trace'"
    try:
        trace = prices.carbon_over_time
    except InputError as error:
        yield tuple(error.key.split(".")), error.message
        return
    limit_s = scenario.stop.time
    if trace is not None and trace[1] is not None and (trace[1] <= 0 or (limit_s is not None and limit_s > trace[1])):
        yield (*here, "carbon_trace", "end"), outlived(prices.carbon_trace, trace[1])


def bundled_lists() -> dict[str, Path]:
    """The price lists that come with the project, by name."""
    return {path.stem: path for path in sorted(Path(str(files("emulator") / "prices")).glob("*.yaml"))}


def read_list(name: str) -> Document:
    """A price list: a file, or the name of a bundled one. Raises `InputError` where it is neither, or cannot be read."""
    known = bundled_lists()
    if not name.endswith((".yaml", ".yml")) and name not in known:
        raise InputError(f"unknown price list '{name[:60]}'; {suggestion(name, known)}, or give a .yaml file")
    document = load(known.get(name, Path(name)))
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        raise ScenarioError(
            (document.problem((), f"{what}; a price list has the keys {quote_all(Prices.model_fields)}"),)
        )
    return document
