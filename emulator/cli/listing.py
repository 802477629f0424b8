"""What there is to choose from, as ``hfl list`` shows it: derived from the registries, never written down twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from devices.profile import find_profile, profile_names
from devices.secagg.constants import constants_names, find_constants
from emulator import scenario, yamlfile
from emulator.contracts.files import figures
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


# What there is to choose from beside the plug-ins; "plots" is another name for the figures.
_OTHERS: dict[str, Callable[[], Entries]] = {
    "presets": lambda: [(name, entry["summary"], "") for name, entry in sorted(presets().items())],
    "devices": lambda: [(name, find_profile(name).title, "") for name in profile_names()],
    "secure-aggregation": lambda: [(name, find_constants(name).title, "") for name in constants_names()],
    "trace-samples": _samples,
    "plots": lambda: [*_of(figures), *_of_certificates()],
    "scenarios": lambda: _files(scenario.bundled()),
    "studies": lambda: _files(study.bundled()),
}


def _of_certificates() -> Entries:
    from analysis.certainty.figures import kinds

    return [(name, f"of a certificate: {kind.summary}", "") for name, kind in kinds().items()]


def categories() -> dict[str, Callable[[], Entries]]:
    """What can be listed, by name: every registry that there is now, and what stands in files."""
    slots = {slot.listed: partial(_of, slot) for slot in Registry.by_slot.values()}
    return {"presets": _OTHERS["presets"], **slots, **_OTHERS}


def entries(category: str) -> Entries:
    """The entries of a category; raises `InputError` where there is no such category."""
    known = categories()
    if category not in known:
        raise InputError(f"unknown list '{category}'; {suggestion(category, known)}")
    return known[category]()
