"""In which keys of their scenarios runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.series import NO_DIFFERENCE, Given, as_series
from analysis.texttable import TextTable
from emulator.study.names import text_of

ABSENT = "–"
BESIDE_EACH_OTHER = 4  # of more runs, a cell says which have a value
SHOWN = 12  # keys outside of the method


def differences(scenarios: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The dotted keys in which scenarios differ, with what each has there; `ABSENT` where it has nothing."""
    flat = [flattened({k: v for k, v in each.items() if k not in NO_DIFFERENCE}) for each in scenarios]
    keys = dict.fromkeys(key for each in flat for key in each)
    found = {key: tuple(each.get(key, ABSENT) for each in flat) for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def flattened(data: Any, above: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys and texts; what is not given is left out."""
    if isinstance(data, Mapping) and data:
        parts = (flattened(value, f"{above}.{key}" if above else str(key)) for key, value in data.items())
        return {key: text for part in parts for key, text in part.items()}
    return {} if data is None else {above: text_of(data)}


def table_of(given: Sequence[Given]) -> tuple[TextTable | None, str]:
    """In what methods differ, as a table (None: in nothing that is known); and what of it was left out.

    Runs that differ in their seed alone are one. All keys of the method are shown, of others the first ones.
    """
    series = as_series(given)
    found = differences([each.first.scenario for each in series])
    method = [key for key in found if key.partition(".")[0] == "method"]
    others = [key for key in found if key not in method]
    labels = [each.label for each in series]
    if not found:
        return None, ""
    shown = [*method, *others[:SHOWN]]
    left = f"and in {len(others) - SHOWN} more keys: {', '.join(others[SHOWN:])}" if len(others) > SHOWN else ""
    if len(series) <= BESIDE_EACH_OTHER:
        header, rows = ("key", *labels), tuple((key, *found[key]) for key in shown)
    else:
        header, rows = ("key", "values"), tuple((key, _grouped(found[key], labels)) for key in shown)
    return TextTable("In what the methods differ", header, rows, (False,) * len(header)), left


def _grouped(values: Sequence[str], labels: Sequence[str]) -> str:
    """``2: FedAvg, HierFAVG; 5: FedSeq``."""
    who: dict[str, list[str]] = {}
    for value, label in zip(values, labels, strict=True):
        who.setdefault(value, []).append(label)
    return "; ".join(f"{value}: {', '.join(names)}" for value, names in who.items())
