"""Samples that are tokens of a text, through the whole of learning: models, facts, training, measurements, Task2Vec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import simpy
import torch
from token_samples import CLIENTS, EACH, LEARNING, LENGTH, VOCABULARY, register_texts, text_set
from torch import nn

from devices.compute import inference_s
from emulator import ledger
from emulator.assembly import assemble
from emulator.contracts.learning import LocalRuleChoice, local_rules, models
from emulator.errors import InputError
from emulator.learning import probe
from emulator.learning.blocks import Attention
from emulator.learning.facts import ModelFacts, model_facts
from emulator.learning.flat import FlatModel
from emulator.learning.lab import Lab
from emulator.learning.layers import classifier_of
from emulator.learning.measurements import TextFisherParams
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.public import split_public
from emulator.learning.timing import TimingLab
from emulator.learning.trainer import TrainedState, Trainer, TrainingData, TrainJob
from emulator.learning.workers import WorkerPool
from emulator.methods.forming import enquiry
from emulator.methods.session import Session
from emulator.run import execute
from emulator.run_folder import prepare
from emulator.scenario import Loaded

Small = Callable[..., Loaded]


@pytest.fixture(autouse=True)
def _texts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    register_texts(monkeypatch)


def fresh(kind: str, classes: int = VOCABULARY, **params: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module: nn.Module = models[kind].function((LENGTH,), classes, models[kind].params(**params))
        return module


def lab_of(loaded: Loaded, memo: Memo | None = None) -> Lab:
    return Lab(loaded.scenario, RunMemory(memo or Memo(None)), max_workers=1)


# Models and their facts.


@pytest.mark.parametrize(("kind", "gates"), [("char-lstm", 4), ("char-gru", 3)])
def test_recurrent_models_by_hand(kind: str, gates: int) -> None:
    before = torch.backends.mkldnn.enabled
    facts = model_facts(fresh(kind, 80, embedding=8, hidden=256, layers=2), (80,), tokens=True)
    assert torch.backends.mkldnn.enabled == before
    layers = (80 * 8, gates * 256 * 8, gates * 256 * 256, gates * 256 * 256, gates * 256 * 256, 256 * 80)
    biases = 2 * 2 * gates * 256 + 80
    steps = 2.0 * 80 * gates * 256 * ((8 + 256) + (256 + 256)) + 2 * 256 * 80
    size, recurrent = sum(layers) + biases, (("recurrent", steps - 2 * 256 * 80),)
    kept = facts.activation_bytes
    assert facts == ModelFacts(size, sum(layers), steps, size, facts.layers, recurrent, kept)
    assert kept >= 4 * 2 * 80 * 256 * (gates + 1)  # at least the gates and the state of every step of both layers
    assert tuple(size for _, size in facts.layers) == layers


def test_the_word_model_is_the_published_one_but_for_torchs_second_biases() -> None:
    with torch.device("meta"):
        module = fresh("word-lstm", 10_004)
    published = 4_050_748  # Reddi et al. 2021, Table 11
    assert sum(p.numel() for p in module.parameters()) == published + 4 * 670
    small = model_facts(fresh("word-lstm", embedding=3, hidden=5), (LENGTH,), tokens=True)
    assert small.forward_flops == 2 * (LENGTH * 4 * 5 * (3 + 5) + 5 * 3 + 3 * VOCABULARY)


@pytest.mark.parametrize("kind", ["char-lstm", "char-gru", "word-lstm"])
def test_the_last_layer_is_the_classifier_and_images_are_refused(kind: str) -> None:
    module = fresh(kind, embedding=4, hidden=6, layers=1)
    named = [name for name, _ in module.named_parameters()]
    assert [named[i] for i in classifier_of(module, (LENGTH,), tokens=True)] == named[-2:]
    assert module(torch.zeros(3, LENGTH, dtype=torch.int64)).shape == (3, VOCABULARY)
    with pytest.raises(InputError, match=r"takes texts .* shape \(1, 8, 8\)"):
        models[kind].function((1, 8, 8), 10, models[kind].params())


def test_models_of_images_refuse_texts(small: Small) -> None:
    for kind in ("mlp", "cnn", "audio-cnn", "har-cnn"):
        with pytest.raises(InputError, match=rf"{kind} .*shape \({LENGTH},\)") as caught:
            models[kind].function((LENGTH,), 10, models[kind].params())
        assert caught.value.key == "model"


# Training.


def data() -> TrainingData:
    arrays = text_set()
    parts = np.split(np.arange(len(arrays.y_train)), CLIENTS)
    sizes = [7, 60, 1, 13, 22, 5, 33, 8]  # the last batches of clients are of all lengths
    cut = [part[:size] for part, size in zip(parts, sizes, strict=True)]
    return TrainingData(torch.from_numpy(arrays.x_train), torch.from_numpy(arrays.y_train), cut)


def jobs(kind: str, rule: str, clients: list[int]) -> list[TrainJob]:
    weights = FlatModel(fresh(kind, embedding=4, hidden=16, layers=2)).state
    local = LocalRuleChoice(rule, local_rules[rule].params(epochs=2, batch_size=4, learning_rate=0.2))
    memory = (torch.full_like(weights, 0.001), torch.full_like(weights, -0.002)) if local().remember else ()
    return [TrainJob(weights, c, local, 2, 1, *memory) for c in clients]


def trained(trainer: Trainer | WorkerPool, wanted: list[TrainJob]) -> list[TrainedState]:
    found = dict(trainer.train(wanted, [1] * len(wanted)) if isinstance(trainer, WorkerPool) else trainer.train(wanted))
    return [found[i] for i in range(len(wanted))]


def same(one: TrainedState, other: TrainedState) -> bool:
    own = one.own is other.own is None or (
        one.own is not None and other.own is not None and torch.equal(one.own, other.own)
    )
    return torch.equal(one.state, other.state) and own


@pytest.mark.parametrize("kind", ["char-lstm", "char-gru"])
@pytest.mark.parametrize("stacked", [True, False])
def test_a_result_depends_in_no_bit_on_company_or_workers(kind: str, stacked: bool) -> None:
    flops = 1.0 if stacked else 1e30
    module = fresh(kind, embedding=4, hidden=16, layers=2)
    pools = [WorkerPool(count, module, data(), 3, flops) for count in (1, 2)]
    trainer = Trainer(fresh(kind, embedding=4, hidden=16, layers=2), data(), 3, flops)
    assert trainer.stacks(4) == stacked
    everyone = list(range(CLIENTS))
    try:
        for rule in ("sgd", "scaffold", "classifier-sgd"):
            reference = trained(trainer, jobs(kind, rule, everyone))
            assert all(bool((r.state != jobs(kind, rule, [0])[0].weights).any()) for r in reference)
            for company in ([5, 2], everyone[::-1], [3]):
                alone = trained(trainer, jobs(kind, rule, company))
                assert all(same(one, reference[c]) for c, one in zip(company, alone, strict=True))
            for pool in pools:
                found = trained(pool, jobs(kind, rule, everyone))
                assert all(same(one, other) for one, other in zip(found, reference, strict=True))
    finally:
        for pool in pools:
            pool.close()


def test_training_by_the_loop_is_torchs_own_descent() -> None:
    from emulator.rng import stream

    (found,) = trained(
        Trainer(fresh("char-lstm", embedding=4, hidden=16, layers=2), data(), 3, 1e30), jobs("char-lstm", "sgd", [3])
    )
    module, held = fresh("char-lstm", embedding=4, hidden=16, layers=2), data()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2)
    for epoch in (1, 2):
        order = torch.from_numpy(stream(3, "batches", 3, 2, epoch).permutation(held.parts[3]))
        for batch in order.split(4):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(held.x[batch]), held.y[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    assert float((FlatModel(module).state - found.state).abs().max()) < 1e-6


def test_a_run_learns_the_dialects(small: Small, tmp_path: Path) -> None:
    local = "method.local={epochs: 4, batch_size: 8, learning_rate: 0.5, momentum: 0.5}"
    loaded = small(*LEARNING, local, "stop.rounds=4")
    prepare(tmp_path / "run", loaded.scenario)
    summary = execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    assert summary["best_accuracy"] > 0.3  # chance is 1 in 12


def test_a_run_without_training_knows_the_same_facts(small: Small) -> None:
    loaded = small(*LEARNING)
    timing = TimingLab(loaded.scenario, RunMemory(Memo(None)))
    lab = lab_of(loaded)
    assert timing.model_facts == lab.model_facts
    assert timing.sample_shape == lab.sample_shape == (LENGTH,)
    assert np.array_equal(timing.clients.label_counts, lab.clients.label_counts)


# What estimators and measurements make of texts.


def session_of(loaded: Loaded, memo: Memo | None = None) -> Session:
    return assemble(loaded.scenario, lab_of(loaded, memo))


def estimates(session: Session) -> np.ndarray:
    params = session.scenario.method.params
    process = session.env.process(params.estimator(session, enquiry(session, params)))
    assert isinstance(session.env, simpy.Environment)
    return np.asarray(session.env.run(process))


@pytest.mark.parametrize("kind", ["classifier-weights", "confidence", "signature", "soft-labels", "label-counts"])
def test_estimators_work_on_tokens(small: Small, kind: str) -> None:
    estimator = kind if kind == "label-counts" else f"{{kind: {kind}, epochs: 3, batch_size: 8}}"
    rows = estimates(session_of(small(*LEARNING, "data.public=2", f"method.estimator={estimator}")))
    assert len(rows) == CLIENTS
    assert np.isfinite(rows).all()
    assert kind == "label-counts" or not np.allclose(rows[0], rows[5], atol=1e-6)


def test_rare_tokens_have_no_public_samples_and_score_nothing(small: Small) -> None:
    labels = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    pool, public = split_public(labels, 4, 2, 5, text=True)
    assert sorted(labels[public]) == [0, 0, 2, 2]
    assert sorted([*pool, *public]) == list(range(8))
    with pytest.raises(InputError, match="class 1 has 1 samples"):
        split_public(labels, 4, 2, 5)
    with pytest.raises(InputError, match="no class has more than 9 samples"):
        split_public(labels, 4, 9, 5, text=True)
    lab = lab_of(small(*LEARNING, "data.public=20"))
    frequent = np.bincount(text_set().y_train, minlength=VOCABULARY) > 20
    found = lab.measure("class-scores", [lab.initial()])
    assert (found[1] > 0).tolist() == frequent.tolist()
    assert 0 < frequent.sum() < VOCABULARY or frequent.all()


def test_texts_cannot_be_distilled(small: Small) -> None:
    loaded = small(*LEARNING, "data.public=2", "method={preset: hfldd}", "topology.edges=0")
    session = session_of(loaded)
    with pytest.raises(InputError, match="only images can be distilled") as caught:
        session.env.run(session.env.process(session.scenario.method(session)))
    assert caught.value.key == "method.training"
    leaf = "data={set: {kind: leaf, task: shakespeare, generated: {}}, partition: natural, public: 2}"
    with pytest.raises(InputError, match=r"method\.training: only images can be distilled"):  # before anything is read
        small(leaf, "model=char-lstm", "method={preset: hfldd}", "topology.edges=0")


def test_texts_cannot_be_rotated(small: Small) -> None:
    loaded = small(*LEARNING, "data.partition={kind: rotation, of: natural}")
    with pytest.raises(InputError, match="only images can be rotated"):
        _ = lab_of(loaded)._engine


# Task2Vec.

T2V = "method.estimator={kind: task2vec, epochs: 10, batch_size: 8, learning_rate: 0.05, passes: 2}"


def test_task2vec_tells_dialects_apart_and_repeats_in_every_bit(small: Small) -> None:
    found = estimates(session_of(small(*LEARNING, T2V)))
    assert found.shape == (CLIENTS, VOCABULARY + LENGTH + probe.BLOCKS * (5 * probe.WIDTH + probe.INNER))
    assert (found >= 0).all()
    unit, dialect = found / np.linalg.norm(found, axis=1, keepdims=True), np.arange(CLIENTS) // 4
    cosines = unit @ unit.T - 9 * np.eye(CLIENTS)
    assert dialect[cosines.argmax(axis=1)].tolist() == dialect.tolist()  # everybody's nearest speaks the same
    assert cosines[:4, 4:].mean() < cosines[:4, :4][~np.eye(4, dtype=bool)].mean() - 0.03
    # The probe reads texts, whatever the model is: the same in every bit.
    other = estimates(session_of(small(*LEARNING, "model.hidden=9", T2V)))
    assert other.tobytes() == found.tobytes()


def test_task2vec_is_remembered_and_charged_by_the_probe(small: Small) -> None:
    memo = Memo(None)
    changes = (*LEARNING, T2V, "method.estimator.epochs=1")
    first = session_of(small(*changes), memo)
    rows = estimates(first)
    again = session_of(small(*changes), memo)
    assert np.array_equal(estimates(again), rows)
    assert "_engine" not in vars(again.lab)
    size = LENGTH, VOCABULARY
    booked = {(row.what, row.hop): row.bytes for row in first.world.ledger.rows if row.kind == ledger.TRANSFER}
    assert booked["pretraining", ledger.SERVER_CLIENT] == 4 * probe.transformer_parameters(*size)
    assert booked["estimate", ledger.CLIENT_SERVER] == 4 * rows.shape[1]
    device, flops = first.world.fleet.client_devices[0], probe.transformer_flops(*size)
    last = 2 * probe.classifier_parameters(VOCABULARY)
    expected = inference_s(device, flops + last, EACH, 8) + 3 * 2 * inference_s(device, flops, EACH, 8)
    took = [r.end_s - r.start_s for r in first.world.ledger.rows if r.kind == ledger.COMPUTE]
    assert sum(took) == pytest.approx(CLIENTS * expected, rel=1e-9)


@pytest.mark.parametrize(("length", "classes"), [(LENGTH, VOCABULARY), (80, 90)])
def test_the_size_of_the_probe_in_closed_form(length: int, classes: int) -> None:
    facts = model_facts(probe.transformer(length, classes), (length,), tokens=True)
    assert facts.parameters == probe.transformer_parameters(length, classes)
    assert facts.forward_flops == probe.transformer_flops(length, classes)


def test_attention_is_torchs_own_and_sees_nothing_to_come() -> None:
    ours, x = Attention(8, 2), torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0))
    parts = ours.looking(x).view(3, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    theirs = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
    assert torch.allclose(ours(x), ours.result(theirs.transpose(1, 2).reshape(3, 5, 8)), atol=1e-6)
    changed = x.clone()
    changed[:, 3:] = 0
    assert torch.equal(ours(changed)[:, :3], ours(x)[:, :3])


def test_only_the_classifier_of_the_probe_is_fitted() -> None:
    arrays = text_set()
    x, y = torch.from_numpy(arrays.x_train[:EACH]), torch.from_numpy(arrays.y_train[:EACH])
    module, other = probe.transformer(LENGTH, VOCABULARY), probe.transformer(LENGTH, VOCABULARY)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), other.parameters(), strict=True))
    features = probe.read(module[:-1], x)
    params = TextFisherParams(epochs=30, batch_size=EACH, learning_rate=0.3, momentum=0.5)
    scores = probe.fit_classifier(module[-1], features, y, params, np.random.default_rng(0))
    optimiser = torch.optim.SGD(other[-1].parameters(), lr=0.3, momentum=0.5)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(other[-1](features), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert torch.allclose(scores, other(x).detach(), atol=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(module[:-1].parameters(), other[:-1].parameters(), strict=True))
