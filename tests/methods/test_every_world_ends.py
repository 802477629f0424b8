"""In every world every run ends, and bytes are conserved: random fleets with every preset, fault, waiting and availability.

Nothing is trained. Methods that act on what is learned are told random numbers (`BlindLab`).
"""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings

from emulator import ledger
from emulator.assembly import assemble, network_of, play
from emulator.errors import HflError, InputError
from emulator.ledger import Row
from emulator.methods.session import Metrics, Session
from emulator.scenario import Loaded
from emulator.scenario.presets import presets
from emulator.scenario.roster import at
from tests.methods.worlds import Books, CountedClock, WitnessLab, loaded, worlds

PRESETS = sorted(presets())
IN_SUITE, ON_DEMAND = 3, 1000  # examples: of each preset, and in all

# What only shows when groups are formed, or when it is known how fast clients are: such worlds are drawn again.
REFUSED = ("shorter than any possible round", "every round is given up", "no client is ever online")

# A world that fails is shown as it was drawn: making it smaller would take minutes.
QUICK = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class _Forward:
    """Sees to it that no round passes in no time: whatever is lost, it takes time to lose it, or somebody waits.

    Several versions are made at one instant where several results arrive at it: no more than there are clients.
    """

    def __init__(self, at_once: int) -> None:
        self.last_s, self._at_once, self._left = 0.0, at_once, at_once

    def __call__(self, round: int, totals: Metrics) -> None:  # noqa: A002
        self._left = self._at_once if totals["time_s"] > self.last_s else self._left - 1
        assert self._left, f"round {round} takes no time at {self.last_s} s"
        self.last_s = totals["time_s"]


def played(world: Loaded) -> tuple[Session, Books, str]:
    """A run to its end, or to the error that ends it, and what the network says that it carried."""
    books: list[Books] = []

    def counted(*args: object) -> Books:
        books.append(Books(network_of(*args), args[1]))  # type: ignore[arg-type]
        return books[0]

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("emulator.assembly.network_of", counted)
            patch.setattr("emulator.assembly.new_clock", CountedClock)
            patch.setattr("emulator.methods.forming.RETURNS", 1000)
            patch.setattr("emulator.world.handovers.MOVES", 10_000)
            lab = WitnessLab(world)
            session = assemble(world.scenario, lab)
            lab.now = lambda: session.world.now
            method = world.scenario.method
            session.on_round = _Forward(1 + world.scenario.topology.client_count * (method.kind == "buffered"))
            play(session)
    except InputError as error:
        if not any(reason in error.message for reason in REFUSED):
            raise
        reject()
    except HflError as error:
        return session, books[0], str(error)
    return session, books[0], ""


def check_end(session: Session, error: str) -> None:
    """A run ends as its scenario says, because nobody is left, or because something that it waits for is out for ever."""
    if error:
        assert any(
            reason in error for reason in ("for ever", "no round can begin", "nothing was trained", "but handovers")
        ), error
        return
    stop, last = session.scenario.stop, session.metrics[-1]
    assert session.stopped_by in ("rounds", "time", "nobody left")
    assert session.stopped_by != "rounds" or session.rounds == stop.rounds
    assert session.stopped_by != "time" or last["time_s"] >= (stop.time or math.inf)
    assert (last["round"], last["time_s"]) == (session.rounds, session.world.now)


def check_rows(session: Session, rows: list[Row]) -> None:
    """No row begins before the run or ends after it, none ends before it begins, and each goes between two who are neighbours.

    A transfer through an edge has the same bytes, start and end on all its hops.
    """
    clients, above = set(session.world.fleet.client_names), session.world.fleet.roster.by_name
    ends = {
        ledger.CLIENT_SERVER: (True, False),
        ledger.SERVER_CLIENT: (False, True),
        ledger.CLIENT_CLIENT: (True, True),
        ledger.CLOUD_EDGE: (False, False),
        ledger.EDGE_CLOUD: (False, False),
    }
    for row in rows:
        assert 0 <= row.start_s <= row.end_s <= session.world.now, row
        assert row.bytes >= 0, row
        assert row.samples >= 0, row
        if row.kind == ledger.TRANSFER:
            assert row.who != row.peer, row
            assert (row.who in clients, row.peer in clients) == ends.get(row.hop, (False, False)), row
            if not clients & {row.who, row.peer}:
                assert row.hop == f"{above[row.who].tier}-{above[row.peer].tier}", row
                beside = (row.who, row.peer) in session.world.fleet.roster.direct
                assert beside or row.peer == above[row.who].parent or row.who == above[row.peer].parent, row
        else:
            assert (row.bytes, row.hop, row.peer) == (0, "", ""), row


def check_sums(session: Session, books: Books, rows: list[Row]) -> None:
    """The network carried, hop by hop, what the ledger says; and every row of the metrics is the sum of the rows before it.

    Clusters, and servers that gossip, go on by themselves: where nothing is cut off, what some have done of a round when the run
    ends is in no row yet.
    """
    transfers = [r for r in rows if r.kind == ledger.TRANSFER]
    method = session.scenario.method
    ends_amid = session.world.calm and (method.plugin.facts.clusters or method.kind == "gossip")
    hops, how = (*ledger.HOPS, *session.world.fleet.hops), session.world.movements.how
    resumed = how is not None and how.transfers == "resumed"  # a first part is booked when the last is over
    for hop in hops:
        booked, carried = sum(r.bytes for r in transfers if r.hop == hop), books.carried.get(hop, 0)
        assert booked <= carried if ends_amid or resumed else booked == carried, hop
    broken = sum(r.bytes for r in transfers if r.status == ledger.BROKEN)
    assert broken <= books.broken if resumed else broken == books.broken
    assert all(0 <= sent <= size for sent, size in books.sizes)
    so_far: dict[str, int] = dict.fromkeys(hops, 0)
    wasted, measured = 0, iter(session.metrics)
    for row in rows:
        if row.kind == ledger.TRANSFER:
            so_far[row.hop] += row.bytes
            wasted += row.bytes * (row.status == ledger.BROKEN)
        elif row.kind == ledger.EVALUATION:
            found = next(measured)
            assert found["time_s"] == row.end_s
            assert {hop: found[ledger.bytes_column(hop)] for hop in hops} == so_far
            assert (found["bytes_total"], found["bytes_wasted"]) == (sum(so_far.values()), wasted)
    assert next(measured, None) is None
    times = [m["time_s"] for m in session.metrics]
    assert times == sorted(times)


