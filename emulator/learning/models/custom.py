"""A user's own model."""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from emulator import modules, plugins
from emulator.conformance import Facts
from emulator.contracts.learning import models
from emulator.errors import InputError
from emulator.modules import code_hash
from emulator.registry import Params

if TYPE_CHECKING:
    from torch import nn

KEY = "model.factory"


class ModuleParams(Params):
    """Where the model comes from."""

    factory: str = Field(
        description="'package.module:function', called with the shape of a sample and the number of classes"
    )

    @field_validator("factory")
    @classmethod
    def _form(cls, value: str) -> str:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", value):
            raise PydanticCustomError("factory", "must have the form 'package.module:function'")
        return value


def _imported(params: ModuleParams) -> ModuleType:
    package = params.factory.partition(":")[0]
    with modules.refusing(f"'{package}' cannot be imported", KEY):
        return plugins.import_named(package, f"model '{params.factory}'")


def _code(params: ModuleParams) -> str:
    """A hash of the file that has the factory."""
    _imported(params)
    return code_hash(params.factory.partition(":")[0], KEY)


@models.register("module", ModuleParams, Facts(code=_code))
def module(shape: tuple[int, ...], classes: int, params: ModuleParams) -> nn.Module:
    """A model of your own: ``factory(shape, classes)`` gives the torch module.

    The factory's package must be installed, on Python's path, or in the current folder. It runs with all the rights of the
    emulator.
    """
    from torch import nn

    package, _, name = params.factory.partition(":")
    own = _imported(params)
    with modules.refusing(f"'{package}' has no function '{name}'", KEY):
        factory = getattr(own, name, None)
    if not callable(factory):
        what = "" if factory is None else f"; '{name}' is of the type {type(factory).__name__}"
        raise InputError(f"'{package}' has no function '{name}'{what}", KEY)
    with modules.refusing(f"'{params.factory}' failed", KEY):
        model = factory(shape, classes)
    if not isinstance(model, nn.Module):
        raise InputError(f"'{params.factory}' gave a {type(model).__name__}, not a torch.nn.Module", KEY)
    return model
