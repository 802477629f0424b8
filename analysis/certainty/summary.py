"""What ``hfl certify`` prints when it is done."""

from __future__ import annotations

import textwrap
from pathlib import Path

from analysis.certainty.certificate import Certificate, load
from analysis.certainty.tables import certainty, deciding_table, tipping_table
from analysis.certainty.verdict import percent, verdicts
from analysis.printed import Printed

WIDTH = 100


def summarise(folder: Path | str) -> str:
    """A certificate in a screenful or two: what was left out, P(A beats B), what decides, where it tips, and the verdicts.

    Raises `InputError` where the folder is no certificate or a damaged one.
    """
    certificate = load(folder)
    parts = [left_out(certificate)]
    if certificate.pairs:
        printed: list[Printed] = [certainty(certificate), deciding_table(certificate, certificate.measures[:1])]
        if len(certificate.tipping):
            printed.append(tipping_table(certificate))
        parts += [each.text().rstrip("\n") for each in printed]
        said = [
            textwrap.fill(v.sentence, WIDTH, break_on_hyphens=False, break_long_words=False)
            for v in verdicts(certificate)
        ]
        parts.append("\n\n".join(["Verdicts", *said]))
    else:
        parts.append("There is one method alone: nothing is compared.")
    return "\n\n".join(parts) + "\n"


def left_out(certificate: Certificate) -> str:
    """In which share of the worlds everything trains as it did, and what became of the others; the first thing to say."""
    count, kept = len(certificate.drawn), certificate.kept
    said = f"In {'all' if kept == 1 else f'{percent(kept)} of'} {count:,} worlds every run trains as it did"
    if certificate.trained:
        said += f" or was trained afresh ({certificate.trained:,} worlds)"
    if kept < 1:
        said += "; in the others some run would learn something else, and is left out there"
    if certificate.impossible:
        said += f" ({percent(certificate.impossible)} of the worlds cannot be)"
    if certificate.without_effect:
        said += f". Without effect on any run: {', '.join(certificate.without_effect)}"
    return f"{said}."
