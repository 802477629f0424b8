"""The slots: for each, how its plug-ins are called, what their authors declare, and what is made sure of what they give back.

A slot has a ``Protocol`` for its functions, a class of facts where it asks for any, a class of choices, a registry, and a type
for the fields of scenarios that take one. The choice's ``__call__`` is the one place where its plug-ins are called. Types of
the rooms above are imported here for type checkers alone.
"""

# All of them, so that every slot is known once one is.
from emulator.contracts import combining, files, grouping, learning, methods, selection, staleness, world

__all__ = ["combining", "files", "grouping", "learning", "methods", "selection", "staleness", "world"]