def check_models(session: Session, rows: list[Row]) -> None:
    """Who uploads a model has got one, or made it from a seed: in the same round and group a training lies between the two."""
    got: dict[tuple[object, ...], float] = {}
    trained: dict[tuple[object, ...], float] = {}
    done = [r for r in rows if r.status == ledger.DONE]
    for row in sorted(done, key=lambda r: (r.end_s, r.start_s)):
        place = (row.round, row.group, row.group_round)
        if row.kind == ledger.TRANSFER and row.what == "model":
            if row.hop in (ledger.SERVER_CLIENT, ledger.CLIENT_CLIENT):
                got.setdefault((row.peer, *place), row.end_s)
            if row.hop in (ledger.CLIENT_SERVER, ledger.CLIENT_CLIENT):
                assert (row.who, *place) in got, row
        if row.kind == ledger.COMPUTE and row.what == "training" and row.who != "cloud":
            assert got[row.who, *place] <= row.start_s, row
            trained.setdefault((row.who, *place), row.end_s)
    for row in done:
        if row.kind == ledger.TRANSFER and row.what == "model" and row.hop == ledger.CLIENT_SERVER:
            place = (row.who, row.round, row.group, row.group_round)
            ringed = place in got and place not in trained
            assert ringed or trained[place] <= row.start_s, row


def check_links(session: Session, rows: list[Row]) -> None:
    """No transfer is faster than the narrowest bandwidth that the scenario gives its kind of link, unless a trace gives it."""
    fleet, slack = session.world.fleet, 1 + 1e-6
    access, servers = fleet.roster.access, fleet.roster.by_name

    def peak_bps(row: Row) -> float:
        if row.hop == ledger.CLIENT_SERVER:
            return at(access.up_bps, fleet.client_names.index(row.who))
        if row.hop == ledger.SERVER_CLIENT:
            return at(access.down_bps, fleet.client_names.index(row.peer))
        beside = fleet.roster.direct.get((row.who, row.peer))
        if beside is not None:
            return beside.bandwidth
        up = row.peer == servers[row.who].parent
        return servers[row.who].link.up if up else servers[row.peer].link.down

    for row in rows:
        if row.kind == ledger.TRANSFER and row.hop != ledger.CLIENT_CLIENT:
            if fleet.roster.traces and row.hop in (ledger.CLIENT_SERVER, ledger.SERVER_CLIENT):
                continue
            assert 8 * (row.bytes - 1) <= peak_bps(row) * (row.end_s - row.start_s) * slack, row


def check_devices(session: Session, rows: list[Row]) -> None:
    """A client's device does one computation at a time."""
    busy: dict[str, list[Row]] = {}
    for row in rows:
        if row.kind in (ledger.COMPUTE, ledger.GROUP_OPERATION) and row.who in session.world.fleet.client_names:
            busy.setdefault(row.who, []).append(row)
    for own in busy.values():
        own.sort(key=lambda row: (row.start_s, row.end_s))
        for first, second in itertools.pairwise(own):
            assert first.end_s <= second.start_s, (first, second)


def check_work(session: Session, rows: list[Row]) -> None:
    """Every model that was averaged, looked at or trained on came from work that was done, and had come from there by then."""
    assert isinstance(session.lab, WitnessLab)
    done = [row for row in rows if row.status == ledger.DONE]
    computed: dict[str, list[Row]] = {}
    sent: dict[str, list[Row]] = {}
    for row in done:
        where = {ledger.COMPUTE: computed, ledger.TRANSFER: sent}.get(row.kind)
        if where is not None:
            where.setdefault(row.who, []).append(row)
    for use in set(session.lab.uses):
        work, who = use.work, session.world.fleet.client_names[use.work.client]
        distils = work.round < 0  # which takes no time where there is nothing to distil
        ends = [
            row.end_s
            for row in computed.get(who, ())
            if row.start_s >= work.asked_s and row.end_s <= use.used_s and (distils or row.round == work.round)
        ] + [work.asked_s] * distils
        assert ends, (use, "was never computed")
        if use.by != work.client:
            arrived = (row for row in sent.get(who, ()) if row.start_s >= min(ends) and row.end_s <= use.used_s)
            assert any(arrived), (use, "never came")


def check_world(text: str) -> None:
    """All of it."""
    session, books, error = played(loaded(text))
    rows = session.world.ledger.rows
    check_end(session, error)
    check_rows(session, rows)
    check_sums(session, books, rows)
    check_models(session, rows)
    check_links(session, rows)
    check_devices(session, rows)
    check_work(session, rows)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_run_ends_and_conserves_bytes(preset: str) -> None:
    @settings(QUICK, max_examples=IN_SUITE, derandomize=True)
    @given(worlds(preset))
    def holds(text: str) -> None:
        check_world(text)

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_a_thousand_runs_end_and_conserve_bytes(preset: str) -> None:
    @settings(QUICK, max_examples=-(-ON_DEMAND // len(PRESETS)))
    @given(worlds(preset))
    def holds(text: str) -> None:
        check_world(text)

    holds()
