"""Quantities with units: ``20 Mbit/s``, ``15 ms``, ``1.5 GB``, ``2 h``.

A quantity is written as a number and a unit and kept as a float in the dimension's base unit. Unit names are
case-sensitive and exact, because ``Mb`` and ``MB`` differ by eight and ``kB`` and ``KiB`` by 2.4 %: what could be
read in two ways is refused with both readings in the message. ``k``, ``M``, ``G``, ``T`` are powers of 1000; ``Ki``,
``Mi``, ``Gi``, ``Ti`` powers of 1024.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from emulator.errors import quote_all, suggestion

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_NUMBER = re.compile(r"^\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*$", re.DOTALL)


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: there is one object for each kind
class Dimension:
    """A kind of quantity. ``units`` maps each accepted unit name to its size in ``base``."""

    name: str
    base: str
    units: dict[str, float]
    example: str

    @property
    def article(self) -> str:
        """What stands before its name."""
        return "an" if self.name[0] in "aeiou" else "a"

    def parse(self, text: str) -> float:
        """The value of ``text`` in base units; raises ``ValueError`` with a message for the user."""
        match = _NUMBER.match(text)
        if match is None:
            raise ValueError(
                f"'{_short(text)}' is not {self.article} {self.name}; write a number and a unit, such as '{self.example}'"
            )
        number, unit = match.groups()
        if not unit:
            raise ValueError(f"'{_short(text)}' has no unit; write for example '{self.example}'")
        if unit not in self.units:
            raise ValueError(self._unknown(unit))
        value = float(number.replace("_", "")) * self.units[unit]
        if not math.isfinite(value):
            raise ValueError(f"'{_short(text)}' is too large")
        return value

    def format(self, value: float) -> str:
        """The shortest exact text: ``parse(format(v)) == v``. Bandwidths are written in bits, sizes in bytes."""
        best = f"{_plain(value)} {self.base}"
        for unit, size in self.units.items():
            if unit.endswith(("B/s", "bit")) and not unit.endswith(self.base):
                continue
            text = f"{_plain(value / size)} {unit}"
            if math.isfinite(value / size) and len(text) < len(best) and self.parse(text) == value:
                best = text
        return best

    def _unknown(self, unit: str) -> str:
        other = next((d for d in DIMENSIONS if unit in d.units), None)
        if other is not None:
            return f"'{unit}' is a unit of {other.name}, not of {self.name}; write for example '{self.example}'"
        return f"unknown unit '{_short(unit)}' of {self.name}; {self._advice(unit)}"

    def _advice(self, unit: str) -> str:
        if re.fullmatch(r"[kKMGT]?(b|bps|b/s)", unit) and "bit" in "".join(self.units):
            prefix = unit[0].replace("K", "k") if unit[0] in "kKMGT" else ""
            tail = "/s" if "bit/s" in self.units else ""
            return f"say '{prefix}bit{tail}' (bits) or '{prefix}B{tail}' (bytes, eight times as much)"
        if re.fullmatch(r"K(B|B/s|bit|bit/s)", unit) and f"k{unit[1:]}" in self.units:
            binary = f"Ki{unit[1:]}"
            other = f" or '{binary}' (1024)" if binary in self.units else ""
            return f"say 'k{unit[1:]}' (1000){other}"
        tip = suggestion(unit, self.units, "known units")
        return tip if tip.startswith("did") else f"known units: {quote_all(self.units)}"


def _scaled(unit: str, prefixes: dict[str, float], factor: float = 1.0) -> dict[str, float]:
    return {f"{p}{unit}": size * factor for p, size in prefixes.items()}


def _plain(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


TIME = Dimension(
    "time", "s",
    {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0, "d": 86400.0}, "15 ms",
)  # fmt: skip
SIZE = Dimension(
    "size", "B", _scaled("B", _DECIMAL) | _scaled("B", _BINARY) | _scaled("bit", _DECIMAL, 0.125), "1.5 GB"
)
RATE = Dimension(
    "bandwidth", "bit/s",
    _scaled("bit/s", _DECIMAL) | _scaled("B/s", _DECIMAL, 8.0) | _scaled("B/s", _BINARY, 8.0), "20 Mbit/s",
)  # fmt: skip
SPEED = Dimension("compute speed", "FLOP/s", _scaled("FLOP/s", _DECIMAL), "9.6 GFLOP/s")
POWER = Dimension("power", "W", {"W": 1.0, "mW": 1e-3, "kW": 1e3}, "3.4 W")
CLIENT_TIME = Dimension(
    "cost", "client-s", {"client-s": 1.0, "client-min": 60.0, "client-h": 3600.0, "client-d": 86400.0}, "500 client-h"
)
ENERGY = Dimension("energy", "J", _scaled("J", _DECIMAL) | {"Wh": 3600.0, "kWh": 3.6e6}, "50 kJ")
MASS = Dimension("mass", "g", {"g": 1.0, "mg": 1e-3, "kg": 1e3, "t": 1e6}, "2 kg")
DIMENSIONS = (TIME, SIZE, RATE, SPEED, POWER, CLIENT_TIME, ENERGY, MASS)


def dimension_of(text: str) -> Dimension | None:
    """The kind of quantity that a text such as ``20 Mbit/s`` is, by its unit; None for a number without a unit.

    Raises ``ValueError`` with a message for the user where the text is neither.
    """
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"'{_short(text)}' is neither a number nor a quantity such as '20 Mbit/s'")
    unit = match[2]
    found = next((each for each in DIMENSIONS if unit in each.units), None)
    if unit and found is None:
        raise ValueError(f"unknown unit '{_short(unit)}'; {suggestion(unit, [u for d in DIMENSIONS for u in d.units])}")
    return found


@dataclass(frozen=True)
class Amount:
    """A number or a quantity of any kind. ``value`` is in base units; ``dimension`` is None for a plain number."""

    value: float
    dimension: Dimension | None = None

    @property
    def plain(self) -> str | float:
        """What `read` makes the same amount of."""
        return self.value if self.dimension is None else self.dimension.format(self.value)

    @classmethod
    def read(cls, given: Any) -> Amount:
        """From a number, or a text with a unit. Raises ``PydanticCustomError`` for anything else."""
        if isinstance(given, Amount):
            return given
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise PydanticCustomError("amount", "expected a number, or a quantity such as '20 Mbit/s'")
        if not isinstance(given, str):
            if not math.isfinite(given):
                raise PydanticCustomError("amount", "expected a finite number")
            return cls(float(given))
        try:
            dimension = dimension_of(given)
            if dimension is None:
                raise ValueError(
                    f"'{_short(given)}' is text; write a number without quotes, or a quantity with its unit"
                )
            return cls(dimension.parse(given), dimension)
        except ValueError as error:
            raise PydanticCustomError("amount", "{text}", {"text": str(error)}) from None

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A validator that reads the text or the number, and a serializer that writes it back exactly."""
        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.plain_serializer_function_ser_schema(lambda amount: amount.plain)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A number, or a string."""
        return {
            "anyOf": [{"type": "number"}, {"type": "string"}],
            "description": "a number, or a quantity with its unit",
        }


@dataclass(frozen=True)
class Quantity:
    """Marks a float field as written with a unit. ``positive`` refuses zero; negative values are always refused."""

    dimension: Dimension
    positive: bool = False

    def _read(self, given: Any) -> float:
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            raise PydanticCustomError("quantity", "expected a {name} such as '{example}'", self._context())
        if not isinstance(given, str) and given != 0:
            raise PydanticCustomError(
                "quantity",
                "{given} has no unit; write for example '{example}'",
                {**self._context(), "given": str(given)[:40]},
            )
        try:
            value = self.dimension.parse(given) if isinstance(given, str) else 0.0
        except ValueError as error:
            raise PydanticCustomError("quantity", "{text}", {"text": str(error)}) from None
        if value < 0 or (self.positive and value == 0):
            bound = "must be greater than zero" if self.positive else "must not be negative"
            raise PydanticCustomError(
                "quantity",
                "{given}: {a} {name} here {bound}",
                {**self._context(), "given": _short(str(given)), "bound": bound, "a": self.dimension.article},
            )
        return value

    def _context(self) -> dict[str, str]:
        return {"name": self.dimension.name, "example": self.dimension.example}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A validator that reads the text and a serializer that writes it back exactly."""
        return core_schema.no_info_plain_validator_function(
            self._read, serialization=core_schema.plain_serializer_function_ser_schema(self.dimension.format)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """A string with a pattern that lists the accepted units (or a zero, where it is allowed), for editors."""
        units = "|".join(self.dimension.units)  # none of them holds a character that means something in a pattern
        text = {"type": "string", "pattern": rf"^\s*\+?[0-9_.]+([eE][+-]?[0-9]+)?\s*({units})\s*$"}
        return {
            **(text if self.positive else {"anyOf": [text, {"const": 0}]}),
            "description": f"a {self.dimension.name} with its unit",
            "examples": [self.dimension.example],
        }


Seconds = Annotated[float, Quantity(TIME)]
PositiveSeconds = Annotated[float, Quantity(TIME, positive=True)]
Bytes = Annotated[float, Quantity(SIZE)]
PositiveBytes = Annotated[float, Quantity(SIZE, positive=True)]
BitsPerSecond = Annotated[float, Quantity(RATE, positive=True)]
FlopsPerSecond = Annotated[float, Quantity(SPEED, positive=True)]
Watts = Annotated[float, Quantity(POWER)]
ClientSeconds = Annotated[float, Quantity(CLIENT_TIME, positive=True)]
PositiveJoules = Annotated[float, Quantity(ENERGY, positive=True)]
PositiveGrams = Annotated[float, Quantity(MASS, positive=True)]
