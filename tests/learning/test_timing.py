"""The lab without training: the facts of a lab that trains, read from labels alone, for fleets of any size."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import numpy as np
import pytest

from emulator.contracts.learning import data_sets
from emulator.errors import InputError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining
from emulator.learning.timing import MOST_SERVED, SAMPLES_EACH, TimingLab
from emulator.scenario import Loaded
from emulator.scenario.load import check, override
from emulator.yamlfile import parse

Small = Callable[..., Loaded]

PARTITIONS = [
    "{kind: iid}",
    "{kind: dirichlet, alpha: 0.3, samples_per_client: 12}",
    "{kind: dirichlet, alpha: 0.1, sizes: normal}",
    "{kind: dirichlet, alpha: 0.5, sizes: by-class}",
    "{kind: classes-per-client, classes: 2}",
]


def large(clients: int, *changes: str) -> Loaded:
    """A fleet that may be too large for its data, loaded to be run without training."""
    document = parse(
        f"""
name: large
data: {{set: {{kind: synthetic, train_samples: 1000}}, partition: iid}}
model: {{kind: mlp, hidden: [8]}}
topology: {{edges: 4, clients: {clients}}}
method: hierfavg
stop: {{rounds: 1}}
""",
        "large.yaml",
    )
    for change in changes:
        override(document, change)
    return check(document, training=False)


def lab_of(loaded: Loaded, memo: Memo | None = None) -> TimingLab:
    return TimingLab(loaded.scenario, RunMemory(memo or Memo(None)))


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("public", [0, 5])
def test_knows_what_a_lab_that_trains_knows(small: Small, partition: str, public: int) -> None:
    loaded = small(f"data.partition={partition}", f"data.public={public}")
    real, timing = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1), lab_of(loaded)
    assert np.array_equal(timing.clients.label_counts, real.clients.label_counts)
    assert timing.model_facts == real.model_facts


def test_what_either_lab_found_out_serves_the_other(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    memo, loaded = Memo(None), small()
    real = Lab(loaded.scenario, RunMemory(memo), max_workers=1)
    counts, facts = real.clients.label_counts, real.model_facts
    lab_of(loaded, memo).clients  # noqa: B018 (it notes that the set serves everybody)
    monkeypatch.setattr(TimingLab, "_outline", property(lambda self: pytest.fail("read the data set again")))
    again = lab_of(loaded, memo)
    assert np.array_equal(again.clients.label_counts, counts)
    assert again.model_facts == facts


def test_reads_no_sample(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(params: object) -> None:
        pytest.fail("read the samples")

    data_sets.names()
    monkeypatch.setattr(data_sets, "_plugins", dict(data_sets._plugins))
    monkeypatch.setitem(data_sets._plugins, "synthetic", dataclasses.replace(data_sets["synthetic"], function=read))
    lab = lab_of(small())
    assert lab.clients.samples.tolist() == [12] * 8
    assert lab.model_facts.parameters == 64 * 8 + 8 + 8 * 10 + 10


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("clients", [1001, 5000])
def test_clients_beyond_the_data_repeat_what_others_hold(
    partition: str, clients: int, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = large(clients, f"data.partition={partition}")
    with caplog.at_level(logging.WARNING):
        counts = lab_of(loaded).clients.label_counts
    (message,) = caplog.messages
    served = int(message.split("divided between ")[1].split()[0])
    assert 1 <= served <= 1000 // SAMPLES_EACH
    assert counts.shape == (clients, 10)
    assert np.array_equal(counts, counts[np.arange(clients) % served])
    alone = large(served, f"data.partition={partition}")
    assert np.array_equal(counts[:served], lab_of(alone).clients.label_counts)
    assert len({row.tobytes() for row in counts[:served]}) > served // 2


def test_a_partition_that_needs_many_samples_serves_as_many_as_it_can() -> None:
    for each, served in ((30, 33), (500, 2), (600, 1)):
        partition = f"data.partition={{kind: iid, samples_per_client: {each}}}"
        counts = lab_of(large(70, partition)).clients.label_counts
        assert counts.sum(axis=1).tolist() == [each] * 70
        assert len({row.tobytes() for row in counts}) == served
        assert np.array_equal(counts, counts[np.arange(70) % served])


def test_the_part_that_is_served_is_bounded() -> None:
    loaded = large(200_000, "data.set.train_samples=150000")
    counts = lab_of(loaded).clients.label_counts
    assert np.array_equal(counts, counts[np.arange(200_000) % MOST_SERVED])
    assert not np.array_equal(counts[:100], counts[MOST_SERVED // 2 : MOST_SERVED // 2 + 100])


def test_every_fleet_that_can_be_trained_is_dealt_with_as_it_would_be() -> None:
    counts = lab_of(large(900)).clients.label_counts  # one sample each, for most of them
    assert counts.sum() == 1000


def test_what_is_wrong_for_everybody_is_an_error() -> None:
    with pytest.raises(InputError, match="1 clients need 1001 samples"):
        large(5000, "data.partition={kind: iid, samples_per_client: 1001}")
    with pytest.raises(InputError, match="class 1 has 100 samples; 100 public ones would leave none"):
        lab_of(large(5000, "data.set.train_samples=1001", "data.public=100")).clients  # noqa: B018


def test_there_are_no_models_to_look_at(small: Small) -> None:
    lab = lab_of(small())
    rule = small().scenario.method.params.local
    model, own = lab.train(LocalTraining(lab.initial(), 0, rule, 1))
    assert own is None
    assert lab.train(LocalTraining(model, 0, rule, 1, 0, (lab.zeros(), lab.zeros())))[1] is not None
    assert lab.asked == 2
    assert lab.trained == 0
    assert lab.values() == {}
    with pytest.raises(InputError, match="cannot be run without training"):
        lab.value(model)
