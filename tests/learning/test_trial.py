"""A model and its local rules are tried before a run begins: what would stop it, or make its figures mean nothing, is said."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from emulator.contracts.learning import LocalParams, Rule, data_sets, local_rules, models
from emulator.errors import HflError, InputError
from emulator.learning.data.arrays import ArraySet
from emulator.learning.memo import Memo
from emulator.registry import NoParams
from emulator.run import execute
from emulator.scenario import Loaded

Small = Callable[..., Loaded]


class Own(nn.Module):
    """A model of one layer, and something wrong with it."""

    def __init__(self, classes: int, after: Callable[[Tensor], Any] = lambda scores: scores) -> None:
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.after = after

    def forward(self, x: Tensor) -> Any:
        return self.after(self.last(torch.flatten(x, 1)))


class Counting(Own):
    """Remembers how many batches it has seen, where nobody looks."""

    def forward(self, x: Tensor) -> Any:
        self.seen = getattr(self, "seen", 0) + self.training
        return super().forward(x) * (1 + self.seen)


def normalised(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


def frozen(classes: int) -> nn.Module:
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, classes))
    made[1].weight.requires_grad_(False)
    return made


def drawn_by_numpy(classes: int) -> nn.Module:
    made = Own(classes)
    with torch.no_grad():
        made.last.weight.mul_(float(np.random.default_rng().random()))
    return made


NO_GRADIENT = "the model's scores depend on none of its parameters, so it has no gradient and learns nothing"
WRONG: dict[str, tuple[Callable[[int], Any], str]] = {
    "nothing": (lambda m: None, "the model is a NoneType, not a torch.nn.Module"),
    "no parameters": (lambda m: nn.Flatten(), "the model has no parameters, so there is nothing to train"),
    "lazy": (lambda m: nn.Sequential(nn.Flatten(), nn.LazyLinear(m)), "parameter '1.weight' of the model has no size yet"),
    "double": (lambda m: Own(m).double(), "parameter 'last.weight' of the model is of type float64; it must be float32"),
    "meta": (lambda m: Own(m).to("meta"), "parameter 'last.weight' of the model is on 'meta'"),
    "another shape": (lambda m: nn.Sequential(nn.Flatten(), nn.Linear(9, m)), "the model cannot take a sample of the shape"),
    "detached": (lambda m: Own(m, lambda s: s.detach()), NO_GRADIENT),
    "all frozen": (lambda m: Own(m).requires_grad_(False), NO_GRADIENT),
    "one frozen": (frozen, "parameter '1.weight' of the model is frozen (requires_grad=False), but 'sgd' trains it"),
    "extra axis": (lambda m: Own(m, lambda s: s.unsqueeze(-1)), "gives [4, 10, 1]; it must give one row of 10 scores"),
    "too few rows": (lambda m: Own(m, lambda s: s[:1]), "gives [1, 10]; it must give one row of 10 scores for each"),
    "too many scores": (lambda m: Own(m + 1), "gives [4, 11]; it must give one row of 10 scores"),
    "a pair": (lambda m: Own(m, lambda s: (s, s)), "gives a tuple; it must give one row of 10 scores"),
    "whole numbers": (lambda m: Own(m, lambda s: s.double()), "the scores of the model are of type float64"),
    "not finite": (lambda m: Own(m, lambda s: s / 0), "its loss on 4 samples is nan, before any training"),
    "steep": (lambda m: Own(m, lambda s: (s * 0).sqrt()), "the gradient of its loss is not finite, before any training"),
    "hidden state": (Counting, "trained twice from the same state on the same samples, the model ends with other weights"),
    "own chance": (lambda m: Own(m, lambda s: s * float(np.random.default_rng().random())), "in a test it gives other scores"),
    "dropout in tests": (lambda m: Own(m, lambda s: nn.functional.dropout(s)), "in a test it gives other scores"),
    "own initial values": (drawn_by_numpy, "made twice from the same seed, the model has other values each time"),
}  # fmt: skip


@pytest.fixture
def own_model(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Any]], None]:
    models.names()
    monkeypatch.setattr(models, "_plugins", dict(models._plugins))

    def register(make: Callable[[int], Any]) -> None:
        def own(shape: tuple[int, ...], classes: int, params: NoParams) -> Any:
            return make(classes)

        models.register("own")(own)

    return register


@pytest.mark.parametrize("what", WRONG)
def test_a_model_that_cannot_be_trained_is_refused_before_there_is_a_folder(
    small: Small, tmp_path: Path, own_model: Callable[[Callable[[int], Any]], None], what: str
) -> None:
    make, message = WRONG[what]
    own_model(make)
    with pytest.raises(InputError) as caught:
        execute(small("model=own"), tmp_path / "run", Memo(None), max_workers=1)
    assert str(caught.value).startswith("--set model=own: model: ")
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


OURS = ("mlp", "cnn", "{kind: resnet-1block, norm: batch}", "{kind: mlp, dropout: 0.5}")
GOOD = [*itertools.product(OURS, ("sgd", "scaffold", "classifier-sgd")), ("own", "classifier-sgd")]


@pytest.mark.parametrize(("model", "rule"), GOOD)
def test_what_can_be_trained_passes_and_is_as_it_was(
    small: Small, tmp_path: Path, own_model: Callable[[Callable[[int], Any]], None], model: str, rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    own_model(frozen)
    loaded = small(f"model={model}", f"method.local.kind={rule}", "stop.rounds=1")
    execute(loaded, tmp_path / "tried", Memo(None), max_workers=1)
    monkeypatch.setattr("emulator.learning.engine.Engine.try_out", lambda self, rules: None)
    execute(loaded, tmp_path / "not", Memo(None), max_workers=1)
    for name in ("metrics.csv", "summary.json", "memory.json"):
        assert (tmp_path / "tried" / name).read_bytes() == (tmp_path / "not" / name).read_bytes()


def rule_of(**functions: Any) -> Callable[[LocalParams], Any]:
    def own(params: LocalParams) -> Any:
        return Rule(**{"direction": lambda gradient, weights, anchor, shared, own: gradient} | functions)

    return own


WRONG_RULES: dict[str, tuple[Callable[[LocalParams], Any], str]] = {
    "nothing": (rule_of(direction=lambda *v: None), "'own': direction gives a NoneType for vectors of 6 values"),
    "a number": (rule_of(direction=lambda g, *v: g.sum()), "'own': direction gives float32 [] for vectors of 6 values"),
    "doubles": (rule_of(direction=lambda g, *v: g.double()), "'own': direction gives float64 [6] for vectors of 6 values"),
    "not finite": (rule_of(direction=lambda g, *v: g / 0), "'own': direction gives values that are not finite"),
    "chance": (rule_of(direction=lambda g, *v: g + torch.rand(len(g))), "'own': direction gives other values for the same"),
    "not elementwise": (rule_of(direction=lambda g, *v: g / g.norm()), "'own': direction is not elementwise"),
    "memory": (rule_of(remember=lambda end, *v: end.cumsum(0).flip(0)), "'own': remember is not elementwise"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_RULES)
def test_a_local_rule_is_tried_as_well(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    function, message = WRONG_RULES[what]
    local_rules.names()
    monkeypatch.setattr(local_rules, "_plugins", dict(local_rules._plugins))
    local_rules.register("own", LocalParams)(function)
    with pytest.raises(InputError) as caught:
        execute(small("method.local.kind=own"), tmp_path / "run", Memo(None), max_workers=1)
    assert str(caught.value).startswith(f"small.yaml:18:10: method.local: {message}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.float64}, "training samples are of type float64; they must be float32, or int64 for tokens"),
        ({"y_test": np.int32}, r"test labels are int32 \[1000\]; they must be one int64 for each sample"),
        ({"classes": 4}, "training labels are from 0 to 9; with 4 classes they must be from 0 to 3"),
        ({"y_train": 1}, "the set has 5000 training samples and 4999 labels for them"),
        ({"x_test": "flat"}, r"test samples have the shape \[64\], the others \[1, 8, 8\]"),
        ({"x_train": "nan"}, "there are samples with values that are not finite"),
    ],
)
def test_a_data_set_that_is_none_is_refused(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    data_sets.names()
    ours = data_sets["synthetic"]

    def own(params: Any) -> ArraySet:
        arrays: ArraySet = ours.function(params)
        ((name, how),) = change.items()
        value = getattr(arrays, name)
        if name == "classes":
            return replace(arrays, classes=how)
        if how == "nan":
            return replace(arrays, x_train=np.full_like(value, np.nan))
        changed = value.reshape(len(value), -1) if how == "flat" else value[how:] if how == 1 else value.astype(how)
        return replace(arrays, **{name: changed})

    monkeypatch.setattr(data_sets, "_plugins", {**data_sets._plugins, "synthetic": replace(ours, function=own)})
    with pytest.raises(InputError, match=f"data.set: {message}"):
        execute(small("topology.clients=2", "topology.edges=1"), tmp_path / "run", Memo(None), max_workers=1)


def test_a_last_batch_of_one_sample_is_foreseen_and_explained(
    small: Small, tmp_path: Path, own_model: Callable[[Callable[[int], Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    own_model(normalised)
    even = ("model=own", "data.partition={kind: iid, samples_per_client: 12}")
    execute(small(*even), tmp_path / "even", Memo(None), max_workers=1)
    assert "single sample" not in caplog.text
    with pytest.raises(HflError) as caught:
        execute(small(*even, "method.local.batch_size=11"), tmp_path / "odd", Memo(None), max_workers=1)
    failed = "the training of client 7 failed in round 1, on a batch of 1 sample: "
    assert str(caught.value) == f"{failed}batch normalisation needs more than one value for each channel"
    assert (
        "model: the model cannot be trained on a single sample: ValueError: Expected more than 1 value" in caplog.text
    )
    assert "8 clients have a last batch of one sample (the first: client 0, 12 samples in batches of 11)" in caplog.text
    with pytest.raises(
        InputError, match=r"model: the model cannot take a batch of 1 sample \[1, 1, 8, 8\]: ValueError: Exp"
    ):
        execute(small(*even, "method.local.batch_size=1"), tmp_path / "single", Memo(None), max_workers=1)


def test_a_small_model_that_is_not_stacked_says_so_once(
    small: Small, tmp_path: Path, own_model: Callable[[Callable[[int], Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    own_model(lambda classes: Own(classes, lambda scores: scores if scores.sum() > 0 else -scores))
    execute(small("model=own"), tmp_path / "run", Memo(None), max_workers=1)
    said = "clients are trained one after another, because its forward pass decides by the values of samples; side by side, small"
    assert caplog.text.count(said) == 1
    caplog.clear()
    execute(small("model=mlp"), tmp_path / "other", Memo(None), max_workers=1)
    assert "one after another" not in caplog.text


def test_what_passed_is_not_tried_again(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr("emulator.learning.engine.Engine.try_out", lambda self, rules: tried.append(rules))
    memo = Memo(None)
    for number, change in enumerate(("seed=3", "topology.sharing=dedicated", "method.local.epochs=2", "seed=4")):
        execute(small(change, "stop.rounds=1"), tmp_path / str(number), memo, max_workers=1)
    assert [[(key, rule.params.epochs) for key, rule in rules] for rules in tried] == [
        [("method.local", n)] for n in (1, 2, 1)
    ]


def test_a_run_that_knows_everything_tries_nothing_and_imports_no_torch(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "name: x\ndata: {set: synthetic, partition: {kind: iid, samples_per_client: 12}}\nmodel: mlp\n"
        "topology: {edges: 1, clients: 2}\nmethod: hierfavg\nstop: {rounds: 1}\noutput: {plot: false}\n"
    )
    script = (
        "import sys\nfrom pathlib import Path\nfrom emulator.learning.memo import Memo\nfrom emulator.run import execute\n"
        "from emulator.scenario import load\nexecute(load('s.yaml', sys.argv[2:]), Path(sys.argv[1]), Memo(Path('memo')))\n"
        "print('torch' in sys.modules)\n"
    )
    done = [
        subprocess.run(
            [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        for words in (("one",), ("two", "topology.sharing=dedicated"))
    ]
    assert done == ["True\n", "False\n"]
