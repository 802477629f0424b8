"""What pre-trained models predict for public samples: confidence (S4 Eq. 2), signature (S1 §III-A), soft labels (S5 §III-A)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from emulator.contracts.methods import EstimatorFacts, estimators
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import (
    ESTIMATE,
    NUMBER_BYTES,
    PublicParams,
    ask_for_estimates,
    number_bytes,
    pretrain,
    rows_of_all,
)
from emulator.methods.session import Session
from emulator.registry import Scale
from emulator.world.world import Steps, StepsTo


class ClassScoresParams(PublicParams):
    """Pre-training, and who holds the public samples."""

    predicted_by: Literal["client", "server"] = Field(
        "client",
        description="who predicts the public samples; clients send up one number for each class, or their whole models",
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Public samples must be of the clients' own classes."""
        yield from super().problems(scale)
        if not scale.own_public:
            yield "", "needs public samples of the clients' own classes; leave data.public_set out"


@estimators.register("confidence", ClassScoresParams, EstimatorFacts(by_class=True, per_class=True))
def confidence(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> Steps:
    """Confidence vector: softmax over classes of the mean score that public samples of a class get for it."""
    told = yield from class_scores(session, enquiry, params)
    scores = _stacked(told, 0)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
    return rows_of_all(session, told, powers / powers.sum(axis=1, keepdims=True))


@estimators.register("signature", ClassScoresParams, EstimatorFacts(by_class=True, per_class=True))
def signature(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> Steps:
    """Signature vector: the mean softmax score that public samples of each class get for their class."""
    told = yield from class_scores(session, enquiry, params)
    return rows_of_all(session, told, _stacked(told, 1))


def class_scores(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> StepsTo[dict[int, np.ndarray]]:
    """Mean score and mean softmax score of every class [2, classes], by client; one measurement serves both estimators."""
    classes, lab = session.lab.clients.label_counts.shape[1], session.lab
    if params.predicted_by == "client":
        work = partial(train_and_predict, session, params, "class-scores", session.scenario.data.public * classes)
        return (yield from ask_for_estimates(session, enquiry, work, lambda _: NUMBER_BYTES * classes))
    models = yield from ask_for_estimates(
        session, enquiry, partial(pretrain, session, params), lambda _: session.world.workload.model_bytes
    )
    clients = list(models)
    scores = lab.measure_all("class-scores", (([models.pop(c).model], None) for c in clients))
    return dict(zip(clients, scores, strict=True))


def _stacked(told: Mapping[int, np.ndarray], row: int) -> np.ndarray:
    return np.stack([scores[row] for scores in told.values()]) if told else np.zeros((0, 1))


@estimators.register("soft-labels", PublicParams, EstimatorFacts(by_class=True))
def soft_labels(session: Session, enquiry: Enquiry, params: PublicParams) -> Steps:
    """Soft labels: softmax scores of all public samples, laid end to end.

    The distance `kl` between two rows is the mean divergence over the samples (S5 Eq. 4).
    """
    public = session.scenario.data.public * session.lab.clients.label_counts.shape[1]
    work = partial(train_and_predict, session, params, "soft-labels", public)
    told = yield from ask_for_estimates(session, enquiry, work, number_bytes)
    rows = [labels.reshape(-1).astype(np.float64) for labels in told.values()]
    return rows_of_all(session, told, np.stack(rows) if rows else np.zeros((0, 1)))


def train_and_predict(
    session: Session, params: PublicParams, measurement: str, public: int, client: int
) -> StepsTo[np.ndarray | None]:
    """A client's work: training the whole model, and predicting so many public samples, of which it tells a measurement."""
    trained = yield from pretrain(session, params, client)
    if trained is None:
        return None
    world = session.world
    forward, size = world.workload.forward, params.batch_size
    return (
        yield from session.measure(
            lambda begun: world.predict(client, forward, public, size, ESTIMATE, begun), measurement, [trained.model]
        )
    )
