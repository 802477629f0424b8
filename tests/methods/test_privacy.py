"""Differential privacy in runs: what is sent and averaged, what it takes, what has been spent, and what is refused."""

from __future__ import annotations

import dataclasses
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from methods.playing import cut_off_and_finished, played
from patience import PATIENCE_S

from devices.compute import flops_s
from emulator import checkpoint
from emulator.assembly import assemble
from emulator.errors import InputError, ScenarioError
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.private import CLIPPING, DRAWING, clipped
from emulator.learning.recipes import LocalTraining
from emulator.methods.accountant import Accountant
from emulator.methods.session import Session
from emulator.replay import open_source, replay
from emulator.rng import stream
from emulator.run import execute
from emulator.scenario import Loaded, dump

Small = Callable[..., Loaded]

CLIP, Z = 0.3, 0.8
LATER = "faults=[{kind: client-crash, at: [1000 d]}]"  # never in these runs; but clients are then played one by one
CLEAR = "method.group_operation=none"
SUMS = "method.group_operation={kind: secure-aggregation, a: 1 s, b: 0 s, c: 0 s}"


def private(at: str, more: str = "") -> list[str]:
    """Changes that make a scenario private."""
    operation = SUMS if at == "distributed" else CLEAR
    return [operation, f"privacy={{at: {at}, clip: {CLIP}, noise_multiplier: {Z}{more}}}"]


def epsilon(*multipliers: float) -> float:
    accountant = Accountant(1, 1e-5)
    for multiplier in multipliers:
        accountant.took_part((0,), multiplier)
    return accountant.epsilon()


def table(session: Session) -> pd.DataFrame:
    return pd.DataFrame(session.world.ledger.rows)


def spent(session: Session) -> list[float]:
    return [row["epsilon"] for row in session.metrics]


def values(session: Session) -> list[tuple[float, float]]:
    return [(row["accuracy"], row["loss"]) for row in session.metrics]


PLACES = ["client", "server", "distributed"]


@pytest.mark.parametrize("at", PLACES)
def test_every_group_round_of_a_client_is_accounted(small: Small, at: str) -> None:
    session = played(small(*private(at), "method.group_rounds=2", "stop.rounds=3"))
    each = Z / 2 if at == "client" else Z  # a client's own update may be replaced by any other: twice the clip
    assert spent(session) == [0.0, *(epsilon(*[each] * 2 * t) for t in (1, 2, 3))]


def test_whoever_is_sampled_more_often_has_spent_more(small: Small) -> None:
    session = played(
        small(*private("server"), "method.formation={kind: random, size: 2}", "method.sampling={kind: uniform, groups: 1}",
              "method.group_rounds=1", "stop.rounds=6")
    )  # fmt: skip
    rows = table(session)
    times = rows[(rows["kind"] == "compute") & rows["who"].str.startswith("client")].groupby("who").size()
    assert 1 <= times.max() < 6
    assert spent(session)[-1] == epsilon(*[Z] * int(times.max()))


@pytest.mark.parametrize("at", PLACES)
def test_the_model_is_that_of_a_transcription(small: Small, at: str) -> None:
    """One group of all clients, one round: McMahan et al. (ICLR 2018), Algorithm 1, with all weights 1."""
    loaded = small(
        "topology.edges=0", "method.aggregator=cloud", "method.group_rounds=1", "stop.rounds=1", *private(at)
    )
    session = played(loaded)
    lab = session.lab
    assert isinstance(lab, Lab)
    start, local = lab.initial(), loaded.scenario.method.params.local
    before = lab.value(start).double()
    updates = [lab.value(lab.train(LocalTraining(start, c, local, 1)).model).double() - before for c in range(8)]
    lengths = [float(u.norm()) for u in updates]
    assert min(lengths) < CLIP < max(lengths)
    short = torch.stack([u * min(1.0, CLIP / length) for u, length in zip(updates, lengths, strict=True)])

    def noise(*name: str | int) -> torch.Tensor:
        return torch.from_numpy(stream(3, "privacy", *name, 1, 0).standard_normal(len(before)))

    if at == "client":
        shares = np.array(lab.clients.samples) / lab.clients.samples.sum()
        sent = [u + Z * CLIP * noise("client", c) for c, u in enumerate(short)]
        expected = before + sum(share * u for share, u in zip(shares.tolist(), sent, strict=True))
    elif at == "server":
        expected = before + (short.sum(0) + Z * CLIP * noise("server", 0)) / 8
    else:
        sent = [u + Z * CLIP / math.sqrt(8) * noise("share", c) for c, u in enumerate(short)]
        expected = before + sum(sent) / 8
    given = small(*private(at), "topology.edges=0", "method.aggregator=cloud", "method.group_rounds=1", "stop.rounds=1")
    again = Lab(given.scenario, RunMemory(Memo(None)), max_workers=1)
    kept: list[torch.Tensor] = []
    session = assemble(given.scenario, again)
    end = session.end_round

    def look(round_: int, model: object, /, **measured: float) -> bool:
        kept.append(again.value(model.models[0]).clone())  # type: ignore[attr-defined]
        return end(round_, model, **measured)  # type: ignore[arg-type]

    session.end_round = look  # type: ignore[method-assign]
    session.env.run(session.env.process(given.scenario.method(session)))
    assert torch.allclose(kept[0].double(), expected, atol=2e-6)
    assert not torch.allclose(kept[0].double(), before + short.mean(0), atol=1e-3)


