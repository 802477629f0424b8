"""What there is to choose from, as ``hfl list`` shows it: derived from the registries, never written down twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from devices.profile import find_profile, profile_names
from emulator import scenario, yamlfile
from emulator.contracts import files, grouping, learning, methods, world
from emulator.errors import InputError, suggestion
from emulator.registry import Registry
from emulator.scenario.presets import presets
from emulator.study import load as study
from traces.content import DeviceMix, Trace, label
from traces.reading import bundled as samples
from traces.reading import read

Entries = list[tuple[str, str, str]]  # name, what it is, its parameters


def _of(slot: Registry[Any, Any]) -> Entries:
    return [(name, slot[name].summary, ", ".join(slot[name].params.model_fields)) for name in slot.names()]


def _files(ready: dict[str, Path]) -> Entries:
    entries = []
    for name, path in ready.items():
        data = yamlfile.load(path).data
        entries.append((name, str(data.get("notes", "")).partition("\n")[0], ""))
    return entries


def _samples() -> Entries:
    entries = []
    for name, path in samples().items():
        content = read(path)
        if isinstance(content, Trace):
            what = f"{', '.join(label(series) for series in content.series)} over time"
        elif isinstance(content, DeviceMix):
            what = f"a mix of {len(content.names)} kinds of devices"
        else:
            what = f"latencies between {len(content.latency_s)} sites"
        entries.append((name, f"{what} (synthetic)", ""))
    return entries


CATEGORIES: dict[str, Callable[[], Entries]] = {
    "presets": lambda: [(name, entry["summary"], "") for name, entry in sorted(presets().items())],
    "methods": lambda: _of(methods.methods),
    "estimators": lambda: _of(methods.estimators),
    "distances": lambda: _of(grouping.distances),
    "formations": lambda: _of(grouping.formations),
    "schedules": lambda: _of(grouping.schedules),
    "samplings": lambda: _of(grouping.samplings),
    "trainings": lambda: _of(methods.trainings),
    "local": lambda: _of(learning.local_rules),
    "aggregations": lambda: _of(grouping.aggregations),
    "waiting": lambda: _of(methods.waitings),
    "group-operations": lambda: _of(world.group_operations),
    "models": lambda: _of(learning.models),
    "data": lambda: _of(learning.data_sets),
    "partitions": lambda: _of(learning.partitions),
    "devices": lambda: [(name, find_profile(name).title, "") for name in profile_names()],
    "faults": lambda: _of(world.faults),
    "attacks": lambda: _of(methods.attacks),
    "trace-formats": lambda: _of(files.trace_formats),
    "trace-generators": lambda: _of(files.trace_generators),
    "trace-samples": _samples,
    "figures": lambda: _of(files.figures),
    "plots": lambda: _of(files.figures),
    "scenarios": lambda: _files(scenario.bundled()),
    "studies": lambda: _files(study.bundled()),
}


def entries(category: str) -> Entries:
    """The entries of a category; raises `InputError` where there is no such category."""
    if category not in CATEGORIES:
        raise InputError(f"unknown list '{category}'; {suggestion(category, CATEGORIES)}")
    return CATEGORIES[category]()
