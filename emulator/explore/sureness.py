"""How sure is it? The certificate of the runs on the page: P(A beats B), what decides, and where it tips."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from analysis.certainty.certificate import Certificate, is_certificate, load
from analysis.certainty.measured import Measured
from analysis.certainty.summary import left_out
from analysis.certainty.verdict import percent, verdict
from emulator.errors import InputError

PAIRS = 6  # of more, the first ones are shown


def certificate_of(runs: Sequence[Path], given: Path | None) -> Certificate | None:
    """The certificate ``given``, or one in or beside the folders of runs that is about them all; else None.

    Raises `InputError` where the one given is none, or is not about these runs.
    """
    wanted = {run.resolve() for run in runs}
    if given is not None:
        found = load(given)
        missing = sorted(str(run) for run in wanted - _about(found))
        if missing:
            raise InputError(f"--certificate: '{given}' is not about '{missing[0]}'")
        return found
    for folder in _near(runs):
        try:
            found = load(folder)
        except InputError:  # one that nobody asked for
            continue
        if wanted <= _about(found):
            return found
    return None


def _near(runs: Sequence[Path]) -> Iterator[Path]:
    """Folders of certificates in the folders of runs and beside them, each once, by name."""
    places = dict.fromkeys(place for run in runs for place in (run, run.resolve().parent, run.resolve().parent.parent))
    for place in places:
        if is_certificate(place):
            yield place
        yield from sorted(each for each in _folders(place) if is_certificate(each))


def _folders(place: Path) -> Iterable[Path]:
    try:
        return [each for each in place.iterdir() if each.is_dir()]
    except OSError:
        return []


def _about(certificate: Certificate) -> set[Path]:
    return {(certificate.folder / str(run["folder"])).resolve() for run in certificate.listed}


def panel(certificate: Certificate, measure: Measured) -> str:
    """The panel as HTML: what was left out, then for each pair how sure it is and what it depends on."""
    parts = [f"<p class='quiet'>{html.escape(left_out(certificate))}</p>"]
    pairs = certificate.pairs[:PAIRS]
    if not pairs:
        return "".join([*parts, "<p>There is one method alone: nothing is compared.</p>"])
    parts += [_pair(certificate, a, b, measure) for a, b in pairs]
    if len(certificate.pairs) > PAIRS:
        parts.append(f"<p class='quiet'>Not shown here: {len(certificate.pairs) - PAIRS} more pairs of methods.</p>")
    return "".join(parts)


def _pair(certificate: Certificate, a: str, b: str, measure: Measured) -> str:
    try:
        found = verdict(certificate, a, b, measure)
    except InputError as error:
        return f"<p>{html.escape(error.message)}</p>"
    better = found.side.better
    sure = (
        f"{percent(better.value)} <span class='quiet'>({percent(better.low)} to {percent(better.high)})</span>"
        if found.side.known.any()
        else "unknown"
    )
    rows = "".join(
        f"<tr><td>{html.escape(each.quantity)}</td><td>{each.text}</td></tr>" for each in found.deciding.influences[:5]
    )
    if rows:
        rows = f"<table><tr><th>what decides</th><th>how much</th></tr>{rows}</table>"
    title = f"{html.escape(found.a)} beats {html.escape(found.b)}: {sure}"
    return f"<div><p><b>{title}</b></p><p>{html.escape(found.sentence)}</p>{rows}</div>"
