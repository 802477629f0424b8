"""Data sets: each is a function from its parameters to an `ArraySet`.

A data set registers with ``fingerprint``, a function of the parameters that names the content exactly and
cheaply (it goes into the keys under which results are remembered) and raises `emulator.errors.InputError`
where the data is not there. It also declares ``classes``, ``train_samples`` and ``shape`` where they are
known without reading anything, and ``owners`` where its samples belong to somebody: True, or in words when
they do. With ``check``, a function of the parameters, a set that the user keeps somewhere says what is wrong with
it as far as that can be told quickly, without reading samples.
"""

from emulator.learning.data.arrays import ArraySet
from emulator.registry import Chosen

__all__ = ["ArraySet", "check"]


def check(chosen: Chosen) -> None:
    """Raises `emulator.errors.InputError` where a run could not read this set, as far as that shows quickly."""
    wrong = chosen.plugin.facts.get("check")
    if wrong is not None:
        wrong(chosen.params)
