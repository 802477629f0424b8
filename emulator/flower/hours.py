"""What the app's threads see of time: the emulated clock, in ``time`` and in ``concurrent.futures``.

In a thread of the app ``time.time``, ``time.monotonic`` and ``time.perf_counter`` (and those with ``_ns``) tell emulated seconds,
and ``time.sleep`` waits on the emulated clock. All other threads, and other sources such as ``datetime.now``, follow the host.
``concurrent.futures.ThreadPoolExecutor`` gives threads that take turns (see `emulator.flower.turns`).
"""

from __future__ import annotations

import concurrent.futures
import itertools
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import simpy
from flwr.server.client_manager import SimpleClientManager

from emulator.flower.turns import Stopped, Turns, here

EPOCH_S = 1_704_067_200.0  # what time.time() says when a run begins: 2024-01-01, so that no run depends on its day
_WALL = {"time", "time_ns"}
_CLOCKS = ("time", "monotonic", "perf_counter")

_Pool = concurrent.futures.ThreadPoolExecutor
_wait, _as_completed = concurrent.futures.wait, concurrent.futures.as_completed
_sleep = time.sleep
_numbers = itertools.count()


def _clock(name: str, real: Callable[[], Any]) -> Callable[[], Any]:
    start, whole = (EPOCH_S if name in _WALL else 0.0), name.endswith("_ns")

    def tell() -> Any:
        seat = here()
        if seat is None:
            return real()
        if seat.turns.over:
            raise Stopped
        now = start + seat.turns.env.now
        return round(now * 1e9) if whole else now

    return tell


class _Promise(concurrent.futures.Future[Any]):
    """What a thread that takes turns will give."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.happens = turns.env.event()
        self.number = next(_numbers)

    def result(self, timeout: float | None = None) -> Any:
        """See `concurrent.futures.Future.result`; waits on the emulated clock."""
        _until([self], timeout, all)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future.exception`; waits on the emulated clock."""
        _until([self], timeout, all)
        return super().exception(0)


class _Executor(concurrent.futures.Executor):
    """A pool whose threads take turns; ``max_workers`` limits nothing, because only one runs at a time."""

    def __init__(
        self, *_: Any, initializer: Callable[..., object] | None = None, initargs: Any = (), **__: Any
    ) -> None:
        self._made: list[_Promise] = []
        self._first: Callable[[], object] = lambda: None if initializer is None else initializer(*initargs)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """See `concurrent.futures.Executor.submit`; the call runs at once, until it waits or ends."""
        seat = here()
        assert seat is not None
        promise = _Promise(seat.turns)
        promise.set_running_or_notify_cancel()

        def work() -> None:
            try:
                self._first()
                promise.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 (as ThreadPoolExecutor does)
                promise.set_exception(error)
            promise.happens.succeed()

        self._made.append(promise)
        seat.turns.start(work, seat.name, seat.server, seat.meter)
        return promise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `concurrent.futures.Executor.shutdown`."""
        if wait:
            _until(self._made, None, all)


class _InOrder(set[Any]):
    """A set that goes through its members in a given order, so that sums over them do not depend on addresses."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._order = list(members)
        super().__init__(self._order)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._order)


def _until(promises: list[_Promise], timeout: float | None, enough: Callable[[Iterable[bool]], bool]) -> None:
    """Waits, in a thread of an app, until all or any of these are there, at most so many emulated seconds."""
    seat = here()
    if seat is None or not promises or enough(p.done() for p in promises):
        return
    env = seat.turns.env
    waits = [p.happens for p in promises if not p.done()]
    joined = env.all_of(waits) if enough is all else env.any_of(waits)

    def steps() -> Generator[simpy.Event, Any, None]:
        yield joined if timeout is None else joined | env.timeout(timeout)

    seat.turns.wait(steps())


def _waiting(fs: Iterable[Any], timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
    futures = list(fs)
    if here() is None or not all(isinstance(f, _Promise) for f in futures):
        return _wait(futures, timeout, return_when)
    _until(futures, timeout, all if return_when == "ALL_COMPLETED" else any)
    ordered = sorted(futures, key=lambda f: f.number)
    done, rest = (_InOrder(f for f in ordered if f.done() is wanted) for wanted in (True, False))
    return concurrent.futures._base.DoneAndNotDoneFutures(done, rest)


def _completing(fs: Iterable[Any], timeout: float | None = None) -> Iterator[Any]:
    futures = list(fs)
    if here() is None or not all(isinstance(f, _Promise) for f in futures):
        yield from _as_completed(futures, timeout)
        return
    left = sorted(futures, key=lambda f: f.number)
    while left:
        _until(left, timeout, any)
        done = [f for f in left if f.done()]
        if not done:
            raise concurrent.futures.TimeoutError
        yield from done
        left = [f for f in left if not f.done()]


def _sleeping(seconds: float) -> None:
    seat = here()
    if seat is None:
        _sleep(seconds)
    else:
        seat.turns.wait(seat.turns.pausing(seconds))


def _pool(*args: Any, **kwargs: Any) -> concurrent.futures.Executor:
    return _Pool(*args, **kwargs) if here() is None else _Executor(*args, **kwargs)


def _wait_for(self: Any, num_clients: int, timeout: float = 86400) -> bool:
    """`SimpleClientManager.wait_for` of Flower's older servers, on the emulated clock."""
    left_s = timeout
    while self.num_available() < num_clients:
        if left_s <= 0:
            return False
        time.sleep(1)
        left_s -= 1
    return True


@contextmanager
def emulated() -> Iterator[None]:
    """A block in which threads that take turns see emulated time, and everybody else the host's."""
    replaced: list[tuple[Any, str, Any]] = [(time, "sleep", _sleeping)]
    for name in (*_CLOCKS, *(f"{name}_ns" for name in _CLOCKS)):
        replaced.append((time, name, _clock(name, getattr(time, name))))
    replaced += [
        (concurrent.futures, "ThreadPoolExecutor", _pool),
        (concurrent.futures, "wait", _waiting),
        (concurrent.futures, "as_completed", _completing),
    ]
    originals = {id(getattr(module, name)): value for module, name, value in replaced}
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "flwr"]:
        # What Flower's modules took from `time` when they were imported.
        taken = [(key, value) for key, value in vars(module).items() if callable(value) and id(value) in originals]
        replaced += [(module, key, originals[id(value)]) for key, value in taken]
    replaced.append((SimpleClientManager, "wait_for", _wait_for))
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
