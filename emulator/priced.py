"""Money and CO2 in tables of evaluations, and where the figures of a finished run are that was priced afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emulator.errors import InputError
from emulator.files import digest_of, read_json

PRICED = "prices.json"
MONEY, CARBON = "money", "carbon_g"  # columns: in the currency of the list, and in grams of CO2
CURRENCY = "currency"  # beside the money
NO_PRICES = "no price list was applied ('prices' in the scenario, or 'hfl prices')"


def applied(folder: Path) -> dict[str, Any] | None:
    """What `PRICED` says in the folder of a finished run; None where it was not priced.

    Raises `InputError` where that was changed, or is of another run.
    """
    said = read_json(folder / PRICED)
    if said is not None and said.get("of") != digest_of(folder / "metrics.csv"):
        raise InputError(f"'{folder / PRICED}' is of another run; apply the list again with 'hfl prices', or delete it")
    return said
