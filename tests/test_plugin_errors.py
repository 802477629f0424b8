"""What a user's own code raises is shown with its place in that code, whatever it is there for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scenario.command import TINY, Done, hfl

from emulator import plugins
from emulator.errors import HflError
from emulator.learning import engine
from emulator.learning.memo import Memo
from emulator.registry import Registry
from emulator.run import execute
from emulator.scenario import Loaded
from emulator.study.job import error_of

Small = Callable[..., Loaded]

# Registers itself in every slot, with the parameters and the facts of a plug-in of ours, and raises when it is called.
PLUGIN = '''
import helper
from emulator.registry import Registry

OURS = {ours}

for slot, kind in OURS.items():
    ours = Registry.by_slot[slot][kind]

    def raises(*args, kind=kind, **kwargs):
        """Raises."""
        helper.fail()

    Registry.by_slot[slot].register("raising", ours.params, ours.facts)(raises)
'''
HELPER = """
import json

def fail():
    json.loads("[red")  # its error has another constructor than SimPy thinks
"""
CHANGES = {  # slot: a plug-in of ours, and what chooses the other in its place
    "data set": ("synthetic", "data.set=raising"),
    "partition": ("iid", "data.partition=raising"),
    "model": ("mlp", "model=raising"),
    "local update": ("sgd", "method.local=raising"),
    "estimator": (
        "label-counts",
        "method={kind: grouped, estimator: raising, formation: {kind: kmeans-spread, size: 2}}",
    ),
    "formation": ("random", "method.formation={kind: raising, size: 2}"),
    "sampling": ("uniform", "method.sampling={kind: raising, groups: 1}"),
    "aggregation": ("samples", "method.aggregation=raising"),
    "in-group training": ("parallel", "method.training=raising"),
    "group operation": ("secure-aggregation", "method.group_operation=raising"),
    "waiting": ("all", "method.wait_for_members=raising"),
    "method": ("grouped", "method={kind: raising, formation: {kind: random, size: 2}}"),
    "attack": ("label-flip", "attacks={kind: raising, superclients: 1.0, clients: 0.5, swap: [[0, 2]]}"),
    "fault": ("client-crash", "faults=[{kind: raising, clients: [0], at: [1 s]}]"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a scenario and a plug-in that raises; what it registers is forgotten afterwards."""
    for slot in CHANGES:
        Registry.by_slot[slot].names()
        monkeypatch.setattr(Registry.by_slot[slot], "_plugins", dict(Registry.by_slot[slot]._plugins))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(TINY)
    (tmp_path / "plug.py").write_text(PLUGIN.format(ours={slot: kind for slot, (kind, _) in CHANGES.items()}))
    (tmp_path / "helper.py").write_text(HELPER)
    loaded, named = list(plugins.loaded), dict(plugins.named)
    yield tmp_path
    plugins.loaded[:] = loaded
    plugins.named.clear()
    plugins.named.update(named)
    for name in ("plug", "helper", "nets"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("slot", CHANGES)
def test_whatever_the_plug_in_is_there_for_its_error_has_a_place(home: Path, slot: str) -> None:
    words = ("--set", CHANGES[slot][1], "--plugin", "plug.py", "--out", "out", "--no-memo")
    done = hfl("run", "s.yaml", *words)
    said = f"error: {slot} 'raising' (helper.py:5, in fail): JSONDecodeError: Expecting value: line 1 column 2 (char 1)"
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1] == said
    if (home / "out" / "summary.json").exists():
        summary = json.loads((home / "out" / "summary.json").read_text())
        assert (summary["status"], f"error: {summary['error']}") == ("failed", said)


NETS = '''
import sys
from torch import nn

class Net(nn.Module):
    """Takes two batches well."""

    def __init__(self, classes, how):
        super().__init__()
        self.last = nn.Linear(64, classes)
        self.how, self.batches = how, 0

    def forward(self, x):
        self.batches += self.training
        if self.batches > 9:
            self.how()
        return self.last(x.flatten(1))

def lookup():
    raise LookupError("cat")

def raises(shape, classes):
    return Net(classes, lookup)

def leaves(shape, classes):
    return Net(classes, sys.exit)
'''


