"""Plays scenarios without a run folder, or with interruptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator.assembly import assemble
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.session import Session
from emulator.run import Watcher, execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded


def played(loaded: Loaded) -> Session:
    """The session of a scenario that was played to its end."""
    session = assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    return session


def cut_off_and_finished(loaded: Loaded, folder: Path, after: int) -> None:
    """Runs a scenario into a folder, is interrupted after a round, and goes on to the end."""

    def cut(round: int, _: object) -> None:  # noqa: A002
        if round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(loaded, folder, Memo(None), Watcher(on_round=cut), max_workers=1)
    assert prepare(folder, loaded.scenario)
    execute(loaded, folder, Memo(None), max_workers=1)
