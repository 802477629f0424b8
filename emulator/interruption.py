"""Interruptions that are not lost.

A signal handler raises ``KeyboardInterrupt`` wherever the program happens to be. In a callback of a weak reference or in a
``__del__`` Python prints and drops it, and the program would go on as if nobody had asked it to stop.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator

AGAIN_AFTER_S = 0.01


def _terminate() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGTERM)


@contextlib.contextmanager
def heard(again: Callable[[], None] = _terminate) -> Iterator[None]:
    """Within the block an interruption that Python dropped comes again a moment later.

    ``again`` brings it, from another thread; by default through the handler of ``SIGTERM``.
    """
    before = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is not KeyboardInterrupt:
            before(dropped)
            return
        timer = threading.Timer(AGAIN_AFTER_S, again)
        timer.daemon = True
        timer.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
