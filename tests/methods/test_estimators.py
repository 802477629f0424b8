"""Estimators: what they say of clients, how methods use them, and what a scenario may ask of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from estimator_sessions import PUBLIC, Small, asked, estimates, session_of
from patience import PATIENCE_S

from emulator import ledger
from emulator.contracts.grouping import FormationChoice, distances, formations
from emulator.contracts.learning import measurements
from emulator.contracts.methods import estimators
from emulator.errors import HflError, InputError
from emulator.grouping.similarity import set_similarity
from emulator.grouping.view import ClientView
from emulator.learning.memo import Memo
from emulator.learning.recipes import LocalTraining
from emulator.methods.estimators.classifier_weights import principal_components
from emulator.methods.session import Session

GREEDY = "method.formation={kind: greedy-distant, size: 2, distance: euclidean}"
EVERY = ["classifier-weights", "confidence", "label-counts", "signature", "soft-labels", "task2vec"]


def test_all_that_are_asked_for_are_there() -> None:
    # Further ones speak of all clients together, and of time rather than of data.
    assert estimators.names() == sorted([*EVERY, "label-mix", "response-time"])
    per_class = [name for name in EVERY if estimators[name].facts.per_class]
    assert per_class == ["confidence", "label-counts", "signature"]


def test_the_rooms_are_found_without_loading_torch_and_all_have_summaries() -> None:
    script = (
        "import sys; import emulator.contracts; from emulator.registry import Registry\n"
        "for slot in ('estimator', 'distance', 'measurement', 'method'): Registry.by_slot[slot].names()\n"
        "print(sorted({'torch', 'sklearn', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == "[]"
    for registry in (estimators, distances, measurements):
        assert all(registry[name].summary for name in registry.names())


# What they say. Clients of the small scenario hold 12 samples of 10 classes; the perceptron has 8 hidden units.


def test_label_counts_are_shares(small: Small) -> None:
    session, found = asked(small, "label-counts")
    counts = session.lab.clients.label_counts
    np.testing.assert_allclose(found, counts / 12)
    np.testing.assert_allclose(found.sum(axis=1), 1)


ONE_CLASS = (
    "data.partition={kind: classes-per-client, classes: 1}",
    "topology.clients=10",
    "topology.edges=0",
    "method=fedavg",
)


def test_a_client_of_one_class_is_confident_of_it_alone(small: Small) -> None:
    # S4 §IV-C: the confidence vector of such a client is about 1 at its class and about 0 elsewhere.
    session, found = asked(small, "{kind: confidence, epochs: 30, learning_rate: 0.2}", *ONE_CLASS)
    own = session.lab.clients.label_counts.argmax(axis=1)
    assert found.argmax(axis=1).tolist() == own.tolist()
    assert found.max(axis=1).min() > 0.8
    np.testing.assert_allclose(found.sum(axis=1), 1)
    signed = asked(small, "{kind: signature, epochs: 30, learning_rate: 0.2}", *ONE_CLASS)[1]
    assert signed.argmax(axis=1).tolist() == own.tolist()
    assert signed.max(axis=1).min() > 0.9
    assert 0 <= signed.min() <= signed.max() <= 1
    assert np.median(signed) < 0.05


def test_confidence_and_signature_are_two_readings_of_one_measurement(small: Small) -> None:
    memo = Memo(None)
    one = session_of(small(PUBLIC, "method.estimator=confidence"), memo)
    confident = estimates(one)
    assert one.lab.trained == 8
    other = session_of(small(PUBLIC, "method.estimator=signature"), memo)
    signed = estimates(other)
    assert other.lab.trained == 0
    assert not np.allclose(confident, signed, atol=0.01)
    scores = [
        one.lab.measure("class-scores", [one.lab.train(LocalTraining(one.lab.initial(), c, _rule(one), 0))[0]])
        for c in range(8)
    ]
    assert one.lab.trained == 8
    for c, (mean, softmax) in enumerate(scores):
        np.testing.assert_allclose(confident[c], np.exp(mean) / np.exp(mean).sum(), rtol=1e-9)
        np.testing.assert_allclose(signed[c], softmax, rtol=1e-12)


def _rule(session: Session) -> Any:
    return session.scenario.method.params.estimator.params.rule()


def test_soft_labels_are_distributions_laid_end_to_end(small: Small) -> None:
    _, found = asked(small, "soft-labels")
    assert found.shape == (8, 30 * 10)
    np.testing.assert_allclose(found.reshape(8, 30, 10).sum(axis=2), 1, atol=1e-6)


def test_classifier_weights_keep_nine_tenths_of_their_variance(small: Small) -> None:
    session, found = asked(small, "classifier-weights")
    lab = session.lab
    raw = np.stack(
        [
            lab.measure("classifier-weights", [lab.train(LocalTraining(lab.initial(), c, _rule(session), 0))[0]])
            for c in range(8)
        ]
    )
    assert raw.shape == (8, 90)

    def spread(rows: np.ndarray) -> float:
        return float(((rows - rows.mean(axis=0)) ** 2).sum())

    assert 0.9 <= spread(found) / spread(raw) < 1
    assert found.shape[1] < 8
    fewer = found[:, : found.shape[1] - 1]
    assert spread(fewer) / spread(raw) < 0.9
    everything = asked(small, "{kind: classifier-weights, variance: 1.0}")[1]
    np.testing.assert_allclose(spread(everything), spread(raw), rtol=1e-6)


def test_principal_components_by_hand() -> None:
    # Along (3, 4) with variance 25 · 2/3 and across it nearly none.
    rows = np.array([[10.0, 20], [13, 24], [7, 16]])
    found = principal_components(rows, 0.9)
    assert found.shape == (3, 1)
    np.testing.assert_allclose(np.abs(found[:, 0]), [0, 5, 5], atol=1e-12)
    assert principal_components(np.ones((4, 3)), 0.9).tolist() == [[0.0]] * 4
    assert principal_components(np.ones((1, 3)), 0.9).tolist() == [[0.0]]


def test_task2vec_has_a_number_for_each_filter_of_the_extractor(small: Small) -> None:
    _, found = asked(small, "task2vec")
    assert found.shape == (8, 8)
    assert (found >= 0).all()
    _, found = asked(small, "task2vec", "model={kind: cnn, channels: [3, 4]}")
    assert found.shape == (8, 3 + 4)


@pytest.mark.parametrize("kind", EVERY)
def test_clients_with_the_same_labels_are_nearer_than_others(small: Small, kind: str) -> None:
    # Twenty clients of ten classes, two of each; enough samples and epochs to tell.
    changes = (
        "data.partition={kind: classes-per-client, classes: 1}",
        "topology.clients=20",
        "topology.edges=0",
        "method=fedavg",
    )
    estimator = kind if kind == "label-counts" else f"{{kind: {kind}, epochs: 20, learning_rate: 0.1}}"
    session, found = asked(small, estimator, *changes)
    own = session.lab.clients.label_counts.argmax(axis=1)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    likeness = unit @ unit.T
    same = own[:, None] == own
    inside = likeness[same & ~np.eye(20, dtype=bool)].mean()
    assert inside > likeness[~same].mean()


@pytest.mark.parametrize("kind", EVERY)
def test_the_second_time_needs_no_training_and_no_torch(small: Small, kind: str) -> None:
    memo = Memo(None)
    first, again = (
        session_of(small(PUBLIC, f"method.estimator={kind}", c), memo) for c in ("seed=3", "topology.devices=laptop")
    )
    before = estimates(first)
    assert first.lab.trained == (0 if kind == "label-counts" else 8)
    assert np.array_equal(before, estimates(again))
    assert again.lab.trained == 0
    assert "_engine" not in vars(again.lab)
    assert first.world.now != again.world.now or kind == "label-counts"


# Inside a method.


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(
    "formation",
    [
        "{kind: greedy-distant, size: 2, distance: cosine}", "{kind: kmeans-spread, clusters: 2, max_clients: 2}",
        "{kind: icg, groups: 2}", "{kind: hierarchical, groups: 2}",
    ],
)  # fmt: skip
def test_any_formation_works_on_any_estimate(small: Small, kind: str, formation: str) -> None:
    loaded = small(PUBLIC, f"method.estimator={kind}", f"method.formation={formation}", "stop.rounds=1")
    session = session_of(loaded)
    session.env.run(session.env.process(loaded.scenario.method(session)))
    groups = {r.group for r in session.world.ledger.rows if r.what == "training"}
    assert len(groups) == 4  # two at each edge
    asked_for = {r.what for r in session.world.ledger.rows if r.round == 0} - {"evaluation"}
    assert asked_for == ({"label-counts"} if kind == "label-counts" else {"pretraining", "estimate"})


def test_what_no_rule_needs_is_not_asked(small: Small) -> None:
    loaded = small(PUBLIC, "method.estimator=signature", "stop.rounds=1")
    session = session_of(loaded)
    session.env.run(session.env.process(loaded.scenario.method(session)))
    assert not [r for r in session.world.ledger.rows if r.what in ("pretraining", "estimate", "label-counts")]


def test_label_counts_and_estimates_are_asked_once_each(small: Small) -> None:
    for estimator, expected in (
        ("label-counts", {"label-counts": 8}),
        ("classifier-weights", {"label-counts": 8, "estimate": 8}),
    ):
        loaded = small(GREEDY, "method.sampling=rcov", f"method.estimator={estimator}", "stop.rounds=1")
        session = session_of(loaded)
        session.env.run(session.env.process(loaded.scenario.method(session)))
        sent = [r.what for r in session.world.ledger.rows if r.hop == ledger.CLIENT_SERVER and r.round == 0]
        assert Counter(sent) == expected


def test_sets_are_as_s1_describes_them(small: Small) -> None:
    # S1 §IV-B: VISIT's sets are the nearest to the target and to each other, FedSeq's the least alike inside, HierCluster's
    # the most. {L, k} = {9, 4} of 60 clients: with clients to choose from. Of just 36 the last set gets what is left.
    data = "data.partition={kind: dirichlet, alpha: 0.1, samples_per_client: 15}"
    fleet = ("topology.clients=60", "topology.edges=0", "method=fedavg", data)
    session, found = asked(small, "{kind: signature, epochs: 20}", *fleet)
    counts = session.lab.clients.label_counts
    view = ClientView(counts, counts.sum(axis=1), found)

    def metrics(kind: str, **params: Any) -> dict[str, float]:
        rule = FormationChoice(kind, formations[kind].params.model_validate(params))
        rows = [asdict(set_similarity(found, rule(view, np.random.default_rng(seed)))) for seed in range(5)]
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    visit = metrics("virtual-target", size=4, groups=9)
    fedseq = metrics("greedy-distant", size=4, groups=9)
    hier = metrics("hierarchical", size=4, groups=9)
    random = metrics("random", size=4)
    assert visit["vts"] > max(fedseq["vts"], random["vts"]) > hier["vts"]
    assert visit["inter_cs_mean"] > fedseq["inter_cs_mean"] > random["inter_cs_mean"] > hier["inter_cs_mean"]
    assert fedseq["intra_cs_mean"] < random["intra_cs_mean"] < hier["intra_cs_mean"]
    assert fedseq["intra_cs_mean"] < visit["intra_cs_mean"]


# What a scenario may ask.


@pytest.mark.parametrize("kind", ["confidence", "signature", "soft-labels"])
def test_public_samples_are_asked_for_where_there_are_none(small: Small, kind: str) -> None:
    with pytest.raises(InputError, match=r"method\.estimator.*needs public samples: say with data\.public"):
        small(f"method.estimator={kind}", GREEDY)


def test_a_formation_that_wants_numbers_by_class_says_who_has_them(small: Small) -> None:
    with pytest.raises(
        InputError, match=r"'virtual-target' needs a number for each class.*'confidence', 'label-counts', 'signature'"
    ):
        small("method.formation={kind: virtual-target, size: 2}", "method.estimator=task2vec")
    small("method.formation={kind: virtual-target, size: 2}", "method.estimator=label-counts")


@pytest.mark.parametrize(
    ("formation", "sampling", "message"),
    [
        ("{kind: virtual-target, size: 2, groups: 3}", "all", "the groups asked for need 6 clients, but"),
        ("{kind: virtual-target, size: 2, groups: 1}", "{kind: uniform, groups: 3}", "3 groups a round, but no more than 2"),
        ("{kind: hierarchical, groups: 2}", "{kind: uniform, groups: 5}", "5 groups a round, but no more than 4"),
        ("{kind: icg, groups: 2}", "{kind: uniform, groups: 5}", "5 groups a round, but no more than 4"),
        ("{kind: greedy-distant, size: 3}", "{kind: uniform, groups: 3}", "3 groups a round, but no more than 2"),
        ("all", "{kind: uniform, groups: 3}", "3 groups a round, but no more than 2"),
    ],
)  # fmt: skip
def test_groups_that_cannot_be_are_said_before_anything_runs(
    small: Small, formation: str, sampling: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        small(f"method.formation={formation}", f"method.sampling={sampling}")


def test_samples_that_are_not_there_are_said_when_groups_are_formed(small: Small) -> None:
    loaded = small("method.formation={kind: greedy-distant, min_samples: 60, max_clients: 4}")
    session = session_of(loaded)
    with pytest.raises(
        InputError, match="at least 60 samples and at most 4 clients each were found for 4 clients with 48"
    ):
        session.env.run(session.env.process(loaded.scenario.method(session)))


def test_a_pre_training_that_diverges_names_the_estimators_own_learning_rate(small: Small) -> None:
    session = session_of(small("method.estimator={kind: classifier-weights, learning_rate: 1.0e+30}"))
    with pytest.raises(HflError, match=r"in round 0.*a smaller method\.estimator\.learning_rate"):
        estimates(session)
