"""Scripts without a guard, notebooks, the code on the pages, and what other processes can find of it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import yaml
from notebook import executed, texts
from scenario.command import ROOT, TINY, script

import emulator
from emulator.learning import workers
from emulator.modules import code_hash

SCENARIO: dict[str, Any] = yaml.safe_load(TINY)
FENCED = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)

RULE = """
from emulator.contracts.learning import local_rules
known = local_rules["sgd"]
@local_rules.register("mine", known.params, known.facts)
def mine(*given):
    return known.function(*given)
"""
WITHOUT_GUARD = f"""
import os
open(f"marker-{{os.getpid()}}", "w").close()
import emulator
import mine
from emulator.learning import engine, workers

engine.WORKERS_AFTER_S = 0
pools = []
class Pool(workers.WorkerPool):
    def __init__(self, *given):
        super().__init__(*given)
        pools.append(len(self._processes))
workers.WorkerPool = Pool
plain = emulator.load_scenario({SCENARIO!r})
own = plain.changed({{"method.local.kind": "mine"}})
runs = [emulator.run_scenario(each, memo=False, workers=2, progress=False) for each in (plain, own)]
assert runs[0].metrics.equals(runs[1].metrics)
swept = emulator.sweep(own, {{"stop.rounds": [1, 2]}}, jobs=2, workers=1, memo=False, progress=False)
print("pools", pools, "runs", len(swept.runs))
"""


def test_a_script_without_a_guard_runs_once_and_its_processes_find_the_plug_ins_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RULE)
    done = script(tmp_path, WITHOUT_GUARD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pools [2, 2] runs 2\n", "")
    assert len(list(tmp_path.glob("marker-*"))) == 1


OWN_MODEL = f"""
import math, sys
import emulator
from emulator.learning import engine
from torch import nn

class Net(nn.Sequential):
    pass

def net(shape, classes):
    return Net(nn.Flatten(), nn.Linear(math.prod(shape), classes))

engine.WORKERS_AFTER_S = 0
own = {{"kind": "module", "factory": "__main__:net"}}
scenario = emulator.load_scenario({SCENARIO!r}, {{"model": own}})
if sys.argv[1] == "run":
    print(len(emulator.run_scenario(scenario, "out", memo=False, workers=2, progress=False).metrics))
else:
    try:
        emulator.sweep(scenario, out="sweep", memo=False, progress=False)
    except emulator.InputError as error:
        print(error)
"""


def test_a_model_of_the_script_itself_trains_in_one_process_and_is_refused_in_a_sweep(tmp_path: Path) -> None:
    done = script(tmp_path, OWN_MODEL, "run")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    why = "model: model '__main__:net' is defined in the script or notebook"
    assert done.stderr == f"clients are trained in one process, because {why}, which other processes do not import\n"
    swept = script(tmp_path, OWN_MODEL, "sweep")
    assert swept.stdout == f"{why}, which other processes do not import; put it into a module of its own\n", (
        swept.stderr
    )


def test_a_class_of_the_script_cannot_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type("Net", (torch.nn.Linear,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Net", own, raising=False)
    expected = "PicklingError: 'Net' is not defined in a module, but in the script or notebook"
    assert workers.cannot_travel(torch.nn.Sequential(own(2, 2))) == expected
    assert workers.cannot_travel(torch.nn.Linear(2, 2)) == ""


def test_code_that_no_file_tells_apart_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "changing_model.py"
    file.write_text("WIDTH = 1\n")
    module = importlib.import_module("changing_model")
    first = code_hash("changing_model")
    assert code_hash("changing_model") == first
    file.write_text("WIDTH = 22\n")
    with pytest.raises(emulator.InputError, match="was changed after 'changing_model' was imported"):
        code_hash("changing_model")
    importlib.invalidate_caches()
    importlib.reload(module)
    assert code_hash("changing_model") != first
    module.__file__ = None
    with pytest.raises(emulator.InputError, match="code of the module 'changing_model' stands in no file"):
        code_hash("changing_model")


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_the_code_of_the_pages_runs(page: str, tmp_path: Path) -> None:
    found = FENCED.findall((ROOT / page).read_text())
    assert found
    done = script(tmp_path, "\n".join(found))
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")  # what Jupyter says of itself
def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    shown = nbformat.read(ROOT / "docs" / "python-api.ipynb", as_version=4)
    given = texts(executed(shown, tmp_path))
    number = re.compile(r"\d[\d,]*\.?\d*")
    for before, after in zip(texts(shown), given, strict=True):
        assert [number.sub("#", text).split() for text in before] == [number.sub("#", text).split() for text in after]
        for old, new in zip(before, after, strict=True):
            figures = [[float(n.replace(",", "")) for n in number.findall(text)] for text in (old, new)]
            assert figures[0] == pytest.approx(figures[1], rel=0.05, abs=0.05)  # processors round differently
    assert not re.search(r"(/tmp|/home|/root|/Users)/", json.dumps(shown))


IN_A_NOTEBOOK = (
    "import emulator\nfrom emulator.learning import engine, workers\nengine.WORKERS_AFTER_S = 0",
    "start, started = workers.processes.start, []\n"
    "workers.processes.start = lambda process: (started.append(process), start(process))",
    "def net(shape, classes):\n    raise AssertionError",
    f"scenario = emulator.load_scenario({SCENARIO!r})",
    "emulator.run_scenario(scenario, 'alone', memo=False, workers=1, progress=False).metrics.to_csv()",
    "emulator.run_scenario(scenario, 'with', memo=False, workers=2).metrics.to_csv()",
    "len(started)",
    "try:\n    own = {'kind': 'module', 'factory': '__main__:net'}\n"
    "    emulator.run_scenario(scenario.changed({'model': own}), 'own', memo=False)\n"
    "except emulator.InputError as error:\n    print(error)",
)


@pytest.mark.filterwarnings("ignore")  # what Jupyter says of itself
@pytest.mark.slow
def test_a_notebook_has_workers_progress_in_one_line_and_no_models_of_its_cells(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in IN_A_NOTEBOOK]
    *_, (alone,), (line, with_workers), (started,), (*_, refused) = texts(
        executed(nbformat.v4.new_notebook(cells=cells), tmp_path)
    )
    assert (with_workers, started) == (alone, "2")
    assert re.fullmatch(r"hierfavg: round 2, accuracy [\d.]+%, .* \(100% done\)", line)
    assert refused.startswith("changes: model.factory: code of a notebook or a prompt stands in no file")
