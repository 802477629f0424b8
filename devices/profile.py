"""Device profiles: one YAML file for each device, with units and with the source of its figures.

The bundled profiles are in ``devices/profiles``; a new one is a new file there and nothing else. Users name a
profile or give the path of their own file.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from devices.spread import Spread
from emulator import yamlfile
from emulator.errors import InputError, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.registry import Params
from emulator.units import POWER, SPEED, TIME, Dimension, FlopsPerSecond, PositiveBytes, PositiveSeconds, Seconds, Watts

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Power(Params):
    """What the whole device draws in each state. No state draws less than ``idle`` (see `devices.power`)."""

    idle: Watts
    compute: Watts
    send: Watts
    receive: Watts

    @model_validator(mode="after")
    def _not_below_idle(self) -> Power:
        for state in ("compute", "send", "receive"):
            if getattr(self, state) < self.idle:
                raise PydanticCustomError(
                    "below_idle",
                    "'{state}' ({draw}) is below 'idle' ({idle}); give what the whole device draws",
                    {
                        "state": state,
                        "draw": POWER.format(getattr(self, state)),
                        "idle": POWER.format(self.idle),
                    },
                )
        return self


class Terms(Params):
    """The terms of ``a + b n + c n²``, in seconds, where n is the number of members of a group."""

    a: Seconds
    b: Seconds
    c: Seconds

    def seconds(self, n: int) -> float:
        """The seconds in a group of ``n`` members; raises ``ValueError`` where n is below one."""
        if n < 1:
            raise ValueError(f"a group of {n} members has no group operation")
        return self.a + self.b * n + self.c * n * n


class Curve(Terms):
    """Seconds that a group operation costs each member of a group of n: ``a + b n + c n²``.

    They are those of a model of ``parameters`` numbers. ``proportional`` is the part of them that grows with the size of the
    model (without it, all of them); the rest is the same for models of all sizes. A curve without ``parameters`` holds for all.
    """

    parameters: Annotated[int, Field(ge=1)] | None = None
    proportional: Terms | None = None

    @model_validator(mode="after")
    def _part_of_it(self) -> Curve:
        if self.proportional is not None and self.parameters is None:
            raise PydanticCustomError("no_size", "'proportional' needs 'parameters', the size that the curve is for")
        return self

    def of(self, parameters: int) -> Terms:
        """The terms for a model of so many parameters; ``a`` may be below 0, because nobody agrees on a key with itself."""
        part = self.proportional or self
        more = 0.0 if self.parameters is None else parameters / self.parameters - 1
        terms: dict[str, Any] = {t: getattr(self, t) + more * getattr(part, t) for t in Terms.model_fields}
        return Terms.model_construct(**terms)

    def faster(self, factor: float) -> Curve:
        """The curve of a device that takes ``factor`` times less for all of it."""

        def scaled(terms: Terms) -> dict[str, Any]:
            return {term: getattr(terms, term) / factor for term in Terms.model_fields}

        part = self.proportional and Terms.model_construct(**scaled(self.proportional))
        return self.model_copy(update={**scaled(self), "proportional": part})


class Efficiency(Params):
    """The share of ``effective_speed`` that layers of a kind reach; dense ones (convolutions, matrix products) reach all of it.

    ``depthwise`` are convolutions in which every channel is a group of its own, ``recurrent`` the matrix products of
    LSTM, GRU and RNN layers. The fields are the kinds (`devices.compute.Arithmetic`).
    """

    depthwise: Factor = 1.0
    recurrent: Factor = 1.0


class Measured(Params):
    """Measured seconds of a sample of training, all passes and overheads, of one network at one batch size.

    ``model`` is the kind that a scenario names; arithmetic and size say that it is the same network. ``seconds`` are those of
    one sample.
    """

    model: Text
    forward_flops: Factor
    parameters: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    seconds: PositiveSeconds
    source: Text


class Throttling(Params):
    """A device that slows down when it gets hot: see `emulator.world.heat`.

    Cold, it computes at its own speed for ``after``; from then on at ``speed`` times that, for as long as it goes on. It is
    cold again after it was idle for ``recovers``.
    """

    after: PositiveSeconds
    speed: Annotated[float, Field(gt=0, le=1)]
    recovers: PositiveSeconds


class Swap(Params):
    """What does not fit into memory is swapped: ``swap`` times slower, by the share of the training that does not fit."""

    swap: Annotated[float, Field(ge=1, allow_inf_nan=False)]


def _out_of_memory(given: Any, _: Any) -> Any:
    """A mapping is a `Swap`; a union would answer a mistake in it with both."""
    if isinstance(given, dict | Swap):
        return Swap.model_validate(given)
    if given != "refuse":
        raise PydanticCustomError("out_of_memory", "expected 'refuse' or a mapping such as {swap: 10}")
    return given


class PowerFactors(Params):
    """Factors on what a device draws."""

    idle: Factor = 1.0
    compute: Factor = 1.0
    send: Factor = 1.0
    receive: Factor = 1.0


class EfficiencyFactors(Params):
    """Factors on the efficiency of kinds of layers."""

    depthwise: Factor = 1.0
    recurrent: Factor = 1.0


class ProfileFactors(Params):
    """By what the figures of a profile are multiplied, in a world in which they are other than the profile says.

    ``speed`` is that of everything that the device computes; the others are factors on the figures of the same names. One on
    ``core_slowdown`` holds for the curves of group operations too, which stand on it.
    """

    speed: Factor = 1.0
    effective_speed: Factor = 1.0
    batch_overhead: Factor = 1.0
    core_slowdown: Factor = 1.0
    power: PowerFactors = PowerFactors()
    efficiency: EfficiencyFactors = EfficiencyFactors()


# What may be uncertain of a profile: the names in `ProfileFactors`, and the kind of each figure.
UNCERTAIN: dict[str, Dimension | None] = {
    "speed": None, "effective_speed": SPEED, "batch_overhead": TIME, "core_slowdown": None,
    **{f"power.{state}": POWER for state in PowerFactors.model_fields},
    **{f"efficiency.{kind}": None for kind in EfficiencyFactors.model_fields},
}  # fmt: skip


class DeviceProfile(Params):
    """What a kind of device can do and what it draws.

    ``effective_speed`` is what it sustains while it trains dense layers in float32 with a framework such as
    PyTorch, far below its peak; multiplications and additions count separately. ``batch_overhead`` is the
    time that every mini-batch takes beside its arithmetic. ``group_operations`` are curves by the name of the
    operation. ``reserve`` is what system and framework take of ``memory`` before anything is trained (`devices.memory`).
    """

    title: Text
    source: Text  # where every figure comes from, and which ones are estimates
    effective_speed: FlopsPerSecond
    batch_overhead: Seconds
    core_slowdown: Annotated[float, Field(gt=0)] | None = None  # of one core, against the Xeon of secure_aggregation.py
    power: Power
    group_operations: dict[str, Curve]
    memory: PositiveBytes | None = None
    reserve: PositiveBytes = Field("640 MiB", validate_default=True)
    out_of_memory: Annotated[Literal["refuse"] | Swap, WrapValidator(_out_of_memory)] = "refuse"
    efficiency: Efficiency = Efficiency.model_construct(depthwise=1.0, recurrent=1.0)
    measured: tuple[Measured, ...] = ()
    throttling: Throttling | None = None
    spread: dict[str, Spread] = Field({})  # how uncertain figures are, by their names in `UNCERTAIN`
    _name: str = PrivateAttr("")  # private, so that a file cannot claim another name than its own

    @field_validator("measured", mode="after")
    @classmethod
    def _once_each(cls, measured: tuple[Measured, ...]) -> tuple[Measured, ...]:
        seen = [(m.model, m.forward_flops, m.parameters, m.batch_size) for m in measured]
        for number, each in enumerate(seen):
            if each in seen[:number]:
                what = {"model": each[0], "batch": each[3]}
                raise PydanticCustomError("twice", "'{model}' at batch size {batch} is there twice", what)
        return measured

    @field_validator("spread", mode="after")
    @classmethod
    def _of_figures(cls, spread: dict[str, Spread]) -> dict[str, Spread]:
        for name, each in spread.items():
            if name not in UNCERTAIN:
                context = {"name": name, "hint": suggestion(name, UNCERTAIN)}
                raise PydanticCustomError("spread", "nothing is called '{name}' here; {hint}", context)
            if each.low is not None and each.low.dimension is not UNCERTAIN[name]:
                raise PydanticCustomError("spread", "the range of '{name}' is of another kind", {"name": name})
        return spread

    def figure(self, name: str) -> float | None:
        """The figure of a name in `UNCERTAIN`, in SI units; 1 for ``speed``; None where the profile has none."""
        if name == "speed":
            return 1.0
        value: Any = self
        for part in name.split("."):
            value = getattr(value, part)
        return None if value is None else float(value)

    def times(self, factors: ProfileFactors) -> DeviceProfile:
        """The same device with other figures. Raises ``ValueError`` where it would draw less in a state than when it is idle."""
        device = self if factors.speed == 1 else self.faster(factors.speed, self.name)
        slowdown = None if device.core_slowdown is None else device.core_slowdown * factors.core_slowdown
        draws = {state: getattr(device.power, state) * getattr(factors.power, state) for state in Power.model_fields}
        for state, draw in draws.items():
            if draw < draws["idle"]:
                raise ValueError(
                    f"'{self.name}' would draw less in the state '{state}' ({draw:g} W) than idle ({draws['idle']:g} W)"
                )
        shares = {k: getattr(device.efficiency, k) * getattr(factors.efficiency, k) for k in Efficiency.model_fields}
        curves = {name: curve.faster(1 / factors.core_slowdown) for name, curve in device.group_operations.items()}
        other = device.model_copy(
            update={
                "effective_speed": device.effective_speed * factors.effective_speed,
                "batch_overhead": device.batch_overhead * factors.batch_overhead,
                "core_slowdown": slowdown,
                "group_operations": device.group_operations if factors.core_slowdown == 1 else curves,
                "power": Power.model_construct(**draws),
                "efficiency": Efficiency.model_construct(**shares),
            }
        )
        other._name = self.name
        return other

    @property
    def name(self) -> str:
        """The stem of the file that the profile was read from; empty where it was not read from a file."""
        return self._name

    def faster(self, factor: float, name: str) -> DeviceProfile:
        """A device called ``name`` that computes ``factor`` times as fast: training, batches and group operations.

        It draws the same power in every state, and has the same memory and heat. Raises ``ValueError``
        unless the factor is finite and greater than 0.
        """
        if not 0 < factor < math.inf:
            raise ValueError(f"a factor is finite and greater than 0, not {factor}")
        curves = {operation: curve.faster(factor) for operation, curve in self.group_operations.items()}
        slowdown = None if self.core_slowdown is None else self.core_slowdown / factor
        other = self.model_copy(
            update={
                "effective_speed": self.effective_speed * factor,
                "batch_overhead": self.batch_overhead / factor,
                "core_slowdown": slowdown,
                "group_operations": curves,
                "measured": tuple(m.model_copy(update={"seconds": m.seconds / factor}) for m in self.measured),
            }
        )
        other._name = name
        return other


def profile_names() -> list[str]:
    """The bundled profiles, sorted."""
    return sorted(p.stem for p in _folder().glob("*.yaml"))


@cache
def find_profile(name: str) -> DeviceProfile:
    """The bundled profile of this name, or the user's own profile at this path (``.yaml`` or ``.yml``).

    A relative path counts from the current folder. Raises `InputError` for an unknown name, and its subclass
    `ScenarioError` with file, line, column and key of everything that is wrong with a file.
    """
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    if name not in profile_names():
        raise InputError(f"unknown device '{name[:60]}'; {suggestion(name, profile_names())}")
    return _read(_folder() / f"{name}.yaml")


def _folder() -> Path:
    return Path(str(files("devices") / "profiles"))


def _read(path: Path) -> DeviceProfile:
    document = yamlfile.load(path)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        keys = quote_all(DeviceProfile.model_fields)
        raise ScenarioError((document.problem((), f"{what}; a device profile has the keys {keys}"),))
    try:
        profile = DeviceProfile.model_validate(document.data)
    except ValidationError as error:
        problems = explain(document, error.errors(include_url=False), DeviceProfile)
        raise ScenarioError(tuple(sorted(problems, key=lambda p: (p.line, p.column, p.key)))) from None
    profile._name = path.stem
    return profile
