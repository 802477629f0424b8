"""The parts of a page: sections with texts, tables and pictures that stand in the page itself."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec

from analysis import printed
from analysis.series import Series
from analysis.texttable import TextTable
from emulator.errors import InputError
from emulator.files import slug

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

P = ParamSpec("P")

SCREEN_INCH = 125  # pixels of a screen for an inch of paper: what has 8 points on paper is as large as small print here


@dataclass(frozen=True)
class Picture:
    """A figure as SVG that can stand in a page, and what it shows."""

    svg: Markup
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the page; everything but its title may be missing."""

    title: str
    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[TextTable, ...] = ()
    listings: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Its name in links."""
        return slug(self.title)


class Found:
    """Pictures and tables of a section; where the runs do not have what one needs, ``said`` says so once."""

    def __init__(self, said: Sequence[str] = ()) -> None:
        self.said = list(said)
        self.pictures: list[Picture] = []
        self.tables: list[TextTable] = []

    def draw(self, caption: str, wide: bool, plot: Callable[P, Figure], *args: P.args, **kwargs: P.kwargs) -> None:
        """Adds the picture that ``plot`` draws."""
        try:
            self.pictures.append(Picture(svg(plot(*args, **kwargs)), caption, wide))
        except InputError as error:
            self._say(error.message)

    def tabulate(self, kind: str, series: Sequence[Series]) -> None:
        """Adds a table."""
        try:
            self.tables += printed.table(kind, series).sections
        except InputError as error:
            self._say(error.message)

    def _say(self, message: str) -> None:
        if message not in self.said:
            self.said.append(message)


_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')


def svg(figure: Figure) -> Markup:
    """A figure as SVG for a page: as wide as there is room, with names of its own, so that several can stand in one page."""
    import hashlib

    from markupsafe import Markup

    from analysis.plots.style import style

    drawn = io.BytesIO()
    with style():
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    text = drawn.getvalue().decode()
    own = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = text[text.index("<svg") :]
    text = _IDS.sub(lambda found: f"{found.group(1)}f{own}-", text)
    sized = f'<svg style="max-width: {figure.get_figwidth() * SCREEN_INCH:.0f}px"'
    head, rest = text[: text.index(">") + 1], text[text.index(">") + 1 :]
    head = re.sub(r' (width|height)="[^"]*"', "", head).replace("<svg", sized, 1)
    return Markup(head + rest)
