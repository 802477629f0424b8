"""How good the clients' models are after each has fine-tuned the one that it would be served on its own data.

Like every test, this takes no emulated time and is no cost.
"""

from __future__ import annotations

import math

import numpy as np

from emulator.contracts.learning import LocalParams, LocalRuleChoice
from emulator.learning.interface import AnyLab
from emulator.learning.lab import MEASURED_BYTES
from emulator.learning.recipes import LocalTraining
from emulator.methods.cluster_models import Clusters
from emulator.rng import stream
from emulator.scenario.schema import Personal, Scenario

PERSONAL_METRICS = ("served_accuracy", "personal_accuracy", "personal_lowest", "personal_loss")


def personal_metrics(lab: AnyLab, scenario: Scenario, asked: Personal, clusters: Clusters, t: int) -> dict[str, float]:
    """Figures over the clients that fine-tune after round t, by the names in `PERSONAL_METRICS`.

    Each is tested on data of its own distribution (`Lab.evaluate_each`). ``served_accuracy`` is the mean before fine-tuning,
    ``personal_accuracy`` and ``personal_loss`` are means after it, and ``personal_lowest`` is the mean accuracy of the tenth
    of the clients that has the lowest.
    """
    rule = fine_tuning(scenario, asked)
    clients = np.arange(len(clusters.of))
    if asked.clients is not None and asked.clients < len(clients):
        clients = np.sort(stream(scenario.seed, "personal").choice(clients, asked.clients, replace=False))
    served = [(clusters.models[clusters.of[c]], [c]) for c in clients.tolist()]
    before, after = lab.evaluate_each(served), []
    together = max(1, MEASURED_BYTES // (4 * lab.model_facts.state_size))
    for first in range(0, len(served), together):
        # Epochs are numbered from -E: those of the round's own trainings count from 0 and have other batches.
        tuned = [
            (lab.train(LocalTraining(model, client, rule, t, turn=-1)).model, [client])
            for model, (client,) in served[first : first + together]
        ]
        after += lab.evaluate_each(tuned)
    lowest = sorted(result.accuracy for result in after)[: math.ceil(len(after) / 10)]
    means = [[r.accuracy for r in before], [r.accuracy for r in after], lowest, [r.loss for r in after]]
    return {name: float(np.mean(values)) for name, values in zip(PERSONAL_METRICS, means, strict=True)}


def fine_tuning(scenario: Scenario, asked: Personal) -> LocalRuleChoice:
    """The local rule with which clients fine-tune: the method's, or SGD with its parameters where the rule has memory."""
    local = getattr(scenario.method.params, "local", None)
    if not isinstance(local, LocalRuleChoice):
        local = LocalRuleChoice("sgd", LocalParams())
    elif local().remember is not None:
        shared = {name: getattr(local.params, name) for name in LocalParams.model_fields}
        local = LocalRuleChoice("sgd", LocalParams(**shared))
    changes: dict[str, object] = {"epochs": asked.epochs}
    if asked.learning_rate is not None:
        plain = LocalParams(learning_rate=asked.learning_rate)
        changes |= {name: getattr(plain, name) for name in ("learning_rate", "learning_rate_decay", "schedule")}
    return local.with_params(local.params.model_copy(update=changes))
