"""What pre-trained models predict for public samples: confidence (S4 Eq. 2), signature (S1 §III-A), soft labels (S5 §III-A)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from emulator.contracts.methods import EstimatorFacts, estimators
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import (
    ESTIMATE,
    NUMBER_BYTES,
    PublicParams,
    Work,
    charge,
    measured,
    train,
)
from emulator.methods.session import Session
from emulator.registry import Scale
from emulator.world.world import Steps, World


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


@estimators.register("confidence", ClassScoresParams, EstimatorFacts(per_class=True))
def confidence(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> Steps:
    """Confidence vector: softmax over classes of the mean score that public samples of a class get for it."""
    scores = yield from class_scores(session, enquiry, params)
    powers = np.exp(scores[:, 0] - scores[:, 0].max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@estimators.register("signature", ClassScoresParams, EstimatorFacts(per_class=True))
def signature(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> Steps:
    """Signature vector: the mean softmax score that public samples of each class get for their class."""
    scores = yield from class_scores(session, enquiry, params)
    return scores[:, 1]


def class_scores(session: Session, enquiry: Enquiry, params: ClassScoresParams) -> Steps:
    """Mean score and mean softmax score of every class [clients, 2, classes]; one measurement serves both estimators."""
    scores = np.stack(measured(session.lab, "class-scores", params))
    if params.predicted_by == "client":
        public = session.scenario.data.public * scores.shape[2]
        work, up_bytes = train_and_predict(session, params, public), NUMBER_BYTES * scores.shape[2]
    else:
        work, up_bytes = train(session, params), session.world.workload.model_bytes
    yield from charge(session, enquiry, work, up_bytes)
    return scores


@estimators.register("soft-labels", PublicParams)
def soft_labels(session: Session, enquiry: Enquiry, params: PublicParams) -> Steps:
    """Soft labels: softmax scores of all public samples, laid end to end.

    The distance `kl` between two rows is the mean divergence over the samples (S5 Eq. 4).
    """
    labels = np.stack(measured(session.lab, "soft-labels", params))
    rows = labels.reshape(len(labels), -1).astype(np.float64)
    work = train_and_predict(session, params, labels.shape[1])
    yield from charge(session, enquiry, work, NUMBER_BYTES * rows.shape[1])
    return rows


def train_and_predict(session: Session, params: PublicParams, public: int) -> Work:
    """A client's work: training the whole model, and predicting so many public samples."""
    trained = train(session, params)

    def work(world: World, client: int) -> Steps:
        if not (yield from trained(world, client)):
            return False
        return (yield world.predict(client, world.workload.forward_flops, public, params.batch_size, ESTIMATE))

    return work
