"""Encoded models on their way: bytes and seconds in the ledger, what goes on, and what does not fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from devices.compute import flops_s
from emulator import checkpoint
from emulator.assembly import assemble
from emulator.contracts.encodings import Layout
from emulator.errors import InputError, ScenarioError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.learning.timing import TimingLab
from emulator.learning.transmission import Pipeline, Transmission
from emulator.ledger import COMPUTE, TRANSFER, Row
from emulator.methods.session import Session
from emulator.run import execute
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

QUIET = ("method.group_operation=none", "method.formation=all", "method.group_rounds=1", "stop.rounds=2")
TOP = "method.encodings={client: {up: [delta, error-feedback, {kind: top-k, share: 0.1}]}}"
MANY = (
    "method.encodings={client: {up: [delta, {kind: quantise, bits: 4}], down: [float16]}, "
    "edge: {up: [delta, error-feedback, {kind: low-rank, rank: 1}], down: [sign]}}"
)


def models(session: Session, hop: str) -> Counter[int]:
    """How many models of which size went over a hop."""
    rows = (r for r in session.world.ledger.rows if r.kind == TRANSFER and r.what == "model" and r.hop == hop)
    return Counter(row.bytes for row in rows)


def layout_of(session: Session) -> Layout:
    return Layout(session.lab.state_shapes)


def test_bytes_are_those_that_were_written_on_every_hop(small: Small) -> None:
    session = played(small(*QUIET, MANY))
    layout, n = layout_of(session), session.lab.model_facts.parameters
    tensors = len(layout.shapes)
    factors = sum(
        min(size, shape[0] + size // shape[0]) if len(shape) > 1 else size
        for shape, size in zip(layout.shapes, layout.sizes, strict=True)
    )
    assert models(session, "server-client") == {2 * n: 16}
    assert models(session, "client-server") == {8 * tensors + -(-n // 2): 16}
    assert models(session, "cloud-edge") == {4 * tensors + -(-n // 8): 4}
    assert models(session, "edge-cloud") == {4 * factors: 4}
    assert session.metrics[-1]["bytes_total"] == sum(r.bytes for r in session.world.ledger.rows)


def test_both_ends_compute_and_a_server_encodes_once_for_all(small: Small) -> None:
    session = played(small(*QUIET, MANY))
    rows = [r for r in session.world.ledger.rows if r.kind == COMPUTE and r.what in ("encoding", "decoding")]
    by = Counter((r.what, r.who.partition("-")[0]) for r in rows)
    # Two rounds, 8 clients, 2 edges: a server encodes once for all that it sends to, and decodes what each of them sends.
    assert by == {
        ("encoding", "client"): 16, ("decoding", "client"): 16,
        ("encoding", "edge"): 4 + 4, ("decoding", "edge"): 16 + 4, ("encoding", "cloud"): 2, ("decoding", "cloud"): 4,
    }  # fmt: skip
    params = session.scenario.method.params.encodings  # type: ignore[attr-defined]
    flops = Pipeline(params["client"].up).flops(layout_of(session))
    device = session.world.fleet.client_devices[0]
    one = next(r for r in rows if r.who == "client-0" and r.what == "encoding")
    assert one.end_s - one.start_s == pytest.approx(flops_s(device, flops.encode))
    assert session.metrics[-1]["cost_training_s"] == pytest.approx(
        sum(r.end_s - r.start_s for r in session.world.ledger.rows if r.kind == COMPUTE and r.who.startswith("client"))
    )


def test_what_goes_on_is_what_was_decoded(small: Small) -> None:
    # The same by hand: a round of two edges, whose clients send the largest tenth of what they learned.
    loaded = small(*QUIET, "stop.rounds=1", TOP)
    session = played(loaded)
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    start, params = lab.initial(), loaded.scenario.method.params
    pipeline = Pipeline(params.encodings["client"].up)  # type: ignore[attr-defined]
    layout, held = Layout(lab.state_shapes), lab.clients.samples
    total = torch.zeros(layout.count, dtype=torch.float64)
    for edge in range(2):
        own = range(4 * edge, 4 * edge + 4)
        average = torch.zeros(layout.count, dtype=torch.float64)
        for client in own:
            trained = lab.train(LocalTraining(start, client, params.local, 1)).model  # type: ignore[attr-defined]
            sent = Transmission(pipeline, layout, loaded.scenario.seed, f"client-{client}", (1, edge, 0))
            came, left = sent(lab.value(trained), lab.value(start))
            assert int((came != lab.value(start)).sum()) <= round(0.1 * layout.count)
            assert came + left == pytest.approx(lab.value(trained), abs=1e-6)
            average += came * (int(held[client]) / int(held[list(own)].sum()))
        total += average.float() * (int(held[list(own)].sum()) / int(held.sum()))
    by_hand = lab._engine.evaluate([total.float()])[0]
    assert session.metrics[-1]["accuracy"] == by_hand["accuracy"]
    assert session.metrics[-1]["loss"] == pytest.approx(by_hand["loss"], rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        (TOP, "method.group_operation=none"),
        (
            MANY,
            "method.group_operation=none",
            "faults=[{kind: client-crash, clients: [1, 5], every: 1 s, lasts: 200 ms}]",
        ),
        ("method={preset: fedseq, encodings: {client: {up: [delta, sign], peer: [float16]}}}", "data.public=2"),
        (
            "method={preset: fedasyncseq, encodings: {client: {peer: [{kind: quantise, bits: 3}], down: [sign]}}}",
            "data.public=2",
        ),
        ("method={preset: hicfl, encodings: {client: {up: [delta, error-feedback, sign]}}}",),
        ("method={preset: hfldd, encodings: {client: {up: [float16], down: [float16]}}}", "data.public=2"),
        (
            "method={preset: sd-feel, encodings: {edge: {peer: [float16]}, client: {up: [delta, {kind: top-k}]}}}",
            "topology.links.direct=[{shape: ring, bandwidth: 10 Mbit/s}]",
        ),
        ("method={preset: fedavg, encodings: {client: {up: [delta, error-feedback, {kind: top-k}, zstd]}}}",),
    ],
)
def test_runs_go_on_after_a_cut_and_answer_what_if(small: Small, tmp_path: Path, changes: tuple[str, ...]) -> None:
    def files(name: str) -> list[bytes]:
        return [(tmp_path / name / file).read_bytes() for file in ("metrics.csv", "ledger.parquet")]

    loaded = small("stop.rounds=4", *changes)
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "cut", after=2)
    assert files("cut") == files("run")
    known = checkpoint.read_memory(tmp_path / "run")
    again = execute(loaded, tmp_path / "again", Memo(None), known=known, max_workers=1)
    assert again["trainings"]["computed"] == 0
    assert files("again") == files("run")


def test_a_run_without_training_has_the_same_ledger(small: Small) -> None:
    def rows(lab: Lab | TimingLab, loaded: Loaded) -> list[Row]:
        session = assemble(loaded.scenario, lab)
        session.env.run(session.env.process(loaded.scenario.method(session)))
        return list(session.world.ledger.rows)

    loaded = small(*QUIET, MANY)
    memory = RunMemory(Memo(None))
    assert rows(TimingLab(loaded.scenario, memory), loaded) == rows(Lab(loaded.scenario, memory, max_workers=1), loaded)


def test_packed_bytes_are_measured_or_estimated(small: Small) -> None:
    packed = "method.encodings={client: {up: [delta, {kind: quantise, bits: 2}, zstd]}}"
    sizes = models(played(small(*QUIET, packed)), "client-server")
    assert len(sizes) > 3  # each model packs in its own way
    loaded = small(*QUIET, packed.replace("zstd", "{kind: zstd, ratio: 0.5}"))
    session = assemble(loaded.scenario, TimingLab(loaded.scenario, RunMemory(Memo(None))))
    session.env.run(session.env.process(loaded.scenario.method(session)))
    plain = models(played(small(*QUIET, packed.replace(", zstd", ""))), "client-server")
    assert models(session, "client-server") == {round(next(iter(plain)) / 2): 16}
    unknown = small(*QUIET, packed)
    session = assemble(unknown.scenario, TimingLab(unknown.scenario, RunMemory(Memo(None))))
    with pytest.raises(InputError, match="say it with its 'ratio'"):
        session.env.run(session.env.process(unknown.scenario.method(session)))


def test_buffers_that_stay_are_not_encoded(small: Small) -> None:
    net = ("data.set.shape=[3, 32, 32]", "model=cnn-hfldd", "stop.rounds=1")
    facts = None
    for buffers in ("sent", "local"):
        changes = (*QUIET, *net, "method.encodings={client: {up: [float16]}}", f"topology.buffers={buffers}")
        session = played(small(*changes))
        facts = session.lab.model_facts
        count = facts.state_size if buffers == "sent" else facts.parameters
        assert models(session, "client-server") == {2 * count: 8}
    assert facts is not None
    assert facts.state_size > facts.parameters


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("method.group_operation=secure-aggregation", TOP), "'secure-aggregation' adds up what clients send"),
        (("method.encodings={roof: {up: [sign]}}",), "unknown tier 'roof'"),
        (("method.encodings={client: {down: [delta, error-feedback, sign]}}",), "'error-feedback' is for what goes up"),
        (("method.encodings={client: {peer: [delta]}}",), "'delta' is for what goes up or down"),
        (("method.encodings={client: {up: [sign, delta]}}",), "'delta' cannot come after 'sign'"),
        (("method.encodings={client: {up: [{kind: quantise, bits: 9}]}}",), "must be at most 8"),
        (("method.encodings={client: {up: [gzip]}}",), "unknown encoding 'gzip'"),
        (("method.local=scaffold", "method.encodings={client: {up: [float16]}}"), "sends states beside models"),
        (("method={preset: ifca, encodings: {client: {up: [float16]}}}",), "several models at once"),
    ],
)
def test_what_does_not_go_together_is_refused(small: Small, changes: tuple[str, ...], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        small(*QUIET, *changes)


def test_what_can_be_summed_goes_with_secure_aggregation(small: Small) -> None:
    summed = "method.encodings={client: {up: [delta, {kind: random-k, share: 0.25}]}}"
    session = played(small(*QUIET, "method.group_operation=secure-aggregation", summed))
    n = session.lab.model_facts.parameters
    assert models(session, "client-server") == {4 * round(n / 4): 16}
