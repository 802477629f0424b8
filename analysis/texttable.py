"""Small tables for terminals, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# What means something else to LaTeX, and signs that not every font of it has.
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "∞": r"$\infty$", "–": "--", "\n": " ",
}  # fmt: skip


def latex_text(text: str) -> str:
    """``text`` as LaTeX prints it."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


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

    def latex(self) -> str:
        """The table in LaTeX, in the style of the package ``booktabs``."""

        def line(cells: Sequence[str]) -> str:
            return "    " + " & ".join(latex_text(c) for c in cells) + r" \\"

        columns = "".join("r" if r else "l" for r in self.right)
        return "\n".join(
            [
                r"\begin{table}",
                r"  \centering",
                rf"  \caption{{{latex_text(self.title)}}}",
                rf"  \begin{{tabular}}{{{columns}}}",
                r"    \toprule",
                line(self.header),
                r"    \midrule",
                *(line(row) for row in self.rows),
                r"    \bottomrule",
                r"  \end{tabular}",
                r"\end{table}",
            ]
        )
