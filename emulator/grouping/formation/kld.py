"""KLD grouping (KLDG): what S2 §4.4 takes over from SHARE (Deng et al., ICDCS 2021).

With L the label counts of a group, N their sum and q the label mix of the whole fleet, the divergence is

    KL(L/N ‖ q) = Σ_j L_j/N · log(L_j/(N q_j)) = (Σ_j L_j log L_j − Σ_j L_j log q_j)/N − log N.

It is finite in this direction, since the fleet has every label that a group has. The second sum is linear in
the clients, so a step has one logarithm for each remaining client and label.
"""

from __future__ import annotations

import numpy as np

from emulator.contracts.grouping import FormationFacts, formations
from emulator.grouping import quality
from emulator.grouping.formation import LOGARITHM_FLOPS
from emulator.grouping.leftovers import settle
from emulator.grouping.sizes import LeastSize
from emulator.grouping.view import ClientView, Counts, Floats

# Divergences nearer than this (in nats) count as equal. It is far above rounding, which differs from one
# library's logarithm to the next, and far below what makes a group better.
_DIGITS = 9
# For a group without samples: worse than any divergence, better than the inf of a client that was taken.
_WORST = 1e6


class KldParams(LeastSize):
    """How large the groups are."""


def _flops(clients: int, classes: int, groups: int, params: KldParams) -> float:
    """All but the first client of each group take a step, which sees half of the clients on average."""
    return (clients - groups) * clients / 2 * (classes * (3 + LOGARITHM_FLOPS) + LOGARITHM_FLOPS + 5)


@formations.register(
    "kld",
    KldParams,
    FormationFacts(needs=("label-counts", "label-mix"), smallest=lambda params: params.min_size, flops=_flops),
)
def kld(clients: ClientView, rng: np.random.Generator, params: KldParams) -> list[list[int]]:
    """Greedy groups that look like the fleet: a random client, then always the one with which KL is least (SHARE).

    A group is full with ``min_size`` clients. Clients that are left at the end join the groups whose
    divergence they raise least, or stay out (``leftover``). Of several equally good clients the one with the lowest number is
    taken.
    """
    fleet = clients.label_counts.sum(axis=0) if clients.fleet_counts is None else clients.fleet_counts
    pool = _Pool(clients.label_counts, fleet)
    groups: list[list[int]] = []
    while len(pool.numbers):
        pool.take(int(rng.integers(len(pool.numbers))))
        while len(pool.members) < min(params.min_size, len(pool.numbers)):
            pool.take(int(pool.divergences().argmin()))
        groups.append(pool.close())
    settle(groups, params, clients.label_counts, lambda counts: quality.kld(counts, fleet))
    return groups


class _Pool:
    """The clients that are in no full group yet, in ascending order, and the group that grows from them.

    ``numbers`` are the clients, ``members`` the positions of those in the group.
    """

    def __init__(self, label_counts: Counts, fleet: Counts) -> None:
        self.numbers = np.arange(len(label_counts))
        self._counts = label_counts.T.astype(np.float64)
        self._samples = self._counts.sum(axis=0)
        log_mix = np.log(np.maximum(fleet, 1) / max(1, int(fleet.sum())))  # nobody has the labels that the fleet lacks
        self._expected = (self._counts * log_mix[:, None]).sum(axis=0)  # Σ_j L_j log q_j
        self._begin()

    def _begin(self) -> None:
        self.members: list[int] = []
        self._taken = np.zeros(len(self.numbers))  # infinite for those in the group
        self._group = np.zeros(len(self._counts))
        self._group_samples = self._group_expected = 0.0

    def divergences(self) -> Floats:
        """The divergence of the group with each client; infinite for those that it has."""
        counts = self._counts + self._group[:, None]
        samples = self._samples + self._group_samples
        logs = np.log(np.maximum(counts, 1))  # 0 log 0 is 0
        logs *= counts
        excess = logs.sum(axis=0) - (self._expected + self._group_expected)
        result = np.full(len(samples), _WORST)
        np.divide(excess, samples, out=result, where=samples > 0)
        np.subtract(result, np.log(np.maximum(samples, 1)), out=result)
        return np.round(result, _DIGITS) + self._taken

    def take(self, position: int) -> None:
        """Puts a client into the group."""
        self.members.append(position)
        self._taken[position] = np.inf
        self._group += self._counts[:, position]
        self._group_samples += self._samples[position]
        self._group_expected += self._expected[position]

    def close(self) -> list[int]:
        """The numbers of the group's members, ascending, who leave the pool; the next group begins."""
        found = [int(self.numbers[position]) for position in sorted(self.members)]
        keep = np.isfinite(self._taken)
        self.numbers, self._samples, self._expected = self.numbers[keep], self._samples[keep], self._expected[keep]
        self._counts = np.ascontiguousarray(self._counts[:, keep])
        self._begin()
        return found
