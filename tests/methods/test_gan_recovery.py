"""GAN recovery in a run: when it happens, what it leaves in the folder, and that the run is as it would be without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenario.command import stated

from analysis.plots.recovered import images_of
from analysis.runs import load_run
from emulator.assembly import assemble
from emulator.errors import InputError, ScenarioError
from emulator.learning.facts import ClientFacts
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import LocalTraining, Trained
from emulator.replay import open_source, replay
from emulator.run import execute
from emulator.run_folder import files_of
from emulator.run_results import metrics_csv
from emulator.scenario import Loaded
from tests.methods.playing import cut_off_and_finished

Small = Callable[..., Loaded]

LEARNS = (
    "data.set.train_samples=300", "data.partition.alpha=100.0", "topology.clients=20", "stop.rounds=6", "output.checkpoint=0 s",
)  # fmt: skip


def attack(at: str, **more: int) -> str:
    options = {"steps": 10, "batch_size": 4, "noise": 3, "width": 2, "samples": 40, "images": 4, **more}
    return f"attacks={{kind: gan-recovery, at: {at}, {', '.join(f'{k}: {v}' for k, v in options.items())}}}"


def test_models_are_attacked_when_they_first_reach_an_accuracy_and_the_run_does_not_notice(
    small: Small, tmp_path: Path
) -> None:
    clean, attacked = (tmp_path / name for name in ("clean", "attacked"))
    execute(small(*LEARNS), clean, Memo(None), max_workers=1)
    execute(small(*LEARNS, attack("[0.99, 0.01, 0.2, 0.15]", client=3)), attacked, Memo(None), max_workers=1)
    for name in ("metrics.csv", "ledger.parquet", "energy.csv", "groups.csv"):
        assert (clean / name).read_bytes() == (attacked / name).read_bytes()
    run = load_run(attacked)
    assert run.recovered["at"].to_list() == [0.01, 0.15, 0.2]
    accuracies = run.metrics["accuracy"]
    for _, row in run.recovered.iterrows():
        first = accuracies[accuracies >= row["at"]].index[0]
        assert (row["round"], row["accuracy"]) == (run.metrics["round"][first], accuracies[first])
    assert run.recovered["round"].iloc[0] == 0
    assert run.recovered["distance"].nunique() == run.recovered["round"].nunique()  # another model, another result
    assert images_of(run).shape == (3, 2, 4, 1, 8, 8)
    said = stated(attacked)
    assert said.pop("attack") == {"kind": "gan-recovery", "client": 3, "attacked": 3, "not_reached": [0.99]}
    assert said == stated(clean)


def test_in_a_chain_it_sees_the_very_model_that_its_predecessor_handed_on(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chains = (
        *LEARNS, "method=fedavg", "topology.edges=0", "method.training=sequential", "method.formation={kind: random, size: 5}",
        "method.sampling={kind: uniform, share: 1.0}", "method.group_operation=none",
    )  # fmt: skip
    seen: list[str] = []
    trained: dict[tuple[int, int], tuple[str, str]] = {}  # by round and client: what it received, and what it handed on
    measure, train = Lab.measure, Lab.train

    def spied_measure(lab: Lab, measurement: Any, models: Any, client: int | None = None) -> np.ndarray:
        seen.append(models[0].key)
        return measure(lab, measurement, models, client)

    def spied_train(lab: Lab, training: LocalTraining) -> Trained:
        found = train(lab, training)
        assert isinstance(training.client, int)
        trained[training.round, training.client] = (training.model.key, found.model.key)
        return found

    monkeypatch.setattr(Lab, "measure", spied_measure)
    monkeypatch.setattr(Lab, "train", spied_train)
    inside = attack("[0.01]", client=3).replace("at:", "sees: predecessor, at:")
    execute(small(*chains, inside), tmp_path / "attacked", Memo(None), max_workers=1)
    monkeypatch.undo()
    at = int(load_run(tmp_path / "attacked").recovered["round"].iloc[0])
    ledger = load_run(tmp_path / "attacked").ledger
    handed = ledger[(ledger["hop"] == "client-client") & (ledger["peer"] == "client-3") & (ledger["round"] == at)]
    predecessor = int(str(handed["who"].iloc[0]).removeprefix("client-"))
    assert seen == [trained[at, predecessor][1]] == [trained[at, 3][0]]
    execute(small(*chains), tmp_path / "clean", Memo(None), max_workers=1)
    for name in ("metrics.csv", "ledger.parquet", "energy.csv"):
        assert (tmp_path / "clean" / name).read_bytes() == (tmp_path / "attacked" / name).read_bytes()
    with pytest.raises(InputError, match=r"attacks\.sees.*no client of this method gets a model from another"):
        execute(small(*LEARNS, inside), tmp_path / "no-chain", Memo(None), max_workers=1)


def test_what_was_recovered_is_remembered_and_replayed(small: Small, tmp_path: Path) -> None:
    loaded = small(*LEARNS, attack("[0.01, 0.2]"))
    execute(loaded, tmp_path / "run", Memo(None), max_workers=1)
    source = open_source(tmp_path / "run")
    result = replay(source, source.what_if(["topology.links.access.up=1 Mbit/s"]), Memo(None))
    assert result.known
    same = replay(source, source.what_if([]), Memo(None))
    assert metrics_csv(list(same.metrics)) == (tmp_path / "run" / "metrics.csv").read_text()
    assert same.summary == stated(tmp_path / "run")
    summary = execute(source.what_if([]).loaded, tmp_path / "again", Memo(None), known=source.known, max_workers=1)
    assert summary["trainings"]["computed"] == 0
    for name in ("recovered.csv", "recovered.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    other = replay(source, source.what_if(["attacks.steps=11"]), Memo(None))
    assert not other.known  # another attack is not known, and not taken for this one


def test_a_run_that_was_cut_off_ends_with_the_same_images(small: Small, tmp_path: Path) -> None:
    loaded = small(*LEARNS, attack("[0.01, 0.2]"))
    cut_off_and_finished(loaded, tmp_path / "cut", after=3)
    execute(loaded, tmp_path / "whole", Memo(None), max_workers=1)
    names = {path.name for path in (tmp_path / "whole").glob("[!.]*")}
    assert {"recovered.csv", "recovered.npy"} <= names <= set(files_of(tmp_path / "whole"))
    for name in names - {"manifest.json"}:
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_methods_without_groups_and_with_clusters_are_attacked_too(small: Small, tmp_path: Path) -> None:
    for method in ("centralized", "ifca"):
        loaded = small(*LEARNS, f"method={method}", "stop.rounds=1", attack("[0.01]"))
        execute(loaded, tmp_path / method, Memo(None), max_workers=1)
        assert np.isfinite(load_run(tmp_path / method).recovered["distance"]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (attack("[0.5]", client=20), "attacks.client: there is no client 20; they go from 0 to 19"),
        (attack("[0.5, 0.5]"), "attacks.at: an accuracy stands in it twice"),
        (attack("[]"), "attacks.at: has too few entries; it needs at least 1"),
        (attack("[50]"), "attacks.at[0]: must be at most 1 (it is 50)"),
        (attack("[0.5]", samples=1), "attacks.samples: must be at least 2 (it is 1)"),
    ],
)
def test_attacks_that_make_no_sense_are_refused(small: Small, change: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        small(*LEARNS, change)
    assert said in str(caught.value)


def test_an_attacker_without_samples_or_without_others_is_refused(small: Small) -> None:
    few = ("data.set.train_samples=20", "data.partition=iid", "topology.clients=2")
    loaded = small(*few, attack("[0.01]"))
    lab = Lab(loaded.scenario, RunMemory(Memo(None)), max_workers=1)
    vars(lab)["clients"] = ClientFacts(np.array([[0] * 10, [2] * 10]))
    with pytest.raises(
        InputError, match="client 0 has 0 of 20 samples; the attack needs at least one, and 4 of others"
    ):
        assemble(loaded.scenario, lab)
    vars(lab)["clients"] = ClientFacts(np.array([[1] * 10, [3] + [0] * 9]))
    with pytest.raises(InputError, match="client 0 has 10 of 13 samples") as caught:
        assemble(loaded.scenario, lab)
    assert caught.value.key == "attacks.client"
