"""A run of the testbed: started, played by the method that an emulation plays, written into a run folder, and taken down."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator import plugins, run_folder
from emulator.accounting import Meter
from emulator.assembly import Stage, assemble, play
from emulator.errors import DivergedError, InputError
from emulator.files import aside_of, held, write_json, write_text
from emulator.learning.interface import AnyLab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Ledger
from emulator.machine import cores
from emulator.methods.session import Session
from emulator.run import Watcher
from emulator.run_folder import COMPLETE, FAILED, INTERRUPTED, MEASURED, digests
from emulator.run_results import manifest_of, summary_of, write_results
from emulator.scenario import Loaded, Scenario, dump
from emulator.testbed import leftovers
from emulator.testbed.bench import Bench
from emulator.testbed.clock import MeasuredClock
from emulator.testbed.dry import as_told, predict, speeds
from emulator.testbed.lab import MeasuredLab
from emulator.testbed.links import joined_by, why_not_kernel
from emulator.testbed.nursery import Ground, Nursery
from emulator.testbed.world import MeasuredSession, MeasuredWorld
from emulator.world.clock import Clock
from emulator.world.world import World

AT_MOST_S = 1800.0
SPARE_CORES = 0.1  # that devices leave to the driver and the servers
MORE_BYTES = 10_000_000  # that may be sent beyond twice what the emulation sends


@dataclass(frozen=True)
class How:
    """How a run is to be made.

    ``kernel``: by the kernel, or in user space; None: by the kernel where that is possible. ``in_turn``: members compute one
    after another. ``at_most_s``: how long it may last.
    """

    kernel: bool | None = None
    in_turn: bool = False
    at_most_s: float = AT_MOST_S


class MeasuredStage(Stage):
    """What makes the parts of a run on a bench."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def clock(self, clients: int) -> Clock:
        """See `Stage`."""
        return MeasuredClock(clients, self._bench)

    def world(self, *parts: Any) -> World:
        """See `Stage`."""
        return MeasuredWorld(self._bench, *parts)

    def session(self, scenario: Scenario, world: World, lab: AnyLab, meter: Meter) -> Session:
        """See `Stage`."""
        return MeasuredSession(scenario, world, lab, meter)


def prepare(folder: Path, scenario: Scenario, overwrite: bool) -> None:
    """Makes a folder ready. Raises `InputError` where it holds a run that is not to be replaced: none is gone on with."""
    if not overwrite and (folder / run_folder.SCENARIO).is_file():
        raise InputError(f"{folder} holds a run already; choose another --out, or replace it with --overwrite")
    run_folder.prepare(folder, scenario, overwrite)


def execute(
    loaded: Loaded,
    folder: Path,
    how: How = How(),  # noqa: B008
    watcher: Watcher = Watcher(),  # noqa: B008
    tell: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Runs a scenario for real, into a folder that is empty; returns its summary.

    ``tell`` gets what the user is to know before it begins. Raises `InputError` where the scenario or this host is not fit for
    it, before anything was started, and `HflError` where the run fails. Whatever happens, all that was made is gone afterwards.
    """
    for line in leftovers.clean():
        tell(f"removed what an earlier run had left: {line}")
    scenario = loaded.scenario
    why_not = why_not_kernel()
    if how.kernel and why_not:
        raise InputError(f"links cannot be shaped by the kernel: {why_not}; say --user-space")
    by_kernel = not why_not if how.kernel is None else how.kernel
    if not by_kernel:
        why = f" ({why_not})" if why_not and how.kernel is None else ""
        tell(f"links and devices are shaped in user space{why}: bandwidth and latency are, TCP is not")
    with loaded.locating(), contextlib.ExitStack() as undone, contextlib.closing(Memo(None)) as memo:
        memory = RunMemory(memo, {})
        prediction = predict(scenario, memory)
        if prediction.seconds > how.at_most_s:
            why = f"the emulation says that it takes {prediction.seconds:.0f} s, and it may take {how.at_most_s:.0f} s"
            raise InputError(f"{why}; allow more with --at-most, or take fewer rounds", "stop")
        record = leftovers.Record()
        undone.callback(record.close)
        modules = plugins.modules_of(scenario)
        nursery = Nursery(Ground(record.keep(dump(scenario)), sys.path, modules, dict(plugins.named)))
        undone.callback(nursery.close)
        record.add(nursery.pid)
        lab = MeasuredLab(scenario, memory)
        undone.callback(lab.close)
        lab.try_out()
        nursery.ready()
        shares = speeds(prediction, scenario, nursery.probe, cores() - SPARE_CORES, how.in_turn)
        links = undone.enter_context(joined_by(by_kernel)(prediction.plan, shares, record))
        most_bytes = 2 * prediction.bytes + MORE_BYTES
        bench = Bench(prediction.plan, lab, nursery, links, how.at_most_s, most_bytes, how.in_turn, record.add)
        undone.callback(nursery.close)  # before links are taken down
        undone.callback(bench.close)
        session = assemble(scenario, lab, Ledger(aside_of(folder / run_folder.LEDGER)), MeasuredStage(bench))
        if how.in_turn:
            tell("devices compute one after another: the seconds of rounds are not those that the emulation means")
        told = {
            "links": "kernel" if by_kernel else "user space",
            "in_turn": how.in_turn,
            "shares_of_a_core": as_told(shares),
            "emulation": {"seconds": prediction.seconds, "bytes": prediction.bytes, "trainings": prediction.trainings},
        }
        with held(folder):
            return _played(loaded, folder, session, bench, told, watcher, links.wire_bytes)


def _played(
    loaded: Loaded,
    folder: Path,
    session: Session,
    bench: Bench,
    told: dict[str, Any],
    watcher: Watcher,
    wire_bytes: Callable[[], dict[str, int]],
) -> dict[str, Any]:
    """Plays the method, and writes what came of it."""
    scenario, began_s = loaded.scenario, time.monotonic()
    assert isinstance(session, MeasuredSession)
    manifest = manifest_of(scenario, training=True) | {"clock": MEASURED}
    write_text(folder / run_folder.SCENARIO, dump(scenario))
    write_json(folder / run_folder.MANIFEST, manifest | {"testbed": told})
    session.on_round = watcher.on_round
    status = FAILED
    try:
        bench.start()
        play(session)
        told["bytes_on_the_wire"] = wire_bytes()
        session.evaluate_now()
        status = COMPLETE
    except KeyboardInterrupt:
        status = INTERRUPTED
        raise
    finally:
        error = sys.exception()
        told |= {"brought_by_control_channel": bench.given, "bytes_sent": bench.sent_bytes}
        trainings = {"asked": session.lab.asked, "computed": session.lab.asked}
        manifest |= {"wall_s": round(time.monotonic() - began_s, 3), "trainings": trainings, "testbed": told}
        write_results(folder, session)
        write_json(folder / run_folder.MANIFEST, manifest)
        summary = summary_of(session, True, status) | {"clock": MEASURED}
        if status == FAILED and error is not None:
            summary["error"] = str(error) or type(error).__name__
            summary |= {"diverged": True} if isinstance(error, DivergedError) else {}
        write_json(folder / run_folder.SUMMARY, summary | {"files": digests(folder)})
    return summary | {"trainings": trainings, "testbed": told}
