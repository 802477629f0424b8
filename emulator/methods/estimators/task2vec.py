"""Task2Vec (ψ_t2v of S4 §III-B; Achille et al. 2019): which filters a client's data lean on. It needs no public samples."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from emulator.learning.measurements import FisherParams
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import (
    ESTIMATE,
    NUMBER_BYTES,
    PRETRAINING,
    PretrainingParams,
    charge,
    pretrained,
)
from emulator.methods.session import Session
from emulator.registry import Chosen, estimators
from emulator.world.world import Steps, World


class Task2VecParams(PretrainingParams):
    """Fine-tuning of the classifier, and the passes after it."""

    passes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="passes over the client's samples for the Fisher information, each with newly drawn labels"
    )


@estimators.register("task2vec", Task2VecParams)
def task2vec(session: Session, enquiry: Enquiry, params: Task2VecParams) -> Steps:
    """Task2Vec: Fisher information of the feature extractor's filters, after fine-tuning the classifier alone.

    The probe is the scenario's own model, untrained; S4 takes one that was trained on other data. An epoch of fine-tuning is a
    forward pass, and one more through the last layer; a pass for the Fisher information is one of training.
    """
    lab = session.lab
    fisher = Chosen("measurement", "fisher", FisherParams(passes=params.passes))
    rows = np.stack(lab.measure_all(fisher, pretrained(lab, params, "classifier-sgd")))
    last = len(lab.measure("classifier-weights", [lab.initial()]))
    samples = lab.clients.samples

    def work(world: World, client: int) -> Steps:
        n, flops = int(samples[client]), world.workload.forward_flops + 2 * last
        if not (yield world.predict(client, flops, n * params.epochs, params.batch_size, PRETRAINING)):
            return False
        return (yield world.train(client, n, params.passes, params.batch_size, ESTIMATE))

    yield from charge(session, enquiry, work, NUMBER_BYTES * rows.shape[1])
    return rows
