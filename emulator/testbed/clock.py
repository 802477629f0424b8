"""The clock of the testbed: seconds since the start of a run, as this host measures them.

Events happen when nodes report, at the instant that a report says, and timeouts when their time has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.world.clock import BearingClock
from emulator.world.simpy_internals import move_to

if TYPE_CHECKING:
    from emulator.testbed.bench import Bench


class MeasuredClock(BearingClock):
    """An environment whose steps wait for what really happens."""

    def __init__(self, clients: int, bench: Bench) -> None:
        super().__init__(clients)
        self._bench = bench

    def step(self) -> None:
        """See `simpy.Environment.step`."""
        while (due_s := self.peek()) > self.now:
            report = self._bench.next_report(due_s)
            if report is None:
                break
            move_to(self, min(self._bench.instant_s(report.ended_s), due_s))
            self._bench.deliver(report)
        super().step()
