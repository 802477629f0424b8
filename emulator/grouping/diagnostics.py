"""What a grouping is like, group by group and as a whole: the figures of S2 §3 and §4, and their files.

``groups.csv`` has a row for each group of each formation, ``groupings.csv`` a row for each formation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from emulator.grouping import quality
from emulator.grouping.sampling.drawing import log_probabilities
from emulator.grouping.similarity import SetSimilarity, set_similarity
from emulator.grouping.view import Counts, Floats, Groups, group_view

GROUP_COLUMNS = ("round", "group", "aggregator", "size", "samples", "cov", "gamma", "p", "log_p")
GROUPING_COLUMNS = (
    "round", "groups", "outside", "smallest", "largest", "mean_size", "mean_cov", "mean_gamma", "gamma_groups", "gamma_p",
    "intra_cs", "intra_cs_mean", "inter_cs", "inter_cs_mean", "vts",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups that were formed before a global round (the first is 1), with their diagnostics.

    ``log_p`` is the logarithm of the probability of being drawn first. ``gamma_groups`` is Γ, ``gamma_p`` Γ_p. ``similarity``
    are the set metrics of S1, where the servers have estimates of the clients.
    """

    round: int
    aggregators: tuple[str, ...]  # of each group: the name of its edge, or of the cloud
    sizes: Counts  # [G] clients
    label_counts: Counts  # [G, m]
    cov: Floats  # [G]
    gamma: Floats  # [G]
    log_p: Floats  # [G]
    gamma_groups: float
    gamma_p: float
    outside: int = 0  # clients that are in no group
    similarity: SetSimilarity | None = None

    @property
    def samples(self) -> Counts:
        """Samples of each group [G]."""
        return np.asarray(self.label_counts.sum(axis=1))

    def summary(self) -> dict[str, Any]:
        """The row of ``groupings.csv``."""
        return {
            "round": self.round,
            "groups": len(self.sizes),
            "outside": self.outside,
            "smallest": int(self.sizes.min()),
            "largest": int(self.sizes.max()),
            "mean_size": float(self.sizes.mean()),
            "mean_cov": float(self.cov.mean()),
            "mean_gamma": float(self.gamma.mean()),
            "gamma_groups": self.gamma_groups,
            "gamma_p": self.gamma_p,
            **({} if self.similarity is None else asdict(self.similarity)),
        }


def diagnose(
    round: int,  # noqa: A002
    aggregators: Sequence[str],
    groups: Groups,
    label_counts: Counts,
    log_weights: Floats,
    estimates: Floats | None = None,
) -> Grouping:
    """The diagnostics of ``groups`` (rows of ``label_counts`` [n, m]) that are sampled by ``log_weights`` [G].

    ``estimates`` [n, d] is what the servers know of the clients beside label counts.
    """
    view = group_view(label_counts, groups)
    sizes = np.array([len(members) for members in groups])
    return Grouping(
        round,
        tuple(aggregators),
        sizes,
        view.label_counts,
        quality.cov(view.label_counts),
        quality.gammas(label_counts.sum(axis=1), groups),
        log_probabilities(log_weights),
        quality.gamma_groups(view.samples),
        quality.gamma_p(log_weights),
        len(label_counts) - int(sizes.sum()),
        None if estimates is None else set_similarity(estimates, groups),
    )


def groups_csv(groupings: Sequence[Grouping]) -> str:
    """``groups.csv`` as text: the columns `GROUP_COLUMNS`, then the samples of each label as ``label_0`` and so on."""
    labels = groupings[0].label_counts.shape[1] if groupings else 0
    return _text(
        (*GROUP_COLUMNS, *(f"label_{j}" for j in range(labels))),
        (row for grouping in groupings for row in _rows(grouping)),
    )


def _rows(grouping: Grouping) -> Iterable[Sequence[Any]]:
    """The rows of ``groups.csv``."""
    figures = (grouping.sizes, grouping.samples, grouping.cov, grouping.gamma, np.exp(grouping.log_p), grouping.log_p)
    columns = zip(grouping.aggregators, *(f.tolist() for f in figures), grouping.label_counts.tolist(), strict=True)
    return ((grouping.round, g, *values, *counts) for g, (*values, counts) in enumerate(columns))


def groupings_csv(groupings: Iterable[Grouping]) -> str:
    """``groupings.csv`` as text: the columns `GROUPING_COLUMNS`; what is not known is empty."""
    summaries = [grouping.summary() for grouping in groupings]
    return _text(GROUPING_COLUMNS, ([s.get(name, "") for name in GROUPING_COLUMNS] for s in summaries))


def _text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue()
