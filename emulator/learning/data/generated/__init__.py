"""Small made-up data sets, as real files in the formats of published ones, for scenarios that need no download.

Each kind is one module that writes a folder. What is written depends on the parameters alone; `VERSION` is to be raised
whenever the same parameters would give other files. Nothing in them is taken from the sets whose format they have.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from emulator.errors import InputError, suggestion
from emulator.registry import Params

VERSION = 1


@dataclass(frozen=True)
class Kind:
    """A kind of made-up set: the module that writes it, and the usual numbers of owners and of samples of each."""

    module: str
    owners: int
    samples: int
    what: str  # are the samples that are counted
    summary: str


KINDS = {
    "leaf-femnist": Kind("letters", 12, 60, "images", "Digits in the hands of several writers, as LEAF's FEMNIST."),
    "leaf-shakespeare": Kind("plays", 10, 600, "windows of text", "Lines of several roles, as LEAF's Shakespeare."),
    "speech-commands": Kind("speech", 10, 24, "clips", "Synthetic words of several speakers, as Speech Commands."),
    "usc-had": Kind("motion", 6, 3, "trials of each activity", "Synthetic motion of several people, as USC-HAD."),
}


class GeneratedParams(Params):
    """How large a made-up set is."""

    owners: Annotated[int, Field(ge=2, le=5000)] | None = Field(
        None, description="people who have training samples; without it a number that suits the kind"
    )
    samples: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="samples of each, on average; of usc-had, trials of each activity"
    )
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(
        0, description="determines the data, whatever the scenario's seed is"
    )

    def sizes(self, kind: str) -> tuple[int, int]:
        """Owners and samples, those of the kind where none are given."""
        usual = KINDS[kind]
        return self.owners or usual.owners, self.samples or usual.samples

    def name(self, kind: str) -> str:
        """A name for the folder of such a set."""
        owners, samples = self.sizes(kind)
        return f"{owners}-owners-{samples}-samples-seed-{self.seed}"


def write(kind: str, folder: Path, params: GeneratedParams) -> None:
    """Writes a made-up set of this kind into a folder that is there and empty. Raises `InputError` for an unknown kind."""
    if kind not in KINDS:
        raise InputError(f"unknown kind of sample data '{kind}'; {suggestion(kind, KINDS)}")
    module = importlib.import_module(f"{__name__}.{KINDS[kind].module}")
    module.write(folder, *params.sizes(kind), params.seed)
