"""HFLDD: bytes as S5 prints them, what is charged, what headers train on, and who is lost on the way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from devices.compute import flops_s, training_s
from emulator import ledger
from emulator.assembly import assemble
from emulator.errors import InputError, ScenarioError
from emulator.learning.distillation import distillation_flops
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.learning.timing import TimingLab
from emulator.ledger import Row
from emulator.methods.session import Session
from emulator.run import execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

FLAT = ("topology.edges=0", "data.partition={kind: classes-per-client, classes: 1, samples_per_client: 30}")
LOCAL = "method.local={kind: sgd, epochs: 2, batch_size: 8, learning_rate: 0.1}"
PUBLIC = ("data.public=3", "data.public_set={kind: synthetic, seed: 9}")
HFLDD = (
    *FLAT, *PUBLIC, "method=hfldd", LOCAL, "method.formation.clusters=4",
    "method.estimator={kind: soft-labels, epochs: 2, batch_size: 8, learning_rate: 0.1}",
    "method.training={kind: distilled, images: 5, steps: 3}",
)  # fmt: skip
RANDOM = "method.formation={kind: random, size: 4}"  # two clusters of four, whatever was learned


def rows(session: Session, what: str, kind: str = ledger.TRANSFER) -> list[Row]:
    return [r for r in session.world.ledger.rows if r.what == what and r.kind == kind]


def headers(session: Session) -> dict[int, int]:
    """The header of each group, as it was noted last."""
    return {place.group: place.header for place in session.places}


# Bytes.


@pytest.mark.parametrize("rounds", [1, 4])
def test_fedavg_sends_what_equation_3_says(small: Small, rounds: int) -> None:
    session = played(
        small(*FLAT, "method=fedavg", LOCAL, "method.initial_model=seed", f"stop.rounds={rounds}")
    )  # fmt: skip
    model_bytes = session.world.workload.model_bytes
    assert session.metrics[-1]["bytes_total"] == 8 * (2 * rounds - 1) * model_bytes


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize(("images", "channels"), [(5, 1), (100, 1), (5, 3)])
def test_hfldd_sends_what_equation_6_says(small: Small, rounds: int, images: int, channels: int) -> None:
    shape = f"shape: [{channels}, 8, 8]"
    session = played(
        small(*HFLDD, f"stop.rounds={rounds}", f"method.training.images={images}",
              f"data.set={{kind: synthetic, {shape}}}")
    )  # fmt: skip
    model_bytes, clients, classes, public = session.world.workload.model_bytes, 8, 10, 3 * 10
    clusters = len(headers(session))
    assert 1 <= clusters <= 8
    sent = min(images, 30) * channels * 8 * 8  # a client that has fewer samples sends those that it has
    expected = {
        "estimate": clients * public * classes * 4,
        "distilled-data": (clients - clusters) * sent,
        "model": clusters * (2 * rounds - 1) * model_bytes,
        "pretraining": 0,  # the model is drawn from a seed
    }
    found: Counter[str] = Counter()
    for row in session.world.ledger.rows:
        found[row.what] += row.bytes
    assert +found == +Counter(expected)
    assert session.metrics[-1]["bytes_total"] == sum(expected.values())
    assert session.metrics[-1]["bytes_client_client"] == expected["distilled-data"]


def test_a_model_that_is_no_seed_goes_down_to_all_for_soft_labels_and_to_headers_in_the_first_round(
    small: Small,
) -> None:
    seed, weights = (played(small(*HFLDD, f"method.initial_model={i}")) for i in ("seed", "weights"))
    more = (8 + len(headers(seed))) * seed.world.workload.model_bytes
    assert weights.metrics[-1]["bytes_total"] == seed.metrics[-1]["bytes_total"] + more


@pytest.mark.parametrize(("size", "rounds"), [(2, 1), (4, 3), (8, 2)])
def test_fedseq_in_rings_sends_what_equation_7_says(small: Small, size: int, rounds: int) -> None:
    session = played(
        small(*FLAT, "method=fedavg", LOCAL, "method.initial_model=seed", f"stop.rounds={rounds}",
              f"method.formation={{kind: random, size: {size}}}", "method.training={kind: sequential, ring: true}")
    )  # fmt: skip
    chains, model_bytes = 8 // size, session.world.workload.model_bytes
    assert session.metrics[-1]["bytes_total"] == chains * model_bytes * ((2 * rounds - 1) + rounds * size)
    hops = [r for r in rows(session, "model") if r.hop == ledger.CLIENT_CLIENT and r.round == 1 and r.group == 0]
    assert hops[-1].peer == hops[0].who  # back where it began
    (up,) = (r for r in rows(session, "model") if r.hop == ledger.CLIENT_SERVER and r.round == 1 and r.group == 0)
    assert up.who == hops[0].who


def test_a_ring_trains_what_a_chain_does(small: Small) -> None:
    base = (*FLAT, "method=fedavg", LOCAL, "method.formation={kind: random, size: 4}")
    chain, ring = (played(small(*base, f"method.training={{kind: sequential, ring: {r}}}")) for r in ("false", "true"))
    assert [m["loss"] for m in chain.metrics] == [m["loss"] for m in ring.metrics]
    assert ring.world.now > chain.world.now


def test_where_the_first_of_a_ring_is_lost_the_last_sends_the_model_up(small: Small) -> None:
    base = (*FLAT, "method=fedavg", LOCAL, "method.formation=all", "stop.rounds=1",
            "method.training={kind: sequential, ring: true, shuffle: false}")  # fmt: skip
    whole = played(small(*base))
    back = next(r for r in rows(whole, "model") if r.peer == "client-0" and r.hop == ledger.CLIENT_CLIENT)
    session = played(small(*base, f"faults=[{{kind: client-crash, clients: [0], at: [{back.start_s / 2!r} s]}}]"))
    (up,) = (r for r in rows(session, "model") if r.hop == ledger.CLIENT_SERVER)
    assert (up.who, up.status) == ("client-7", ledger.DONE)
    assert session.metrics[-1]["loss"] == whole.metrics[-1]["loss"]


def test_learned_labels_travel_too(small: Small) -> None:
    plain, soft = (played(small(*HFLDD, RANDOM, f"method.training.learn_labels={v}")) for v in ("false", "true"))
    sent = [sum(r.bytes for r in rows(s, "distilled-data")) for s in (plain, soft)]
    assert sent == [6 * 5 * 64, 6 * 5 * (64 + 10 * 4)]
    assert plain.metrics[-1]["loss"] != soft.metrics[-1]["loss"]


# Time, and what headers train on.


def test_distilling_takes_its_operations_on_the_device_and_the_round_begins_when_all_is_there(small: Small) -> None:
    devices = "topology.devices={raspberry-pi-4b: 0.5, laptop: 0.5}"
    session = played(small(*HFLDD, RANDOM, devices))
    world, params = session.world, session.scenario.method.params.training.params
    flops = distillation_flops(30, params, 64, 10)
    distilled = rows(session, "distillation", ledger.COMPUTE)
    assert len(distilled) == 6
    for row in distilled:
        seconds = flops_s(world.fleet.device(row.who), flops)
        assert row.end_s - row.start_s == pytest.approx(seconds)
        assert row.samples == 30
        (sent,) = (r for r in rows(session, "distilled-data") if r.who == row.who)
        assert sent.start_s == row.end_s
        assert sent.peer == f"client-{headers(session)[row.group]}"
    assert min(r.start_s for r in rows(session, "model")) == max(r.end_s for r in rows(session, "distilled-data"))
    assert session.metrics[-1]["cost_training_s"] == pytest.approx(
        sum(r.end_s - r.start_s for r in world.ledger.rows if r.kind == ledger.COMPUTE and r.who.startswith("client"))
    )


def test_headers_alone_train_on_their_own_samples_and_the_images(small: Small) -> None:
    session = played(small(*HFLDD, RANDOM, "stop.rounds=2"))
    world = session.world
    trained = rows(session, "training", ledger.COMPUTE)
    assert {(r.round, r.who) for r in trained} == {
        (t, f"client-{c}") for t in (1, 2) for c in headers(session).values()
    }
    held = 30 + 3 * 5
    for row in trained:
        assert row.samples == 2 * held
        seconds = training_s(world.fleet.device(row.who), world.workload.forward_flops, held, 8, 2)
        assert row.end_s - row.start_s == pytest.approx(seconds)


def test_the_global_model_is_the_average_of_the_headers_by_their_samples(small: Small) -> None:
    loaded = small(*HFLDD, "topology.clients=7", "method.formation={kind: random, size: 3}", "stop.rounds=1")
    session = played(loaded)
    params, lab = loaded.scenario.method.params, session.lab
    models, weights = [], []
    for group, header in sorted(headers(session).items()):
        others = [p.client for p in session.places if p.group == group and p.client != header]
        extra = [lab.distil(c, params.training.params) for c in others]
        models.append(lab.train(LocalTraining(lab.initial(), header, params.local, 1, extra=tuple(extra)))[0])
        weights.append(30 + 5 * len(others))
    assert len(set(weights)) > 1
    expected = lab.evaluate(lab.combine(models, [w / sum(weights) for w in weights]))
    assert session.metrics[-1]["loss"] == pytest.approx(expected.loss, rel=1e-6)
    assert session.metrics[-1]["accuracy"] == expected.accuracy


def test_groups_at_edges_have_headers_that_talk_to_their_edges(small: Small) -> None:
    session = played(
        small(*HFLDD, "topology.edges=2", "method.aggregator=edge", "method.formation={kind: random, size: 4}")
    )
    for place in session.places:
        assert (place.client < 4) == (place.header < 4)  # edges have blocks of four clients
    assert {r.hop for r in rows(session, "distilled-data")} == {ledger.CLIENT_CLIENT}
    assert {r.hop for r in rows(session, "model")} == set(ledger.HOPS) - {ledger.CLIENT_CLIENT}


# Odd clusters.


def test_a_cluster_of_one_client_trains_on_its_own_data(small: Small) -> None:
    alone = played(small(*HFLDD, "method.formation=single", "stop.rounds=2"))
    fedavg = played(small(*FLAT, "method=fedavg", LOCAL, "method.formation=single", "stop.rounds=2"))
    assert not rows(alone, "distilled-data")
    assert [m["loss"] for m in alone.metrics] == [m["loss"] for m in fedavg.metrics]


def test_a_client_with_fewer_samples_than_images_sends_them_as_they_are(
    small: Small, caplog: pytest.LogCaptureFixture
) -> None:
    session = played(small(*HFLDD, RANDOM, "method.training.images=31"))
    assert not rows(session, "distillation", ledger.COMPUTE)  # nothing is computed
    assert {r.bytes for r in rows(session, "distilled-data")} == {30 * 64}
    assert {r.samples for r in rows(session, "training", ledger.COMPUTE)} == {2 * 4 * 30}
    assert "8 of 8 clients have no more samples than the 31 images" in caplog.text
    caplog.clear()
    played(small(*HFLDD, RANDOM))
    assert not caplog.text


def test_more_clusters_than_clients_put_all_into_one(small: Small) -> None:
    session = played(small(*HFLDD, "method.formation.clusters=100"))
    assert {place.group for place in session.places} == {0}
    assert len(session.places) == 8


def test_the_places_say_who_is_where(small: Small) -> None:
    session = played(small(*HFLDD))
    counts = session.lab.clients.label_counts
    assert sorted(p.client for p in session.places) == list(range(8))
    for place in session.places:
        assert (place.label, place.samples) == (int(counts[place.client].argmax()), 30)
        assert place.images == (0 if place.client == place.header else 5)
        assert 0 <= place.kind < 4
        together = [p for p in session.places if p.group == place.group]
        assert len({p.kind for p in together}) == len(together)  # one of each kind


def test_groups_formed_anew_get_new_headers_and_distil_only_once(small: Small) -> None:
    session = played(small(*HFLDD, RANDOM, "method.schedule={kind: every, rounds: 1}", "stop.rounds=6"))
    chosen = {t: {p.header for p in session.places if p.round == t} for t in range(1, 7)}
    assert len({frozenset(each) for each in chosen.values()}) > 1
    who = [r.who for r in rows(session, "distillation", ledger.COMPUTE)]
    assert len(who) == len(set(who)) <= 8
    assert len(rows(session, "distilled-data")) == 6 * 6


# Failures.


def crash(client: int, at_s: float, lasts: str = "") -> str:
    return f"faults=[{{kind: client-crash, clients: [{client}], at: [{at_s!r} s]{lasts}}}]"


def test_a_member_that_drops_out_while_distilling_is_left_out(small: Small) -> None:
    base = (*HFLDD, RANDOM)
    whole = played(small(*base))
    row = rows(whole, "distillation", ledger.COMPUTE)[0]
    lost = int(row.who[7:])
    session = played(small(*base, crash(lost, (row.start_s + row.end_s) / 2)))
    (cut,) = (r for r in rows(session, "distillation", ledger.COMPUTE) if r.who == row.who)
    assert cut.status == ledger.BROKEN
    assert row.who not in {r.who for r in rows(session, "distilled-data")}
    assert headers(session) == headers(whole)
    trained = {r.group: r.samples for r in rows(session, "training", ledger.COMPUTE)}
    assert trained == {g: 2 * (30 + 5 * (2 if g == row.group else 3)) for g in (0, 1)}
    assert {p.images for p in session.places if p.client == lost} == {0}


def test_where_the_header_is_lost_before_it_has_its_data_another_takes_its_place(small: Small) -> None:
    base = (*HFLDD, RANDOM)
    whole = played(small(*base))
    row = rows(whole, "distillation", ledger.COMPUTE)[0]
    header = headers(whole)[row.group]
    session = played(small(*base, crash(header, (row.start_s + row.end_s) / 2)))
    new = headers(session)[row.group]
    assert new != header
    assert headers(session)[1 - row.group] == headers(whole)[1 - row.group]
    # Everybody has distilled once, the new header too, which sends nothing.
    assert len(rows(session, "distillation", ledger.COMPUTE)) == 6
    done = [r for r in rows(session, "distilled-data") if r.group == row.group and r.status == ledger.DONE]
    assert {r.peer for r in done} == {f"client-{new}"}
    assert len(done) == 2
    assert {r.samples for r in rows(session, "training", ledger.COMPUTE) if r.group == row.group} == {2 * (30 + 2 * 5)}


def test_a_header_that_is_away_sits_out_and_one_that_is_gone_is_replaced(small: Small) -> None:
    base = (*HFLDD, RANDOM, "stop.rounds=6")
    whole = played(small(*base))
    header, ends = headers(whole)[0], [m["time_s"] for m in whole.metrics]
    in_third = (ends[2] + ends[3]) / 2
    back = ends[3] - ends[2]
    away = played(small(*base, crash(header, in_third, f", lasts: {back!r} s")))
    trained = {
        t: {r.group for r in rows(away, "training", ledger.COMPUTE) if r.round == t and r.status == ledger.DONE}
        for t in range(1, 7)
    }
    assert trained[2] == trained[6] == {0, 1}
    assert {1} in trained.values()
    assert headers(away) == headers(whole)
    gone = played(small(*base, crash(header, in_third)))
    new = headers(gone)[0]
    assert new != header
    assert len(rows(gone, "distillation", ledger.COMPUTE)) == 6  # nobody distils anew
    sent = [r for r in rows(gone, "distilled-data") if r.round > 1]
    assert {(r.group, r.peer) for r in sent} == {(0, f"client-{new}")}
    last = {r.who: r.samples for r in rows(gone, "training", ledger.COMPUTE) if r.round == 6}
    assert last == {f"client-{new}": 2 * (30 + 2 * 5), f"client-{headers(gone)[1]}": 2 * (30 + 3 * 5)}


def test_a_run_in_which_nobody_is_left_ends_cleanly(small: Small) -> None:
    base = (*HFLDD, RANDOM, "stop.rounds=9")
    whole = played(small(*base))
    when = whole.metrics[1]["time_s"] * 1.01
    session = played(small(*base, f"faults=[{{kind: client-crash, at: [{when!r} s]}}]"))
    assert session.stopped_by == "nobody left"
    early = rows(whole, "distillation", ledger.COMPUTE)[0]
    session = played(small(*base, f"faults=[{{kind: client-crash, at: [{(early.start_s + early.end_s) / 2!r} s]}}]"))
    assert (session.stopped_by, session.rounds) == ("nobody left", 0)


def test_watching_changes_nothing_where_nothing_is_lost(small: Small) -> None:
    plain, watched = (played(small(*HFLDD, *more)) for more in ((), ("faults=[{kind: client-crash, at: [1000 d]}]",)))
    assert [m["loss"] for m in plain.metrics] == [m["loss"] for m in watched.metrics]
    assert plain.world.now == pytest.approx(watched.world.now)
    assert plain.metrics[-1]["bytes_total"] == watched.metrics[-1]["bytes_total"]


# Without training, from a memo, and from a checkpoint.


def test_a_run_without_training_takes_the_same_time_and_bytes(small: Small) -> None:
    loaded = small(*HFLDD, "method.estimator=label-counts")
    trained = played(loaded)
    session = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None))))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    assert session.places == trained.places
    assert session.world.now == trained.world.now
    assert session.world.ledger.rows == trained.world.ledger.rows
    assert math.isnan(session.metrics[-1]["accuracy"])


def test_soft_labels_cannot_be_had_without_training(small: Small) -> None:
    loaded = small(*HFLDD)
    session = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None))))
    with pytest.raises(InputError, match="cannot be run without training"):
        session.env.run(session.env.process(loaded.scenario.method(session)))


def test_the_same_run_in_another_world_trains_and_distils_nothing(small: Small, tmp_path: Path) -> None:
    memo = Memo(tmp_path / "memo")
    first = execute(small(*HFLDD), tmp_path / "a", memo, max_workers=1)
    other = execute(small(*HFLDD, "topology.links.access.up=1 Mbit/s"), tmp_path / "b", memo, max_workers=1)
    assert first["trainings"]["computed"] > 0
    assert other["trainings"] == {"asked": first["trainings"]["asked"], "computed": 0}
    assert other["final"]["loss"] == first["final"]["loss"]
    assert other["final"]["time_s"] > first["final"]["time_s"]
    assert (tmp_path / "a" / "topology.csv").read_bytes() == (tmp_path / "b" / "topology.csv").read_bytes()


def test_an_interrupted_run_goes_on_and_gives_the_same_files(small: Small, tmp_path: Path) -> None:
    from emulator.run import Watcher

    loaded = small(*HFLDD, "stop.rounds=4", "output.checkpoint=0 s")
    whole = execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)

    def stop(round: int, metrics: dict[str, float]) -> None:  # noqa: A002
        if round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(loaded, tmp_path / "cut", Memo(None), Watcher(on_round=stop), max_workers=1)
    assert prepare(tmp_path / "cut", loaded.scenario)
    rest = execute(loaded, tmp_path / "cut", Memo(None), max_workers=1)
    assert rest["trainings"]["computed"] == 2 * len(set(_headers(tmp_path / "cut")))
    assert rest["final"] == whole["final"]
    for name in ("metrics.csv", "ledger.parquet", "topology.csv", "groups.csv", "summary.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _headers(folder: Path) -> list[str]:
    return [line.split(",")[3] for line in (folder / "topology.csv").read_text().splitlines()[1:]]


# What does not go together.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("method.group_operation=secure-aggregation", "one member trains for all"),
        ("method.min_members=2", "one member trains for all; leave it at 1"),
        ("data.public=0", "how many samples of each of its classes are public"),
        ("method.estimator=confidence", "of the clients' own classes"),
        ("method.formation.clusters=0", "must be at least 1"),
    ],
)
def test_what_does_not_go_together_is_refused(small: Small, change: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        small(*HFLDD, change)


def test_asynchronous_chains_have_no_headers(small: Small) -> None:
    with pytest.raises(ScenarioError, match="goes with 'grouped' rounds"):
        small(*FLAT, "data.public=3", "method=fedasyncseq", "method.training=distilled")
