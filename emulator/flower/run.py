"""A run of an app: its server on the clock, its clients in worker processes, and the run folder that comes of it."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from emulator import run_folder
from emulator.accounting import Meter
from emulator.assembly import world_of
from emulator.errors import HflError, InputError
from emulator.files import aside_of, held
from emulator.flower.app import App, importing_from
from emulator.flower.clients import Clients
from emulator.flower.edges import Edge, strategy_maker
from emulator.flower.grid import EmulatedGrid
from emulator.flower.hours import emulated
from emulator.flower.office import Counters, Member, Office, node_id_of
from emulator.flower.pricing import Work
from emulator.flower.replies import Replies
from emulator.flower.results import Outcome, begin_folder, end_folder
from emulator.flower.setting import RELAY, FlowerScenario
from emulator.flower.turns import Seat, Steps, Stopped, Turns
from emulator.flower.watching import Watch, reported
from emulator.flower.worker import RUN_ID, SERVER_NODE, Code, counting, seed_all
from emulator.ledger import Ledger, Tag
from emulator.modules import refusing
from emulator.rng import stream
from emulator.run_folder import COMPLETE, FAILED, INTERRUPTED
from emulator.world.clock import DeadEndError, finish
from emulator.world.endings import check_traces
from emulator.world.fleet import CLOUD, Fleet
from emulator.world.workload import Workload

log = logging.getLogger(__name__)

APP_ENDED = "app"  # why a run stopped: its server was done
_MOST_IDLE, _MOST_IDLE_AWAY = 1_000, 100_000  # sleeps without anything under way; the second where nodes come and go
_NO_WORK = Workload(0, 0, 0, ())  # what a model costs is the app's to say


@dataclass(frozen=True)
class How:
    """How a run is made on this host: nothing of it changes what comes out."""

    replies: Replies
    workers: int | None = None
    patience_s: float = 3600.0
    on_round: Callable[[int, dict[str, float]], None] = lambda _round, _row: None


def execute(scenario: FlowerScenario, app: App, folder: Path, how: How) -> dict[str, Any]:
    """Runs an app into a folder that `run_folder.prepare` made ready; returns its summary and how often client code was run.

    An error, of the app or in the world, and an interruption leave a valid folder that says so, and are raised again. Raises
    `InputError` where the ServerApp cannot be imported or the world cannot be played, and `HflError` where the run fails.
    """
    started = time.monotonic()
    check_traces(scenario, scenario.stop.time if scenario.stop is not None else None)
    with contextlib.ExitStack() as undone:
        undone.enter_context(importing_from(app.folder))
        undone.enter_context(_own_chance())
        undone.enter_context(contextlib.redirect_stdout(sys.stderr))  # what the app prints is no result of ours
        undone.enter_context(emulated())
        run = _Run(scenario, app, how, Ledger(aside_of(folder / run_folder.LEDGER)))
        undone.callback(run.clients.close)
        undone.callback(run.turns.close)
        server = run.load()
        import pyarrow.parquet  # noqa: F401 (the ledger needs it: now, so that memory does not grow by it in the middle of the run)

        undone.enter_context(held(folder))
        manifest = begin_folder(folder, scenario, app)
        status = FAILED
        try:
            run.play(server)
            status = COMPLETE
        except KeyboardInterrupt:
            status = INTERRUPTED
            raise
        finally:
            outcome = Outcome(run.world, run.watch, run.stopped_by, run.rounds, run.counts())
            manifest["wall_s"] = round(time.monotonic() - started, 3)
            summary = end_folder(folder, scenario, manifest, outcome, status, sys.exception())
    return {**summary, "replies": run.counts()}


class _Run:
    """Everything of one run, put together."""

    def __init__(self, scenario: FlowerScenario, app: App, how: How, ledger: Ledger) -> None:
        self._scenario, self._app, self._how = scenario, app, how
        section = scenario.flower
        fleet = Fleet(scenario.topology, scenario.seed)
        self.world = world = world_of(scenario, fleet, _NO_WORK, ledger)
        powers = {n: d.power for n, d in zip(fleet.client_names, fleet.client_devices, strict=True)}
        self.stopped_by = ""
        self.watch = Watch(world, Meter(ledger, powers, fleet.hops), self._round_over, section.accuracy)
        self.turns = Turns(world.env, how.patience_s)
        self.turns.charge = self._charge
        self.turns.most_idle = _MOST_IDLE if world.all_present else _MOST_IDLE_AWAY
        self._counters = Counters()
        self.turns.under_way = lambda: self._counters.under_way
        counted = section.client_price.kind == "flops"
        code = Code(section.client, str(app.folder), counted)
        count = len(fleet.client_names)
        self.clients = Clients(code, app.sha256, how.replies, scenario.seed, how.workers, count, how.patience_s)
        self._server_price = section.server_price
        self._meter = (lambda: counting(True)) if self._server_price.kind == "flops" else None
        self._spent: dict[int, tuple[int, dict[str, int], int]] = {}
        members = self._client_members()
        if section.edges == RELAY:
            self._office = self._office_of(CLOUD, members)
        else:
            self._office = self._office_of(CLOUD, self._edge_members(members))
        self.grid = EmulatedGrid(self._office, self.turns)

    @property
    def rounds(self) -> int:
        """How many rounds there were."""
        return self.watch.round

    def counts(self) -> dict[str, Any]:
        """How often client code was run, and how often its reply was known."""
        clients = self.clients
        return {
            "run": clients.ran,
            "remembered": clients.remembered,
            "second_tries": clients.tries,
            "deterministic": clients.deterministic,
        }

    def load(self) -> Any:
        """The ServerApp. Raises `InputError` where it cannot be imported, or is none."""
        from flwr.serverapp import ServerApp
        from flwr.supercore.object_ref import load_app
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN_ID, SERVER_NODE
        seed_all(int(stream(self._scenario.seed, "flower-server").integers(2**31)))
        with refusing(f"the app's ServerApp '{self._app.server}' cannot be imported"):
            found = load_app(self._app.server, ImportError, self._app.folder)
        if not isinstance(found, ServerApp):
            raise InputError(f"'{self._app.server}' is a {type(found).__name__}, and a ServerApp is wanted")
        return found

    def play(self, server: Any) -> None:
        """Plays the app to its end, or to where the run is to stop. Raises `HflError` with what was raised in the app."""
        from flwr.app import Context, RecordDict

        context = Context(RUN_ID, SERVER_NODE, {}, RecordDict(), dict(self._app.config))
        seats: list[Seat] = []

        def serve() -> None:
            try:
                server(grid=self.grid, context=context)
            finally:
                self.turns.finish()

        def over() -> Iterator[simpy.Event]:
            limit_s = None if self._scenario.stop is None else self._scenario.stop.time
            seats.append(self.turns.start(serve, "server", CLOUD, self._meter))
            yield self.turns.ends if limit_s is None else self.turns.ends | self.world.env.timeout(limit_s)
            if not self.turns.ends.triggered:
                self.stopped_by = "time"
            elif seats[0].ended:
                yield from self._charge(seats[0])  # what it computed after its last reply

        with reported(self.watch):
            try:
                finish(self.world.env, self.world.env.process(over()))  # type: ignore[arg-type]
            except DeadEndError:
                why = self.world.waited_for() or "the app waits for something that nobody does"
                raise HflError(f"nothing happens any more after {self.world.now:g} emulated seconds: {why}") from None
            finally:
                failed = self.turns.failed
                error = next((seat.error for seat in seats if seat.error is not None), None)
                self.turns.close()
        if failed is not None:
            raise failed
        if isinstance(error, KeyboardInterrupt):
            raise error
        if error is not None and not isinstance(error, Stopped):
            where = f"after {self.world.now:g} emulated seconds, in round {self.rounds}"
            raise HflError(f"the app's server code raised {where}:\n{_trace_of(error)}") from error
        self.stopped_by = self.stopped_by or APP_ENDED
        self.watch.end()
        if self._scenario.flower.client_price.kind == "flops" and self.watch.answers and not self.watch.flops:
            log.warning(
                "no operation of torch was counted in the clients' training, so that it took no emulated time; say what it "
                "takes with --client-time"
            )

    def _round_over(self, round_: int, row: dict[str, float]) -> None:
        """A round is over. Ends the run where the scenario says so."""
        self._how.on_round(round_, row)
        stop = self._scenario.stop
        if stop is None or self.stopped_by or round_ < 1:
            return
        limits = {"rounds": (stop.rounds, row["round"]), "cost": (stop.cost, row["cost_s"]),
                  "bytes": (stop.bytes, row["bytes_total"]), "accuracy": (stop.accuracy, row["accuracy"])}  # fmt: skip
        for name, (limit, reached) in limits.items():
            if limit is not None and reached >= limit:
                self.stopped_by = name
                self.turns.finish()
                raise Stopped

    def _charge(self, seat: Seat) -> Steps[None]:
        """What a server has computed since it was asked last takes its time."""
        price, work = self._server_price, Work({})
        if price.kind == "host":
            work = Work({}, host_s=seat.host_s)
        elif price.kind == "flops" and seat.counted is not None:
            _, before, steps = self._spent.get(id(seat), (0, {}, 0))
            flops = dict(seat.counted.flops)
            work = Work({k: n - before.get(k, 0) for k, n in flops.items()}, seat.counted.steps - steps)
            self._spent[id(seat)] = 0, flops, seat.counted.steps
        seat.host_s = 0.0
        seconds = price.seconds(self.world.fleet.device(seat.server), work)
        if seconds > 0:
            yield self.world.occupied(seat.server, seconds, Tag(price.named("server"), self.watch.round))

    def _office_of(self, server: str, members: Sequence[Member]) -> Office:
        scenario = self._scenario
        section = scenario.flower
        return Office(
            server, members, self.world, self.clients, self.watch, section.client_price, dict(self._app.config), scenario.seed,
            self._counters, section.errors == "fail",
        )  # fmt: skip

    def _client_members(self) -> list[Member]:
        names = self.world.fleet.client_names
        return [
            Member(node_id_of(self._scenario.seed, name), name, n, {"partition-id": n, "num-partitions": len(names)})
            for n, name in enumerate(names)
        ]

    def _edge_members(self, clients: Sequence[Member]) -> list[Member]:
        """The edges as nodes of the cloud, each with an office of its own for the clients behind it."""
        section, fleet = self._scenario.flower, self.world.fleet
        if not fleet.edge_names:
            raise InputError(f"--edges {section.edges}: the world has no edges that could aggregate", "topology")
        if self.world.movements.paths:
            raise InputError(
                f"--edges {section.edges}: clients that move between edges go with '--edges relay' alone", "topology"
            )
        make = strategy_maker(section.edges, self._app.folder)
        strangers = [member.name for member in clients if fleet.home(member.number) not in fleet.edge_names]
        if strangers:
            what = f"{strangers[0]} is right under {fleet.home(fleet.number(strangers[0]) or 0)}, which is no edge"
            raise InputError(
                f"--edges {section.edges}: {what}; edges aggregate where every client is right under one", "topology"
            )
        found = []
        for edge in fleet.edge_names:
            own = [member for member in clients if fleet.home(member.number) == edge]
            if own:
                served = Edge(self._office_of(edge, own), self.turns, make(), section.edge_timeout_s, self._meter)
                found.append(Member(node_id_of(self._scenario.seed, edge), edge, serve=served.serve))
        return found


@contextlib.contextmanager
def _own_chance() -> Iterator[None]:
    """A block after which this process's random streams go on as before it, and its environment is as it was."""
    states = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    generator = None if torch is None else torch.random.get_rng_state()
    before = os.environ.get("FLWR_TELEMETRY_ENABLED")
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if torch is not None and generator is not None:
            torch.random.set_rng_state(generator)
        if before is None:
            os.environ.pop("FLWR_TELEMETRY_ENABLED", None)
        else:
            os.environ["FLWR_TELEMETRY_ENABLED"] = before


def _trace_of(error: BaseException) -> str:
    """The app's part of a traceback: what is below our own call of it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent)
    first = next((n for n, frame in enumerate(frames) if not frame.filename.startswith(ours)), 0)
    return "".join([*traceback.format_list(frames[first:]), *traceback.format_exception_only(error)]).rstrip()
