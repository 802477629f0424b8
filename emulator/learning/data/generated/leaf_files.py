"""What the made-up sets in LEAF's format share: its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Samples = tuple[list[Any], list[Any]]  # x and y


def write_part(folder: Path, part: str, users: Mapping[str, Samples]) -> None:
    """Writes the users of one part, ``train`` or ``test``, under the name that LEAF gives to a split by samples."""
    (folder / part).mkdir()
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path = folder / part / f"all_data_0_niid_0_keep_0_{part}_8.json"
    path.write_text(json.dumps(content), encoding="utf-8", newline="\n")


def sizes(samples: int, spread: float) -> tuple[int, int]:
    """Samples to train and to test of a user, four to one, around ``samples`` by a factor of 0.5 + ``spread``."""
    train = max(1, round(samples * (0.5 + spread)))
    return train, max(1, train // 4)
