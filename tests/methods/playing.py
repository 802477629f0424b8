"""Plays scenarios without a run folder."""

from __future__ import annotations

from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.session import Session
from emulator.run import assemble
from emulator.scenario import Loaded


def played(loaded: Loaded) -> Session:
    """The session of a scenario that was played to its end."""
    session = assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    return session
