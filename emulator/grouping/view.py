"""What a server knows when it decides about groups.

A rule sees only these values, never a client's data: what is not in a view has not been told to the server.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Groups = Sequence[Sequence[int]]  # for each group the row numbers of its clients in a `ClientView`


@dataclass(frozen=True, eq=False)
class ClientView:
    """The clients that a formation rule divides: those of one edge, or all of them under the cloud.

    ``label_counts[i, j]`` is how many samples of label j client i holds, ``samples[i]`` how many it holds in
    all. ``fleet_counts[j]`` is how many samples of label j all clients of all edges hold; None where the
    server was not told (rules that need it take the sum over their own clients). ``estimates[i]`` is what the
    chosen estimator says of client i's data; None where no estimator was asked. Raises ``ValueError`` where the
    shapes do not fit.
    """

    label_counts: Counts  # [n, m]
    samples: Counts  # [n]
    estimates: Floats | None = None  # [n, d]
    fleet_counts: Counts | None = None  # [m]

    def __post_init__(self) -> None:
        _check_shapes(self.label_counts, self.samples)
        if self.fleet_counts is not None and self.fleet_counts.shape != self.label_counts.shape[1:]:
            shapes = f"{self.fleet_counts.shape} and label counts {self.label_counts.shape}"
            raise ValueError(f"fleet counts {shapes} must be [m] and [n, m]")
        if self.estimates is not None and (self.estimates.ndim != 2 or len(self.estimates) != len(self.samples)):
            raise ValueError(f"estimates {self.estimates.shape} must be [n, d] for {len(self.samples)} clients")

    @property
    def learnt(self) -> Floats:
        """The estimates; raises ``ValueError`` where no estimator was asked."""
        if self.estimates is None:
            raise ValueError("no estimates: a rule that works on them must declare that it needs 'estimates'")
        return self.estimates


@dataclass(frozen=True, eq=False)
class GroupView:
    """All the groups that a sampling rule chooses from: the sums of their clients' values.

    Raises ``ValueError`` where the shapes do not fit.
    """

    label_counts: Counts  # [G, m]
    samples: Counts  # [G]

    def __post_init__(self) -> None:
        _check_shapes(self.label_counts, self.samples)


def group_view(clients: ClientView | Counts, groups: Groups) -> GroupView:
    """The groups as the cloud sees them: the sums of their clients' values.

    ``clients`` may be label counts [n, m] alone; a client's samples are then the sum of its row.
    """
    if not isinstance(clients, ClientView):
        clients = ClientView(clients, clients.sum(axis=1))
    rows, sizes = laid_out(groups)
    labels = np.zeros((len(groups), clients.label_counts.shape[1]), dtype=np.int64)
    samples = np.zeros(len(groups), dtype=np.int64)
    some = np.flatnonzero(sizes)  # `reduceat` would give an empty group its neighbour's first client
    if len(some):
        starts = (np.cumsum(sizes) - sizes)[some]
        labels[some] = np.add.reduceat(clients.label_counts[rows], starts)
        samples[some] = np.add.reduceat(clients.samples[rows], starts)
    return GroupView(labels, samples)


def laid_out(groups: Groups) -> tuple[Counts, Counts]:
    """The rows of all groups one after another, and how many each group has."""
    sizes = np.array([len(members) for members in groups], dtype=np.int64)
    rows = np.fromiter(itertools.chain.from_iterable(groups), dtype=np.int64, count=int(sizes.sum()))
    return rows, sizes


def _check_shapes(label_counts: Counts, samples: Counts) -> None:
    if label_counts.ndim != 2 or samples.shape != label_counts.shape[:1]:
        raise ValueError(f"label counts {label_counts.shape} and samples {samples.shape} must be [n, m] and [n]")
