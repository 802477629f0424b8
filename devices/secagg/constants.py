"""How long the operations of the protocol take: measured figures with their source, in a YAML file.

The bundled file is ``constants.yaml``; ``hfl calibrate secure-aggregation`` writes one for the host that it runs on.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from devices.profile import Curve, Text
from emulator import yamlfile
from emulator.errors import ScenarioError, quote_all
from emulator.explain import explain
from emulator.registry import Params
from emulator.units import Seconds


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
    """Constants and where they come from; ``curve`` is the measured time of a member by the size of its group, if given."""

    title: Text
    source: Text  # what was measured, on what, and how far the constants miss it
    constants: Constants
    curve: Curve | None = None


@cache
def find_constants(path: str | None = None) -> MeasuredConstants:
    """The constants in a file; without one, those that are bundled. Raises `ScenarioError` with all that is wrong with it."""
    document = yamlfile.load(Path(path) if path else Path(str(files("devices.secagg") / "constants.yaml")))
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping"
        keys = quote_all(MeasuredConstants.model_fields)
        raise ScenarioError((document.problem((), f"{what}; a file of constants has the keys {keys}"),))
    try:
        return MeasuredConstants.model_validate(document.data)
    except ValidationError as error:
        problems = explain(document, error.errors(include_url=False), MeasuredConstants)
        raise ScenarioError(tuple(sorted(problems, key=lambda p: (p.line, p.column, p.key)))) from None
