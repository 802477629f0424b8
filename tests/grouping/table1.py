"""The fleet of S2 §6.2 and its Table 1, without any data set: label counts are drawn directly.

A client's size is normal, resampled until it is within [20, 200]. Mean and standard deviation are open in the
paper: 110 is the middle of the range, and 45 puts its ends at two standard deviations. Labels are multinomial
with a mix from Dir(alpha).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from emulator.contracts.grouping import FormationChoice, formations
from emulator.grouping.formation.cov import CovParams, cov
from emulator.grouping.quality import cov as cov_of
from emulator.grouping.view import ClientView, group_view

EDGES, CLIENTS, LABELS = 3, 100, 10

# (alpha, MaxCoV) -> mean group size, mean CoV
PUBLISHED: dict[tuple[float, float], tuple[float, float]] = {
    (0.1, 0.1): (10.96, 0.28),
    (0.1, 0.5): (6.13, 0.43),
    (0.1, 1.0): (5.03, 0.54),
    (0.5, 0.1): (7.66, 0.19),
    (0.5, 0.5): (5.23, 0.25),
    (0.5, 1.0): (5.00, 0.29),
    (1.0, 0.1): (6.95, 0.15),
    (1.0, 0.5): (5.02, 0.20),
    (1.0, 1.0): (5.00, 0.20),
}

OTHERS = ("random", "cdg", "qcid", "kld")
SIZES = (5, 6, 7, 8, 9, 10, 11)  # to which the other rules are tuned: the mean sizes of the table lie between


@dataclass(frozen=True)
class Row:
    """What one setting gave over all seeds."""

    smallest: int
    largest: int
    mean_size: float
    mean_cov: float


def sizes(count: int, rng: np.random.Generator, mean: float = 110, std: float = 45) -> np.ndarray:
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        more = np.rint(rng.normal(mean, std, 2 * count)).astype(np.int64)
        drawn = np.concatenate([drawn, more[(more >= 20) & (more <= 200)]])
    return drawn[:count]


def fleet(clients: int, alpha: float, rng: np.random.Generator, mean: float = 110, std: float = 45) -> ClientView:
    held = sizes(clients, rng, mean, std)
    mixes = rng.dirichlet(np.full(LABELS, alpha), clients)
    return ClientView(rng.multinomial(held, mixes), held)


def groups_of(
    alpha: float, max_cov: float, seed: int, mean: float = 110, std: float = 45
) -> tuple[np.ndarray, np.ndarray]:
    """The sizes of all groups of the three edges, and their label counts."""
    rng = np.random.default_rng(seed)
    found: list[int] = []
    labels = []
    for _ in range(EDGES):
        clients = fleet(CLIENTS, alpha, rng, mean, std)
        groups = cov(clients, rng, CovParams(min_size=5, max_cov=max_cov))
        found += [len(group) for group in groups]
        labels.append(group_view(clients, groups).label_counts)
    return np.array(found), np.concatenate(labels)


def measure(alpha: float, max_cov: float, seeds: range = range(10), mean: float = 110, std: float = 45) -> Row:
    runs = [groups_of(alpha, max_cov, seed, mean, std) for seed in seeds]
    found = np.concatenate([run[0] for run in runs])
    # As the table does it: a mean over the groups of each run, here averaged over the runs.
    return Row(
        smallest=int(found.min()),
        largest=int(found.max()),
        mean_size=float(np.mean([run[0].mean() for run in runs])),
        mean_cov=float(np.mean([cov_of(run[1]).mean() for run in runs])),
    )


def rule_of_size(name: str, size: int) -> FormationChoice:
    """A rule that forms groups of ``size`` clients; CoV-Grouping does so where any CoV will do."""
    params = formations[name].params
    keys = {"min_size" if "min_size" in params.model_fields else "size": size}
    return FormationChoice(name, params(**keys, **({"max_cov": 9.0} if name == "cov" else {})))


@cache
def by_rule(rule: FormationChoice, alpha: float, seeds: range = range(10)) -> tuple[float, float]:
    """Mean group size and mean CoV of a rule, over the fleets of all seeds (the same for every rule)."""
    sizes_, covs = [], []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        edges = [fleet(CLIENTS, alpha, rng) for _ in range(EDGES)]
        total = sum(edge.label_counts for edge in edges).sum(axis=0)  # type: ignore[union-attr]
        found = []
        for e, edge in enumerate(edges):
            clients = ClientView(edge.label_counts, edge.samples, fleet_counts=total)
            groups = rule(clients, np.random.default_rng([seed, e]))
            found.append(group_view(clients, groups).label_counts)
        labels = np.concatenate(found)
        sizes_.append(EDGES * CLIENTS / len(labels))
        covs.append(cov_of(labels).mean())
    return float(np.mean(sizes_)), float(np.mean(covs))


def at_size(name: str, alpha: float, mean_size: float) -> float:
    """The mean CoV of a rule that is tuned to a mean group size: on the line between the sizes beside it."""
    points = [by_rule(rule_of_size(name, size), alpha) for size in SIZES]
    return float(np.interp(mean_size, [p[0] for p in points], [p[1] for p in points]))
