"""Tables that methods and attacks write into the run folder, as their authors declare them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.errors import InputError, quote_all

# Tables and files that every run may have: a further table takes none of these names.
RESERVED = (
    "accuracy", "comparison", "energy", "fleet", "groupings", "groups", "ledger", "manifest", "measure", "memory", "metrics",
    "models", "prices", "report", "scenario", "summary", "topology", "whatif",
)  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,59}")
_COLUMN = re.compile(r"[a-z][a-z0-9_]{0,59}")


@dataclass(frozen=True)
class Table:
    """A table that a method or an attack fills with ``session.note(name, row)``: ``NAME.csv`` in the run folder.

    It is declared where the method is registered: ``methods.register("mine", Params, MethodFacts(tables=(Table("delays",
    ("round", "delay_s")),)))``. Columns carry SI units in their names. A run that notes no row has no such file. Raises
    `InputError` where the name or a column is no plain name, stands twice, or belongs to another file of the run folder.
    """

    name: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"table '{self.name}': a name begins with a letter and holds small letters, digits, '_' and '-'"
            )
        if self.name in RESERVED:
            raise InputError(
                f"table '{self.name}': every run may have a file of this name; take another one than {quote_all(RESERVED)}"
            )
        check_columns(f"table '{self.name}'", self.columns)
        if not self.columns:
            raise InputError(f"table '{self.name}' has no columns; name at least one")

    @property
    def file(self) -> str:
        """The name of its file in a run folder."""
        return f"{self.name}.csv"

    def row(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A row in the order of the columns. Raises `ValueError` where it has not exactly the declared ones."""
        missing = [name for name in self.columns if name not in given]
        unknown = [name for name in given if name not in self.columns]
        if missing or unknown:
            what = "; ".join(
                f"{said} {quote_all(names)}"
                for said, names in (("without", missing), ("with unknown", unknown))
                if names
            )
            raise ValueError(f"a row of table '{self.name}' {what}; its columns are {quote_all(self.columns)}")
        return {name: given[name] for name in self.columns}


def check_columns(whose: str, names: Sequence[str], taken: Sequence[str] = ()) -> None:
    """Raises `InputError` where a name of a column is no plain name, stands twice or is taken."""
    if isinstance(names, str):
        raise InputError(f"{whose}: columns are a tuple of names, such as ('{names}',)")
    for number, name in enumerate(names):
        if not isinstance(name, str) or not _COLUMN.fullmatch(name):
            raise InputError(
                f"{whose}: column '{name}' must hold small letters, digits and '_', and begin with a letter"
            )
        if name in names[:number] or name in taken:
            raise InputError(f"{whose}: there is a column '{name}' already; give it another name")