@pytest.mark.parametrize(
    ("factory", "place", "processes"),
    [
        ("raises", "(nets.py:20, in lookup): LookupError: cat", 1),
        ("raises", "(nets.py:20, in lookup): LookupError: cat", 2),
        ("leaves", "(nets.py:16, in Net.forward): SystemExit", 1),
    ],
)
def test_a_model_that_fails_in_training_has_a_place_in_worker_processes_too(
    home: Path, small: Small, monkeypatch: pytest.MonkeyPatch, factory: str, place: str, processes: int
) -> None:
    (home / "nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setattr(engine, "WORKERS_AFTER_S", -1.0)
    loaded = small(f"model={{kind: module, factory: 'nets:{factory}'}}")
    with pytest.raises(HflError) as caught:
        execute(loaded, home / "run", Memo(None), max_workers=processes)
    assert str(caught.value) == f"model 'nets:{factory}' {place}"
    summary = json.loads((home / "run" / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("failed", str(caught.value))


FAR = '''
from torch import nn
from emulator.contracts.learning import models

class Net(nn.Sequential):
    """A class of the plug-in's."""

@models.register("far")
def far(shape, classes, params):
    """A model."""
    return Net(nn.Flatten(1, -1), nn.Linear(64, classes))

@models.register("local")
def local(shape, classes, params):
    """A model that cannot be sent to another process."""
    class Inner(Net):
        """Within a function."""
    return Inner(nn.Flatten(1, -1), nn.Linear(64, classes))
'''


@pytest.mark.parametrize(("model", "alone"), [("far", False), ("local", True)])
def test_workers_train_models_of_plug_ins_from_files_anywhere(
    home: Path, small: Small, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, model: str, alone: bool
) -> None:
    (home / "far").mkdir()
    (home / "far" / "nets.py").write_text(FAR)
    plugins.load([str(home / "far" / "nets.py")])
    loaded = small(f"model={model}")
    execute(loaded, home / "one", Memo(None), max_workers=1)
    monkeypatch.setattr(engine, "WORKERS_AFTER_S", -1.0)
    execute(loaded, home / "two", Memo(None), max_workers=2)
    assert (home / "one" / "metrics.csv").read_bytes() == (home / "two" / "metrics.csv").read_bytes()
    assert ("the model cannot be sent to others: " in caplog.text) is alone


def test_a_worker_that_cannot_get_ready_says_why(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "loaded", [str(tmp_path / "gone.py")])
    monkeypatch.setattr(engine, "WORKERS_AFTER_S", -1.0)
    with pytest.raises(HflError, match=r"--plugin .*gone\.py: FileNotFoundError: "):
        execute(small(), tmp_path / "run", Memo(None), max_workers=2)


METHOD = '''
from emulator.contracts.methods import MethodParams
from emulator.contracts.methods import methods

@methods.register("own-method", MethodParams)
def own(session, params):
    """Waits for a number."""
    session.begin(session.lab.initial())
    yield session.env.timeout(1)
    yield from behind(session)

def behind(session):
    {step}
'''


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("yield 3", 'RuntimeError: Invalid yield value "3"'),
        ("yield session.env.process((1 // n for n in [0]))", "ZeroDivisionError: integer division or modulo by zero"),
        ("raise RuntimeError('mine')\n    yield", "RuntimeError: mine"),
        ("session.world.fleet.home('a client')\n    yield", "IndexError: only integers"),
    ],
)
def test_only_a_dead_end_is_called_one(home: Path, step: str, said: str) -> None:
    (home / "plug.py").write_text(METHOD.format(step=step))
    words = ("--set", "method={kind: own-method}", "--plugin", "plug.py", "--out", "out", "--no-memo")
    done = hfl("run", "s.yaml", *words)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: method 'own-method' (plug.py:")
    assert f": {said}" in done.err
    assert "nothing happens any more" not in done.err


def test_our_own_errors_keep_their_traceback(home: Path, small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("emulator.methods.session.Session.end_round", broken)
    monkeypatch.setattr("emulator.plugins._OURS", (*plugins._OURS, Path(__file__)))
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        execute(small(), home / "run", Memo(None), max_workers=1)
    assert json.loads((home / "run" / "summary.json").read_text())["error"] == "a bug"
    assert error_of(lambda: broken()).startswith("RuntimeError: a bug (")  # type: ignore[func-returns-value]


def test_a_validator_of_a_plug_in_has_a_place_as_well(home: Path) -> None:
    (home / "plug.py").write_text(
        "from emulator.contracts.learning import models\n"
        "from emulator.registry import Params\n"
        "class Mine(Params):\n"
        "    def problems(self, scale):\n"
        "        return 1 / 0\n"
        "models.register('own-model', Mine)(lambda shape, classes, params: None)\n"
    )
    done = hfl("validate", "s.yaml", "--set", "model=own-model", "--plugin", "plug.py")
    assert done == Done(
        1, "", "error: model 'own-model' (plug.py:5, in Mine.problems): ZeroDivisionError: division by zero\n"
    )
