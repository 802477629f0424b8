"""What a run of an app is: the world of a scenario, and the app in the place of its data, model and method."""

from __future__ import annotations

import copy
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from emulator.contracts.world import Fault
from emulator.errors import InputError, ScenarioError
from emulator.flower.app import App, Value
from emulator.flower.pricing import Price
from emulator.registry import Params
from emulator.scenario.load import check
from emulator.scenario.schema import Output, Stop
from emulator.scenario.topology_schema import Topology
from emulator.scenario.words import Name
from emulator.yamlfile import Document, Mark

RELAY = "relay"
_REPLACED = ("data", "task", "model", "method", "evaluate", "compute")  # the app has its own
_REFUSED = ("attacks", "privacy")
# Of the scenario language, what stands in for the app while a world is checked.
_STAND_IN: dict[str, Any] = {
    "data": {"set": "digits", "partition": "iid"},
    "model": {"kind": "mlp", "hidden": [1]},
    "method": "fedavg",
}


class FlowerSection(Params):
    """The app, and how it is run."""

    app: str = Field(description="its name")
    server: str = Field(description="its ServerApp, as module:object")
    client: str = Field(description="its ClientApp, as module:object")
    sha256: str = Field(description="SHA-256 of its code")
    config: dict[str, Value] = Field(default_factory=dict, description="its run configuration")
    client_time: str = Field(
        "flops", description="what clients' computing takes: flops, samples[:RATE], host:FACTOR or none"
    )
    server_time: str = Field("none", description="what servers' computing takes: flops, host:FACTOR or none")
    edges: str = Field(RELAY, description="relay, or the strategy by which edges aggregate: fedavg, or module:object")
    edge_timeout_s: float | None = Field(None, gt=0, description="how long an aggregating edge waits for its clients")
    accuracy: str | None = Field(None, description="the metric that stands as the accuracy")
    errors: Literal["fail", "report"] = Field(
        "fail", description="what a client's error does: ends the run, or is the reply"
    )

    @field_validator("client_time")
    @classmethod
    def _client_price(cls, given: str) -> str:
        Price.parse(given, ("flops", "samples", "host", "none"))
        return given

    @field_validator("server_time")
    @classmethod
    def _server_price(cls, given: str) -> str:
        Price.parse(given, ("flops", "host", "none"))
        return given

    @property
    def client_price(self) -> Price:
        """What clients' computing takes."""
        return Price.parse(self.client_time, ("flops", "samples", "host", "none"))

    @property
    def server_price(self) -> Price:
        """What servers' computing takes."""
        return Price.parse(self.server_time, ("flops", "host", "none"))


class FlowerScenario(Params):
    """What ``scenario.yaml`` of a run of an app says."""

    name: Name
    notes: str = ""
    seed: int
    flower: FlowerSection
    topology: Topology
    faults: tuple[Fault, ...] = ()
    stop: Stop | None = None
    output: Output = Output()

    @property
    def label(self) -> str:
        """What legends call it: the app."""
        return self.flower.app


def setting_of(document: Document, app: App, how: dict[str, Any]) -> FlowerScenario:
    """The run of an app in the world that a document describes; ``how`` are further keys of `FlowerSection`.

    Raises `ScenarioError` with everything that is wrong with the world, and `InputError` for options that make no sense.
    """
    if not isinstance(document.data, dict):
        check(document)
    wrong = [key for key in _REFUSED if document.data.get(key) is not None]
    if wrong:
        message = "goes with methods of the emulator, not with a Flower app, which has its own; take it out"
        raise ScenarioError(tuple(document.problem((key,), message, at_key=True) for key in wrong))
    given = document.data.get("stop")
    if isinstance(given, dict):
        for key in ("epsilon", "measure"):
            if given.get(key) is not None:
                message = "is not known of a Flower app; stop by 'rounds', 'time', 'cost', 'bytes' or 'accuracy'"
                raise ScenarioError((document.problem(("stop", key), message, at_key=True),))
    world = _world_of(document)
    unlimited = isinstance(given, dict) and given.get("rounds") is None
    try:
        section = FlowerSection(
            app=app.name, server=app.server, client=app.client, sha256=app.sha256, config=app.config, **how
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-").removesuffix("-s")
        raise InputError(f"{option}: {first['msg']}") from None
    stop = world.stop.model_copy(update={"rounds": None}) if unlimited else world.stop
    return FlowerScenario(
        name=world.name,
        notes=world.notes,
        seed=world.seed,
        flower=section,
        topology=world.topology,
        faults=world.faults,
        stop=None if given is None else stop,
        output=world.output.model_copy(update={"against": (), "keep_models": None}),
    )


def _world_of(document: Document) -> Any:
    """The scenario with a stand-in for what the app has itself, checked: what is wrong is wrong with the world."""
    data = {key: value for key, value in copy.deepcopy(document.data).items() if key not in _REPLACED}
    data |= copy.deepcopy(_STAND_IN)
    stop = data.get("stop")
    if stop is None:
        data["stop"] = {"rounds": 1}
    elif isinstance(stop, dict) and stop.get("rounds") is None:
        data["stop"] = {**stop, "rounds": 1}
    if isinstance(data.get("output"), dict):
        data["output"].pop("against", None)

    def kept(marks: dict[Any, Mark]) -> dict[Any, Mark]:
        return {path: mark for path, mark in marks.items() if not path or path[0] not in _REPLACED}

    return check(
        Document(document.file, data, kept(document.keys), kept(document.values), document.notes), False
    ).scenario