@pytest.mark.parametrize("at", PLACES)
def test_clients_played_one_by_one_give_the_same_as_all_at_once(small: Small, at: str) -> None:
    changes = [*private(at), "method.group_rounds=2"]
    together, apart = played(small(*changes)), played(small(*changes, LATER))
    assert (values(together), spent(together)) == (values(apart), spent(apart))
    assert [row["time_s"] for row in together.metrics] == pytest.approx([row["time_s"] for row in apart.metrics])


@pytest.mark.parametrize("at", PLACES)
def test_without_training_the_clock_and_epsilon_are_the_same(small: Small, tmp_path: Path, at: str) -> None:
    loaded = small(*private(at))
    execute(loaded, tmp_path / "real", Memo(None), max_workers=1)
    execute(dataclasses.replace(loaded, training=False), tmp_path / "timing", Memo(None))
    assert (tmp_path / "real" / "ledger.parquet").read_bytes() == (tmp_path / "timing" / "ledger.parquet").read_bytes()
    real, timing = (pd.read_csv(tmp_path / name / "metrics.csv") for name in ("real", "timing"))
    learned = ["accuracy", "loss"]
    assert timing.drop(columns=learned).equals(real.drop(columns=learned))
    assert timing["epsilon"].iloc[-1] == real["epsilon"].iloc[-1] > 0


def test_clipping_and_noise_take_time_where_they_are_done(small: Small) -> None:
    once = "method.group_rounds=1", "stop.rounds=1"
    clear, local, central = (
        played(small(*once, *changes)) for changes in ([CLEAR], private("client"), private("server"))
    )
    size = clear.lab.model_facts.parameters

    def trained_s(session: Session) -> dict[str, float]:
        rows = table(session)
        rows = rows[(rows["kind"] == "compute") & rows["who"].str.startswith("client")]
        return dict(zip(rows["who"], rows["end_s"] - rows["start_s"], strict=True))

    device = clear.world.fleet.client_devices[0]
    name = clear.world.fleet.client_names[0]
    more = trained_s(local)[name] - trained_s(clear)[name]
    assert more == pytest.approx(flops_s(device, (CLIPPING + DRAWING) * size), rel=1e-6)
    assert trained_s(central) == pytest.approx(trained_s(clear))
    rows = table(central)
    rows = rows[rows["what"] == "privacy"]
    edge = central.world.fleet.device(rows["who"].iloc[0])
    assert len(rows) == 2  # one for each edge, of four clients
    assert (rows["end_s"] - rows["start_s"]).iloc[0] == pytest.approx(flops_s(edge, (4 * CLIPPING + DRAWING) * size))


def test_members_that_drop_out_leave_less_noise_and_the_account_says_so(small: Small) -> None:
    """A client crashes while it trains: three of the four shares of its group are there, or more where the noise has surplus."""
    crash = "faults=[{kind: client-crash, clients: [0], at: [50 ms], lasts: 1000 s}]"
    rounds = ["method.group_rounds=1", "stop.rounds=1"]
    asked = played(small(*private("distributed"), crash, *rounds))
    assert spent(asked)[-1] == pytest.approx(epsilon(Z * math.sqrt(3 / 4)), rel=1e-12)
    surplus = played(small(*private("distributed", ", shares: least"), crash, *rounds, "method.min_members=2"))
    assert spent(surplus)[-1] == pytest.approx(epsilon(Z * math.sqrt(3 / 2)), rel=1e-12)
    assert spent(surplus)[-1] < spent(played(small(*private("distributed"), *rounds)))[-1] < spent(asked)[-1]


HIDDEN = ["method=fedavg", "topology.edges=0", "topology.clients=40", "data.partition.samples_per_client=4",
          "method.participation=0.1", CLEAR, "stop.rounds=5"]  # fmt: skip


