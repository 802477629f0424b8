"""The names of the protocol's steps, in their order, and against whom it is run."""

from __future__ import annotations

from typing import Literal

Adversary = Literal["passive", "active"]  # a server that follows the protocol but is curious, or one that may lie
Step = Literal["keys", "shares", "masked", "consistency", "unmask"]
KEYS: Step = "keys"
SHARES: Step = "shares"
MASKED: Step = "masked"
CONSISTENCY: Step = "consistency"
UNMASK: Step = "unmask"
STEPS: tuple[Step, ...] = (KEYS, SHARES, MASKED, UNMASK)


def steps_of(adversary: Adversary) -> tuple[Step, ...]:
    """All steps of a run: `STEPS`; against an active adversary with the consistency check before the last."""
    return STEPS if adversary == "passive" else (*STEPS[:-1], CONSISTENCY, UNMASK)
