"""How sure a ranking of methods is: reads the folder of a certificate, many worlds in which finished runs were replayed.

`certificate` reads the folder, `measured` knows what is measured, `worldwise` sets two methods side by side in every world,
`probability` says how sure a share of worlds is, `deciding` which unknown matters, `regions` who is best where, `verdict` puts it
into a sentence, and `tables` and `summary` print it. The formulas and their sources are in ``docs/certainty.md``.
"""

from __future__ import annotations

from pathlib import Path


def summarise(folder: Path | str) -> str:
    """What ``hfl certify`` prints about a certificate; raises `InputError` where the folder is none, or damaged."""
    from analysis.certainty.summary import summarise as text

    return text(folder)
