"""Interruptions that are not lost.

A signal handler raises ``KeyboardInterrupt`` wherever the program happens to be. In a callback of a weak reference or in a
``__del__`` Python prints and drops it, and the program would go on as if nobody had asked it to stop.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

AGAIN_AFTER_S = 0.01


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Within the block an interruption that Python dropped comes again a moment later, through the handler of ``SIGTERM``."""
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            before(dropped)
            return
        again = threading.Timer(AGAIN_AFTER_S, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM))
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
