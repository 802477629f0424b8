"""Benchmark scores of phones as collected for FLASH (Yang et al., WWW 2021), as a mix of devices.

Either of two JSON files: the list of the benchmark's rows (all values are texts, and ``AI_Score`` carries numbers of
footnotes), or a mapping of phones to scores::

    [{"Model": "Huawei Mate 30 Pro 5G", ..., "AI_Score": " 76206 1,6"}, ...]
    {"Huawei Mate 30 Pro 5G": 76206, ...}

A phone that is listed twice has the score of its last row. All phones have equal shares, unless ``models`` names a third file
that maps the model codes of real users to phones; then a phone's share is that of its codes, phones without a code drop out, and
codes whose phone is unknown or has no score count for nothing::

    {"CPH1823": "Oppo F9", "CPH1909": "unknown", ...}

A score is taken as proportional to speed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from emulator.contracts.files import TraceFormatFacts, trace_formats
from emulator.registry import Params
from traces.content import DeviceMix, weighted_median
from traces.source import LARGEST, Head, read_text, wrong


class FlashParams(Params):
    """``models`` is the path of the file of model codes, from the folder of the scores; empty for equal shares."""

    models: str = ""


def _fits(head: Head) -> bool:
    begin = "".join(head.lines[:20]).lstrip()
    if begin.startswith("["):
        return '"AI_Score"' in begin
    # Nothing but numbers by name, as far as the head goes: a line of JSON that is whole by itself belongs to another format.
    name, more = r'\s*"(?:[^"\\]|\\.)*"\s*:\s*[0-9]+\s*', "".join(head.lines).strip()
    return re.match(rf"\{{{name}[,}}]", begin) is not None and "{" not in more[1:]


@trace_formats.register("flash-scores", FlashParams, TraceFormatFacts(gives=DeviceMix, fits=_fits))
def flash_scores(path: Path, params: FlashParams) -> DeviceMix:
    """Benchmark scores of phones, and how often users have them."""
    scores = _scores(path, _json(path))
    counts = dict.fromkeys(scores, 1)
    if params.models:
        models = path.parent / params.models
        codes = _json(models)
        if not isinstance(codes, dict):
            raise wrong(models, 0, "must be a mapping of model codes to phones")
        counts = dict.fromkeys(scores, 0)
        for phone in codes.values():
            if isinstance(phone, str) and phone in counts:
                counts[phone] += 1
        if not any(counts.values()):
            raise wrong(models, 0, f"names no phone that has a score in {path}")
    names = tuple(name for name, count in counts.items() if count)
    shares = np.array([counts[name] for name in names], dtype=np.float64)
    shares /= shares.sum()
    speeds = np.array([scores[name] for name in names])
    return DeviceMix(names, shares, speeds / weighted_median(speeds, shares))


def _scores(path: Path, data: Any) -> dict[str, float]:
    scores: dict[str, float] = {}
    if isinstance(data, list):
        for i, row in enumerate(data):
            if not isinstance(row, dict) or not isinstance(row.get("Model"), str):
                raise wrong(path, 0, f"entry {i + 1} must be a mapping with 'Model' and 'AI_Score'")
            scores[row["Model"]] = _score(path, row["Model"], row.get("AI_Score"))
    elif isinstance(data, dict):
        scores = {name: _score(path, name, value) for name, value in data.items()}
    if not scores:
        raise wrong(path, 0, "must be a list of phones with 'Model' and 'AI_Score', or a mapping of phones to scores")
    return scores


def _score(path: Path, name: str, value: Any) -> float:
    """A number, or the first number of a text: footnotes follow it after a space."""
    found = re.match(r"\s*([0-9]+(?:\.[0-9]+)?)(?=\s|$)", value) if isinstance(value, str) else None
    number = float(found[1]) if found else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 1e-9 <= number <= LARGEST:
        given = str(value)[:40]
        raise wrong(path, 0, f"the score of '{name[:60]}' is '{given}'; it must be a number greater than zero")
    return float(number)


def _json(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise wrong(path, error.lineno, f"is not JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise wrong(path, 0, "is JSON that is nested too deeply, or has a number of thousands of digits") from None
