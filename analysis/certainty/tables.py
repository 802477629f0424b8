"""Tables about a certificate, as text, CSV, Markdown and LaTeX."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analysis.certainty.certificate import WRITTEN, Certificate
from analysis.certainty.deciding import deciding
from analysis.certainty.measured import Measured
from analysis.certainty.regions import Region, quarters, tree
from analysis.certainty.verdict import percent, percent_with_interval, verdicts
from analysis.printed import Printed
from analysis.tables import UNKNOWN
from analysis.texttable import TextTable
from emulator.errors import InputError, suggestion

if TYPE_CHECKING:
    import pandas as pd

Kind = Callable[[Certificate], Printed]


def certainty(certificate: Certificate, measures: Sequence[Measured] = ()) -> Printed:
    """P(A beats B) of every pair and measure with its interval, and how the ratio is distributed."""
    rows, cells = [], []
    for measure in measures or certificate.measures:
        for a, b in _pairs(certificate):
            side = certificate.against(a, b, measure)
            better, worse, (low, middle, high) = side.better, side.worse, side.ratio()
            written = certificate.against(a, b, measure, WRITTEN).ratio()[1]
            rows.append(
                {
                    "measure": measure.column, "a": a, "b": b, "worlds": len(side.known), "known": int(side.known.sum()),
                    "seeds": side.seeds, "p_a_beats_b": better.value, "p_low": better.low, "p_high": better.high,
                    "p_b_beats_a": worse.value, "p_neither": side.neither, "decided_for_a": side.decided_for(1),
                    "decided_for_b": side.decided_for(-1), "compared_as": "ratio" if measure.ratios else "difference",
                    "relative_as_written": written, "relative_p05": low, "relative_median": middle, "relative_p95": high,
                }
            )  # fmt: skip
            known = f"{side.known.sum():,}" if side.known.all() else f"{side.known.sum():,} of {len(side.known):,}"
            cells.append(
                (
                    measure.title, a, b, known, UNKNOWN if math.isnan(better.value) else percent_with_interval(better),
                    _percent(worse.value), _percent(side.neither),
                    percent(side.open) if side.seeds > 1 else UNKNOWN, measure.span_text(middle, low, high),
                    measure.relative_text(written),
                )
            )  # fmt: skip
    header = (
        "measure",
        "A",
        "B",
        "worlds",
        "A better (95 %)",
        "B better",
        "neither",
        "open",
        "A : B (5–95 %)",
        "as written",
    )
    title = "In which share of the worlds A is better than B; its ratio to B, or by how many points it is better"
    return _printed(rows, [TextTable(title, header, tuple(cells), (False, False, False, *(True,) * 7))])


def deciding_table(certificate: Certificate, measures: Sequence[Measured] = ()) -> Printed:
    """Which unknown decides between two methods: first-order and total Sobol indices with their intervals."""
    rows, sections = [], []
    for measure in measures or certificate.measures:
        for a, b in _pairs(certificate):
            found = deciding(certificate, a, b, measure)
            for each in found.influences:
                rows.append(
                    {
                        "measure": measure.column, "a": a, "b": b, "quantity": each.quantity, "of": found.of,
                        "estimator": found.estimator, "worlds": found.worlds, "first": each.first, "first_half": each.first_half,
                        "total": each.total, "total_half": each.total_half,
                    }
                )  # fmt: skip
            title = f"{_capital(measure.title)}: what the {found.of or 'ratio'} of {a} and {b} depends on"
            if found.influences:
                title += f" ({found.estimator}, {found.worlds:,} worlds)"
            cells = tuple(
                (e.quantity, _half(e.first, e.first_half), _half(e.total, e.total_half)) for e in found.influences
            ) or ((found.why, "", ""),)
            sections.append(
                TextTable(title, ("unknown", "first-order index", "total index"), cells, (False, True, True))
            )
    return _printed(rows, sections)


def regions_table(certificate: Certificate) -> Printed:
    """Which method is best where: over the quarters of each unknown, and in the regions of a shallow tree."""
    rows: list[dict[str, Any]] = []
    sections = []
    for measure in certificate.measures:
        by_quarter, grown = quarters(certificate, measure), tree(certificate, measure)
        title = f"{_capital(measure.title)}: which method is best, by quarters of each unknown"
        sections.append(_regions(certificate, title, by_quarter))
        rows += _region_rows(certificate, measure, by_quarter, "quarter")
        if grown is not None:
            rows += _region_rows(certificate, measure, grown.regions, "tree")
            title = (
                f"{_capital(measure.title)}: the regions of a tree, which names the best in {percent(grown.right)} of unseen "
                f"worlds; always naming one method is right in {percent(grown.always)}"
            )
            sections.append(_regions(certificate, title, grown.regions))
    return _printed(rows, sections)


def tipping_table(certificate: Certificate) -> Printed:
    """At which value of an unknown the winner changes, all others at their middle."""
    return Printed(certificate.tipping, (tipping_section(certificate, certificate.tipping),))


def tipping_section(certificate: Certificate, rows: pd.DataFrame) -> TextTable:
    """Tipping points for people."""
    cells = []
    for row in rows.to_dict("records"):
        quantity, measure = certificate.quantity(str(row["quantity"])), certificate.measure(str(row["measure"]))
        everywhere = math.isnan(row["at"])
        at = "over its whole range" if everywhere else f"{row['side']} {quantity.value_text(row['at'])}"
        cells.append((measure.title, str(row["better"]), str(row["than"]), quantity.title, at))
    header = ("measure", "better", "than", "unknown", "where")
    none = ("the same method is better everywhere, or nothing was searched", "", "", "", "")
    title = "Where the winner changes, all other unknowns at their middle"
    return TextTable(title, header, tuple(cells) or (none,), (False,) * 5)


def unknowns(certificate: Certificate) -> Printed:
    """What was uncertain: every unknown with its distribution, its middle, and who says so."""
    rows = [
        {
            "quantity": q.name,
            "distribution": q.text,
            "unit": q.unit,
            "factor": q.factor,
            "middle": q.middle,
            "source": q.source,
        }
        for q in certificate.quantities
    ]
    cells = tuple(
        (q.title, q.text, "" if q.labels or math.isnan(q.middle) else q.value_text(q.middle), q.source)
        for q in certificate.quantities
    )
    header = ("unknown", "distribution", "middle", "source")
    return _printed(
        rows, [TextTable("What is uncertain", header, cells or (("nothing", "", "", ""),), (False, False, True, False))]
    )


def verdict_table(certificate: Certificate) -> Printed:
    """The verdict on every pair and measure in a sentence."""
    found = verdicts(certificate)
    rows = [
        {"measure": v.measure.column, "a": v.a, "b": v.b, "conclusion": v.conclusion, "verdict": v.sentence}
        for v in found
    ]
    cells = tuple((v.measure.title, f"{v.a} and {v.b}", v.conclusion, v.sentence) for v in found)
    header = ("measure", "methods", "conclusion", "verdict")
    return _printed(rows, [TextTable("Verdicts", header, cells, (False,) * 4)])


TABLES: dict[str, Kind] = {
    "certainty": certainty, "deciding": deciding_table, "regions": regions_table, "tipping": tipping_table,
    "unknowns": unknowns, "verdicts": verdict_table,
}  # fmt: skip


def table(kind: str, certificate: Certificate) -> Printed:
    """A table of a kind; raises `InputError` where there is none of that name, or nothing to compare."""
    if kind not in TABLES:
        raise InputError(f"unknown table of a certificate '{kind[:60]}'; {suggestion(kind, TABLES)}")
    return TABLES[kind](certificate)


def summary(kind: str) -> str:
    """What a kind of table shows, in a line."""
    return (inspect.getdoc(TABLES[kind]) or "").partition("\n")[0]


def _regions(certificate: Certificate, title: str, found: Sequence[Region]) -> TextTable:
    names = _names(certificate, found)
    header = ("unknown", "where", "worlds", *(name or "nobody" for name in names), "best")
    cells, before = [], ""
    for region in found:
        called = "" if region.quantity == before else region.quantity
        before = region.quantity
        shares = (percent(region.shares.get(name, 0.0)) for name in names)
        cells.append((called, region.where, f"{region.worlds:,}", *shares, region.best or "nobody"))
    if not any(region.quantity for region in found):
        header, cells = header[1:], [row[1:] for row in cells]
        return TextTable(title, header, tuple(cells), (False, True, *(True,) * len(names), False))
    return TextTable(title, header, tuple(cells), (False, False, True, *(True,) * len(names), False))


def _region_rows(
    certificate: Certificate, measure: Measured, found: Sequence[Region], kind: str
) -> list[dict[str, Any]]:
    return [
        {
            "measure": measure.column,
            "kind": kind,
            "quantity": r.quantity,
            "where": r.where,
            "worlds": r.worlds,
            "best": r.best,
        }
        | {f"share_{name or 'nobody'}": r.shares.get(name, 0.0) for name in _names(certificate, found)}
        for r in found
    ]


def _names(certificate: Certificate, found: Sequence[Region]) -> list[str]:
    nobody = any("" in region.shares for region in found)
    return [*certificate.methods, *([""] if nobody else [])]


def _printed(rows: Sequence[dict[str, Any]], sections: Sequence[TextTable]) -> Printed:
    import pandas as pd

    return Printed(pd.DataFrame(rows), tuple(sections))


def _pairs(certificate: Certificate) -> tuple[tuple[str, str], ...]:
    if not certificate.pairs:
        raise InputError("there is one method alone: nothing is compared")
    return certificate.pairs


def _percent(value: float) -> str:
    return UNKNOWN if math.isnan(value) else percent(value)


def _half(value: float, half: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:.2f} ± {half:.2f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
