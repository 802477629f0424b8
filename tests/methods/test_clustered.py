"""Clusters that split as they learn: true clusters found, each at its own pace, and what may go wrong on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator import ledger
from emulator.errors import InputError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.methods.session import Session
from emulator.run import execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

# Four clients have the labels 0 to 4, four the others; nobody says so. All but a few rounds of the small perceptron are noisy, so
# it counts as stable early.
BLOCKS = "data.partition={kind: label-blocks, blocks: [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]], samples_per_client: 40}"
HICFL = (
    "topology.edges=0", "method=hicfl", BLOCKS, "method.local={batch_size: 8, learning_rate: 0.1}",
    "method.split_time={kind: stability, epsilon: 5, window: 2, selection: null}",
)  # fmt: skip


def split_rows(session: Session) -> list[dict[str, Any]]:
    return [row for row in session.tables["clusters"] if row["reason"] == "split"]


def test_true_clusters_are_found_and_the_tree_says_how(small: Small) -> None:
    session = played(small(*HICFL, "stop.rounds=8"))
    last = session.metrics[-1]
    assert (last["clusters"], last["adjusted_rand"], last["purity"]) == (2, 1, 1)
    start, *halves = session.tables["clusters"]
    assert (start["cluster"], start["parents"], start["round"], start["size"]) == (0, "", 0, 8)
    assert [(r["parents"], r["size"], r["cosines"]) for r in halves] == [("0", 4, 7)] * 2
    assert sorted(" ".join(r["members"] for r in halves).split()) == sorted(map(str, range(8)))
    assert halves[0]["layer"] in ("1", "3")
    assert str(halves[0]["reference"]) in halves[0]["members"].split()
    truth = session.lab.clients.clusters
    assert truth is not None
    for row in halves:
        assert len({int(truth[int(c)]) for c in row["members"].split()}) == 1


def test_one_model_for_each_cluster_is_better_for_its_clients_than_one_for_all(small: Small) -> None:
    session = played(small(*HICFL, "stop.rounds=12"))
    whole = played(small(*HICFL, "method.split_time={kind: stability, epsilon: 0}", "stop.rounds=12"))
    split, one = session.metrics[-1], whole.metrics[-1]
    assert one["clusters"] == 1
    assert split["accuracy_clusters"] > one["accuracy_clusters"] + 0.05
    assert split["accuracy_clients"] > one["accuracy_clients"] + 0.05
    assert split["accuracy"] < split["accuracy_clusters"]


def test_accuracies_by_cluster_and_client_are_means_over_labels_as_they_hold_them(small: Small) -> None:
    session = played(small(*HICFL, "stop.rounds=6"))
    lab, last = session.lab, session.metrics[-1]
    assert isinstance(lab, Lab)
    counts = lab.clients.label_counts
    fedavg = played(
        small("topology.edges=0", "method=fedavg", "method.local={batch_size: 8, learning_rate: 0.1}", BLOCKS)
    )
    row = fedavg.metrics[-1]
    x, y = lab._data.arrays.x_test, lab._data.arrays.y_test
    assert row["clusters"] == 1
    # One model: of all clients together, and of each client by itself.
    fed_lab = fedavg.lab
    assert isinstance(fed_lab, Lab)
    rule = fedavg.scenario.method.params.local
    samples = fed_lab.clients.samples
    model = fed_lab.initial()
    for t in (1, 2):
        trained = [fed_lab.train(LocalTraining(model, c, rule, t))[0] for c in range(8)]
        model = fed_lab.combine(trained, [int(n) / int(samples.sum()) for n in samples])
    right = _right(fed_lab, model, x, y)
    by_label = np.array([right[y == label].mean() for label in range(10)])
    assert row["accuracy_clusters"] == pytest.approx((by_label * counts.sum(0)).sum() / counts.sum())
    own = (counts * by_label).sum(1) / counts.sum(1)
    assert row["accuracy_clients"] == pytest.approx(own.mean())
    assert row["accuracy"] == pytest.approx(right.mean())
    assert last["accuracy_clusters"] == pytest.approx(last["accuracy_clients"], abs=0.05)


def _right(lab: Lab, model: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    state = lab.value(model).numpy()
    w1, b1, w2, b2 = np.split(state, [512, 520, 600])
    hidden = np.maximum(x.reshape(len(x), -1) @ w1.reshape(8, 64).T + b1, 0)
    return np.asarray((hidden @ w2.reshape(10, 8).T + b2).argmax(1) == y)


def test_clusters_do_not_wait_for_each_other(small: Small) -> None:
    # The clients of one true cluster are on slow devices.
    truth = played(small(*HICFL, "stop.rounds=1")).lab.clients.clusters
    assert truth is not None
    slow = truth == truth[0]
    faults = f"faults=[{{kind: slow-down, clients: {np.flatnonzero(slow).tolist()}, at: [0 s], factor: 50}}]"
    session = played(small(*HICFL, faults, "stop.rounds=10"))
    assert session.metrics[-1]["adjusted_rand"] == 1
    split = split_rows(session)[0]["round"]
    ends: dict[tuple[int, int], float] = {}
    for row in session.world.ledger.rows:
        if row.hop == ledger.CLIENT_SERVER and row.what == "model" and row.round > split:
            at = row.group, row.round
            ends[at] = max(ends.get(at, 0.0), row.end_s)
    fast, late = sorted({group for group, _ in ends}, key=lambda g: ends[g, 10])
    assert ends[fast, 10] < ends[late, split + 1]
    # A round of the run is over when the slow ones have ended it; the models are those of that instant.
    times = {int(m["round"]): m["time_s"] for m in session.metrics}
    for t in range(split + 1, 11):
        assert times[t] >= ends[late, t]
        assert times[t] == pytest.approx(ends[late, t], rel=0.01)


def test_a_clustered_round_sends_one_model_each_way_and_the_server_is_charged(small: Small) -> None:
    session = played(small(*HICFL, "stop.rounds=6"))
    rows = session.world.ledger.rows
    sent = Counter(r.hop for r in rows if r.kind == ledger.TRANSFER)
    assert sent == {ledger.SERVER_CLIENT: 48, ledger.CLIENT_SERVER: 48}
    assert {r.who for r in rows if r.what == "clustering"} == {"cloud"}
    first = played(small(*HICFL, "method.initial_model=seed", "stop.rounds=6"))
    saved = session.metrics[-1]["bytes_total"] - first.metrics[-1]["bytes_total"]
    assert saved == 8 * session.world.workload.model_bytes


def test_mtcfl_splits_by_all_pairs_once_the_model_stands_still(small: Small) -> None:
    session = played(
        small(*HICFL, "method=mtcfl", "method.split_time={kind: convergence, mean_below: 0.8}",
              "method.local={kind: sgd, batch_size: 8, learning_rate: 0.1}", "stop.rounds=30")
    )  # fmt: skip
    first = split_rows(session)[:2]
    assert [(r["layer"], r["reference"], r["cosines"]) for r in first] == [("all", "", 28)] * 2
    row = next(r for r in session.tables["stability"] if r["round"] == first[0]["round"])
    largest = max(r["mean_update"] for r in session.tables["stability"] if r["round"] <= row["round"])
    assert row["mean_update"] < 0.8 * largest < row["longest_update"]
    truth = session.lab.clients.clusters
    assert truth is not None
    assert all(len({int(truth[int(c)]) for c in r["members"].split()}) == 1 for r in first)


def test_members_that_agree_stay_together_unless_they_are_to_be_alone(small: Small) -> None:
    session = played(small(*HICFL, "method.finer={after: 4, levels: null}", "stop.rounds=30"))
    assert session.metrics[-1]["clusters"] > 2
    assert session.metrics[-1]["purity"] == 1
    once = played(small(*HICFL, "method.finer={after: 4, levels: 1}", "stop.rounds=15"))
    assert once.metrics[-1]["clusters"] == 4
    alone = [r for r in session.tables["clusters"] if r["size"] == 1]
    assert alone  # and a cluster of one client goes on to the end
    numbers = {r["cluster"] for r in alone}
    assert {r.round for r in session.world.ledger.rows if r.group in numbers and r.what == "training"} >= {30}


def test_similar_clusters_are_merged_again_where_the_scenario_says_when(small: Small) -> None:
    finer = "method.finer={after: 4, levels: 1}"
    session = played(small(*HICFL, finer, "method.reorganise=14", "stop.rounds=16"))
    by_reason = Counter(r["reason"] for r in session.tables["clusters"])
    before = next(m for m in session.metrics if m["round"] == 14)
    assert before["clusters"] == 4
    assert by_reason["merge"] >= 1
    merge = next(r for r in session.tables["clusters"] if r["reason"] == "merge")
    parts = {r["cluster"]: r for r in session.tables["clusters"]}
    members = sorted(int(c) for p in merge["parents"].split() for c in parts[int(p)]["members"].split())
    assert members == [int(c) for c in merge["members"].split()]
    assert session.metrics[-1]["clusters"] < 4
    waits = [r.start_s for r in session.world.ledger.rows if r.round == 15]
    ends = [r.end_s for r in session.world.ledger.rows if r.round == 14 and r.what == "model"]
    assert min(waits) >= max(ends)


def test_a_client_that_is_lost_in_the_round_of_a_split_goes_by_its_last_update(small: Small) -> None:
    calm = played(small(*HICFL, "stop.rounds=8"))
    split = split_rows(calm)[0]
    during = calm.metrics[split["round"] - 1]["time_s"]
    session = played(
        small(*HICFL, f"faults=[{{kind: client-crash, clients: [2], at: [{during + 0.01} s]}}]", "stop.rounds=8")
    )
    first = split_rows(session)[:2]
    assert [r["round"] for r in first] == [split["round"]] * 2
    assert sorted(" ".join(r["members"] for r in first).split()) == sorted(map(str, range(8)))
    assert session.metrics[-1]["adjusted_rand"] == 1
    assert session.metrics[-1]["round"] == 8


def test_a_client_that_never_answered_stays_with_the_reference(small: Small) -> None:
    session = played(small(*HICFL, "faults=[{kind: client-crash, clients: [2], at: [0 s]}]", "stop.rounds=8"))
    like, unlike = split_rows(session)[:2]
    assert "2" in like["members"].split()
    assert sorted((like["members"] + " " + unlike["members"]).split()) == sorted(map(str, range(8)))


def test_a_run_ends_where_nobody_is_left(small: Small) -> None:
    session = played(
        small(*HICFL, "faults=[{kind: client-crash, at: [0.3 s], clients: [0, 1, 2, 3, 4, 5, 6, 7]}]", "stop.rounds=8")
    )
    assert session.stopped_by == "nobody left"
    assert session.metrics[-1]["time_s"] <= 1


def test_identical_clients_are_never_split(small: Small) -> None:
    session = played(
        small(*HICFL, "data.partition={kind: label-blocks, blocks: [[0, 1]], samples_per_client: 40, overlap: true}",
              "method.split_time={kind: stability, epsilon: 50, window: 1, selection: null}", "stop.rounds=6")
    )  # fmt: skip
    assert session.metrics[-1]["clusters"] == 1
    assert session.metrics[-1]["adjusted_rand"] == 1


def test_one_client_is_a_cluster(small: Small) -> None:
    session = played(
        small("topology.edges=0", "topology.clients=1", "method=hicfl", "method.local={batch_size: 4, learning_rate: 0.1}",
              "data.partition=iid", "method.split_time={kind: stability, epsilon: 50, window: 1}", "stop.rounds=5")
    )  # fmt: skip
    assert session.metrics[-1]["clusters"] == 1
    assert session.metrics[-1]["round"] == 5


def test_similarities_of_chosen_rounds_are_written_down(small: Small) -> None:
    session = played(small(*HICFL, "method.record_similarity=[1, 2]", "stop.rounds=2"))
    rows = session.tables["similarity"]
    assert len(rows) == 2 * 28 * 3
    assert {r["layer"] for r in rows} == {"all", "1", "3"}
    truth = session.lab.clients.clusters
    assert truth is not None
    inside = [
        r["cosine"] for r in rows if r["layer"] == "3" and r["round"] == 2 and truth[r["client"]] == truth[r["other"]]
    ]
    across = [
        r["cosine"] for r in rows if r["layer"] == "3" and r["round"] == 2 and truth[r["client"]] != truth[r["other"]]
    ]
    assert min(inside) > max(across)


def test_a_replay_makes_the_same_tables_without_training(small: Small, tmp_path: Path) -> None:
    loaded = small(*HICFL, "stop.rounds=8")
    memo = Memo(tmp_path / "memo.sqlite")
    for name in ("first", "second"):
        assert prepare(tmp_path / name, loaded.scenario)
        summary = execute(loaded, tmp_path / name, memo, max_workers=1)
    assert summary["trainings"]["computed"] == 0
    for table in ("clusters.csv", "stability.csv", "metrics.csv"):
        assert (tmp_path / "first" / table).read_bytes() == (tmp_path / "second" / table).read_bytes()


def test_ifca_sends_all_models_down_and_one_up_and_clients_find_theirs(small: Small) -> None:
    session = played(
        small("topology.edges=0", "method=ifca", "method.clusters=2", BLOCKS, "stop.rounds=10",
              "method.local={batch_size: 8, learning_rate: 0.1}")
    )  # fmt: skip
    size, rows = session.world.workload.model_bytes, session.world.ledger.rows
    down = [r.bytes for r in rows if r.hop == ledger.SERVER_CLIENT]
    up = [r.bytes for r in rows if r.hop == ledger.CLIENT_SERVER]
    assert (down, up) == ([2 * size] * 80, [size] * 80)
    assert sum(r.what == "choice" for r in rows) == 80
    assert session.metrics[-1]["adjusted_rand"] == 1
    by_round: dict[int, set[str]] = {}
    for row in session.tables["clusters"]:
        by_round.setdefault(row["round"], set()).add(row["members"])
    assert by_round[1]


def test_ifca_clients_train_the_model_with_the_least_loss(small: Small) -> None:
    session = played(
        small("topology.edges=0", "method=ifca", "method.clusters=3", BLOCKS, "stop.rounds=1",
              "method.local={batch_size: 8, learning_rate: 0.1}")
    )  # fmt: skip
    lab = session.lab
    models = [lab.initial(k) for k in range(3)]
    assert len({h.key for h in models}) == 3
    for row in session.tables["clusters"]:
        for client in map(int, row["members"].split()):
            losses = lab.measure("fit", models, client)[:, 0]
            assert int(np.argmin(losses)) == row["cluster"]


def test_centralized_learning_is_charged_for_the_samples_and_the_servers_time(small: Small) -> None:
    session = played(
        small("topology.edges=0", "method=centralized", BLOCKS, "stop.rounds=3",
              "method.local={epochs: 2, batch_size: 8, learning_rate: 0.1}")
    )  # fmt: skip
    samples = session.lab.clients.samples
    sent = {r.who: r.bytes for r in session.world.ledger.rows if r.kind == ledger.TRANSFER}
    assert sent == {f"client-{c}": int(samples[c]) * 65 for c in range(8)}
    assert session.metrics[-1]["bytes_total"] == int(samples.sum()) * 65
    assert session.metrics[-1]["cost_s"] == 0
    work = [r for r in session.world.ledger.rows if r.what == "training"]
    assert {r.who for r in work} == {"cloud"}
    speed = session.world.fleet.device("cloud").effective_speed
    expected = 3 * session.world.workload.forward_flops * 2 * int(samples.sum()) / speed
    assert [r.end_s - r.start_s for r in work] == pytest.approx([expected] * 3)
    assert session.metrics[-1]["accuracy"] > session.metrics[0]["accuracy"] + 0.1


def test_samples_in_one_place_are_trained_as_one_clients(small: Small) -> None:
    # One batch holds everything, so the order of samples does not matter.
    two = (
        "topology.clients=2",
        "topology.edges=1",
        "data.partition={kind: dirichlet, alpha: 10, samples_per_client: 12}",
    )
    loaded = small(*two,
                   "method.local={epochs: 1, batch_size: 64, learning_rate: 0.1}")  # fmt: skip
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    rule = loaded.scenario.method.params.local
    both = lab.value(lab.train(LocalTraining(lab.initial(), (0, 1), rule, 1))[0])
    apart = [lab.value(lab.train(LocalTraining(lab.initial(), c, rule, 1))[0]) for c in (0, 1)]
    assert both.numpy() == pytest.approx(((apart[0] + apart[1]) / 2).numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("method.aggregator=edge", "only where there is one"),
        ("method.local.kind=scaffold", "belongs to one global model"),
        ("method.split_time=stabilty", "did you mean 'stability'"),
        ("method.bipartition={kind: reference, choice: best}", "choice"),
        ("method.split_time={kind: stability, agreement: high}", "agreement: expected 'derived', or a share above 0"),
    ],
)
def test_what_does_not_fit_is_refused(small: Small, change: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        small(*HICFL, change)


def test_an_only_edge_may_average_and_split(small: Small) -> None:
    session = played(small(*HICFL, "topology.edges=1", "method.aggregator=edge", "stop.rounds=6"))
    assert {r.who for r in session.world.ledger.rows if r.what == "clustering"} == {"edge-0"}
    assert session.metrics[-1]["bytes_edge_cloud"] == 0
    assert session.metrics[-1]["adjusted_rand"] == 1


def test_a_trial_splits_nothing_and_says_what_a_split_would_give(small: Small) -> None:
    session = played(small(*HICFL, "method.trial=true", "stop.rounds=6"))
    assert session.metrics[-1]["clusters"] == 1
    rows = session.tables["trials"]
    assert [r["round"] for r in rows] == [1, 2, 3, 4, 5, 6]
    split = split_rows(played(small(*HICFL, "stop.rounds=6")))[0]
    at = next(r for r in rows if r["ripe"])
    assert (at["round"], at["layer"], at["reference"]) == (split["round"], split["layer"], split["reference"])
    assert (at["purity"], at["adjusted_rand"]) == (1, 1)
    assert {at["like"], at["unlike"]} == {4}


def test_clients_in_wrong_clusters_are_told_apart_again(small: Small) -> None:
    session = played(small(*HICFL, "method.misplaced={round: 2, share: 0.25}", "stop.rounds=12"))
    first = [r for r in session.tables["clusters"] if r["reason"] == "misplaced"]
    truth = session.lab.clients.clusters
    assert truth is not None
    assert [r["round"] for r in first] == [2, 2]
    sides = [[int(truth[int(c)]) for c in r["members"].split()] for r in first]
    wrong = sum(len(side) - max(side.count(0), side.count(1)) for side in sides)
    assert wrong == 2
    assert session.metrics[2]["purity"] == 0.75
    assert session.metrics[-1]["purity"] == 1


def test_wrong_clusters_need_true_ones(small: Small) -> None:
    with pytest.raises(InputError, match="needs a partition that makes clusters"):
        played(small(*HICFL, "data.partition=iid", "method.misplaced={round: 1, share: 0.25}", "stop.rounds=2"))
