"""Small tables for terminals and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A titled table of texts. ``right`` says which columns are set flush right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: tuple[bool, ...]

    def text(self) -> str:
        """The table for a terminal."""
        lines = (self.header, *self.rows)
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]

        def line(cells: Sequence[str]) -> str:
            padded = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, self.right, strict=True))
            return "  ".join(padded).rstrip()

        rule = "  ".join("-" * w for w in widths)
        return "\n".join([self.title, "", line(self.header), rule, *(line(row) for row in self.rows)])

    def markdown(self) -> str:
        """The table in Markdown."""

        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(c.replace("\\", "\\\\").replace("|", "\\|") for c in cells) + " |"

        rule = "|" + "|".join("---:" if r else "---" for r in self.right) + "|"
        return "\n".join([f"**{self.title}**", "", line(self.header), rule, *(line(row) for row in self.rows)])
