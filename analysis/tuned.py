"""What tuning has chosen in a study, and what the other values reached: ``tuned.json`` as a table."""

from __future__ import annotations

from pathlib import Path

from analysis.texttable import TextTable
from emulator.files import read_json
from emulator.measures import Measure
from emulator.study.names import TUNED, short_names, text_of


def table_of(folder: Path) -> TextTable | None:
    """A row for each variant and grid point: the accuracy with each value that was tried, and the choice; None without tuning."""
    about = read_json(folder / TUNED)
    if not about or not about["points"]:
        return None
    first = about["points"][0]
    columns = [*(["variant"] if first["variant"] else []), *first["point"]]
    names, by = short_names(columns), about["by"]
    measure = Measure.from_json(about.get("measure"))
    rows = tuple(
        (
            *(text_of({"variant": each["variant"], **each["point"]}[c]) for c in columns),
            *("–" if tried[by] is None else measure.text(tried[by]) for tried in each["tried"]),
            text_of(each["chosen"]),
        )
        for each in about["points"]
    )
    header = (*(names[c] for c in columns), *(text_of(tried["value"]) for tried in first["tried"]), "chosen")
    title = (
        f"Tuning of {about['key']} by {by.replace('accuracy', measure.called).replace('-', ' ')}, seed {about['seed']}"
    )
    return TextTable(title, header, rows, (*(False for _ in columns), *(True for _ in header[len(columns) :])))
