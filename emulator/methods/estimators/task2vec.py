"""Task2Vec (ψ_t2v of S4 §III-B; Achille et al. 2019): which filters a client's data lean on. It needs no public samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from devices.compute import PASSES
from emulator.contracts.learning import MeasurementChoice
from emulator.contracts.methods import estimators
from emulator.learning import probe
from emulator.learning.data.arrays import is_text
from emulator.learning.measurements import FisherParams, TextFisherParams
from emulator.learning.timing import AnyLab
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
from emulator.world.world import Steps, World


class Task2VecParams(PretrainingParams):
    """Fine-tuning of the classifier, and the passes after it."""

    passes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="passes over the client's samples for the Fisher information, each with newly drawn labels"
    )


@estimators.register("task2vec", Task2VecParams)
def task2vec(session: Session, enquiry: Enquiry, params: Task2VecParams) -> Steps:
    """Task2Vec: Fisher information of the feature extractor's filters, after fine-tuning the classifier alone.

    The probe is the scenario's own model, untrained; S4 takes one that was trained on other data. Texts are read by a small
    transformer instead (`emulator.learning.probe`), as S4 does. An epoch of fine-tuning is a forward pass, and one more
    through the last layer; a pass for the Fisher information is one of training.
    """
    lab, samples = session.lab, session.lab.clients.samples
    found = _of_texts(lab, params) if is_text(lab.sample_shape) else _of_the_model(lab, params)
    rows = np.stack(found.rows)
    if found.probe_bytes is not None and enquiry.model_bytes:
        enquiry = replace(enquiry, model_bytes=found.probe_bytes)

    def work(world: World, client: int) -> Steps:
        n, flops = int(samples[client]), found.forward_flops + 2 * found.last
        if not (yield world.predict(client, flops, n * params.epochs, params.batch_size, PRETRAINING)):
            return False
        if found.probe_bytes is None:
            return (yield world.train(client, n, params.passes, params.batch_size, ESTIMATE))
        times = PASSES * params.passes  # what `train` would take for this model
        return (yield world.predict(client, found.forward_flops, n * times, params.batch_size, ESTIMATE))

    yield from charge(session, enquiry, work, NUMBER_BYTES * rows.shape[1])
    return rows


@dataclass(frozen=True)
class _Found:
    """What a probe says of each client, its operations for a sample, how many parameters its last layer has, and its bytes.

    No bytes: the probe is the scenario's model.
    """

    rows: list[np.ndarray]
    forward_flops: float
    last: int
    probe_bytes: int | None = None


def _of_the_model(lab: AnyLab, params: Task2VecParams) -> _Found:
    fisher = MeasurementChoice("fisher", FisherParams(passes=params.passes))
    rows = lab.measure_all(fisher, pretrained(lab, params, "classifier-sgd"))
    return _Found(rows, lab.model_facts.forward_flops, len(lab.measure("classifier-weights", [lab.initial()])))


def _of_texts(lab: AnyLab, params: Task2VecParams) -> _Found:
    fisher = MeasurementChoice("text-fisher", TextFisherParams.model_validate(params.model_dump()))
    rows = lab.measure_all(fisher, (((), client) for client in range(len(lab.clients.samples))))
    size = lab.sample_shape[0], lab.clients.label_counts.shape[1]
    probe_bytes = NUMBER_BYTES * probe.transformer_parameters(*size)
    return _Found(rows, probe.transformer_flops(*size), probe.classifier_parameters(size[1]), probe_bytes)
