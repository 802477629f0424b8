"""Where the servers are: the cloud and the edges at the sites of a matrix of latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emulator.rng import stream
from emulator.scenario.contents import content
from emulator.scenario.link_schema import SiteLatencies
from traces.content import LatencyMatrix
from traces.step import Floats


@dataclass(frozen=True)
class Sites:
    """The site of every server by its name, and the seconds from site to site, one way."""

    of: Mapping[str, int]
    matrix_s: Floats

    def latency_s(self, sender: str, receiver: str) -> float:
        """Seconds from one server to another, one way."""
        return float(self.matrix_s[self.of[sender], self.of[receiver]])


def place(latencies: SiteLatencies, cloud: str, edges: Sequence[str], seed: int) -> Sites:
    """The cloud at its site, and each edge at a random other one; no site is taken again before all are taken.

    Raises `InputError` with the scenario key where the matrix cannot be read.
    """
    matrix_s = content(latencies.file, latencies.format, LatencyMatrix, "topology.links.latencies").latency_s
    middle = most_central(matrix_s) if latencies.cloud is None else latencies.cloud - 1
    others, rng = np.delete(np.arange(len(matrix_s)), middle), stream(seed, "sites")
    turns = -(-len(edges) // len(others))
    drawn = np.concatenate([rng.permutation(others) for _ in range(turns)])[: len(edges)].tolist()
    return Sites({cloud: middle, **dict(zip(edges, drawn, strict=True))}, matrix_s)


def most_central(matrix_s: Floats) -> int:
    """The site with the least mean latency to and from all others; of equal ones the first."""
    both = matrix_s + matrix_s.T
    return int(np.argmin(both.sum(axis=1) - np.diag(both)))
