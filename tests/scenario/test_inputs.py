"""Files beside the scenario: a run that was made with others is neither complete nor replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from devices.profile import find_profile
from devices.secagg.constants import find_constants
from emulator import yamlfile
from emulator.files import read_json
from scenario.command import hfl

TRACE = "bandwidth [Mbit/s]\n# end: repeat\n"
RUN = ("run", "s.yaml", "--no-training", "--out", "out", "--no-memo")


@pytest.fixture
def trace(plugin_home: Path) -> Path:
    path = plugin_home / "rates.csv"
    assert hfl("traces", "generate", "constant", "rates.csv", "--set", "level=8", "--duration", "60 s").code == 0
    return path


def test_a_trace_that_has_changed(plugin_home: Path, trace: Path) -> None:
    play = ("--set", "topology.links.access.trace={file: rates.csv, end: repeat}")
    assert hfl(*RUN, *play).code == 0
    inputs = read_json(plugin_home / "out" / "manifest.json")["inputs"]  # type: ignore[index]
    assert set(inputs) == {str(trace), "data set"}
    assert "complete" in hfl(*RUN, *play).out
    assert hfl("whatif", "out", "--set", "topology.links.access.latency=1 ms", "--no-memo").code == 0
    before = trace.read_text()
    trace.write_text(before.replace("8", "9"))
    for words in ((*RUN, *play), ("whatif", "out", "--set", "topology.links.access.latency=2 ms", "--no-memo")):
        done = hfl(*words)
        assert done.code == 2
        assert f"'{trace}'" in done.err
    trace.write_text(before)
    assert hfl(*RUN, *play).code == 0


def test_a_profile_and_data_that_have_changed(plugin_home: Path) -> None:
    profile = yamlfile.dump(find_profile("laptop").model_dump(mode="json", exclude_none=True))
    (plugin_home / "mine.yaml").write_text(profile)
    (plugin_home / "own.py").write_text(
        "from emulator.extend import *\nimport pathlib\n"
        "synthetic = data_sets['synthetic']\n"
        "@data_sets.register('own', synthetic.params, DataSetFacts(classes=10,\n"
        "    fingerprint=lambda params: pathlib.Path('version').read_text()))\n"
        "def own(params):\n    '''Mine.'''\n    return synthetic.function(params)\n"
    )
    (plugin_home / "version").write_text("1")
    words = (*RUN, "--set", "topology.devices=mine.yaml", "--set", "data.set=own", "--plugin", "own.py")
    done = hfl(*words)
    assert done.code == 0, done.err
    assert str(plugin_home / "mine.yaml") in read_json(plugin_home / "out" / "manifest.json")["inputs"]  # type: ignore[index]
    (plugin_home / "version").write_text("2")
    done = hfl(*words)
    assert done.code == 2
    assert "but 'data set' changed since" in done.err


def test_constants_that_have_changed(plugin_home: Path) -> None:
    bundled = find_constants("compiled-2026").model_dump(mode="json", exclude_none=True)
    file = plugin_home / "mine.yaml"
    file.write_text(yamlfile.dump(bundled))
    words = (*RUN, "--set", "method.group_operation={kind: secure-aggregation, constants: mine.yaml}")
    done = hfl(*words)
    assert done.code == 0, done.err
    assert str(file) in read_json(plugin_home / "out" / "manifest.json")["inputs"]  # type: ignore[index]
    file.write_text(file.read_text() + "# changed\n")
    done = hfl(*words)
    assert done.code == 2
    assert f"'{file}'" in done.err
    named = (
        *RUN[:-2],
        "other",
        "--no-memo",
        "--set",
        "method.group_operation={kind: secure-aggregation, constants: python-2022}",
    )
    assert hfl(*named).code == 0
    assert set(read_json(plugin_home / "other" / "manifest.json")["inputs"]) == {"data set"}  # type: ignore[index]
