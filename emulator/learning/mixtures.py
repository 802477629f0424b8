"""How good models are on test data that is distributed as clients' data is.

A test set of that distribution need not be drawn. A model's accuracy on it is the mean of its accuracies on the single labels,
weighted by how often the clients hold each, on images rotated as the clients' are. So one table for each rotation (the
measurement ``by-label``) serves every client and every cluster, and all test samples count.

Where clients are people and there are test samples of each, a model's accuracy is that on a person's own (``by-owner``), and of
several people the mean, weighted by how many samples they train on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from emulator.contracts.learning import MeasurementChoice, measurements
from emulator.errors import InputError
from emulator.learning.facts import ClientFacts, Evaluation
from emulator.registry import NoParams

if TYPE_CHECKING:
    from emulator.learning.lab import Lab
    from emulator.learning.recipes import Handle


def evaluate_each(lab: Lab, cases: Sequence[tuple[Handle, Sequence[int]]]) -> list[Evaluation]:
    """Each model on test data as its clients hold it; what is missing is trained together."""
    facts = lab.clients
    if facts.people is not None:
        return _by_person(lab, cases, facts.people)
    wanted = dict.fromkeys((model, turn) for model, clients in cases for turn in set(_turns(facts, clients).tolist()))
    by_label = [_by_label(turn) for turn in range(4)]
    measured = lab.measure_each((by_label[turn], ([model], None)) for model, turn in wanted)
    tables = dict(zip(wanted, measured, strict=True))
    results = []
    for model, clients in cases:
        turns = _turns(facts, clients)
        of_model = {turn: tables[model, turn] for turn in np.unique(turns).tolist()}
        results.append(Evaluation.of_classes(*expected(of_model, facts.label_counts[list(clients)], turns)))
    return results


def _by_person(lab: Lab, cases: Sequence[tuple[Handle, Sequence[int]]], people: np.ndarray) -> list[Evaluation]:
    models = list(dict.fromkeys(model for model, _ in cases))
    measurement = MeasurementChoice("by-owner", NoParams())
    measured = lab.measure_all(measurement, [([model], None) for model in models])
    count = int(people.max()) + 1
    tables = {m: np.pad(table, ((0, 0), (0, count)))[:, :count] for m, table in zip(models, measured, strict=True)}
    results = []
    for model, clients in cases:
        tested, right, losses = tables[model][:, people[list(clients)]]
        if not tested.all():
            message = f"there is no test sample of the person behind client {clients[int(np.argmin(tested))]}"
            raise InputError(f"{message}; test on more samples", "evaluate.samples")
        weights = lab.clients.samples[list(clients)]
        results.append(
            Evaluation.of_classes(*(float(np.average(each / tested, weights=weights)) for each in (right, losses)))
        )
    return results


def _turns(facts: ClientFacts, clients: Sequence[int]) -> np.ndarray:
    return np.zeros(len(clients), np.int64) if facts.turns is None else facts.turns[list(clients)]


def _by_label(turns: int) -> MeasurementChoice:
    return MeasurementChoice("by-label", measurements["by-label"].params.model_validate({"turns": turns}))


def expected(tables: Mapping[int, np.ndarray], label_counts: np.ndarray, turns: np.ndarray) -> tuple[float, float]:
    """Accuracy (a share) and mean cross-entropy on test data as clients hold it together.

    ``label_counts`` [n, classes] and ``turns`` [n] are those of the clients. ``tables`` gives for each number of quarter turns
    that occurs, of every label: its test samples, how many of them are recognised, and the sum of their cross-entropies
    [3, classes]. Raises `InputError` where there are no test samples of a label that the clients hold.
    """
    correct = loss = 0.0
    for turn in np.unique(turns).tolist():
        counts = label_counts[turns == turn].sum(axis=0)
        held = counts > 0
        tested, right, losses = tables[turn][:, held]
        if not tested.all():
            label = np.flatnonzero(held)[tested == 0][0]
            message = f"no test sample has the label {label}, which clients hold; test on more samples"
            raise InputError(message, "evaluate.samples")
        correct += float((counts[held] * (right / tested)).sum())
        loss += float((counts[held] * (losses / tested)).sum())
    total = int(label_counts.sum())
    return correct / total, loss / total
