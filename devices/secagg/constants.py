"""How long the operations of the protocol take: measured figures with their source, in a YAML file.

The bundled ones are in ``devices/secagg/profiles``, one file an implementation: a new one is a new file there and nothing else.
Their seconds are those of one core of the Xeon that ``core_slowdown`` of devices refers to. ``hfl calibrate secure-aggregation``
writes such a file for the host that it runs on.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from devices.profile import Curve, Text
from devices.spread import Spread
from emulator import yamlfile
from emulator.errors import InputError, ScenarioError, quote_all, suggestion
from emulator.explain import explain
from emulator.registry import Params
from emulator.units import Seconds

DEFAULT = "python-2022"  # docs/secure-aggregation.md argues for it


class Constants(Params):
    """Seconds of one operation each, on one core. `devices.secagg.cost` says how often each comes."""

    step: Seconds  # a party takes up a step, whatever is in it
    key_pair: Seconds  # a key pair is made
    agreement: Seconds  # two parties' common key is derived
    share_term: Seconds  # one term of a polynomial: a share takes as many as the threshold
    seal: Seconds  # two shares are encrypted for a client
    unseal: Seconds  # and decrypted by it
    encode_element: Seconds  # a number of the vector is encoded
    mask_element: Seconds  # a number of a mask is drawn from a key, and added or taken off
    add_element: Seconds  # the server adds a number of a masked vector to the sum
    entry: Seconds  # the server takes in or passes on one entry of a list
    basis_term: Seconds  # one factor of the weights with which shares are combined: as many as the threshold squared
    secret_term: Seconds  # one share is weighed in combining a secret: as many as the threshold
    # Against an active adversary alone; None where they were not measured.
    sign: Seconds | None = None  # a signature is made
    verify: Seconds | None = None  # and checked


class MeasuredConstants(Params):
    """Constants and where they come from.

    ``curve`` is the measured time of a member by the size of its group, if given; ``spread`` is how uncertain constants are, by
    their names.
    """

    title: Text
    source: Text  # what was measured, on what, and how far the constants miss it
    constants: Constants
    curve: Curve | None = None
    spread: dict[str, Spread] = Field({})

    @field_validator("spread", mode="after")
    @classmethod
    def _of_constants(cls, spread: dict[str, Spread]) -> dict[str, Spread]:
        for name in spread:
            if name not in Constants.model_fields:
                context = {"name": name, "hint": suggestion(name, Constants.model_fields)}
                raise PydanticCustomError("spread", "no constant is called '{name}'; {hint}", context)
        return spread


def constants_names() -> list[str]:
    """The bundled constants, sorted."""
    return sorted(p.stem for p in _folder().glob("*.yaml"))


@cache
def find_constants(name: str = DEFAULT) -> MeasuredConstants:
    """The bundled constants of this name, or the user's own at this path (``.yaml`` or ``.yml``).

    A relative path counts from the current folder. Raises `InputError` for an unknown name, and its subclass `ScenarioError`
    with all that is wrong with a file.
    """
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    if name not in constants_names():
        raise InputError(f"unknown constants '{name[:60]}'; {suggestion(name, constants_names())}")
    return _read(_folder() / f"{name}.yaml")


def _folder() -> Path:
    return Path(str(files("devices.secagg") / "profiles"))


def _read(path: Path) -> MeasuredConstants:
    document = yamlfile.load(path)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        keys = quote_all(MeasuredConstants.model_fields)
        raise ScenarioError((document.problem((), f"{what}; a file of constants has the keys {keys}"),))
    try:
        return MeasuredConstants.model_validate(document.data)
    except ValidationError as error:
        problems = explain(document, error.errors(include_url=False), MeasuredConstants)
        raise ScenarioError(tuple(sorted(problems, key=lambda p: (p.line, p.column, p.key)))) from None
