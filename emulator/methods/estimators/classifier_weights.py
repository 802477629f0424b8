"""The classifier's weights after pre-training (ψ_clf of S4 §III-B): a classifier leans towards what it was trained on."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from emulator.contracts.methods import estimators
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import (
    PretrainingParams,
    ask_for_estimates,
    number_bytes,
    pretrain,
    rows_of_all,
)
from emulator.methods.session import Session
from emulator.world.world import Steps, StepsTo


class ClassifierParams(PretrainingParams):
    """Pre-training, and how much of the weights' variance the server keeps."""

    variance: float = Field(0.9, gt=0, le=1, description="share of the variance that the principal components keep")


@estimators.register("classifier-weights", ClassifierParams)
def classifier_weights(session: Session, enquiry: Enquiry, params: ClassifierParams) -> Steps:
    """Weights of the last layer after pre-training, reduced to the principal components that keep 90 % of their variance.

    The components are those of all clients that were heard, whoever forms the groups.
    """

    def work(client: int) -> StepsTo[np.ndarray | None]:
        trained = yield from pretrain(session, params, client)
        return None if trained is None else session.lab.measure("classifier-weights", [trained.model])

    told = yield from ask_for_estimates(session, enquiry, work, number_bytes)
    rows = principal_components(np.stack(list(told.values())), params.variance) if told else np.zeros((0, 1))
    return rows_of_all(session, told, rows)


def principal_components(rows: np.ndarray, variance: float) -> np.ndarray:
    """The rows in as few principal components as keep so much of their variance; one of zeros where all are equal."""
    rows = rows.astype(np.float64)
    if len(rows) < 2 or (rows == rows[0]).all():
        return np.zeros((len(rows), 1))
    from sklearn.decomposition import PCA
    from threadpoolctl import threadpool_limits

    kept = min(rows.shape) if variance == 1 else variance
    with threadpool_limits(1):  # rounding would depend on the number of cores
        return np.asarray(PCA(kept, svd_solver="full").fit_transform(rows))
