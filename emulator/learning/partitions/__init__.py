"""Partitions: each is a function that divides the samples of a pool between clients.

``(labels, clients, classes, rng, params) -> parts``, where ``labels`` are the int64 labels of the pool and
``parts`` holds for every client the sorted int64 indices into ``labels`` of its samples. Parts never
overlap, unless a parameter says that they may, and none is empty; not every sample need be dealt out. What
cannot be done raises `emulator.errors.InputError` with the key ``data.partition``.

What a partition declares about itself is a `emulator.contracts.learning.PartitionFacts`. One whose clients belong to
clusters returns `ClusteredParts`: the parts, the true cluster of every client, and by how many quarter turns its images are
rotated. One that asks whose the samples are takes a keyword ``owners``: the int64 number of every sample's owner, or None
where the data set does not say.
"""

from emulator.learning.partitions.parts import ClusteredParts, label_counts

__all__ = ["ClusteredParts", "label_counts"]
