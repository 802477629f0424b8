"""Task2Vec with a probe that was trained first: on what, what becomes of it, and what a scenario may say of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from estimator_sessions import Small, asked, estimates, session_of
from scenario.command import TINY, hfl
from torch import nn

from emulator import ledger
from emulator.errors import HflError, InputError
from emulator.learning.device import HOST
from emulator.learning.engine import untrained
from emulator.learning.lab import Lab
from emulator.learning.layers import classifier_of
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.probe import ProbeParams
from emulator.learning.probe_training import pretrained_state, trained_transformer
from emulator.methods.session import Session
from emulator.scenario import Loaded

OTHER = "{kind: synthetic, shape: [1, 8, 8], classes: 4, seed: 5, train_samples: 200}"
PROBE = f"{{kind: task2vec, probe: {{data: {OTHER}, epochs: 3}}}}"


def probe_of(loaded: Loaded) -> ProbeParams:
    found = loaded.scenario.method.params.estimator.params.probe
    assert isinstance(found, ProbeParams)
    return found


def test_a_trained_probe_gives_other_vectors_and_the_same_ones_again(small: Small) -> None:
    plain, trained = asked(small, "task2vec")[1], asked(small, PROBE)[1]
    assert trained.shape == plain.shape
    assert not np.allclose(trained, plain, rtol=0.01)
    assert asked(small, PROBE)[1].tobytes() == trained.tobytes()
    for change in ("method.estimator.probe.epochs=4", "method.estimator.probe.data.seed=6", "seed=8"):
        changed = small("data.public=3", f"method.estimator={PROBE}", change)
        assert estimates(session_of(changed)).tobytes() != trained.tobytes()


def test_the_extractor_is_what_plain_gradient_steps_make_of_it(small: Small) -> None:
    # One batch of all samples, so that their order does not matter; the last layer stays the untrained one.
    whole = "{data: " + OTHER + ", epochs: 5, batch_size: 200, learning_rate: 0.1, momentum: 0.5}"
    loaded = small(f"method.estimator={{kind: task2vec, probe: {whole}}}")
    probe = probe_of(loaded)
    session = session_of(loaded)
    found = session.lab.value(session.lab.pretrained(probe))
    arrays = probe.data()
    module = untrained(loaded.scenario, (1, 8, 8), 4)
    steps = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    x, y = torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train)
    for _ in range(5):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        steps.step()
    mine = untrained(loaded.scenario, (1, 8, 8), 10)
    last = classifier_of(mine, (1, 8, 8))
    expected = [
        b if i in last else a for i, (a, b) in enumerate(zip(module.parameters(), mine.parameters(), strict=True))
    ]
    np.testing.assert_allclose(found, torch.cat([p.detach().reshape(-1) for p in expected]), atol=1e-5)


def test_images_of_another_size_are_fitted_and_running_statistics_come_along(small: Small) -> None:
    data = "{kind: synthetic, shape: [3, 12, 12], classes: 3, seed: 5, train_samples: 60}"
    loaded = small(
        "model={kind: resnet-1block, norm: batch}", f"method.estimator={{kind: task2vec, probe: {{data: {data}}}}}"
    )
    lab, probe = session_of(loaded).lab, probe_of(loaded)
    state, before = lab.value(lab.pretrained(probe)), lab.value(lab.initial())
    size = lab.model_facts.parameters
    assert state.shape == before.shape
    assert not torch.allclose(state[size:], before[size:])  # statistics of normalised layers


def test_it_is_remembered_charged_to_nobody_and_groups_are_formed_with_it(small: Small) -> None:
    memo = Memo(None)
    changes = (
        f"method.estimator={PROBE}",
        "method.formation={kind: greedy-distant, size: 2, distance: normalised-cosine}",
    )
    first, again = (session_of(small(*changes), memo) for _ in range(2))
    rows = estimates(first)
    assert estimates(again).tobytes() == rows.tobytes()
    assert "_engine" not in vars(again.lab)
    start = first.lab.pretrained(probe_of(small(*changes)))
    first.lab.value(start)
    resumed = Lab(first.scenario, RunMemory(Memo(None)), restored=first.lab.values())
    assert resumed.pretrained(probe_of(small(*changes))).value is start.value  # a checkpoint holds it
    plain = asked(small, "task2vec")[0]

    def booked(session: Session) -> list[tuple[object, ...]]:
        return [(r.kind, r.who, r.bytes, r.start_s, r.end_s) for r in session.world.ledger.rows]

    assert booked(first) == booked(plain)
    assert any(row[0] == ledger.COMPUTE for row in booked(first))
    whole = session_of(small(*changes, "stop.rounds=1"), memo)
    whole.env.run(whole.env.process(whole.scenario.method(whole)))
    assert len({r.group for r in whole.world.ledger.rows if r.what == "training"}) == 4  # two at each edge


TEXTS = (
    "data.set={kind: leaf, task: shakespeare, generated: {owners: 4, samples: 20}}", "data.partition=natural",
    "topology.clients=4", "topology.edges=2", "model={kind: char-lstm, embedding: 4, hidden: 8, layers: 1}",
    "method.estimator={kind: task2vec, epochs: 1}",
)  # fmt: skip
OTHER_TEXT = "{kind: leaf, task: shakespeare, generated: {owners: 3, samples: 30, seed: 4}}"


def test_a_text_probe_is_trained_too_and_must_read_the_same_kind_of_text(small: Small) -> None:
    loaded = small(*TEXTS, f"method.estimator.probe={{data: {OTHER_TEXT}, learning_rate: 0.5}}")
    probe = probe_of(loaded)
    one, two = (trained_transformer(probe, "key", 80, 81) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert all(not p.any() for p in one[-1].parameters())
    rows, plain = estimates(session_of(loaded)), estimates(session_of(small(*TEXTS)))
    assert rows.shape == plain.shape
    assert not np.allclose(rows, plain, rtol=0.01)
    with pytest.raises(InputError, match="texts cannot be fitted") as caught:
        trained_transformer(probe, "key", 20, 81)
    assert caught.value.key == "method.estimator.probe.data"


WRONG = {
    "5": ("method.estimator.probe", "mapping"),
    "{data: digitz}": ("method.estimator.probe.data", "did you mean 'digits'"),
    "{data: digits, epochs: 0}": ("method.estimator.probe.epochs", "must be at least 1"),
    "{data: digits, rounds: 3}": ("method.estimator.probe.rounds", "unknown key"),
    f"{{data: {OTHER_TEXT}}}": ("method.estimator.probe.data", "both be images, or both texts"),
    "{data: {kind: npz, path: nowhere.npz}}": ("method.estimator.probe.data", "nowhere.npz"),
}


@pytest.mark.parametrize("probe", WRONG)
def test_what_is_wrong_is_said_with_its_place(probe: str, tmp_path: Path) -> None:
    where, what = WRONG[probe]
    file = tmp_path / "own.yaml"
    file.write_text(TINY.replace("  group_rounds: 2", f"  estimator: {{kind: task2vec, probe: {probe}}}"))
    done = hfl("validate", file)
    assert done.code == 2, done
    said = " ".join(done.err.split())
    assert re.search(r"own\.yaml:15:\d+: " + re.escape(where), said), said
    assert what in said


def test_a_probe_that_diverges_says_so(small: Small) -> None:
    loaded = small(f"method.estimator={PROBE}", "method.estimator.probe.learning_rate=1e30")
    with pytest.raises(HflError, match=r"the probe diverged.*method\.estimator\.probe\.learning_rate"):
        estimates(session_of(loaded))


def test_a_model_whose_extractor_depends_on_the_labels_is_no_probe(small: Small) -> None:
    loaded = small(f"method.estimator={PROBE}")

    def made(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes), nn.ReLU(), nn.Linear(classes, classes))

    clients = loaded.scenario.data.set()
    with pytest.raises(InputError, match="cannot be a probe"):
        pretrained_state(made, clients, probe_of(loaded), 0, HOST)
