"""Models that a run keeps: which, within which room, the same after a cut, and what-if that begins from them."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from scenario.command import hfl

import emulator
from analysis.runs import load_run
from emulator.errors import InputError
from emulator.files import read_json
from emulator.kept import INDEX, KeptModels, ModelKeeper, kept_in
from emulator.learning.lab import Lab
from emulator.learning.memo import Memo
from emulator.learning.recipes import Handle
from emulator.replay import Parting, describe_trained, open_source, replay, run_changed
from emulator.run import execute
from emulator.run_folder import finished
from emulator.scenario import Loaded
from emulator.scenario.schema import KeepModels
from tests.methods.playing import cut_off_and_finished

Small = Callable[..., Loaded]

ASYNC = (
    "method={kind: asynchronous, formation: {kind: random, size: 2}, training: sequential, aggregator: cloud, window: 2}",
    "topology.edges=0",
    "method.local={kind: sgd, epochs: 1, batch_size: 4, learning_rate: 0.1}",
)


def run(loaded: Loaded, folder: Path) -> dict[str, Any]:
    return execute(loaded, folder, Memo(None), max_workers=1)


def contents(folder: Path) -> dict[str, bytes]:
    """All results of a run: what does not differ from one to the next."""
    changing = ("manifest.json", ".lock", "checkpoint.safetensors")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name not in changing}


def test_the_folder_holds_the_global_models_and_the_run_is_as_without(small: Small, tmp_path: Path) -> None:
    words = ("stop.rounds=5", "evaluate.every=2")
    plain = run(small(*words), tmp_path / "plain")
    kept = run(small(*words, "output.keep_models=2"), tmp_path / "kept")
    assert kept["trainings"] == plain["trainings"]
    for name in ("metrics.csv", "ledger.parquet"):
        assert (tmp_path / "kept" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert kept_in(tmp_path / "plain") == {}
    index = read_json(tmp_path / "kept" / INDEX)
    assert index is not None
    assert list(kept_in(tmp_path / "kept")) == [2, 4] == [int(number) for number in index["rounds"]]
    shorter = run(small("stop.rounds=2", "output.keep_models=2"), tmp_path / "shorter")
    assert shorter["rounds"] == 2
    for number in ("2", "4"):
        (key,) = index["rounds"][number]["models"]
        model = load_file(tmp_path / "kept" / f"model-{number}.safetensors")[key]
        assert torch.isfinite(model).all()
        if number == "2":
            assert torch.equal(model, KeptModels(tmp_path / "shorter")[key])
    finished(tmp_path / "kept")
    file = tmp_path / "kept" / "model-4.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"'model-4.safetensors' in .* changed after the run ended"):
        finished(tmp_path / "kept")


@pytest.mark.parametrize(
    "world",
    [
        ("method.local.kind=scaffold",),
        (*ASYNC, "method.share=0.5"),
        (
            "method=fedavg",
            "method.encodings={client: {up: [error-feedback, {kind: top-k, share: 0.2}]}}",
            "topology.edges=0",
        ),
    ],
)
def test_a_run_that_was_cut_off_keeps_the_same(small: Small, tmp_path: Path, world: tuple[str, ...]) -> None:
    every = "output={keep_models: {every: 1, most: 40 kB}, checkpoint: 0 s}"
    loaded = small(*world, "stop.rounds=8", every)
    whole = run(loaded, tmp_path / "whole")
    rounds = list(kept_in(tmp_path / "whole"))
    assert 0 < len(rounds) < 8  # there was no room for all
    cut_off_and_finished(loaded, tmp_path / "part", after=4)
    rest = read_json(tmp_path / "part" / "manifest.json")
    assert rest is not None
    assert rest["trainings"]["computed"] < whole["trainings"]["computed"]
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")


MIXING = ("method={preset: fedasync, local: {epochs: 1, batch_size: 4, learning_rate: 0.1}}", "topology.edges=0")
BUFFERS = (MIXING[0].replace("fedasync", "fedbuff"), "topology.edges=0", "method.buffer=3", "method.at_work=6")
CHAINS = (*ASYNC, "method.share=0.5")
MIXED = "topology.devices={raspberry-pi-4b: 0.5, raspberry-pi-3b-plus: 0.5}"
CUT = "faults=[{kind: slow-down, clients: [0, 1, 2], at: [%r s], factor: 30}]"


def metrics_of(folder: Path) -> bytes:
    return (folder / "metrics.csv").read_bytes()


@pytest.mark.parametrize(
    "method",
    [
        MIXING,
        BUFFERS,
        CHAINS,
        (
            "method=fedasyncseq",
            "data.public=2",
            "topology.edges=0",
            "method.estimator={epochs: 1}",
            "method.formation={max_clients: 2}",
            "method.share=0.5",
        ),
    ],
)
def test_where_the_order_of_arrivals_stays_nothing_is_trained(
    small: Small, tmp_path: Path, method: tuple[str, ...]
) -> None:
    run(small(*method, "stop.rounds=12"), tmp_path / "run")
    changed = open_source(tmp_path / "run").what_if(
        ["topology.links.access.up=7 Mbit/s", "topology.links.access.latency=25 ms"]
    )
    found = run_changed(changed, tmp_path / "slower", Memo(None), max_workers=1)
    assert found["trainings"]["asked"] > 0
    assert found["trainings"]["computed"] == 0
    assert found["whatif"] == {"parts": None, "kept_models": []}


@pytest.mark.parametrize("method", [MIXING, CHAINS, (*CHAINS, "method.local.kind=scaffold"), ()])
def test_where_it_differs_training_begins_at_a_kept_model(
    small: Small, tmp_path: Path, method: tuple[str, ...]
) -> None:
    rounds, every = (48, 8) if method == MIXING else (12, 2)
    loaded = small(
        *method, f"stop.rounds={rounds}", f"evaluate.every={every // 2}", MIXED, f"output.keep_models={every}"
    )
    whole = run(loaded, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "without")
    for number in kept_in(tmp_path / "without"):
        (tmp_path / "without" / f"model-{number}.safetensors").unlink()
    source = open_source(tmp_path / "run")
    half = next(row for row in load_run(tmp_path / "run").metrics.to_dict("records") if row["round"] >= rounds * 0.6)
    if method:
        changes, since = [CUT % half["time_s"]], half
    else:  # groups of all clients learn the same, whoever is slow
        changes, since = [f"stop.rounds={rounds + 2}"], whole["final"]
    changed = source.what_if(changes)
    replayed = replay(source, changed, Memo(None))
    found = run_changed(changed, tmp_path / "kept", Memo(None), max_workers=1)
    again = run_changed(
        open_source(tmp_path / "without").what_if(changes), tmp_path / "again", Memo(None), max_workers=1
    )
    fresh = run(changed.loaded, tmp_path / "fresh")
    assert metrics_of(tmp_path / "kept") == metrics_of(tmp_path / "again") == metrics_of(tmp_path / "fresh")
    parts, began = found["whatif"]["parts"], found["whatif"]["kept_models"]
    assert parts == again["whatif"]["parts"] == asdict(cast(Parting, replayed.parts))
    assert parts["time_s"] >= since["time_s"]
    assert since["round"] < parts["round"] <= rounds + 1
    last = max(number for number in kept_in(tmp_path / "run") if number < parts["round"])
    assert last in began
    assert again["whatif"]["kept_models"] == []
    under_way = 8 if method == MIXING else 0  # at the end: such are trained along
    assert replayed.missing <= found["trainings"]["computed"] <= replayed.missing + under_way
    assert found["trainings"]["computed"] * 2 <= again["trainings"]["computed"] <= fresh["trainings"]["computed"]
    assert (read_json(tmp_path / "kept" / "manifest.json") or {})["whatif"] == found["whatif"]
    assert describe_trained(found).endswith(f"trainings were made again, from the models kept after round {last} on")
    assert "again, from the beginning on: no model was kept before" in describe_trained(again)


class Standing:
    """What a keeper asks of a lab: as many numbers as are alive after the round that just ended."""

    def __init__(self) -> None:
        self.alive = 1
        self.settled = 0

    def settle(self) -> dict[str, torch.Tensor]:
        self.settled += 1
        return {"state": torch.zeros(self.alive)}


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(0, 40_000),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3000)), min_size=1, max_size=20),
    st.integers(0, 20),
)
def test_which_rounds_are_kept_depends_on_their_sizes_alone(
    every: int, most: int, steps: list[tuple[int, int]], cut: int
) -> None:
    ends = list(itertools.accumulate(step for step, _ in steps))
    wanted = KeepModels.model_validate({"every": every, "most": f"{most + 1} B"})

    def play(folder: Path, until: int) -> int:
        lab = Standing()
        keeper = ModelKeeper(folder, cast(Lab, lab), wanted)
        for number, (_, alive) in list(zip(ends, steps, strict=True))[:until]:
            lab.alive = alive
            keeper.round_ended(number, [Handle(f"model {number}")])
        return lab.settled

    with tempfile.TemporaryDirectory() as place:
        whole, part = Path(place) / "whole", Path(place) / "part"
        whole.mkdir()
        part.mkdir()
        assert play(whole, len(steps)) == play(part, cut) + play(part, len(steps))
        assert contents(part) == contents(whole)
        found = kept_in(whole)
        assert sum((whole / name).stat().st_size for name in found.values()) <= most + 1
        index = read_json(whole / INDEX)
        if index is None:
            assert not found
            return
        spacing = index["every"]
        assert [int(number) for number in index["rounds"]] == list(found)
        assert list(found) == [b for a, b in itertools.pairwise([0, *ends]) if b // spacing > a // spacing]


def test_command_and_python_say_from_when_on_it_differs(small: Small, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(small("stop.rounds=3", "output.keep_models=1"), folder)
    done = hfl("whatif", folder, "--set", "stop.rounds=4", "--no-memo", "--workers", "1")
    *_, counted, said = done.out.splitlines()
    assert (done.code, counted.startswith("trainings reused 48 of 64 -> ")) == (0, True)
    longer = emulator.what_if(
        folder, {"stop.rounds": 4, "name": "longer"}, tmp_path / "longer", workers=1, memo=False, progress=False
    )
    assert longer.manifest["trainings"] == {"asked": 64, "computed": 16}
    assert longer.manifest["whatif"]["kept_models"] == [3]
    assert describe_trained(longer.manifest) == said
    since_s = longer.manifest["whatif"]["parts"]["time_s"]
    assert said == (
        f"what is learned differs from {since_s:g} emulated seconds on (round 4); 16 of 64 trainings were made again, "
        "from the models kept after round 3 on"
    )
