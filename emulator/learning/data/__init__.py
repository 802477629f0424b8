"""Data sets: each is a function from its parameters to an `ArraySet`.

A data set registers with ``fingerprint``, a function of the parameters that names the content exactly and
cheaply (it goes into the keys under which results are remembered) and raises `emulator.errors.InputError`
where the data is not there. It also declares ``classes``, ``train_samples`` and ``shape`` where they are
known without reading anything, and ``owners`` where its samples belong to somebody: True, or in words when
they do.
"""

from emulator.learning.data.arrays import ArraySet

__all__ = ["ArraySet"]
