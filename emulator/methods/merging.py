"""Which clusters are merged when clusters are reorganised (S3 §V-C)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def clusters_to_merge(similar: np.ndarray, sizes: Sequence[int]) -> list[list[int]]:
    """Clusters put together by the cosines of their models' updates [k, k]; each list begins with the largest of its clusters.

    From the smallest cluster on, each joins the one whose update is most similar to its own, if the cosine is positive and it
    conflicts, that is has a negative cosine, with nobody who is with that one already; otherwise the next most similar. A cluster
    joins at most once, and one that others have joined joins nobody.
    """
    home = list(range(len(sizes)))
    order = sorted(range(len(sizes)), key=lambda c: (sizes[c], -c))
    for cluster in order:
        if home.count(home[cluster]) > 1:
            continue
        for other in sorted(range(len(sizes)), key=lambda o: (-similar[cluster, o], o)):
            joined = [c for c in range(len(sizes)) if home[c] == home[other]]
            if other == cluster or similar[cluster, other] <= 0 or any(similar[cluster, c] < 0 for c in joined):
                continue
            home[cluster] = home[other]
            break
    groups: dict[int, list[int]] = {}
    for cluster in sorted(range(len(sizes)), key=lambda c: (-sizes[c], c)):
        groups.setdefault(home[cluster], []).append(cluster)
    return [groups[key] for key in sorted(groups)]
