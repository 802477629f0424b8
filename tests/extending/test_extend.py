"""`emulator.extend` is all that a plug-in needs, whatever slot it fills."""

from __future__ import annotations

import ast
import subprocess
import sys

from examples import FILES, SECTIONS
from patience import PATIENCE_S
from scenario.command import ROOT

from emulator import extend
from emulator.registry import Registry

LIBRARIES = {"numpy", "torch", "pandas", "scipy", "sklearn"}


def test_every_name_is_there_once_and_every_registry_among_them() -> None:
    assert len(set(extend.__all__)) == len(extend.__all__)
    found = [getattr(extend, name) for name in extend.__all__]
    assert all(any(each is registry for each in found) for registry in Registry.by_slot.values())


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, emulator.extend; print([m for m in ('torch', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=PATIENCE_S
    )
    assert done.stdout == "[]\n"


def test_the_page_has_an_example_of_every_slot_that_a_command_uses() -> None:
    with_commands = [section for section in SECTIONS.values() if any(not c.error for c in section.commands)]
    assert set().union(*(section.slots for section in with_commands)) == set(Registry.by_slot)


def test_the_examples_import_from_it_alone() -> None:
    for file, text in FILES.items():
        for node in ast.walk(ast.parse(text) if file.endswith(".py") else ast.Module([], [])):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            for name in names:
                assert name == "emulator.extend" or name.split(".")[0] in LIBRARIES | sys.stdlib_module_names, file
