"""Carries IP packets between pairs of TUN devices, each after a delay. A process of its own, started by whoever makes the links.

Standard input: one line of JSON, a list of directions ``[from, to, delay_s, seconds_a_byte]`` with open descriptors. The relay
ends when standard input does, and writes what it counted as JSON. A packet is due a delay and its own time on the wire after
it was read; no packet overtakes another.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import select
import time
from collections import deque

MAX_BYTES = 2048  # of a packet, with room
PR_SET_TIMERSLACK, PRIORITY = 29, 10
AT_ONCE = 32  # packets read from a device before others have their turn


def be_prompt() -> bool:
    """Asks the kernel to run this process as soon as it has something to do; whether it agreed to real-time priority."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # timers of other processes may be 50 µs late
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


class Direction:
    """One direction of a link: packets on their way, with the times at which they are due."""

    def __init__(self, source: int, sink: int, delay_s: float, byte_s: float) -> None:
        self.source, self.sink, self.delay_s, self.byte_s = source, sink, delay_s, byte_s
        self.under_way: deque[tuple[float, bytes]] = deque()
        self.last_due_s = 0.0

    def take(self) -> None:
        """Reads the packets that are there."""
        for _ in range(AT_ONCE):
            try:
                packet = os.read(self.source, MAX_BYTES)
            except BlockingIOError:
                return
            due_s = time.monotonic() + self.delay_s + len(packet) * self.byte_s
            self.last_due_s = max(due_s, self.last_due_s)
            self.under_way.append((self.last_due_s, packet))

    def give(self, late_s: array.array[float]) -> None:
        """Writes the packets that are due, and notes how late each is."""
        while self.under_way and (late := time.monotonic() - self.under_way[0][0]) >= 0:
            with contextlib.suppress(OSError):  # a device that goes down at the end
                os.write(self.sink, self.under_way[0][1])
            late_s.append(late)
            self.under_way.popleft()


def carry(directions: list[Direction]) -> array.array[float]:
    """Carries packets until standard input ends; by how many seconds each was late."""
    late_s = array.array("d")
    by_source = {direction.source: direction for direction in directions}
    watched = [0, *by_source]
    while True:
        first = min((d.under_way[0][0] for d in directions if d.under_way), default=None)
        wait = None if first is None else max(0.0, first - time.monotonic())
        for descriptor in select.select(watched, [], [], wait)[0]:
            if descriptor == 0:
                return late_s
            by_source[descriptor].take()
        for direction in directions:
            if direction.under_way:
                direction.give(late_s)


def main() -> None:
    """Does what the first line asks."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        line += byte
    prompt = be_prompt()
    gc.disable()  # nothing here refers to itself, and a collection would hold packets up
    late = sorted(carry([Direction(*told) for told in json.loads(line)]))
    shares = {"median": 0.5, "p99": 0.99, "p99.9": 0.999, "most": 1.0}
    told = {name: late[min(len(late) - 1, int(share * len(late)))] for name, share in shares.items()} if late else {}
    counted = {"real_time": prompt, "packets": len(late), "late_s": told}
    with contextlib.suppress(BrokenPipeError):  # whoever started us was killed
        os.write(1, json.dumps(counted).encode())


if __name__ == "__main__":
    main()
