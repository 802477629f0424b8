"""The names of the protocol's four steps, in their order."""

from __future__ import annotations

from typing import Literal

Step = Literal["keys", "shares", "masked", "unmask"]
KEYS: Step = "keys"
SHARES: Step = "shares"
MASKED: Step = "masked"
UNMASK: Step = "unmask"
STEPS: tuple[Step, ...] = (KEYS, SHARES, MASKED, UNMASK)
