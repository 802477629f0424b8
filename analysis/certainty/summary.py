"""What ``hfl certify`` prints when it is done."""

from __future__ import annotations

import textwrap
from pathlib import Path

from analysis.certainty.certificate import Certificate, load
from analysis.certainty.tables import certainty, deciding_table, tipping_section
from analysis.certainty.verdict import percent, verdict

WIDTH = 100
FEW = 3  # pairs of methods, of which all measures are shown; of more, the first measure alone


def summarise(folder: Path | str) -> str:
    """A certificate in a screenful or two: what was left out, P(A beats B), what decides, where it tips, and the verdicts.

    What decides and the verdicts are by the first measure; of many methods, so is all else. The tables and the report have
    the rest.

    Raises `InputError` where the folder is no certificate or a damaged one.
    """
    certificate = load(folder)
    parts = [left_out(certificate)]
    if certificate.pairs:
        first, tips = certificate.measures[0], certificate.tipping
        few = len(certificate.pairs) <= FEW
        parts.append(certainty(certificate, () if few else (first,)).text())
        parts.append(deciding_table(certificate, (first,)).text())
        if len(tips):
            shown = tips[tips["at"].notna() & ((tips["measure"] == first.column) | few)]
            parts.append(tipping_section(certificate, shown).text())
        said = [verdict(certificate, a, b, first).sentence for a, b in certificate.pairs]
        parts.append(f"Verdicts on the {first.title}")
        parts += [textwrap.fill(each, WIDTH, break_on_hyphens=False, break_long_words=False) for each in said]
    else:
        parts.append("There is one method alone: nothing is compared.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


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