def test_a_hidden_draw_counts_as_protection(small: Small) -> None:
    drawn = small(*HIDDEN, "privacy={at: server, clip: 1.0, noise_multiplier: 4.0, participants: hidden}")
    accountant = Accountant(40, 1e-5)
    for _ in range(5):
        accountant.may_have_taken_part(range(40), 4, 4.0, hidden=True)
    assert spent(played(drawn))[-1] == pytest.approx(accountant.epsilon(), rel=1e-12)
    assert accountant.epsilon() < epsilon(*[4.0] * 5)


def test_a_draw_is_not_hidden_where_clients_may_be_lost(small: Small) -> None:
    """Then all count as if they had taken part in every round."""
    drawn = small(*HIDDEN, LATER, "privacy={at: server, clip: 1.0, noise_multiplier: 4.0, participants: hidden}")
    assert spent(played(drawn))[-1] == epsilon(*[4.0] * 5)


@pytest.mark.parametrize(
    "method",
    [
        [
            "method=fedasyncseq",
            "method.window=3",
            "method.formation={kind: random, size: 2}",
            "method.estimator=label-counts",
        ],
        ["method={kind: clustered}"],
        [
            "method={kind: gossip, formation: all}",
            "topology.links.direct=[{tier: edge, shape: ring, bandwidth: 1 Gbit/s}]",
        ],
    ],
)
def test_other_methods_add_noise_to_each_update_that_is_sent(small: Small, method: list[str]) -> None:
    changes = [*method, "stop.rounds=3", "method.local={epochs: 1, batch_size: 4, learning_rate: 0.1}"]
    noisy = played(small(*changes, f"privacy={{at: client, clip: {CLIP}, noise_multiplier: {Z}}}"))
    clear = played(small(*changes))
    rows = table(noisy)
    rows = rows[(rows["kind"] == "compute") & (rows["what"] == "training") & (rows["samples"] > 0)]
    most = int(rows.groupby("who").size().max())
    assert epsilon(*[Z / 2] * most) <= spent(noisy)[-1] <= epsilon(*[Z / 2] * (most + 2))  # with what is under way
    assert values(noisy)[-1] != values(clear)[-1]


@pytest.mark.parametrize("at", ["client", "server"])
def test_what_is_private_is_encoded_on_its_way(small: Small, at: str) -> None:
    """Encoding comes after the noise of clients, and before the clipping of servers, so it changes no epsilon."""
    coarse = "method.encodings={client: {up: [delta, {kind: quantise, bits: 4}]}, edge: {up: [float16]}}"
    clear, encoded = played(small(*private(at))), played(small(*private(at), coarse))
    assert spent(encoded) == spent(clear)
    assert encoded.metrics[-1]["bytes_total"] < clear.metrics[-1]["bytes_total"]
    assert values(encoded) != values(clear)


def test_no_noise_is_drawn_twice(small: Small) -> None:
    """A client that trains twice in one place of a run (two chains in a round) draws anew."""
    session = played(small(*private("client")))
    assert session.privacy is not None
    names = {session.privacy._name("client", 1, 9, 0) for _ in range(5)}
    assert len(names) == 5


def test_stop_at_an_epsilon(small: Small) -> None:
    limit = 1.01 * epsilon(*[Z] * 4)
    session = played(small(*private("server"), f"stop={{epsilon: {limit}}}"))
    assert (session.stopped_by, session.rounds) == ("epsilon", 3)
    assert spent(session)[-2] <= limit < spent(session)[-1]


