"""Which versions of Flower apps run on, found before anything of it is imported."""

from __future__ import annotations

import importlib.metadata
import re

from emulator.errors import InputError

PACKAGE = "flwr"
OLDEST, NEWEST = (1, 41), (1, 42)  # tested with both; the first and the last minor version that are supported
RANGE = f"{PACKAGE}>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"


def check() -> str:
    """The version of flwr that is installed. Raises `InputError` where there is none, or one that is not supported."""
    how = 'pip install "hfl-emulator[flower]"'
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"'hfl flower' needs Flower, which is not installed; install it with {how}") from None
    numbers = re.match(r"(\d+)\.(\d+)", version)
    found = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if not OLDEST <= found <= NEWEST:
        raise InputError(f"Flower {version} is not supported; 'hfl flower' works with {RANGE}: install it with {how}")
    return version
