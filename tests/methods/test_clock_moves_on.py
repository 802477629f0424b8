"""The clock always moves on: retries wait for what helps, nothing waits for ever unseen, and a standstill ends the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator import ledger
from emulator.assembly import assemble, play
from emulator.contracts.methods import MethodParams, methods
from emulator.errors import HflError
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.timing import TimingLab
from emulator.ledger import Row, Tag
from emulator.methods.session import Session
from emulator.replay import open_source, replay
from emulator.run import execute
from emulator.scenario import Loaded
from emulator.world.clock import EVENTS, EVENTS_A_CLIENT
from emulator.world.world import Steps
from tests.methods.worlds import BlindLab

Small = Callable[..., Loaded]


def timed(loaded: Loaded) -> Session:
    """A run to its end, of which only the times are real."""
    session = assemble(loaded.scenario, BlindLab(loaded))
    play(session)
    return session


def transfers(session: Session, **wanted: object) -> list[Row]:
    rows = [r for r in session.world.ledger.rows if r.kind == ledger.TRANSFER]
    return [r for r in rows if all(getattr(r, name) == value for name, value in wanted.items())]


# A client that moved talks to its new edge, and what is lost at once is not asked for again before something has changed.

CUT = "{kind: edge-outage, edges: [0], at: [0 s], lasts: 1 min, clients: move}"
COV = "method.formation={kind: cov, min_size: 2}"


def test_clients_whose_edge_is_down_tell_the_edge_they_moved_to(small: Small) -> None:
    session = timed(small(f"faults=[{CUT}]", COV))
    told = transfers(session, what="label-counts")
    assert {r.peer for r in told} == {"edge-1"}
    assert {r.who for r in told} == {f"client-{c}" for c in range(8)}
    assert session.stopped_by == "rounds"


def test_an_edge_to_which_clients_moved_gets_the_model_that_they_train_before_they_are_grouped(small: Small) -> None:
    greedy = "method.formation={kind: greedy-distant, max_clients: 2}"
    session = timed(small(f"faults=[{CUT}]", greedy, "method.estimator={kind: classifier-weights, epochs: 1}"))
    down = transfers(session, what="pretraining")
    assert [(r.who, r.peer) for r in down if r.hop == ledger.CLOUD_EDGE] == [("cloud", "edge-1")]
    arrived = next(r.end_s for r in down if r.hop == ledger.CLOUD_EDGE)
    assert all(r.who == "edge-1" and r.start_s >= arrived for r in down if r.hop == ledger.SERVER_CLIENT)
    assert len(transfers(session, what="estimate")) == 8


def test_clients_whose_edge_is_down_and_who_wait_are_asked_when_it_is_back(small: Small) -> None:
    session = timed(small("faults=[{kind: edge-outage, edges: [0], at: [1 us], lasts: 1 min}]", COV))
    late = [r for r in transfers(session, what="label-counts", status=ledger.DONE) if r.peer == "edge-0"]
    assert len(late) == 4
    assert all(r.start_s == 60.000001 for r in late)


LOST = "{kind: backhaul-outage, at: [0 s], lasts: 30 s, work: lost}"


def test_what_a_link_loses_at_once_waits_until_the_link_is_back(small: Small) -> None:
    flat = ("method.aggregator=cloud", "method.formation={kind: cov, min_size: 2}")
    session = timed(small(f"faults=[{LOST}]", *flat))
    told = transfers(session, what="label-counts", status=ledger.DONE, hop=ledger.EDGE_CLOUD)
    assert len(told) == 8
    assert min(r.start_s for r in told) == 30.0


def test_no_round_begins_while_what_servers_send_is_lost_at_once(small: Small) -> None:
    session = timed(small(f"faults=[{LOST}]", "stop={time: 60 s, rounds: 5}"))
    assert min(r.start_s for r in transfers(session, what="model")) == 30.0
    assert session.metrics[1]["time_s"] > 30.0
    assert session.metrics[-1]["bytes_wasted"] == 0


def test_a_server_that_is_cut_off_for_ever_is_left_out(small: Small) -> None:
    session = timed(small("faults=[{kind: backhaul-outage, edges: [0], at: [0 s], work: lost}]", "stop.rounds=3"))
    assert (session.stopped_by, session.rounds) == ("rounds", 3)
    assert {r.who for r in transfers(session, what="model", hop=ledger.EDGE_CLOUD)} == {"edge-1"}


def test_a_client_that_is_lost_again_and_again_is_left_out_after_so_many_tries(small: Small) -> None:
    flaky = "faults=[{kind: client-crash, clients: [0], every: 2 ms, lasts: 2 ms}]"
    session = timed(small(flaky, COV, "stop={rounds: 1}"))
    (told, broken) = (transfers(session, what="label-counts", who="client-0", status=s) for s in ("done", "broken"))
    assert not told  # it takes 20 ms
    assert len(broken) <= 100
    assert session.stopped_by == "rounds"


# What nobody would ever end.


def test_a_round_for_which_enough_are_never_there_ends_the_run(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.methods.forming.RETURNS", 20)
    monkeypatch.setattr("emulator.methods.forming.RETURNS_A_CLIENT", 0)
    in_turn = [
        f"{{kind: client-crash, clients: [{c}], at: {[f'{t} s' for t in range(c, 60, 2)]}, lasts: 1 s}}" for c in (0, 1)
    ]
    few = ("topology.edges=1", "topology.clients=2", "method.min_members=2", f"faults=[{', '.join(in_turn)}]")
    with pytest.raises(HflError, match=r"no round can begin: 20 times somebody came back.*'method\.min_members'"):
        timed(small(*few))
    assert timed(small(*few, "stop={time: 40 s}")).stopped_by == "time"  # who says how long is waited for


def test_a_link_that_is_out_for_ever_ends_the_run_and_is_named_however_much_goes_on_beside_it(small: Small) -> None:
    out = "faults=[{kind: backhaul-outage, edges: [1], at: [0 s], work: paused}]"
    generator = "{kind: gilbert-elliott, good: 1, bad: 0.5, good_to_bad: 0.5, bad_to_good: 0.5}"
    flicker = f"topology.availability={{generator: {generator}, work: paused}}"
    for world in ((out,), (out, flicker)):
        with pytest.raises(HflError, match=r"in round 1: link edge-1/down is out for ever, and \d+ waiting for it"):
            timed(small("method=fedavg", *world))


def test_a_client_that_never_comes_back_to_its_work_is_named(small: Small, tmp_path: Path) -> None:
    trace = tmp_path / "gone.csv"
    trace.write_text("# end: hold\ntime [s],availability [1]\n0,1\n0.03,0\n")
    gone = small("method=fedavg", "topology.clients=1", "topology.edges=0",
                 f"topology.availability={{trace: {{file: '{trace}', start: together}}, work: paused}}")  # fmt: skip
    with pytest.raises(HflError, match=r"in round 1: .*client-0 is out for ever in the midst of its work"):
        timed(gone)


CHAINS = ("method=fedasyncseq", "data.public=2", "topology.edges=2", "topology.clients=4", "method.estimator={epochs: 1}",
          "method.formation={max_clients: 2}", "method.share=0.5", "stop.rounds=4")  # fmt: skip


def test_a_chain_waits_for_another_group_until_that_is_back(small: Small) -> None:
    whole = timed(small(*CHAINS))
    trainings = [r for r in whole.world.ledger.rows if r.what == "training"]
    other = 1 - trainings[0].group
    away = sorted({int(r.who.partition("-")[2]) for r in trainings if r.group == other})
    when = trainings[0].start_s
    for lasts in ("lasts: 1 h, ", ""):
        session = timed(small(*CHAINS, f"faults=[{{kind: client-crash, clients: {away}, {lasts}at: [{when!r} s]}}]"))
        passes = [r for r in session.world.ledger.rows if r.what == "training" and r.status == ledger.DONE]
        assert session.stopped_by == "rounds"
        # It goes on when the others are back, or back to where it comes from where they never are.
        assert any(r.group == other and r.start_s > 3600 for r in passes) == bool(lasts)
        assert {r.round for r in passes} == {1, 2, 3, 4}


def test_a_window_in_which_passes_are_lost_again_and_again_ends(small: Small) -> None:
    out = "{kind: backhaul-outage, at: [1 s]}, {kind: client-crash, every: 1 s, lasts: 10 ms}"
    session = timed(small(*CHAINS, "method.window=1", f"faults=[{out}]", "stop={rounds: 100000, time: 20 s}"))
    assert session.stopped_by == "time"
    assert session.metrics[-1]["time_s"] > 20


def test_samples_that_are_on_their_way_are_waited_for(small: Small, tmp_path: Path) -> None:
    trace = tmp_path / "late.csv"
    trace.write_text("# end: hold\ntime [s],availability [1]\n0,0\n3600,1\n")
    late = f"topology.availability={{trace: {{file: '{trace}', start: together}}}}"
    session = timed(small("method=centralized", late))
    assert (session.stopped_by, session.rounds) == ("rounds", 2)
    assert session.metrics[-1]["time_s"] > 3600
    never = "faults=[{kind: client-crash, at: [3599 s]}]"
    assert timed(small("method=centralized", late, never)).stopped_by == "nobody left"


# What happens in no time, or is not there.


def test_a_group_of_which_too_few_would_take_part_is_not_asked(small: Small) -> None:
    few = ("topology.edges=0", "method=fedavg", "method.participation=0.5", "method.min_members=4")
    session = timed(small(*few, "faults=[{kind: client-crash, clients: [0, 1], at: [0 s], lasts: 100 s}]"))
    assert min(r.start_s for r in transfers(session)) == 100.0  # of six that are there three would take part


def test_giving_up_a_round_leaves_the_next_one_alone(small: Small) -> None:
    both = "{kind: deadline, after: 2 s}"
    slow = "faults=[{kind: slow-down, at: [0 s], lasts: 2 s, factor: 1000}]"
    waits = (f"method.wait_for_members={both}", f"method.wait_for_groups={both}")
    session = timed(small("method=fedavg", "topology.edges=0", *waits, slow, "stop.rounds=2"))
    assert session.metrics[1]["time_s"] == 2.0
    assert {r.status for r in session.world.ledger.rows if r.round == 2} == {ledger.DONE}
    assert len(transfers(session, round=2, hop=ledger.CLIENT_SERVER)) == 8


def test_nobody_sends_a_model_to_itself(small: Small) -> None:
    chain = ("method=fedcyclic", "method.participation=1.0", "topology.edges=1", "topology.clients=2", "stop.rounds=1",
             "method.training={kind: sequential, loops: 2, shuffle: false}", "method.aggregator=edge")  # fmt: skip
    whole = timed(small(*chain))
    second = max(r.start_s for r in whole.world.ledger.rows if r.what == "training" and r.who == "client-1")
    # The second client is lost in its second training, and the first has the model; then both are lost at once.
    for lost, when in (([1], second - 0.001), ([0, 1], 0.021)):
        session = timed(small(*chain, f"faults=[{{kind: client-crash, clients: {lost}, at: [{when!r} s]}}]"))
        assert not [r for r in transfers(session) if r.who == r.peer]
        assert all((r.who, r.peer) == ("edge-0", "cloud") for r in transfers(session, hop=ledger.EDGE_CLOUD))
        assert len(transfers(session, hop=ledger.CLOUD_EDGE)) == 1


def test_with_each_upload_of_a_cluster_what_led_to_it_is_booked(small: Small) -> None:
    one = ("method=mtcfl", "topology.links.cell={up: 1 Mbit/s, down: 1 Mbit/s}",
           "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}")  # fmt: skip
    whole = timed(small(*one, "stop.rounds=1"))
    ups = sorted(r.end_s for r in transfers(whole, hop=ledger.CLIENT_SERVER))
    amid = (ups[0] + ups[-1]) / 2
    session = timed(small(*one, f"stop={{time: {amid!r} s}}"))
    up, down = ({r.who for r in transfers(session, hop=ledger.CLIENT_SERVER)},
                {r.peer for r in transfers(session, hop=ledger.SERVER_CLIENT)})  # fmt: skip
    trained = {r.who for r in session.world.ledger.rows if r.what == "training"}
    assert 0 < len(up) < 8
    assert up == down == trained


def test_a_run_that_waits_until_its_time_is_over_ends_then_and_not_before(small: Small) -> None:
    # 0.1 + (0.3 - 0.1) is less than 0.3.
    away = "faults=[{kind: client-crash, at: [0 s], lasts: 0.1 s}, {kind: client-crash, at: [0.1 s], lasts: 10 d}]"
    session = timed(small("method=fedavg", "topology.edges=0", away, "stop={time: 0.3 s}"))
    assert (session.stopped_by, session.world.now) == ("time", 0.3)


# The guard.


class _SpinParams(MethodParams):
    """What it does for ever."""

    what: str = "nothing"


@pytest.fixture
def _spinner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_plugins", dict(methods._plugins))

    @methods.register("spin", _SpinParams)
    def spin(session: Session, params: _SpinParams) -> Steps:
        session.begin(session.lab.initial())
        yield session.env.timeout(2.5)
        session.end_round(1, session.lab.initial())
        while params.what == "timeouts":
            yield session.env.timeout(0)
        while params.what == "nobody":
            yield session.world.send("edge-0", "client-3", 1000, Tag("hello", 2))


SPIN = "method={kind: spin, what: %s}"


@pytest.mark.usefixtures("_spinner")
def test_a_clock_that_stands_still_ends_the_run_and_says_who_asks_for_what(small: Small, tmp_path: Path) -> None:
    with pytest.raises(HflError) as caught:
        timed(small(SPIN % "timeouts", "stop.rounds=5"))
    text = str(caught.value)
    assert text.startswith("the clock stands still after 2.5 emulated seconds, in round 2: ")
    assert f"{EVENTS + 8 * EVENTS_A_CLIENT:,} events have passed at this instant" in text
    assert "at work: spin (test_clock_moves_on.py:" in text
    lost = small(SPIN % "nobody", "stop.rounds=5", "faults=[{kind: client-crash, clients: [3], at: [1 s]}]")
    with pytest.raises(HflError, match=r"transfer 'hello' of edge-0 to client-3 \(lost at once: client-3 is down\)"):
        execute(lost, tmp_path / "run", Memo(None), max_workers=1)
    assert type(caught.value)(*caught.value.args).args == caught.value.args


@pytest.mark.usefixtures("_spinner")
def test_a_replay_whose_clock_stands_still_ends_too(small: Small, tmp_path: Path) -> None:
    execute(small(SPIN % "nothing", "stop.rounds=1"), tmp_path / "run", Memo(None), max_workers=1)
    source = open_source(tmp_path / "run")
    with pytest.raises(HflError, match="the clock stands still"):
        replay(source, source.what_if(["method.what=timeouts", "stop.rounds=5"]), Memo(None))


def test_a_large_fleet_does_much_at_one_instant_and_is_not_taken_for_a_standstill(small: Small) -> None:
    many = small("topology.clients=300", "method=fedavg", "data.partition.samples_per_client=2",
                 "faults=[{kind: client-crash, at: [1 h]}]")  # fmt: skip
    session = assemble(many.scenario, TimingLab(many.scenario, RunMemory(Memo(None))))
    play(session)
    assert session.stopped_by == "rounds"
