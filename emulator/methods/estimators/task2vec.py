"""Task2Vec (ψ_t2v of S4 §III-B; Achille et al. 2019): which filters a client's data lean on. It needs no public samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import simpy
from pydantic import Field

from devices.compute import PASSES, Arithmetic
from emulator.contracts.learning import MeasurementChoice
from emulator.contracts.methods import EstimatorFacts, estimators
from emulator.learning.data.arrays import is_text
from emulator.learning.interface import AnyLab
from emulator.learning.keys import content_key
from emulator.learning.measurements import FisherParams, TextFisherParams
from emulator.learning.probe import ProbeParams, classifier_parameters, transformer_flops, transformer_parameters
from emulator.learning.recipes import LocalTraining
from emulator.methods.estimators.asking import Enquiry
from emulator.methods.estimators.pretraining import (
    ESTIMATE,
    NUMBER_BYTES,
    PRETRAINING,
    PretrainingParams,
    ask_for_estimates,
    number_bytes,
    rows_of_all,
)
from emulator.methods.session import Session
from emulator.registry import Scale
from emulator.world.device_queues import Begun
from emulator.world.world import Steps, StepsTo


class Task2VecParams(PretrainingParams):
    """Fine-tuning of the classifier, and the passes after it."""

    passes: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="passes over the client's samples for the Fisher information, each with newly drawn labels"
    )
    probe: ProbeParams | None = Field(
        None,
        description="the data set on which the probe is trained before clients get it; without it, it has random weights",
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """Images and texts cannot stand in for each other."""
        shapes = () if self.probe is None else (scale.shape, self.probe.data.shape)
        if shapes and None not in shapes and len({is_text(shape) for shape in shapes if shape}) > 1:
            yield (
                "probe.data",
                "the clients' samples and those of the probe's data set must both be images, or both texts",
            )


@estimators.register("task2vec", Task2VecParams, EstimatorFacts(by_class=True))
def task2vec(session: Session, enquiry: Enquiry, params: Task2VecParams) -> Steps:
    """Task2Vec: Fisher information of the feature extractor's filters, after fine-tuning the classifier alone.

    The probe is the scenario's own model. Its extractor is trained first on the data set of ``probe``, as in S4, or has random
    weights. Texts are read by a small transformer instead (`emulator.learning.probe`). To train the probe takes no time on the
    clock: S4's were published ones. An epoch of fine-tuning is a forward pass, and one more through the last layer; a pass for
    the Fisher information is one of training.
    """
    lab, world, held = session.lab, session.world, session.lab.clients.samples
    probe = _probe_of(lab, world.workload.forward, params)
    if probe.own_bytes is not None and enquiry.model_bytes:
        enquiry = replace(enquiry, model_bytes=probe.own_bytes)
    rule = params.rule("classifier-sgd")
    start = lab.initial() if params.probe is None else lab.pretrained(params.probe)

    def work(client: int) -> StepsTo[np.ndarray | None]:
        n, size = int(held[client]), params.batch_size
        tuning = replace(probe.forward, extra_flops=2 * probe.last)
        tuned = yield from session.work(
            lambda begun: world.predict(client, tuning, n * params.epochs, size, PRETRAINING, begun),
            lambda: [] if probe.own_bytes else [lab.train(LocalTraining(start, client, rule, 0)).model],
        )
        if tuned is None:
            return None

        def passes(begun: Begun) -> simpy.Event:
            if probe.own_bytes is None:
                return world.train(client, n, params.passes, size, ESTIMATE, begun=begun)
            times = PASSES * params.passes  # what `train` would take for this model
            return world.predict(client, probe.forward, n * times, size, ESTIMATE, begun)

        return (yield from session.measure(passes, probe.measurement, tuned, client))

    told = yield from ask_for_estimates(session, enquiry, work, number_bytes)
    return rows_of_all(session, told, np.stack(list(told.values())) if told else np.zeros((0, 1)))


@dataclass(frozen=True)
class _Probe:
    """What is measured of a probe, its forward pass, how many parameters its last layer has, and its bytes.

    No bytes: the probe is the scenario's model.
    """

    measurement: MeasurementChoice
    forward: Arithmetic
    last: int
    own_bytes: int | None = None


def _probe_of(lab: AnyLab, forward: Arithmetic, params: Task2VecParams) -> _Probe:
    if not is_text(lab.sample_shape):
        fisher = MeasurementChoice("fisher", FisherParams(passes=params.passes))
        return _Probe(fisher, forward, len(lab.measure("classifier-weights", [lab.initial()])))
    key = "" if params.probe is None else content_key("probe", params.probe.key())
    fisher = MeasurementChoice("text-fisher", TextFisherParams(**dict(params), probe_key=key))
    size = lab.sample_shape[0], lab.clients.label_counts.shape[1]
    own_bytes = NUMBER_BYTES * transformer_parameters(*size)
    return _Probe(fisher, Arithmetic(transformer_flops(*size)), classifier_parameters(size[1]), own_bytes)
