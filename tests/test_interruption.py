"""An interruption that falls into a callback, where Python drops exceptions, comes again."""

from __future__ import annotations

import signal
import time
import weakref
from types import FrameType

import pytest

from emulator.interruption import heard


class Thing:
    pass


def test_an_interruption_in_a_callback_is_heard_a_moment_later() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def called(reference: weakref.ref[Thing]) -> None:
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with heard():
            thing = Thing()
            held = weakref.ref(thing, called)
            del thing  # the callback is interrupted, and Python drops that
            assert held() is None
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                time.sleep(60)
            assert time.monotonic() - began < 50  # it does not wait for what the program is waiting for
    finally:
        signal.signal(signal.SIGTERM, before)
