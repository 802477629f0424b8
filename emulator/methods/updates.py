"""What the run folder tells of clients' updates: how far they go, how stable and how similar they are, how they would split."""

from __future__ import annotations

import numpy as np

from emulator.contracts.methods import Halves, Reading
from emulator.grouping.cluster_agreement import adjusted_rand_index, purity
from emulator.methods.session import Session
from emulator.methods.splitting import Watch
from emulator.tables import Table

STABILITY = Table(
    "stability",
    (
        "round", "time_s", "cluster", "layer", "stability", "least_stable", "weights_kept", "weights", "mean_update",
        "longest_update",
    ),
)  # fmt: skip
SIMILARITY = Table("similarity", ("round", "time_s", "cluster", "layer", "client", "other", "cosine"))
TRIALS = Table(
    "trials",
    (
        "round", "time_s", "cluster", "ripe", "agreed", "layer", "reference", "like", "unlike", "purity", "adjusted_rand",
    ),
)  # fmt: skip


def note_updates(session: Session, cluster: int, watch: Watch, reading: Reading, t: int) -> None:
    """Rows of ``stability.csv``: one for each layer, or one in all where stability is not known.

    ``stability`` is the mean over the members that came back, ``least_stable`` the greatest; ``weights_kept`` of the layer
    counted, on average, of the ``weights`` that it has. ``mean_update`` and ``longest_update`` are lengths, of all parameters.
    """
    mean, longest = watch.lengths
    base = {"round": t, "time_s": session.world.now, "cluster": cluster}
    lengths = {"mean_update": mean, "longest_update": longest}
    if reading.stability is None or reading.kept is None:
        nothing = {"layer": "", "stability": "", "least_stable": "", "weights_kept": "", "weights": ""}
        session.note(STABILITY.name, base | nothing | lengths)
        return
    for layer, (name, size) in enumerate(session.lab.model_facts.layers):
        values = {
            "layer": name,
            "stability": float(reading.stability[:, layer].mean()),
            "least_stable": float(reading.stability[:, layer].max()),
            "weights_kept": float(reading.kept[layer]),
            "weights": size,
        }
        session.note(STABILITY.name, base | values | lengths)


def note_similarity(session: Session, cluster: int, watch: Watch, t: int) -> None:
    """Rows of ``similarity.csv``: the cosine of every two members' latest updates, of all parameters and of each layer."""
    known, names = watch.known, ("all", *(name for name, _ in session.lab.model_facts.layers))
    base = {"round": t, "time_s": session.world.now, "cluster": cluster}
    latest = [watch.records[c].latest[-1] for c in known]
    found = session.lab.measure_all("cosines", [(latest[i:], None) for i in range(len(known) - 1)])
    for i, (client, rows) in enumerate(zip(known, found, strict=False)):
        for other, row in zip(known[i + 1 :], rows, strict=True):
            for layer, cosine in zip(names, row.tolist(), strict=True):
                values = {"layer": layer, "client": client, "other": other, "cosine": cosine}
                session.note(SIMILARITY.name, base | values)


def note_trial(session: Session, cluster: int, reading: Reading, halves: Halves, t: int) -> None:
    """A row of ``trials.csv``: how a cluster would have been split, and how well that meets the true clusters.

    ``purity`` is the share of clients on a side where most are of their own true cluster (S3 Table IV, for two true clusters).
    """
    truth = session.lab.clients.clusters
    members = [*halves.like, *halves.unlike]
    side = np.array([0] * len(halves.like) + [1] * len(halves.unlike))
    row = {
        "round": t,
        "time_s": session.world.now,
        "cluster": cluster,
        "ripe": int(reading.ripe),
        "agreed": int(reading.agreed),
        "layer": "all" if reading.layer is None else session.lab.model_facts.layers[reading.layer][0],
        "reference": "" if halves.reference is None else halves.reference,
        "like": len(halves.like),
        "unlike": len(halves.unlike),
        "purity": "" if truth is None else purity(side, truth[members]),
        "adjusted_rand": "" if truth is None else adjusted_rand_index(side, truth[members]),
    }
    session.note(TRIALS.name, row)
