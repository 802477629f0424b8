"""Label flipping: who attacks, with what, and what stays as it would be without."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario.command import stated

from analysis.runs import load_run
from emulator.assembly import assemble
from emulator.errors import InputError, ScenarioError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.methods.attacks.label_flip import LabelFlip
from emulator.methods.session import Session
from emulator.methods.training import Group
from emulator.replay import open_source, replay
from emulator.rng import stream
from emulator.run import execute
from emulator.run_results import metrics_csv
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished, played

Small = Callable[..., Loaded]

LOCAL = "method.local={kind: sgd, epochs: 1, batch_size: 4, learning_rate: 0.1}"
FEDAVG = ("topology.edges=0", "topology.clients=40", "data.partition.alpha=100.0", "method=fedavg", LOCAL)
CHAINS = (*FEDAVG, "method.training=sequential", "method.formation={kind: random, size: 5}",
          "method.sampling={kind: uniform, groups: 4}")  # fmt: skip


def flip(superclients: float, clients: float, swap: str = "[[0, 2], [3, 5]]", choice: str = "fixed") -> str:
    return f"attacks={{kind: label-flip, superclients: {superclients}, clients: {clients}, swap: {swap}, choice: {choice}}}"


@pytest.fixture
def formed(monkeypatch: pytest.MonkeyPatch) -> list[list[Group]]:
    """All groups that attackers were told of, formation by formation."""
    told: list[list[Group]] = []
    tell = LabelFlip.formed

    def formed(self: LabelFlip, groups: Sequence[Group]) -> None:
        told.append(list(groups))
        tell(self, groups)

    monkeypatch.setattr(LabelFlip, "formed", formed)
    return told


def attackers(session: Session) -> list[dict[str, Any]]:
    return session.tables["attackers"]


@pytest.mark.parametrize(
    ("superclients", "clients", "groups", "in_each"),
    [(0.25, 0.2, 2, 1), (0.25, 0.6, 2, 3), (0.5, 0.6, 4, 3), (1.0, 1.0, 8, 5), (0.3, 0.5, 2, 3), (0.0, 0.5, 0, 0)],
)
def test_a_share_of_the_groups_holds_a_share_of_attackers(
    small: Small, formed: list[list[Group]], superclients: float, clients: float, groups: int, in_each: int
) -> None:
    session = played(small(*CHAINS, flip(superclients, clients)))
    found = Counter(row["group"] for row in attackers(session))
    assert dict(found) == dict.fromkeys(found, in_each)
    assert len(found) == groups
    assert all(row["client"] in formed[0][row["group"]].members for row in attackers(session))
    assert {row["swaps"] for row in attackers(session)} <= {"0-2 3-5"}
    assert session.attack is not None
    assert session.attack.facts()["attackers"] == groups * in_each


def test_flat_methods_have_the_product_of_the_shares_among_all_clients(small: Small) -> None:
    # S4 §V-C: "the corresponding fraction of attackers in FedAvg becomes L_S · L".
    for change in ("method.training=parallel", "method.training=sequential"):
        session = played(small(*FEDAVG, change, flip(0.3, 0.5)))
        assert len(attackers(session)) == 6
        assert {row["group"] for row in attackers(session)} == {0}


def test_smaller_shares_attack_with_some_of_the_same_clients(small: Small) -> None:
    few, many = (
        {row["client"] for row in attackers(played(small(*CHAINS, "stop.rounds=1", flip(*shares))))}
        for shares in ((0.25, 0.2), (0.5, 0.6))
    )
    assert few < many


def test_random_attackers_draw_a_pair_each(small: Small) -> None:
    session = played(small(*CHAINS, flip(1.0, 1.0, choice="random")))
    assert set(Counter(row["swaps"] for row in attackers(session))) == {"0-2", "3-5"}
    again = played(small(*CHAINS, flip(1.0, 1.0, choice="random")))
    assert attackers(session) == attackers(again)
    other = played(small(*CHAINS, flip(1.0, 1.0, choice="random"), "seed=4"))
    assert attackers(session) != attackers(other)


@pytest.mark.parametrize(
    "method",
    [
        {"preset": "fedseq2par", "schedule": {"rate": 0.5, "start": 2}},
        {"preset": "fedasyncseq", "formation": {"max_clients": 5}, "share": 0.5},
        {"preset": "fed-cbs", "aggregator": "cloud", "formation": {"min_size": 4}},
    ],
    ids=lambda m: m["preset"],
)
def test_attackers_stay_when_groups_are_formed_anew(
    small: Small, formed: list[list[Group]], method: dict[str, Any]
) -> None:
    changes = [*FEDAVG, "data.public=5", f"method={json.dumps(method)}", LOCAL, "stop.rounds=4", flip(0.5, 0.5)]
    session = played(small(*changes))
    clients = [row["client"] for row in attackers(session)]
    assert len(set(clients)) == len(clients) > 0
    assert all(row["client"] in formed[0][row["group"]].members for row in attackers(session))
    clean = played(small(*changes[:-1]))
    for one, other in zip(session.groupings, clean.groupings, strict=True):  # what servers are told is true
        assert (one.label_counts == other.label_counts).all()
    assert len(formed) == len(session.groupings) == (1 if method["preset"] == "fedasyncseq" else 4)
    assert session.metrics[-1]["loss"] != clean.metrics[-1]["loss"]


def test_time_bytes_and_cost_are_those_of_the_clean_run(small: Small) -> None:
    clean, attacked = (played(small(*CHAINS, *changes)).metrics for changes in ((), (flip(0.5, 0.6),)))
    learned = ("accuracy", "loss")
    for one, other in zip(clean, attacked, strict=True):
        assert {k: v for k, v in one.items() if k not in learned} == {
            k: v for k, v in other.items() if k not in learned
        }
    assert clean[0] == attacked[0]
    assert clean[-1]["loss"] != attacked[-1]["loss"]


def test_nobody_attacking_is_the_clean_run_to_the_bit(small: Small) -> None:
    def remembered(*changes: str) -> tuple[list[dict[str, float]], dict[str, bytes]]:
        loaded = small(*CHAINS, *changes)
        lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
        session = assemble(loaded.scenario, lab)
        session.env.run(session.env.process(loaded.scenario.method(session)))
        return session.metrics, lab.memory.entries

    assert remembered() == remembered(flip(0.0, 0.5))


def test_everybody_swapping_all_labels_teaches_the_swapped_ones(small: Small) -> None:
    swap = "[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]"
    clean, attacked = (
        played(small(*FEDAVG, "stop.rounds=60", "evaluate.every=60", *changes)).metrics[-1]["accuracy"]
        for changes in ((), (flip(1.0, 1.0, swap),))
    )
    assert clean > 0.6
    assert attacked < 0.15  # wrong about nearly everything, where chance would be right about a tenth


def test_a_replay_gives_the_numbers_of_the_run(small: Small, tmp_path: Path) -> None:
    changes = (*CHAINS, "stop.rounds=3", flip(0.5, 0.6))
    execute(small(*changes), tmp_path / "run", Memo(None), max_workers=1)
    source = open_source(tmp_path / "run")
    result = replay(source, source.what_if([]), Memo(None))
    assert result.known
    assert metrics_csv(list(result.metrics)) == (tmp_path / "run" / "metrics.csv").read_text()
    assert result.summary == stated(tmp_path / "run")
    slower = replay(source, source.what_if(["topology.links.access.up=1 Mbit/s"]), Memo(None))
    assert slower.known
    for change in ("attacks=null", "attacks.clients=0.2", "attacks.swap=[[0, 2]]"):  # other labels are other trainings
        other = replay(source, source.what_if([change]), Memo(None))
        assert other.missing > 0
        execute(source.what_if([change]).loaded, tmp_path / change, Memo(None), max_workers=1)
        assert (tmp_path / change / "metrics.csv").read_text() != (tmp_path / "run" / "metrics.csv").read_text()
    assert replay(source, source.what_if([]), Memo(None)).known


def test_a_run_that_was_cut_off_goes_on_with_the_same_attackers(small: Small, tmp_path: Path) -> None:
    loaded = small(*CHAINS, "stop.rounds=4", "output.checkpoint=0 s", flip(0.5, 0.6))
    cut_off_and_finished(loaded, tmp_path / "cut", after=2)
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    for name in ("metrics.csv", "summary.json", "attackers.csv", "memory.json"):
        assert (tmp_path / "cut" / name).read_text() == (tmp_path / "whole" / name).read_text()
    found = load_run(tmp_path / "whole").attackers
    assert len(found) == 4 * 3
    assert set(found["swaps"]) == {"0-2 3-5"}


def test_shares_too_small_for_a_single_attacker_are_refused(small: Small) -> None:
    with pytest.raises(InputError) as caught:
        played(small(*CHAINS, flip(0.5, 0.05)))
    assert caught.value.key == "attacks"
    assert "no attacker in 8 groups of up to 5 clients" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("centralized", "method 'centralized' forms none; take one that does, such as 'fedseq' or 'fedavg'"),
        ("ifca", "method 'ifca' forms none"),
        ("hicfl", "method 'clustered' forms none"),
        ("hfldd", "with 'distilled' headers alone train"),
    ],
)
def test_methods_in_which_clients_do_not_train_in_groups_are_refused(small: Small, method: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        small("topology.edges=0", "data.public=2", f"method={method}", flip(0.5, 0.5))
    assert "attacks: 'label-flip'" in str(caught.value)
    assert said in str(caught.value)


def test_labels_beyond_a_set_that_must_be_read_first_are_refused(small: Small, tmp_path: Path) -> None:
    rng = stream(0, "own set")

    def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(size=(count, 1, 4, 4)).astype(np.float32), np.arange(count) % 3

    (x, y), (x_test, y_test) = samples(60), samples(9)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    changes = (
        f"data.set={{kind: npz, path: {tmp_path / 'own.npz'}, layout: nchw}}",
        "topology.clients=8",
        "data.partition=iid",
    )
    with pytest.raises(InputError) as caught:
        played(small(*changes, flip(0.5, 0.5)))
    assert caught.value.key == "attacks.swap"
    assert "there is no label 5; the data set has 3 classes, numbered from 0 to 2" in str(caught.value)
