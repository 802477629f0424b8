"""Handles: lazy, content-addressed, freed when nobody needs them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from emulator.contracts.learning import LocalRuleChoice
from emulator.errors import HflError
from emulator.learning.lab import Lab, content_key
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.scenario import Loaded
from emulator.scenario.link_schema import Links

Small = Callable[..., Loaded]


def make(loaded: Loaded, memo: Memo | None = None) -> Lab:
    return Lab(loaded.scenario, RunMemory(memo or Memo(None)), max_workers=1)


def train(lab: Lab, model: Handle, client: int, rule: LocalRuleChoice, **place: int) -> Handle:
    return lab.train(LocalTraining(model, client, rule, **place))[0]


def test_nothing_is_trained_until_a_value_is_needed(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    start = lab.initial()
    trained = [train(lab, start, c, rule, round=1) for c in range(3)]
    mean = lab.combine(trained, [0.5, 0.25, 0.25])
    assert lab.trained == 0
    lab.evaluate(mean)
    assert lab.trained == 3
    lab.evaluate(mean)
    assert lab.trained == 3


def test_what_is_under_way_is_trained_together_with_what_is_needed(small: Small) -> None:
    loaded = small()
    lab, alone, rule = make(loaded), make(loaded), loaded.scenario.method.params.local
    needed, under_way, lost = (train(lab, lab.initial(), c, rule, round=1) for c in range(3))
    later = train(lab, under_way, 3, rule, round=2)  # its model is not there yet
    del lost
    lab.evaluate(needed)
    assert lab.trained == 2
    assert under_way.value is not None
    assert torch.equal(under_way.value, alone.value(train(alone, alone.initial(), 1, rule, round=1)))
    lab.evaluate(later)
    assert lab.trained == 3


def test_no_more_is_trained_ahead_than_there_is_room_for(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    monkeypatch.setattr("emulator.learning.lab.MEASURED_BYTES", 4 * 4 * lab.model_facts.state_size)
    handles = [train(lab, lab.initial(), c, rule, round=1) for c in range(8)]
    lab.value(handles[0])
    assert lab.trained == 4
    lab.value(handles[7])  # three are there that nobody has needed yet, and one is needed
    assert lab.trained == 5
    del handles[:4]
    lab.value(handles[0])
    assert lab.trained == 8


class Received:
    """A model as it arrives: an encoding of the least kind."""

    outputs = 1

    def identity(self) -> list[object]:
        return ["received"]

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        return [values[0].half().float()]


def versions(loaded: Loaded, every: int) -> tuple[list[int], list[float]]:
    """Four clients are always under way, each with the version that there was when it began; every n-th version is tested."""
    waves: list[int] = []

    def on_trained(done: int, waiting: int) -> None:
        waves.extend([waiting] if done == 1 else [])

    lab, rule = make(loaded), loaded.scenario.method.params.local
    lab._on_trained = on_trained
    version, under_way, losses = lab.initial(), list[Handle](), list[float]()
    for number in range(16):
        (start,) = lab.apply(Received(), [version])
        under_way.append(train(lab, start, number % 8, rule, round=number + 1))
        if number >= 3:
            version = lab.combine([version, under_way.pop(0)], [0.5, 0.5])
            if (number - 2) % every == 0:
                losses.append(lab.evaluate(version).loss)
    return waves, losses


@pytest.mark.parametrize("every", [1, 3, 12])
def test_what_lacks_only_averages_and_functions_is_trained_along(
    small: Small, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    loaded = small()
    waves, losses = versions(loaded, every)
    assert waves == [4] * (4 if every == 1 else 3)  # 13 versions are made; with 3 or 12, the last one is never needed
    size = 4 * make(loaded).model_facts.state_size
    for models, expected in (
        (0, [1] * 13),
        (3, [3, 2, 2, 2, 2, 2]),
        (6, [4, 3, 3, 3]),
    ):  # with a start each, but at first
        monkeypatch.setattr("emulator.learning.lab.MEASURED_BYTES", models * size)
        narrower, same = versions(loaded, every)
        assert every > 1 or narrower == expected
        assert same == losses


def test_values_are_what_training_by_hand_gives(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    one, two = (train(lab, lab.initial(), c, rule, round=1) for c in (0, 1))
    mean = lab.value(lab.combine([one, two], [0.25, 0.75]))
    expected = (lab.value(one).double() * 0.25 + lab.value(two).double() * 0.75).float()
    assert torch.equal(mean, expected)
    assert not torch.equal(lab.value(one), lab.value(two))


def test_two_trainings_in_a_row_equal_one_of_twice_the_epochs(small: Small) -> None:
    loaded, double = small("method.local.epochs=2"), small("method.local.epochs=4")
    lab, other = make(loaded), make(double)
    half = train(lab, lab.initial(), 2, loaded.scenario.method.params.local, round=1)
    whole = train(lab, half, 2, loaded.scenario.method.params.local, round=1, turn=1)
    once = train(other, other.initial(), 2, double.scenario.method.params.local, round=1)
    assert torch.equal(lab.value(whole), other.value(once))


def test_keys_tell_apart_what_differs_and_only_that(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    base = train(lab, lab.initial(), 0, rule, round=1)
    assert base.key == train(lab, lab.initial(), 0, rule, round=1).key
    others = [
        train(lab, lab.initial(), 1, rule, round=1), train(lab, lab.initial(), 0, rule, round=2),
        train(lab, lab.initial(), 0, rule, round=1, turn=1), train(lab, base, 0, rule, round=1),
    ]  # fmt: skip
    assert len({base.key, *(h.key for h in others)}) == 5
    assert lab.combine([base, others[0]], [0.5, 0.5]).key != lab.combine([base, others[0]], [0.4, 0.6]).key
    assert lab.combine([base], [1.0]) is base


# Every key of a scenario, and whether it changes what a given client's training gives. What only decides which trainings are
# asked for (formation, sampling, rounds, ...) or how long they take (topology, group operations) must not.
CHANGES = [
    ("topology.profiles={raspberry-pi-4b: {speed: 1.1}}", False),
    ("prices=us-2024", False),
    ("uncertain={quantities: {topology.links.access.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}}}", False),
    ("seed=4", True),
    ("data.set.separation=3.0", True),
    ("data.partition.alpha=0.4", True),
    ("data.public=1", True),
    ("data.public_set=null", False),
    ("data.public_split=train", False),
    ("model.hidden=[9]", True),
    ("model.dropout=0.1", True),
    ("model.kind=cnn", True),
    ("topology.clients=9", True),
    ("method.local.learning_rate=0.2", True),
    ("method.local.batch_size=5", True),
    ("name=other", False),
    ("notes=other", False),
    ("topology.edges=4", False),
    ("topology.devices=laptop", False),
    ("topology.edge_device=laptop", False),
    ("topology.cloud_device=laptop", False),
    ("topology.sharing=dedicated", False),
    ("topology.transport=tcp", False),
    ("topology.buffers=local", False),
    ("topology.speed={file: daily-load}", False),
    ("topology.availability={trace: {file: phone-availability}, work: paused}", False),
    ("topology.links.access.up=1 Mbit/s", False),
    ("topology.links.backhaul.latency=1 s", False),
    ("topology.links.cell={up: 1 Mbit/s, down: 1 Mbit/s}", False),
    ("topology.links.cloud={up: 1 Mbit/s, down: 1 Mbit/s}", False),
    ("topology.links.peer={bandwidth: 1 Mbit/s}", False),
    ("topology.links.latencies={file: eight-sites}", False),
    ("topology.links.direct=[{shape: ring, bandwidth: 1 Mbit/s}]", False),
    ("privacy={at: client, clip: 1.0, noise_multiplier: 1.0}", False),
    ("method.encodings={client: {up: [random-k]}}", False),
    ("topology.movement={path: {kind: markov, stay: 1 s}}", False),
    ("topology.tiers=[{name: edge, count: 2}, {name: gateway, count: 4}]", False),
    ("topology.servers=[{name: left}, {name: right}]", False),
    ("topology.total=8", False),
    ("method.tiers={region: {rounds: 2}}", False),
    ("topology.fleet=ten-devices", True),  # ten clients in place of eight
    ("method.preset=fedavg", False),
    ("method.kind=grouped", False),
    ("method.aggregator=cloud", False),
    ("method.estimator={kind: classifier-weights, epochs: 3}", False),
    ("method.formation={kind: random, size: 2}", False),
    ("method.schedule={kind: every, rounds: 2}", False),
    ("method.min_members=2", False),
    ("method.dividing={round: 5}", False),
    ("method.wait_for_members={kind: quorum, share: 0.5}", False),
    ("method.wait_for_groups={kind: deadline, after: 1 d}", False),
    ("method.over_selection=0.0", False),
    ("faults=[{kind: client-crash, at: [1 d]}]", False),
    ("attacks={kind: label-flip, superclients: 1.0, clients: 1.0, swap: [[0, 2]]}", False),  # until there are groups
    ("method.sampling={kind: uniform, groups: 1}", False),
    ("method.participation=0.5", False),
    ("method.selection={kind: oort, pacer_step: 1 s}", False),
    ("method.group_rounds=4", False),
    ("method.training=parallel", False),
    ("method.aggregation=stabilised", False),
    ("method.group_operation=none", False),
    ("method.combination=median", False),
    ("method.global_combination=median", False),
    ("method.server_optimiser=adam", False),
    ("method.edge_optimiser=momentum", False),
    ("method.initial_model=seed", False),
    ("stop.rounds=9", False),
    ("stop.time=1 h", False),
    ("stop.cost=1 client-h", False),
    ("stop.bytes=1 GB", False),
    ("stop.accuracy=0.9", False),
    ("stop.measure={accuracy: 0.9}", False),
    ("task=next-token", True),
    ("evaluate.every=2", False),
    ("evaluate.last_rounds=2", False),
    ("evaluate.samples=5", False),
    ("evaluate.clusters=true", False),
    ("evaluate.personal={epochs: 3}", False),
    ("compute.device=cuda", True),
    ("compute.precision=bfloat16", True),
    ("output.against=[fedavg]", False),
    ("output.plot=false", False),
    ("output.checkpoint=1 s", False),
    ("output.keep_models=2", False),
    ("privacy={at: client, clip: 1.0, noise_multiplier: 1.0}", False),
    ("prices=us-2024", False),
    ("uncertain={quantities: {topology.links.access.up: {kind: uniform, low: 1 Mbit/s, high: 2 Mbit/s}}}", False),
    ("stop.epsilon=8.0", False),
]
FURTHER = [  # below keys that stand above
    ("topology.devices={mix: phone-mix, bandwidth: true}", False),
    ("method.local.epochs=2", True),
    ("method.local.momentum=0.5", True),
    ("method.local.optimiser=adam", True),
    ("method.local.optimiser=sgd", False),
    ("method.local.schedule={kind: exponential, factor: 0.9}", True),
    ("method.local.smoothing=0.1", True),
    ("method.local.weight_decay=0.01", True),
    ("method.local.learning_rate_decay=0.9", True),
    ("method.local.clip=1.0", True),
    ("method.local.kind=fedprox", True),
    ("topology.links.access.loss=0.1", False),
    ("topology.links.access.jitter={kind: uniform, scale: 1 s}", False),
    ("topology.links.access.trace={file: lte-like}", False),
    ("topology.links.access.trace={file: lte-like, end: hold, start: together}", False),
]


INSTEAD = {  # what other keys say otherwise
    "stop.epsilon=8.0": ["privacy={at: client, clip: 1.0, noise_multiplier: 1.0}"],
    "topology.tiers=[{name: edge, count: 2}, {name: gateway, count: 4}]": ["topology.edges=null"],
    "topology.servers=[{name: left}, {name: right}]": ["topology.edges=null"],
    "topology.fleet=ten-devices": ["topology.clients=null"],
    "method.combination=median": ["method.group_operation=none"],
    "method.selection={kind: oort, pacer_step: 1 s}": ["method.participation=0.5"],
    "method.tiers={region: {rounds: 2}}": [
        "topology.edges=null",
        "topology.tiers=[{name: region, count: 1}, {name: edge, count: 2}]",
    ],
}


@pytest.mark.parametrize(("change", "changes_training"), CHANGES + FURTHER)
def test_which_scenario_keys_change_a_training(small: Small, change: str, changes_training: bool) -> None:
    def key(loaded: Loaded) -> str:
        lab = make(loaded)
        return train(lab, lab.initial(), 0, loaded.scenario.method.params.local, round=1).key

    assert (key(small()) != key(small(*INSTEAD.get(change, ()), change))) is changes_training


def test_no_scenario_key_is_left_out(small: Small) -> None:
    def sections(value: object, path: str, depth: int) -> list[str]:
        if isinstance(value, dict) and depth:
            return [p for k, v in value.items() for p in sections(v, f"{path}.{k}" if path else k, depth - 1)]
        return [path]

    told = [change.partition("=")[0] for change, _ in CHANGES]
    for section in sections(small().scenario.model_dump(), "", 2) + [
        f"topology.links.{kind}" for kind in Links.model_fields
    ]:
        assert any(f"{key}.".startswith(f"{section}.") for key in told), section


def test_a_value_is_freed_with_its_last_handle(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    middle = train(lab, lab.initial(), 0, rule, round=1)
    end = train(lab, middle, 0, rule, round=2)
    gone = weakref.ref(middle)
    del middle
    lab.value(end)
    gc.collect()
    assert gone() is None
    assert end.recipe is None


def test_a_long_chain_needs_no_recursion(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    model = lab.initial()
    for t in range(1500):
        model = lab.combine([model, lab.initial()], [0.5, 0.5]) if t else train(lab, model, 0, rule, round=1)
    assert torch.isfinite(lab.value(model)).all()
    del model


def test_what_another_run_computed_is_remembered(small: Small) -> None:
    memo = Memo(None)
    loaded = small()

    def accuracy(lab: Lab) -> float:
        model = train(lab, lab.initial(), 0, loaded.scenario.method.params.local, round=1)
        return lab.evaluate(model).accuracy

    first, second = make(loaded, memo), make(loaded, memo)
    assert accuracy(first) == accuracy(second)
    assert (first.trained, second.trained) == (1, 0)
    assert first.clients.label_counts.tolist() == second.clients.label_counts.tolist()
    assert first.model_facts == second.model_facts
    assert "_engine" not in vars(second)  # neither data nor torch was needed


def test_a_diverging_training_says_so(small: Small) -> None:
    loaded = small("method.local.learning_rate=1e30")
    lab = make(loaded)
    with pytest.raises(
        HflError, match=r"the training of client 0 diverged in round 1: .* smaller method.local.learning_rate"
    ):
        lab.value(train(lab, lab.initial(), 0, loaded.scenario.method.params.local, round=1))


def test_content_keys_see_every_bit_of_a_float() -> None:
    assert content_key("x", 0.1 + 0.2) != content_key("x", 0.3)
    assert content_key("x", {"a": 1, "b": 2}) == content_key("x", {"b": 2, "a": 1})
    with pytest.raises(TypeError, match="object has no place in a content key"):
        content_key("x", object())


class Halves:
    """The two halves of a vector, scaled, and how often they were computed."""

    outputs = 2

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.calls = 0

    def identity(self) -> list[object]:
        return ["halves", self.scale]

    def __call__(self, *values: torch.Tensor) -> list[torch.Tensor]:
        self.calls += 1
        middle = len(values[0]) // 2
        return [self.scale * values[0][:middle], self.scale * values[0][middle:]]


def test_a_function_of_models_is_a_recipe_like_any_other(small: Small) -> None:
    loaded = small()
    lab, rule = make(loaded), loaded.scenario.method.params.local
    model, halves = train(lab, lab.initial(), 0, rule, round=1), Halves(2.0)
    first, second = lab.apply(halves, [model])
    assert (halves.calls, lab.trained) == (0, 0)  # lazy
    again = lab.apply(Halves(2.0), [model])
    assert again == (first, second)  # known by what determines it
    assert lab.apply(Halves(3.0), [model])[0] is not first
    value = lab.value(second)
    assert (halves.calls, first.recipe, second.recipe) == (1, None, None)
    whole = lab.value(model)
    assert torch.equal(torch.cat([lab.value(first), value]), 2.0 * whole)
    assert make(loaded).apply(Halves(2.0), [train(make(loaded), lab.initial(), 0, rule, round=1)])[0].key == first.key
