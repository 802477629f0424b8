"""Clients that come and go, faults, and servers that do not wait for everybody."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator import ledger
from emulator.assembly import assemble
from emulator.errors import InputError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.ledger import Row
from emulator.methods.session import Session
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

FLAT = ("method=fedavg", "topology.edges=0", "method.group_operation=none", "stop.rounds=1")


def rows(session: Session, kind: str, who: str = "", **wanted: object) -> list[Row]:
    every = [r for r in session.world.ledger.rows if r.kind == kind and who in ("", r.who)]
    return [r for r in every if all(getattr(r, name) == value for name, value in wanted.items())]


def rounded(row: Row) -> Row:
    return row._replace(start_s=round(row.start_s, 9), end_s=round(row.end_s, 9))


def trained_in(session: Session, round: int) -> set[str]:  # noqa: A002
    return {r.who for r in rows(session, ledger.COMPUTE, round=round, status=ledger.DONE)}


def uploaded_in(session: Session, round: int) -> set[str]:  # noqa: A002
    return {r.who for r in rows(session, ledger.TRANSFER, round=round, hop=ledger.CLIENT_SERVER, status=ledger.DONE)}


EVERYBODY = {f"client-{c}" for c in range(8)}


def test_without_faults_nothing_is_wasted_and_watching_changes_nothing(small: Small) -> None:
    plain = played(small("method=hierfavg"))
    # A fault that never comes, and a deadline that is never reached: everything is followed, nothing is cut.
    watched = played(
        small("method=hierfavg", "faults=[{kind: client-crash, at: [1000 d]}]",
              "method.wait_for_members={kind: deadline, after: 1 d}")
    )  # fmt: skip
    before, after = (sorted(rounded(r) for r in s.world.ledger.rows) for s in (plain, watched))
    assert before == after
    assert [m["loss"] for m in plain.metrics] == [m["loss"] for m in watched.metrics]
    assert plain.metrics[-1]["bytes_wasted"] == plain.metrics[-1]["cost_wasted_s"] == 0


def test_a_crash_in_a_training_loses_it_and_the_round_goes_on_without(small: Small) -> None:
    whole = played(small(*FLAT))
    (training,) = rows(whole, ledger.COMPUTE, "client-3")
    middle = (training.start_s + training.end_s) / 2
    session = played(small(*FLAT, f"faults=[{{kind: client-crash, clients: [3], at: [{middle!r} s]}}]"))
    (lost,) = rows(session, ledger.COMPUTE, "client-3")
    assert (lost.start_s, lost.end_s, lost.status) == (training.start_s, middle, ledger.BROKEN)
    assert lost.samples == training.samples // 2
    assert uploaded_in(session, 1) == EVERYBODY - {"client-3"}
    assert session.metrics[-1]["cost_wasted_s"] == pytest.approx(middle - training.start_s)
    # The others' models are averaged with weights that add up to 1: it is the average over seven clients.
    seven = played(small(*FLAT, "faults=[{kind: client-crash, clients: [3], at: [0 s]}]"))
    assert session.metrics[-1]["accuracy"] == seven.metrics[-1]["accuracy"]
    assert session.metrics[-1]["loss"] == seven.metrics[-1]["loss"] != whole.metrics[-1]["loss"]
    assert trained_in(seven, 1) == EVERYBODY - {"client-3"}  # who is down at the start is not asked


@pytest.mark.parametrize("at", [0.0, 0.25, 0.5])
def test_samples_of_broken_work_are_those_that_were_done_by_then(small: Small, at: float) -> None:
    (training,) = rows(played(small(*FLAT)), ledger.COMPUTE, "client-3")
    middle, slow_s = (training.start_s + share * (training.end_s - training.start_s) for share in (0.5, at))
    crash, slow = (f"clients: [3], at: [{s!r} s]" for s in (middle, slow_s))
    faults = f"faults=[{{kind: client-crash, {crash}}}, {{kind: slow-down, {slow}, factor: 5}}]"
    (lost,) = rows(played(small(*FLAT, faults)), ledger.COMPUTE, "client-3")
    done = at + (0.5 - at) / 5
    assert (lost.end_s, lost.samples) == (middle, int(training.samples * done))


def test_bytes_of_a_broken_transfer_count_and_are_wasted(small: Small) -> None:
    whole = played(small(*FLAT))
    (upload,) = rows(whole, ledger.TRANSFER, "client-3", hop=ledger.CLIENT_SERVER)
    # The bytes leave in the first part of its time, the latency of 20 ms comes after that: cut at a third of the first part.
    sending_s = upload.end_s - upload.start_s - 0.020
    when = upload.start_s + sending_s / 3
    session = played(small(*FLAT, f"faults=[{{kind: client-crash, clients: [3], at: [{when!r} s]}}]"))
    (lost,) = rows(session, ledger.TRANSFER, "client-3", hop=ledger.CLIENT_SERVER)
    assert lost.status == ledger.BROKEN
    assert lost.bytes == pytest.approx(upload.bytes / 3, abs=1)
    assert session.metrics[-1]["bytes_wasted"] == lost.bytes
    assert session.metrics[-1]["bytes_total"] == whole.metrics[-1]["bytes_total"] - upload.bytes + lost.bytes


def test_a_client_that_is_back_takes_part_in_the_next_round(small: Small) -> None:
    one = played(small(*FLAT))
    session = played(
        small(
            *FLAT,
            "stop.rounds=3",
            f"faults=[{{kind: client-crash, clients: [0], at: [1 us], lasts: {one.world.now!r} s}}]",
        )
    )
    assert "client-0" not in uploaded_in(session, 1)
    assert "client-0" in uploaded_in(session, 3)


@pytest.mark.parametrize("sharing", ["max-min", "dedicated"])
def test_a_slow_down_makes_training_take_so_much_longer(small: Small, sharing: str) -> None:
    plain = played(small(*FLAT, f"topology.sharing={sharing}"))
    slow = played(
        small(*FLAT, f"topology.sharing={sharing}", "faults=[{kind: slow-down, clients: [2], at: [0 s], factor: 7}]")
    )
    for client in range(8):
        (before,), (after,) = (rows(s, ledger.COMPUTE, f"client-{client}") for s in (plain, slow))
        factor = 7 if client == 2 else 1
        assert after.end_s - after.start_s == pytest.approx(factor * (before.end_s - before.start_s), rel=1e-9)
    assert plain.metrics[-1]["accuracy"] == slow.metrics[-1]["accuracy"]


def test_work_that_is_paused_goes_on_where_it_stopped(small: Small, tmp_path: Path) -> None:
    plain = played(small(*FLAT))
    (training,) = rows(plain, ledger.COMPUTE, "client-5")
    middle = (training.start_s + training.end_s) / 2
    trace = tmp_path / "away.csv"
    trace.write_text(f"# end: hold\ntime [s],availability [1]\n0,1\n{middle!r},0\n{middle + 100!r},1\n")
    session = played(
        small(*FLAT, f"topology.availability={{trace: {{file: '{trace}', start: together}}, work: paused}}")
    )
    (paused,) = rows(session, ledger.COMPUTE, "client-5")
    assert paused.status == ledger.DONE
    assert paused.end_s - paused.start_s == pytest.approx(training.end_s - training.start_s + 100)
    assert session.metrics[-1]["bytes_wasted"] == 0
    assert session.metrics[-1]["loss"] == plain.metrics[-1]["loss"]
    lost = played(small(*FLAT, f"topology.availability={{trace: {{file: '{trace}', start: together}}, work: lost}}"))
    assert {r.who for r in rows(lost, ledger.COMPUTE, status=ledger.BROKEN)} >= {"client-5"}


def test_a_transfer_that_is_paused_goes_on_where_it_stopped(small: Small, tmp_path: Path) -> None:
    plain = played(small(*FLAT))
    (upload,) = rows(plain, ledger.TRANSFER, "client-5", hop=ledger.CLIENT_SERVER)
    middle = upload.start_s + (upload.end_s - upload.start_s - 0.020) / 2
    trace = tmp_path / "away.csv"
    trace.write_text(f"# end: hold\ntime [s],availability [1]\n0,1\n{middle!r},0\n{middle + 50!r},1\n")
    session = played(
        small(*FLAT, f"topology.availability={{trace: {{file: '{trace}', start: together}}, work: paused}}")
    )
    (paused,) = rows(session, ledger.TRANSFER, "client-5", hop=ledger.CLIENT_SERVER)
    assert (paused.bytes, paused.status) == (upload.bytes, ledger.DONE)
    assert paused.end_s - paused.start_s == pytest.approx(upload.end_s - upload.start_s + 50)


def test_the_round_waits_for_somebody_and_time_passes(small: Small, tmp_path: Path) -> None:
    trace = tmp_path / "late.csv"
    trace.write_text("# end: hold\ntime [s],availability [1]\n0,0\n3600,1\n")
    session = played(small(*FLAT, f"topology.availability={{trace: {{file: '{trace}', start: together}}}}"))
    assert min(r.start_s for r in rows(session, ledger.COMPUTE)) > 3600
    assert session.stopped_by == "rounds"


def test_a_run_in_which_nobody_is_left_ends_cleanly(small: Small) -> None:
    one = played(small(*FLAT))
    when = one.world.now * 1.5
    session = played(small(*FLAT, "stop.rounds=9", f"faults=[{{kind: client-crash, at: [{when!r} s]}}]"))
    assert session.stopped_by == "nobody left"
    assert session.rounds == 2  # in which all were lost
    assert session.metrics[-1]["round"] == 2
    assert session.metrics[-1]["time_s"] == when
    assert session.metrics[-1]["loss"] == session.metrics[-2]["loss"]  # the model of round 1
    assert {r.status for r in rows(session, ledger.COMPUTE, round=2)} <= {ledger.BROKEN}


def test_waiting_ends_with_the_time_of_the_run(small: Small) -> None:
    session = played(small(*FLAT, "stop={time: 1000 s}", "faults=[{kind: client-crash, at: [0 s], lasts: 10 d}]"))
    assert (session.stopped_by, session.world.now, session.rounds) == ("time", 1000.0, 0)


def test_a_deadline_takes_what_is_there_and_cuts_the_rest(small: Small) -> None:
    slow = "faults=[{kind: slow-down, clients: [1, 6], at: [0 s], factor: 1000}]"
    plain = played(small(*FLAT))
    deadline = 2 * plain.world.now
    session = played(small(*FLAT, slow, f"method.wait_for_members={{kind: deadline, after: {deadline!r} s}}"))
    assert session.world.now == deadline
    assert uploaded_in(session, 1) == EVERYBODY - {"client-1", "client-6"}
    cut = rows(session, ledger.COMPUTE, status=ledger.BROKEN)
    assert {(r.who, r.end_s) for r in cut} == {("client-1", deadline), ("client-6", deadline)}


def test_a_deadline_shorter_than_any_possible_round_is_an_error_before_anything_trains(small: Small) -> None:
    loaded = small(*FLAT, "method.wait_for_members={kind: deadline, after: 1 ms}")
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    session = assemble(loaded.scenario, lab)
    with pytest.raises(InputError, match="shorter than any possible round") as caught:
        session.env.run(session.env.process(loaded.scenario.method(session)))
    assert caught.value.key == "method.wait_for_members.after"
    assert (session.world.ledger.rows, lab.trained) == ([], 0)


def test_the_fastest_possible_round_is_a_bound_that_a_lone_client_reaches(small: Small) -> None:
    session = played(small(*FLAT, "topology.clients=1", "method.local={epochs: 2, batch_size: 4, learning_rate: 0.1}"))
    size = session.world.workload.model_bytes
    samples = int(session.lab.clients.samples[0])
    assert session.world.fastest_s(0, "cloud", size, size, samples, 2, 4) == pytest.approx(session.world.now, rel=1e-12)


def test_a_quorum_goes_on_with_the_first_of_those_asked(small: Small) -> None:
    slow = "faults=[{kind: slow-down, clients: [1, 6], at: [0 s], factor: 1000}]"
    plain = played(small(*FLAT))
    session = played(small(*FLAT, slow, "method.wait_for_members={kind: quorum, count: 6}"))
    assert uploaded_in(session, 1) == EVERYBODY - {"client-1", "client-6"}
    assert session.world.now <= plain.world.now
    share = played(small(*FLAT, slow, "method.wait_for_members={kind: quorum, share: 0.75}"))
    assert share.world.ledger.rows == session.world.ledger.rows


def test_over_selection_draws_more_and_takes_as_many_as_were_wanted(small: Small) -> None:
    session = played(
        small(*FLAT, "stop.rounds=4", "method.participation=0.5", "method.over_selection=0.5",
              "method.wait_for_members=quorum")
    )  # fmt: skip
    for t in range(1, 5):
        asked = {r.peer for r in rows(session, ledger.TRANSFER, hop=ledger.SERVER_CLIENT, round=t)}
        assert len(asked) == 6
    assert session.lab.trained == 4 * 4


def test_the_cloud_need_not_wait_for_every_group(small: Small) -> None:
    slow = "faults=[{kind: slow-down, clients: [5], at: [0 s], factor: 1000}]"  # of the second edge
    session = played(small(slow, "method.wait_for_groups={kind: quorum, count: 1}", "stop.rounds=1"))
    ups = rows(session, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)
    assert [(r.who, r.status) for r in ups] == [("edge-0", ledger.DONE)]
    assert {r.who for r in rows(session, ledger.COMPUTE, status=ledger.BROKEN)} == {"client-5"}
    assert session.world.now == ups[0].end_s


SECURE = "method.group_operation={kind: secure-aggregation, a: 100 ms, b: 20 ms, c: 5 ms}"


def test_those_who_stay_pay_for_the_recovery_of_those_who_dropped_out(small: Small) -> None:
    base = ("topology.edges=1", SECURE, "method.group_rounds=1", "stop.rounds=1")
    whole = played(small(*base))
    first_upload = min(r.start_s for r in rows(whole, ledger.TRANSFER, what="model", hop=ledger.CLIENT_SERVER))
    when = first_upload + 1e-6
    session = played(small(*base, f"faults=[{{kind: client-crash, clients: [2, 4], at: [{when!r} s]}}]"))
    done = rows(session, ledger.GROUP_OPERATION, what="secure-aggregation")
    assert len(done) == 8
    assert all(r.end_s - r.start_s == pytest.approx(0.1 + 0.02 * 8 + 0.005 * 64) for r in done)
    recovery = rows(session, ledger.GROUP_OPERATION, what="secure-aggregation-recovery")
    assert {r.who for r in recovery} == EVERYBODY - {"client-2", "client-4"}
    assert all(r.end_s - r.start_s == pytest.approx(0.005 * 8 * 2) for r in recovery)
    assert session.metrics[-1]["cost_group_s"] == pytest.approx(8 * (0.1 + 0.16 + 0.32) + 6 * 0.08)


def test_the_protocol_aborts_under_its_threshold(small: Small) -> None:
    base = ("topology.edges=1", "method.group_rounds=1", "stop.rounds=1",
            "method.group_operation={kind: secure-aggregation, model: protocol, threshold: 0.75}")  # fmt: skip
    ends = {}
    for lost in ([2, 4], [2, 4, 5]):
        # Down in the middle of the first trainings, and never back.
        session = played(small(*base, f"faults=[{{kind: client-crash, clients: {lost}, at: [30 ms]}}]"))
        ends[len(lost)] = [r.status for r in rows(session, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)]
        assert session.metrics[-1]["cost_group_s"] > 0
        changed = session.metrics[-1]["loss"] != session.metrics[0]["loss"]
        assert changed == (len(lost) == 2)
    assert ends == {2: [ledger.DONE], 3: []}


def test_a_group_under_its_minimum_gives_up_and_is_charged(small: Small) -> None:
    session = played(
        small("method.min_members=4", "faults=[{kind: client-crash, clients: [0], at: [30 ms]}]", "stop.rounds=1")
    )
    assert [r.who for r in rows(session, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)] == ["edge-1"]
    assert {"client-1", "client-2", "client-3"} <= trained_in(session, 1)
    assert session.metrics[-1]["cost_s"] > 0


def test_clients_of_a_crashed_edge_wait_for_it(small: Small) -> None:
    session = played(small("faults=[{kind: edge-outage, edges: [0], at: [0 s], lasts: 1 d}]"))
    assert trained_in(session, 1) == {f"client-{c}" for c in range(4, 8)} == trained_in(session, 2)


def test_clients_of_a_crashed_edge_move_to_another(small: Small) -> None:
    session = played(
        small(
            "faults=[{kind: edge-outage, edges: [0], at: [0 s], lasts: 1 d, clients: move}]",
            "topology.links.cell={up: 1 Mbit/s, down: 1 Mbit/s}",
        )
    )
    assert trained_in(session, 1) == EVERYBODY
    models = rows(session, ledger.TRANSFER, what="model")
    assert {r.who for r in models if r.hop == ledger.SERVER_CLIENT} == {"edge-1"}
    assert {r.who for r in models if r.hop == ledger.EDGE_CLOUD} == {"edge-1"}


def test_an_edge_that_goes_down_loses_what_it_held(small: Small) -> None:
    whole = played(small("stop.rounds=1"))
    when = 0.6 * whole.world.now
    session = played(
        small("stop.rounds=1", f"faults=[{{kind: edge-outage, edges: [0], at: [{when!r} s], lasts: 1 ms}}]")
    )
    assert [r.who for r in rows(session, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)] == ["edge-1"]
    assert session.metrics[-1]["loss"] != whole.metrics[-1]["loss"]


@pytest.mark.parametrize("work", ["paused", "lost"])
def test_a_backhaul_outage_delays_or_loses_what_is_on_it(small: Small, work: str) -> None:
    base = ("stop.rounds=1", "topology.edges=1")
    whole = played(small(*base))
    (up,) = rows(whole, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)
    middle = up.start_s + (up.end_s - up.start_s - 0.005) / 2
    fault = f"{{kind: backhaul-outage, at: [{middle!r} s], lasts: 20 s, work: {work}}}"
    session = played(small(*base, f"faults=[{fault}]"))
    (broken,) = rows(session, ledger.TRANSFER, hop=ledger.EDGE_CLOUD)
    if work == "paused":
        assert (broken.status, broken.bytes) == (ledger.DONE, up.bytes)
        assert broken.end_s == pytest.approx(up.end_s + 20)
    else:
        assert (broken.status, broken.end_s) == (ledger.BROKEN, middle)
        assert broken.bytes == pytest.approx(up.bytes / 2, abs=1)


def test_clients_that_come_and_go_by_chance_leave_nothing_hanging(small: Small) -> None:
    on_off = "topology.availability={generator: {kind: markov, mean_on: 300 ms, mean_off: 200 ms}, period: 1 h}"
    for preset, formation in (("fedavg", "all"), ("hierfavg", "all"), ("group-fel", "{kind: cov, min_size: 2}")):
        mix = (f"method={preset}", f"method.formation={formation}", on_off, "method.group_operation=secure-aggregation")
        session = played(small(*mix, "stop.rounds=12"))
        assert session.stopped_by == "rounds"
        statuses = {r.status for r in session.world.ledger.rows}
        assert statuses == {ledger.DONE, ledger.BROKEN}
        assert session.metrics[-1]["bytes_wasted"] == sum(
            r.bytes for r in rows(session, ledger.TRANSFER, status=ledger.BROKEN)
        )
        again = played(small(*mix, "stop.rounds=12"))
        assert again.world.ledger.rows == session.world.ledger.rows


def test_rules_with_memory_keep_only_what_came_back(small: Small) -> None:
    session = played(
        small(*FLAT, "method.local={kind: scaffold, epochs: 1, batch_size: 4, learning_rate: 0.1}", "stop.rounds=2",
              "faults=[{kind: client-crash, clients: [3], at: [30 ms]}]")
    )  # fmt: skip
    alone = played(
        small(*FLAT, "method.local={kind: scaffold, epochs: 1, batch_size: 4, learning_rate: 0.1}", "stop.rounds=2",
              "faults=[{kind: client-crash, clients: [3], at: [0 s]}]")
    )  # fmt: skip
    assert [m["loss"] for m in session.metrics] == [m["loss"] for m in alone.metrics]


def test_a_client_that_still_pretrains_begins_with_a_round_when_it_is_through(small: Small) -> None:
    late = played(
        small("method=fedseq", "data.public=3", "method.estimator={kind: confidence, epochs: 500}", "stop.rounds=3",
              "faults=[{kind: client-crash, clients: [0, 1, 2, 3], at: [0 s], lasts: 500 ms}]")
    )  # fmt: skip
    overlapping = 0
    for client in range(4):
        own = sorted((r.start_s, r.end_s, r.what) for r in rows(late, ledger.COMPUTE, f"client-{client}"))
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(own))
        whats = [what for _, _, what in own]
        assert whats[0] == "pretraining"
        arrivals = rows(late, ledger.TRANSFER, peer=f"client-{client}", what="model")
        overlapping += any(r.end_s < end for r in arrivals for start, end, what in own if what == "pretraining")
    assert overlapping  # a model came while the device was still busy
