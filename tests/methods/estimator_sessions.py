"""Small scenarios whose estimator is asked on the clock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from emulator.assembly import assemble
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.grouped import enquiry
from emulator.methods.session import Session
from emulator.scenario import Loaded

Small = Callable[..., Loaded]
PUBLIC = "data.public=3"


def session_of(loaded: Loaded, memo: Memo | None = None) -> Session:
    return assemble(loaded.scenario, Lab(loaded.scenario, RunMemory(memo or Memo(None)), max_workers=1))


def estimates(session: Session) -> np.ndarray:
    """Asks the scenario's estimator, on the clock."""
    params = session.scenario.method.params
    process = session.env.process(params.estimator(session, enquiry(session, params)))
    return np.asarray(session.env.run(process))


def asked(small: Small, estimator: str, *changes: str) -> tuple[Session, np.ndarray]:
    session = session_of(small(PUBLIC, *changes, f"method.estimator={estimator}"))
    assert session.scenario.method.params.estimator.kind in estimator
    return session, estimates(session)
