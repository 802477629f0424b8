"""Partitions: each is a function that divides the samples of a pool between clients.

``(labels, clients, classes, rng, params) -> parts``, where ``labels`` are the int64 labels of the pool and
``parts`` holds for every client the sorted int64 indices into ``labels`` of its samples. Parts never
overlap and none is empty; not every sample need be dealt out. What cannot be done raises
`emulator.errors.InputError` with the key ``data.partition``.
"""

from emulator.learning.partitions.dealing import label_counts

__all__ = ["label_counts"]
