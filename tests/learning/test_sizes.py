"""Models that do not fit into memory are refused before anything is built; where memory runs out all the same, that is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scenario.command import hfl
from torch import nn

from emulator.contracts.learning import models
from emulator.errors import HflError, InputError
from emulator.learning import sizes
from emulator.learning.memo import Memo
from emulator.machine import memory_bytes
from emulator.run import execute
from emulator.scenario import Loaded, dump
from emulator.scenario.load import check

Small = Callable[..., Loaded]


@pytest.mark.parametrize("words", [(), ("--no-training",)], ids=["training", "times"])
def test_an_absurd_model_is_refused_with_its_size_and_leaves_no_folder(
    small: Small, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "s.yaml").write_text(dump(small("model.hidden=[1000000, 1000000]").scenario))
    done = hfl("run", tmp_path / "s.yaml", "--out", tmp_path / "run", "--no-memo", *words)
    took = "it takes 4,000.3 GB" if words else "4 copies, the least that training needs, take 16,001.2 GB"
    assert done.code == 2
    assert f": model: the model has 1,000,076,000,010 parameters: {took}, and " in done.err
    assert done.err.endswith(" GB of memory are left\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kind", "parameters"), [("mlp", 784 * 8 + 8 + 8 * 10 + 10), ("lenet5", 44_426)])
def test_it_is_refused_where_a_byte_is_missing(
    small: Small, monkeypatch: pytest.MonkeyPatch, kind: str, parameters: int
) -> None:
    scenario = small(*([] if kind == "mlp" else [f"model={kind}"])).scenario
    for left in (8 * parameters, None):
        monkeypatch.setattr(sizes, "memory_bytes", lambda left=left: left)
        with sizes.fitting(scenario, (1, 28, 28), 10, copies=2):
            pass
    monkeypatch.setattr(sizes, "memory_bytes", lambda: 8 * parameters - 1)
    with (
        pytest.raises(InputError, match=f"{parameters:,} parameters: 2 copies"),
        sizes.fitting(scenario, (1, 28, 28), 10, copies=2),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
            "tried to allocate 8",
        ),
        (MemoryError(), "memory ran out"),
        (RuntimeError("something else"), None),
    ],
    ids=["torch", "python", "other"],
)
def test_memory_that_runs_out_while_a_model_is_built(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str | None
) -> None:
    monkeypatch.setattr(models, "_plugins", dict(models._plugins))

    def build(shape: tuple[int, ...], classes: int, params: object) -> nn.Module:
        raise error

    models.register("greedy")(build)
    data = {**small().document.data, "model": "greedy"}
    loaded = small()
    loaded.document.data = data
    with pytest.raises(InputError if said else HflError, match=said or "something else"):
        execute(check(loaded.document), tmp_path / "run", Memo(None), max_workers=1)


@pytest.mark.parametrize("error", [RuntimeError("DefaultCPUAllocator: can't allocate memory: x"), MemoryError("x")])
def test_memory_that_runs_out_later_is_said(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def command() -> None:
        raise error

    monkeypatch.setattr("emulator.cli.app", command)
    done = hfl("list")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: memory ran out: ")


def test_what_memory_there_is() -> None:
    left = memory_bytes()
    assert left is None or 2**20 < left < 2**60
