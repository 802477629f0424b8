"""Attacks on the model: who attacks, what they send, what stays as it was, and which combinations bear it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from emulator.assembly import assemble, play
from emulator.contracts.combining import CombinationChoice
from emulator.errors import HflError, InputError, ScenarioError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.vector_functions import Combined, Poisoned
from emulator.methods.session import Session
from emulator.registry import NoParams
from emulator.rng import stream
from emulator.run import execute
from emulator.scenario import Loaded
from tests.methods.playing import played

Small = Callable[..., Loaded]

PLAIN = "method.group_operation=none"
KINDS = ("sign-flip", "scaled-update", "gaussian-noise")


def facts(session: Session) -> dict[str, Any]:
    assert session.attack is not None
    return session.attack.facts()


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.1, 1), (0.25, 2), (0.3, 2), (0.5, 4), (1.0, 8)])
def test_a_share_of_all_clients_attacks(small: Small, share: float, count: int) -> None:
    session = played(small(f"attacks={{kind: sign-flip, share: {share}}}"))
    found = facts(session)
    assert found["attackers"] == len(found["clients"]) == count
    assert found["models"] == count * 2 * 2  # in two group rounds of two rounds


def test_larger_shares_hold_the_attackers_of_smaller_ones(small: Small) -> None:
    few, many = (set(facts(played(small(f"attacks={{kind: sign-flip, share: {s}}}")))["clients"]) for s in (0.25, 0.75))
    assert few < many


def test_or_a_share_of_the_clients_of_a_share_of_the_groups(small: Small) -> None:
    session = played(small("attacks={kind: sign-flip, superclients: 1.0, clients: 0.5}"))
    homes = [session.world.fleet.servers_at("edge")[client] for client in facts(session)["clients"]]
    assert sorted(homes) == ["edge-0"] * 2 + ["edge-1"] * 2
    half = facts(played(small("attacks={kind: sign-flip, superclients: 0.5, clients: 0.5}")))
    assert half["attackers"] == 2
    with pytest.raises(InputError, match="the shares make no attacker in 2 groups"):
        played(small("attacks={kind: sign-flip, superclients: 0.5, clients: 0.1}"))


SEND = [("scale", -4.0), ("scale", 10.0), ("noise", 0.5)]


@pytest.mark.parametrize(("how", "size"), SEND)
def test_what_is_sent(how: Any, size: float) -> None:
    before, after = torch.tensor([1.0, 2.0, 3.0, 7.0]), torch.tensor([1.5, 1.0, 3.0, 9.0])
    (sent,) = Poisoned(how, size, 3, 5, (2, 1, 4))(before, after)
    update = [0.5, -1.0, 0.0] if how == "scale" else stream(5, "attack", "noise", 2, 1, 4).standard_normal(3)
    assert np.allclose(sent[:3], [1.0, 2.0, 3.0] + size * np.array(update))
    assert sent[3] == 9.0  # a buffer
    assert before.tolist() == [1.0, 2.0, 3.0, 7.0]


def test_noise_is_another_in_every_training_and_for_every_attacker() -> None:
    names = [(1, 0, 4), (1, 1, 4), (2, 0, 4), (1, 0, 5)]
    assert len({json.dumps(Poisoned("noise", 1.0, 3, 5, name).identity()) for name in names}) == 4
    assert len({json.dumps(Poisoned("scale", 2.0, 3, 5, name).identity()) for name in names}) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["hierfavg", "fedseq", "ifca", "hicfl", "scaffold"])
def test_time_bytes_and_honest_trainings_stay(small: Small, kind: str, method: str) -> None:
    words = (
        f"method={{preset: {method}}}",
        "method.local={epochs: 1, batch_size: 4, learning_rate: 0.01}",
        *(
            ("method.estimator={epochs: 1, batch_size: 4}", "data.public=4", "method.sampling=all")
            if method == "fedseq"
            else ()
        ),
        *(("method.formation={kind: random, size: 4}",) if method in ("fedseq", "scaffold") else ()),
    )
    clean, attacked = played(small(*words)), played(small(*words, f"attacks={{kind: {kind}, share: 0.25}}"))
    assert facts(attacked)["models"] > 0
    if method in ("ifca", "hicfl"):  # what clients do there depends on what is learned
        return
    assert attacked.world.ledger.rows == clean.world.ledger.rows
    assert [row["loss"] for row in attacked.metrics] != [row["loss"] for row in clean.metrics]


def test_in_a_chain_the_poisoned_model_is_handed_on(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = small(
        "topology.edges=0", "topology.clients=3", "stop.rounds=1",
        "method={preset: fedcyclic, sampling: all, participation: 1.0}",
        "method.local={epochs: 1, batch_size: 4, learning_rate: 0.1}", "attacks={kind: sign-flip, share: 0.34}",
    )  # fmt: skip
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    session = assemble(loaded.scenario, lab)
    asked, sent = [], []
    train, hand_in = lab.train, session.sent

    def trained(training: Any) -> Any:
        asked.append((training.client, training.model.key))
        return train(training)

    def handed_in(*given: Any) -> Any:
        sent.append((given[2], given[4].key, (handle := hand_in(*given)).key))
        return handle

    monkeypatch.setattr(lab, "train", trained)
    monkeypatch.setattr(session, "sent", handed_in)
    play(session)
    (attacker,) = facts(session)["clients"]
    assert {client for client, own, handed_in in sent if own != handed_in} == {attacker}
    assert [model for _, model in asked[1:]] == [key for *_, key in sent[: len(asked) - 1]]


def test_robust_combinations_hold_where_the_mean_does_not(small: Small) -> None:
    words = (
        "data={set: digits, partition: {kind: iid}}", "topology.edges=0", "topology.clients=20", "method=fedavg",
        "stop.rounds=20", "method.local={epochs: 1, batch_size: 8, learning_rate: 0.1}",
    )  # fmt: skip

    def accuracy(*further: str) -> float:
        return played(small(*words, "evaluate.every=20", *further)).metrics[-1]["accuracy"]

    clean, attack = accuracy(), "attacks={kind: sign-flip, share: 0.2, factor: 4}"
    assert accuracy(attack) < clean - 0.2
    robust = ("median", "{kind: krum, attackers: 4}", "{kind: multi-krum, attackers: 4}", "trimmed-mean")
    for kind in (*robust, "geometric-median"):
        assert accuracy(attack, f"method.combination={kind}") > clean - 0.1, kind


def test_a_model_that_is_no_number_does_not_win(small: Small) -> None:
    loaded = small()
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    before, after = lab.initial(), lab.initial(1)
    (nonsense,) = lab.apply(Poisoned("noise", float("inf"), lab.model_facts.parameters, 0, ()), [before, after])
    assert not torch.isfinite(lab.value(nonsense)).all()
    median = Combined(CombinationChoice("median", NoParams()), [0.5, 0.25, 0.25])
    (found,) = lab.apply(median, [before, nonsense, after, after])
    assert torch.equal(lab.value(found), lab.value(after))
    (kept,) = lab.apply(median, [before, nonsense, nonsense, nonsense])
    assert torch.equal(lab.value(kept), lab.value(before))


def test_with_the_mean_a_run_ends_where_models_are_no_numbers_and_goes_on_with_the_median(small: Small) -> None:
    attack = "attacks={kind: scaled-update, share: 0.25, factor: 1.0e+39}"
    with pytest.raises(HflError, match="diverged in round"):
        played(small(PLAIN, attack))
    session = played(small(PLAIN, attack, "method.combination=median"))
    assert np.isfinite([row["loss"] for row in session.metrics]).all()


def test_the_summary_says_who_attacked(small: Small, tmp_path: Path) -> None:
    summary = execute(small("attacks={kind: scaled-update, share: 0.25}"), tmp_path / "run", Memo(None), max_workers=1)
    found = summary["attack"]
    assert (found["kind"], found["attackers"], found["models"]) == ("scaled-update", 2, 8)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["attack"] == found


REFUSED = [
    ((), "attacks={kind: sign-flip}", "give either 'share', of all clients, or both"),
    ((), "attacks={kind: sign-flip, share: 0.2, clients: 0.5}", "give either 'share', of all clients, or both"),
    ((), "attacks={kind: sign-flip, superclients: 0.5}", "give either 'share', of all clients, or both"),
    ((), "attacks={kind: sign-flip, share: 0.01}", "makes no attacker of 8 clients"),
    ((), "attacks={kind: sign-flip, share: 0.2, factor: 0}", "must be greater than 0"),
    (("method=centralized",), "attacks={kind: sign-flip, share: 0.2}", "clients send none"),
    (("method={preset: ifca, clusters: 2}",), "attacks={kind: gaussian-noise, superclients: 1.0, clients: 0.2}",
     "attackers sit in groups"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "attack", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(small: Small, words: tuple[str, ...], attack: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        small(*words, attack)
