"""The examples of the pages on extending: the files that they show, and the commands that use them, by section."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from scenario.command import ROOT

from emulator import extend

PAGES = ("extending.md", "extending-slots.md")
_FENCE = re.compile(r"^```\w*\n# file: (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_REGISTERS = re.compile(r"^@(\w+)\.register\(", re.MULTILINE)


@dataclass
class Command:
    """A command of a page, and the error that the page says it ends with; "" where it ends well."""

    words: list[str]
    error: str = ""


@dataclass
class Section:
    """A section of a page: files by name, and commands in their order."""

    title: str
    files: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)

    @property
    def slots(self) -> set[str]:
        """The slots for which it has a plug-in."""
        found = [name for text in self.files.values() for name in _REGISTERS.findall(text)]
        return {getattr(extend, name).slot for name in found}


def sections() -> dict[str, Section]:
    """The sections of the pages that hold examples, by title."""
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in PAGES)
    found: dict[str, Section] = {}
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        section = Section(title, {name: f"# file: {name}\n{code}" for name, code in _FENCE.findall(body)})
        for line in re.sub(r"^```.*?^```$", "", body, flags=re.DOTALL | re.MULTILINE).splitlines():
            if line.startswith("    hfl "):
                section.commands.append(Command(shlex.split(line, comments=True)[1:]))
            elif line.startswith("    error: "):
                section.commands[-1].error = line.strip()
        if section.files or section.commands:
            found[title] = section
    return found


SECTIONS = sections()
FILES = {name: text for section in SECTIONS.values() for name, text in section.files.items()}