@pytest.mark.parametrize("at", PLACES)
def test_interrupted_it_ends_the_same(small: Small, tmp_path: Path, at: str) -> None:
    loaded = small(*private(at), "stop.rounds=5", "output.checkpoint=0 s", "output.plot=false")
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    cut_off_and_finished(loaded, tmp_path / "cut", 2)
    for name in ("metrics.csv", "ledger.parquet", "summary.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("at", PLACES)
def test_another_world_is_answered_without_training(small: Small, tmp_path: Path, at: str) -> None:
    changes, slow = [*private(at), "output.plot=false"], "topology.links.access.up=1 Mbit/s"
    execute(small(*changes), tmp_path / "run", Memo(None), max_workers=1)
    known = checkpoint.read_memory(tmp_path / "run")
    answered = execute(small(*changes, slow), tmp_path / "slow", Memo(None), known=known, max_workers=1)
    fresh = execute(small(*changes, slow), tmp_path / "fresh", Memo(None), max_workers=1)
    assert answered["trainings"]["computed"] == 0 < fresh["trainings"]["computed"]
    assert (tmp_path / "slow" / "metrics.csv").read_bytes() == (tmp_path / "fresh" / "metrics.csv").read_bytes()
    source = open_source(tmp_path / "run")
    again = replay(source, source.what_if([slow]), Memo(None))
    assert (again.missing, again.to_the_end) == (0, True)
    rows = pd.read_csv(tmp_path / "fresh" / "metrics.csv")
    assert [row["epsilon"] for row in again.metrics] == rows["epsilon"].tolist()


def test_without_privacy_nothing_of_it_is_there(small: Small) -> None:
    session = played(small())
    assert session.privacy is None
    assert "epsilon" not in session.metrics[-1]
    assert "privacy: null" in dump(small().scenario)
    code = "import sys, emulator.cli, emulator.run, emulator.methods.grouped; assert 'dp_accounting' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)


def test_label_counts_that_are_taken_as_public_are_named(small: Small, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        played(small(*private("server"), "method.formation={kind: cov, min_size: 2}", "stop.rounds=1"))
    assert "formation 'cov'" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        played(small(*private("server"), "stop.rounds=1"))
    assert "epsilon" not in caplog.text


PRIVACY = "privacy={at: %s, clip: 1.0, noise_multiplier: 1.0%s}"


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ([PRIVACY % ("server", "")], "method.group_operation", "say 'privacy.at: distributed'"),
        ([PRIVACY % ("distributed", ""), CLEAR], "method.group_operation", "say 'secure-aggregation'"),
        (
            [PRIVACY % ("distributed", ""), "method.group_operation={kind: backdoor-detection}"],
            "method.group_operation",
            "say 'secure-aggregation'",
        ),
        ([PRIVACY % ("client", ""), "method.local.kind=scaffold"], "method.local", "second vector"),
        ([PRIVACY % ("client", ""), "method.local.kind=feddyn"], "method.local", "second vector"),
        (
            [PRIVACY % ("server", ""), CLEAR, "method.training=sequential"],
            "method.training",
            "goes with 'client' alone",
        ),
        (
            [PRIVACY % ("client", ""), CLEAR, "method.training=distilled"],
            "method.training",
            "does not go with 'privacy'",
        ),
        ([PRIVACY % ("client", ""), "method={kind: centralized}"], "privacy.at", "take 'asynchronous', 'clustered'"),
        ([PRIVACY % ("client", ""), "method={kind: ifca, clusters: 2}"], "privacy.at", "does not go with 'privacy'"),
        ([PRIVACY % ("server", ""), "method={kind: clustered}"], "privacy.at", "goes with 'client' alone"),
        ([PRIVACY % ("server", ", participants: hidden"), CLEAR], "privacy.participants", "a 'participation' below 1"),
        (
            [PRIVACY % ("server", ", participants: hidden"), CLEAR, "method.participation=0.5"],
            "privacy.participants",
            "one group round",
        ),
        ([PRIVACY % ("client", ", participants: hidden"), CLEAR], "privacy.participants", "'at: server'"),
        ([PRIVACY % ("server", ", shares: least"), CLEAR], "privacy.shares", "'at: distributed'"),
        (["privacy={at: server, clip: 0.0, noise_multiplier: 1.0}"], "privacy.clip", "greater than 0"),
        (
            [PRIVACY % ("distributed", ""), "method.encodings={client: {up: [delta, {kind: random-k, share: 0.5}]}}"],
            "method.encodings.client.up",
            "leave it out",
        ),
        (["stop.epsilon=3.0"], "stop.epsilon", "give a section 'privacy'"),
        (
            [PRIVACY % ("server", ""), CLEAR, "method.combination=median"],
            "method.combination",
            "is about the mean of clipped updates",
        ),
        (
            [PRIVACY % ("client", ""), CLEAR, "method.dividing={clusters: 2, round: 1}"],
            "method.dividing",
            "leave it out",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(small: Small, changes: list[str], key: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        small(*changes)
    assert any(problem.key == key and message in problem.message for problem in caught.value.problems), str(
        caught.value
    )


def test_a_missing_accountant_is_named_when_validating(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("0.0.2", "0.5.1"):
        monkeypatch.setattr("importlib.metadata.version", lambda _, version=version: version)
        with pytest.raises(ScenarioError, match=r"pip install 'hfl-emulator\[privacy\]'"):
            small(*private("server"))
    small()  # without privacy nobody asks for it


def test_variances_of_batch_normalisation_are_refused(small: Small) -> None:
    model = "model=cnn-hfldd", "data.set={kind: synthetic, shape: [3, 32, 32]}"
    with pytest.raises(InputError, match="batch normalisation"):
        played(small(*private("server"), *model))


def test_an_update_within_the_clip_is_what_it_was_without_noise() -> None:
    update = torch.tensor([0.3, -0.4], dtype=torch.float64)
    assert clipped(update, 0.5) is update
