"""The scenario language: what a scenario may say, section by section.

Cross-section rules are in `checks`; reading files, presets and ``--set`` in `load`. Nothing here imports torch.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from emulator.compute import Compute
from emulator.contracts.learning import DataSet, Model, Partition
from emulator.contracts.methods import Attack, Method
from emulator.contracts.tasks import Task, TaskChoice, task_named
from emulator.contracts.world import Fault
from emulator.files import slug
from emulator.registry import Params
from emulator.scenario.prices import Prices
from emulator.scenario.privacy_schema import Privacy
from emulator.scenario.topology_schema import Topology
from emulator.scenario.uncertain_schema import Uncertain
from emulator.scenario.words import NAME, Count, Name, PositiveEpsilon
from emulator.units import ClientSeconds, PositiveBytes, PositiveSeconds, Seconds


def name_of(file: str) -> str:
    """The name of a scenario or a study that states none: that of its file, or what of it may stand in a name."""
    stem = Path(file).stem[:80]
    return stem if re.fullmatch(NAME, stem) else slug(stem).lstrip("_.+-") or "run"


class Data(Params):
    """Which data the clients hold and how it is divided between them."""

    set: DataSet = Field(description="the data set")
    partition: Partition = Field(description="how the training samples are divided between the clients")
    public: Annotated[int, Field(ge=0)] = Field(0, description="samples per class that are public")
    public_set: DataSet | None = Field(
        None,
        description="another data set whose training samples are the public ones ('public' of each of its classes), fitted to "
        "the shape of the clients' samples; nothing is then kept back",
    )

    public_split: Literal["train", "test"] = Field(
        "train",
        description="where public samples come from: kept back from the training samples, or taken from the test samples, which "
        "still count for testing (S4)",
    )

    @property
    def kept_back(self) -> int:
        """Training samples of each class of the clients' own set that are public, and so no client's."""
        return self.public if self.public_set is None and self.public_split == "train" else 0


class Stop(Params):
    """When to stop: at the end of the first round that reaches any of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    rounds: Count | None = Field(None, description="global rounds")
    time: PositiveSeconds | None = Field(None, description="emulated time")
    cost: ClientSeconds | None = Field(None, description="client-seconds of training and group operations (S2 Eq. 5)")
    bytes: PositiveBytes | None = Field(None, description="bytes over all links")
    epsilon: PositiveEpsilon | None = Field(None, description="privacy spent, in runs with 'privacy'")
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="test accuracy, as a share")

    measure: dict[str, float] | None = Field(
        None, min_length=1, description="values of measures of the task that are good enough, such as {mae: 40}"
    )

    @model_validator(mode="after")
    def _any(self) -> Stop:
        given = (self.rounds, self.time, self.cost, self.bytes, self.epsilon, self.accuracy, self.measure)
        if all(value is None for value in given):
            known = "'rounds', 'time', 'cost', 'bytes', 'epsilon', 'accuracy', 'measure'"
            raise PydanticCustomError("stop", "give at least one of {known}", {"known": known})
        return self

    @property
    def goals(self) -> dict[str, float]:
        """What is good enough, by measure; what is known only by testing models."""
        return {**({} if self.accuracy is None else {"accuracy": self.accuracy}), **(self.measure or {})}

    @property
    def budget(self) -> dict[str, float]:
        """Limits that the last round may cross: of time, cost, bytes and epsilon, as far as there are, in SI units."""
        limits = {"time": self.time, "cost": self.cost, "bytes": self.bytes, "epsilon": self.epsilon}
        return {name: limit for name, limit in limits.items() if limit is not None}


class Personal(Params):
    """How clients fine-tune, each on its own data, the model that they would be served, before it is tested."""

    epochs: Count = Field(1, description="passes over the client's samples")
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None, description="step size; by default that of the method's local rule in the round"
    )
    clients: Count | None = Field(None, description="at most so many clients, drawn once; by default all")


class Evaluate(Params):
    """When the global model is tested. Testing takes no emulated time; the last round is always tested."""

    every: Count = Field(1, description="rounds between two evaluations")
    samples: Count | None = Field(None, description="test on the first so many test samples only")
    last_rounds: Count | None = Field(
        None,
        description="rounds at the end of whose evaluations results say the mean; by default a tenth of those made",
    )
    clusters: bool | None = Field(
        None,
        description="accuracy by cluster and by client too, on data distributed as theirs; without it, where the partition makes "
        "clusters or the method has a model for each",
    )
    personal: Personal | None = Field(
        None,
        description="accuracy by client too, before and after each has fine-tuned the model that it would be served; takes no "
        "emulated time",
    )


class KeepModels(Params):
    """After which rounds models are kept in the run folder, so that a what-if need not train what came before them."""

    every: Count = Field(description="rounds from one to the next")
    most: PositiveBytes = Field(
        "1 GB",
        validate_default=True,
        description="room for all of them; where it is full, every second one is deleted, and 'every' doubles",
    )


def _every(given: Any) -> Any:
    return {"every": given} if isinstance(given, int) else given


class Output(Params):
    """What is written beside the measurements."""

    against: tuple[str, ...] = Field(
        (), strict=False, description="presets to run in the same world and to draw beside this one"
    )
    plot: bool = Field(True, description="draw accuracy.png")
    checkpoint: Seconds = Field(
        "30 s",  # read as a scenario's own text would be
        validate_default=True,
        description="real time between two checkpoints; 0 writes one after every round",
    )
    keep_models: Annotated[
        KeepModels | None, BeforeValidator(_every, json_schema_input_type=KeepModels | Count | None)
    ] = Field(None, description="models that the run folder keeps: a number N is 'every: N'; null: none")


class Placed(Protocol):
    """What the world of time asks of whatever is run in it: who is there, what goes wrong, and the seed of all chance."""

    @property
    def seed(self) -> int:
        """What determines everything random."""

    @property
    def topology(self) -> Topology:
        """Fleet, links and devices."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What goes wrong, and when."""


class Scenario(Params):
    """A whole scenario."""

    name: Name = Field(description="names the run and its default folder; without it, the name of the file does")
    notes: Annotated[str, StringConstraints(max_length=10_000)] = Field("", description="free text, kept with the run")
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(0, description="determines everything random")
    data: Data
    task: Task | None = Field(
        None, description="what is learned: loss and measures; without it, what the labels of the data set are for"
    )
    model: Model = Field(description="the model that the clients train")
    topology: Topology
    method: Method = Field(description="a preset, a mix of slots, or a preset with some slots changed")
    faults: tuple[Fault, ...] = Field((), strict=False, description="what goes wrong, and when")
    attacks: Attack | None = Field(None, description="what malicious clients do")
    privacy: Privacy | None = Field(None, description="differential privacy of clients; null: none")
    prices: Prices | None = Field(None, description="a price list, or a file with one; null: none")
    stop: Stop
    evaluate: Evaluate = Evaluate()
    compute: Compute = Compute()
    output: Output = Output()
    uncertain: Uncertain | None = Field(
        None,
        description="what is not known for sure about the world; hfl certify draws from it, a run does not heed it",
    )

    @cached_property
    def objective(self) -> TaskChoice:
        """What is learned: the task that is named, or else that of the data set."""
        return task_named(self.data.set.task) if self.task is None else self.task

    @property
    def label(self) -> str:
        """What legends call its method: the preset, or the kind."""
        return str(self.method.params.preset or self.method.kind)
