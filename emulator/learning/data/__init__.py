"""Data sets: each is a function from its parameters to an `ArraySet`.

What a data set declares about itself is a `emulator.contracts.learning.DataSetFacts`.
"""

from emulator.contracts.learning import DataSet
from emulator.learning.data.arrays import ArraySet
from emulator.learning.data.prepared import kept

__all__ = ["ArraySet", "check", "read"]


def check(chosen: DataSet) -> None:
    """Raises `emulator.errors.InputError` where a run could not read this set, as far as that shows quickly."""
    wrong = chosen.plugin.facts.check
    if wrong is not None:
        wrong(chosen.params)


def read(chosen: DataSet) -> ArraySet:
    """The samples of a set, those that are kept on this machine from there (see `emulator.learning.data.prepared`).

    Raises `emulator.errors.InputError` where they are not what `ArraySet` says.
    """
    return kept(chosen)
