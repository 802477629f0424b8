"""Who stands where in groups that have headers: the rows of ``topology.csv`` (S5 Fig. 5 is drawn from them)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """A client's place in a group, from a round on.

    ``kind`` is the cluster of like clients into which the formation rule has put the client (-1 where it makes none),
    ``label`` the label of which it has most samples (the lowest of several), ``images`` how many it has sent to the header: 0
    for the header and for who was left out.
    """

    round: int
    group: int
    client: int
    header: int
    kind: int
    label: int
    samples: int
    images: int


def topology_csv(places: Iterable[Place]) -> str:
    """``topology.csv`` as text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Place._fields)
    writer.writerows(places)
    return file.getvalue()
