"""Errors that a user can cause, and what the command line makes of them.

Every class here can be rebuilt as ``type(e)(*e.args)``: SimPy re-raises exceptions of processes that way,
so a keyword-only or derived constructor argument would turn a clear message into a ``TypeError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class HflError(Exception):
    """A failed run: the command line prints the message and exits with 1."""

    exit_code = 1


class DivergedError(HflError):
    """A training whose weights are no longer finite."""


class InputError(HflError):
    """Something the user gave is wrong: the command line prints the message and exits with 2.

    ``key`` is the dotted path of the scenario key that is to blame, where there is one; whoever still holds the
    scenario file turns it into a line and a column.
    """

    exit_code = 2

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message, key)
        self.message = message
        self.key = key

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


@dataclass(frozen=True)
class Problem:
    """One thing wrong in one place. ``line`` and ``column`` count from 1; 0 means that there is no such place."""

    file: str
    line: int
    column: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ScenarioError(InputError):
    """All the problems of a scenario (or of another YAML file) at once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.args = (problems,)
        self.problems = problems


def quote_all(names: Iterable[str]) -> str:
    """``'a', 'b', 'c'``, for messages."""
    return ", ".join(f"'{n}'" for n in names)


MOST_NAMES = 40  # that a message lists


def suggestion(given: str, known: Iterable[str], label: str = "known") -> str:
    """The tail of a message about an unknown name: ``did you mean 'cov'?`` or the list of what is known."""
    names = sorted(known)
    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(given.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return f"{label}: {quote_all(names[:MOST_NAMES])}{more}" if names else "none is known"
