"""Figures of the papers that are no runs: which weights move (S3 Fig. 6), what estimates of clients look like (S4 Figs. 8, 9).

    python benchmarks/papers.py [--weights hicfl/small] [--samples 160] [--clients fedseq/small]
                                [--epochs 1 5 10 20 30 40] [--seed 0]

``--weights`` and ``--clients`` name the scenarios whose clients are trained; by default small ones, on the embedded digits.
``--weights hicfl/fashion --samples 2816`` and ``--clients fedseq/paper`` are about what the papers had.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator

import numpy as np

from emulator.contracts.learning import MeasurementChoice
from emulator.learning.lab import Lab
from emulator.learning.measurements import FisherParams
from emulator.learning.memo import Memo, RunMemory
from emulator.learning.recipes import Handle, LocalTraining
from emulator.methods.estimators.classifier_weights import principal_components
from emulator.methods.estimators.pretraining import PretrainingParams
from emulator.methods.estimators.task2vec import Task2VecParams
from emulator.scenario import Scenario, load

SELECTION = 0.05  # ξ as a share of the learning rate (S3 §V-A)
ROUNDS = 6


def lab_of(scenario: Scenario) -> Lab:
    return Lab(scenario, RunMemory(Memo(None)), max_workers=1)


def pretrained(
    lab: Lab, params: PretrainingParams, kind: str = "sgd", start: Handle | None = None
) -> Iterator[tuple[list[Handle], int]]:
    """Every client's model after pre-training, as the one model of a list, and the client; made as it is asked for."""
    for client in range(len(lab.clients.samples)):
        yield [lab.train(LocalTraining(start or lab.initial(), client, params.rule(kind), 0)).model], client


def measured(lab: Lab, measurement: str, params: PretrainingParams) -> list[np.ndarray]:
    """A measurement on every client's model after pre-training."""
    return lab.measure_all(measurement, ((models, None) for models, _ in pretrained(lab, params)))


def print_weights(name: str, samples: int, seed: int) -> None:
    """S3 Fig. 6: whether the weights whose updates change between two rounds are those that change between the next two."""
    partition = f"{{kind: dominant-label, beta: 0.7, samples_per_client: {samples}, overlap: true}}"
    scenario = load(name, [f"data.partition={partition}", f"seed={seed}"]).scenario
    lab, rule = lab_of(scenario), scenario.method.params.local
    threshold = SELECTION * rule.params.learning_rate
    shares = [float(n) / int(lab.clients.samples.sum()) for n in lab.clients.samples]
    model, updates = lab.initial(), []
    for t in range(1, ROUNDS + 1):
        trained = [lab.train(LocalTraining(model, client, rule, t))[0] for client in range(len(shares))]
        updates.append(lab.value(lab.combine([trained[0], model], [1.0, -1.0])).numpy())
        model = lab.combine(trained, shares)
    changes = [np.abs(b - a) for a, b in itertools.pairwise(updates)]
    print(
        f"S3 Fig. 6, {name}: changes of the first client's update between two rounds in a row, and between the next two"
    )
    for t, (before, after) in enumerate(itertools.pairwise(changes), start=1):
        first, second = before > threshold, after > threshold
        print(
            f"  rounds {t} to {t + 2}: {first.mean():5.1%} of the weights change by more than ξ; of these "
            f"{(first & second).sum() / first.sum():5.1%} do so again, of all {second.mean():5.1%}; "
            f"correlation of the changes {np.corrcoef(before, after)[0, 1]:.2f}"
        )


def print_components(name: str, epochs: list[int], params: PretrainingParams, seed: int) -> None:
    """S4 Fig. 8: principal components that keep 90 % of the variance of the classifiers' weights."""
    print(f"\nS4 Fig. 8, {name}: principal components of the clients' classifiers that keep 90 % of their variance")
    for alpha in (0.0, 0.2, 0.5):
        lab, kept = lab_of(load(name, [f"data.partition.alpha={alpha}", f"seed={seed}"]).scenario), []
        for e in epochs:
            weights = np.stack(measured(lab, "classifier-weights", params.model_copy(update={"epochs": e})))
            kept.append(principal_components(weights, 0.9).shape[1])
        counts = ", ".join(f"{k} ({e})" for k, e in zip(kept, epochs, strict=True))
        print(f"  alpha {alpha}: {counts} of {min(weights.shape)} (after so many epochs)")


def print_distances(name: str, params: PretrainingParams, seed: int) -> None:
    """S4 Fig. 9: how far the estimates of clients of one class each are from each other; with the scenario's own probe."""
    scenario = load(name, ["data.partition.alpha=0", f"seed={seed}"]).scenario
    lab, estimator = lab_of(scenario), scenario.method.params.estimator.params
    trained = isinstance(estimator, Task2VecParams) and estimator.probe is not None
    start = lab.pretrained(estimator.probe) if trained else lab.initial()
    scores = np.stack(measured(lab, "class-scores", params))[:, 0]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    fisher = MeasurementChoice("fisher", FisherParams())
    estimates = {
        "conf": powers / powers.sum(axis=1, keepdims=True),
        "t2v": np.stack(lab.measure_all(fisher, pretrained(lab, params, "classifier-sgd", start))),
    }
    classes = lab.clients.label_counts.argmax(axis=1)
    same = classes[:, None] == classes[None, :]
    others = ~np.eye(len(classes), dtype=bool)
    print(f"\nS4 Fig. 9, {name}: cosine distances of the estimates of clients of one class each")
    for kind, rows in estimates.items():
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        distance = 1 - unit @ unit.T
        held = np.unique(classes)
        between = {(a, b): distance[np.ix_(classes == a, classes == b)].mean() for a in held for b in held if a < b}
        mean = np.mean(list(between.values()))
        spread = np.std(list(between.values())) / mean
        (near, near_at), (far, far_at) = (
            choose((float(d), pair) for pair, d in between.items()) for choose in (min, max)
        )
        print(
            f"  {kind:4} same class {distance[same & others].mean():.4f}, other class {mean:.4f}; over "
            f"pairs of classes {spread:.0%} spread, least {near:.4f} ({near_at[0]} and {near_at[1]}), most {far:.4f} "
            f"({far_at[0]} and {far_at[1]})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="hicfl/small")
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--clients", default="fedseq/small")
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 5, 10, 20, 30, 40])
    parser.add_argument("--seed", type=int, default=0, help="of all scenarios")
    given = parser.parse_args()
    params = PretrainingParams(epochs=10, batch_size=10, learning_rate=0.05)
    print_weights(given.weights, given.samples, given.seed)
    print_components(given.clients, given.epochs, params, given.seed)
    print_distances(given.clients, params, given.seed)


if __name__ == "__main__":
    main()
