"""The scenario language: what a scenario may say, section by section.

Cross-section rules are in `checks`; reading files, presets and ``--set`` in `load`. Nothing here imports torch.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from emulator.compute import Compute
from emulator.contracts.files import TraceFormat, TraceGenerator
from emulator.contracts.learning import DataSet, Model, Partition
from emulator.contracts.methods import Attack, Method
from emulator.contracts.world import Fault, TransportKind
from emulator.files import slug
from emulator.registry import Params
from emulator.units import BitsPerSecond, ClientSeconds, PositiveBytes, PositiveSeconds, Seconds

NAME = r"^[A-Za-z0-9][A-Za-z0-9 _.+-]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=NAME)]
Count = Annotated[int, Field(ge=1, le=100_000_000)]
TierName = Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=r"^[a-z][a-z0-9]*$")]


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


class Jitter(Params):
    """Random extra latency, drawn for every transfer."""

    kind: Literal["exponential", "uniform", "normal"] = Field(
        description="exponential with this mean; uniform from 0 to it; normal around 0 with this standard deviation"
    )
    scale: PositiveSeconds


class Imperfect(Params):
    """What every kind of link may have."""

    latency: Seconds = Field(0.0, description="one way, added once to every transfer")
    jitter: Jitter | None = Field(None, description="random extra latency; the sum is never below 0")
    overhead: Seconds = Field(0.0, description="fixed time of every transfer beside its latency (handshakes, protocol)")
    loss: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of packets lost and sent again: leaves 1 - loss of the bandwidth"
    )


class PlayedTrace(Params):
    """A trace that links or devices of one kind play, each from an instant of its own."""

    file: str = Field(description="a trace file, or the name of a bundled sample (hfl traces inspect)")
    format: TraceFormat | None = Field(None, description="its format; without it the format is told by the content")
    start: Literal["random", "together"] = Field("random", description="from where each of them plays it")
    end: Literal["repeat", "hold"] | None = Field(
        None, description="after its end it starts over, or keeps its last value; without it the file must say which"
    )


class Availability(Params):
    """When clients are online: from a trace file, or made by a generator. Each client has its own place in it."""

    trace: PlayedTrace | None = Field(
        None, description="availability over time; where a file has several clients, each plays its own"
    )
    generator: TraceGenerator | None = Field(None, description="in place of a trace: what makes one for each client")
    period: PositiveSeconds = Field(
        "1 d", validate_default=True, description="for a generator: after this time its traces start over"
    )
    work: Literal["lost", "paused"] = Field(
        "lost", description="what becomes of a transfer or a training of a client that goes offline"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Availability:
        if (self.trace is None) == (self.generator is None):
            raise PydanticCustomError("availability", "give either 'trace' or 'generator'")
        return self


class Link(Imperfect):
    """A link between two neighbours. ``up`` is towards the cloud, ``down`` away from it; the two never share bandwidth."""

    up: BitsPerSecond
    down: BitsPerSecond
    trace: PlayedTrace | None = Field(
        None, description="bandwidth over time, in place of 'up' and 'down'; a latency in the file adds to 'latency'"
    )


class SharedLink(Params):
    """Bandwidth that many share. ``up`` is towards the cloud, ``down`` away from it."""

    up: BitsPerSecond
    down: BitsPerSecond


class PeerLink(Imperfect):
    """What a client has for direct transfers to and from other clients."""

    bandwidth: BitsPerSecond


class SiteLatencies(Params):
    """Latencies between sites, at which the cloud and the edges are: each edge at a random one, drawn from the seed."""

    file: str = Field(description="a matrix of latencies, or the name of a bundled sample (hfl traces inspect)")
    format: TraceFormat | None = Field(None, description="its format; without it the format is told by the content")
    cloud: Annotated[int, Field(ge=1)] | None = Field(
        None, description="number of the cloud's site, from 1; without it the one with the least mean latency"
    )


class Links(Params):
    """The kinds of links. Defaults: a home broadband line, a fibre backhaul, no direct links between clients."""

    access: Link = Field(
        Link.model_construct(up=10e6, down=50e6, latency=0.015), description="client to edge (or to the cloud)"
    )
    backhaul: Link = Field(Link.model_construct(up=1e9, down=1e9, latency=0.010), description="edge to cloud")
    cell: SharedLink | None = Field(
        None, description="what all clients of an edge share; without it there is no such limit"
    )
    cloud: SharedLink | None = Field(
        None, description="the cloud's port, shared by all edges; without it there is no such limit"
    )
    peer: PeerLink | None = Field(None, description="client to client; without it such transfers go through the edge")
    latencies: SiteLatencies | None = Field(
        None,
        description="sites of cloud and edges: in place of backhaul.latency, and of peer.latency between clients of two edges",
    )


class OwnLinks(Params):
    """What is other on the links of some clients or servers than on those of their kind (links.access, links.backhaul)."""

    up: BitsPerSecond | None = None
    down: BitsPerSecond | None = None
    latency: Seconds | None = None
    jitter: Jitter | None = None
    overhead: Seconds | None = None
    loss: Annotated[float, Field(ge=0, lt=1)] | None = None
    trace: PlayedTrace | None = None

    def over(self, kind: Link) -> Link:
        """A link as the kind has it, but for what is said here."""
        said = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        return kind.model_copy(update=said) if said else kind


class MeasuredDevices(Params):
    """Devices that differ as those of a mix do, in computing speed and, if wanted, in the bandwidth of their access links."""

    mix: str = Field(description="a file with a mix of devices, or the name of a bundled sample (hfl traces inspect)")
    format: TraceFormat | None = Field(None, description="its format; without it the format is told by the content")
    median: str = Field(
        "raspberry-pi-4b",
        description="profile of a device of median speed: a kind of twice the speed takes half its times",
    )
    bandwidth: bool = Field(False, description="the kind's bandwidth in place of links.access.up and links.access.down")


Shares = Annotated[dict[str, Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
_shares: TypeAdapter[dict[str, float]] = TypeAdapter(Shares)


# A union would answer a mistake in one of its members with both; so these look at what is given first.


def _shares_of(given: Any, _: Any) -> Any:
    """One device by its name is all of them."""
    return _shares.validate_python({given: 1.0} if isinstance(given, str) else given, strict=True)


def _devices(given: Any, handler: Any) -> Any:
    """A mapping with 'mix' is a mix; any other one holds shares."""
    if isinstance(given, MeasuredDevices) or (isinstance(given, dict) and "mix" in given):
        return MeasuredDevices.model_validate(given)
    return _shares_of(given, handler)


def _counted_or_listed(given: Any, _: Any) -> Any:
    """A list has kinds of clients; anything else is their number."""
    if given is None:
        return None
    if isinstance(given, list | tuple):
        return _kinds.validate_python(tuple(given), strict=True)
    return _count.validate_python(given, strict=True)


def _named_or_listed(given: Any, _: Any) -> Any:
    """A text names a file; anything else lists servers."""
    if given is None or isinstance(given, str):
        return given
    return _nodes.validate_python(tuple(given) if isinstance(given, list) else given, strict=True)


class ClientKind(Params):
    """Clients that are alike, beside others."""

    name: Name | None = Field(None, description="begins their names: 'pi' gives pi-0, pi-1, ...; without it, client-N")
    count: Count | None = Field(None, description="how many there are")
    share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="or which share of 'topology.total' they are"
    )
    devices: Annotated[Shares, WrapValidator(_shares_of)] | None = Field(
        None, description="their device, or shares of several; without it, as topology.devices says"
    )
    speed: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="how many times as fast they compute as their profile says"
    )
    links: OwnLinks = Field(OwnLinks(), description="what is other on their links than links.access says")
    edges: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, min_length=1, description="numbers of the servers they are behind, in equal blocks; without it, all"
    )

    @model_validator(mode="after")
    def _one_number(self) -> ClientKind:
        if (self.count is None) == (self.share is None):
            raise PydanticCustomError("kind", "give either 'count' or 'share'")
        return self


class ServerNode(Params):
    """A server between the cloud and the clients."""

    name: Name
    parent: str = Field("cloud", description="the server right above it, by its name")
    tier: TierName | None = Field(None, description="its tier; without it, by how deep it stands")
    device: str | None = Field(None, description="its profile; without it, topology.edge_device")
    links: OwnLinks = Field(OwnLinks(), description="what is other on its link upwards than links.backhaul says")
    cell: SharedLink | None = Field(None, description="what all right below it share")


class Tier(Params):
    """Servers of one tier, in equal blocks behind those of the tier above."""

    name: TierName
    count: Annotated[int, Field(ge=1, le=1_000_000)]
    device: str | None = Field(None, description="their profile; without it, topology.edge_device")
    links: OwnLinks = Field(OwnLinks(), description="what is other on their links upwards than links.backhaul says")
    cell: SharedLink | None = Field(None, description="what all right below one of them share")


class Topology(Params):
    """The fleet: a cloud, servers below it, and clients. Without more, clients are dealt out to the edges in equal blocks."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"anyOf": [{"required": [name]} for name in names]}
                for names in (("edges", "tiers", "servers"), ("clients", "fleet"))
            ]
        }
    )

    edges: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        None,
        description="edge servers; 0 puts every client straight under the cloud. In its place: 'tiers' or 'servers'",
    )
    tiers: tuple[Tier, ...] | None = Field(
        None, min_length=1, description="tiers of servers between the cloud and the clients, from the top"
    )
    servers: Annotated[str | tuple[ServerNode, ...], WrapValidator(_named_or_listed)] | None = Field(
        None, description="every server by itself: a file (CSV, YAML, Parquet) or a list"
    )
    clients: Annotated[Count | tuple[ClientKind, ...], WrapValidator(_counted_or_listed)] | None = Field(
        None, description="clients in all, or kinds of clients. In its place: 'fleet'"
    )
    total: Count | None = Field(None, description="clients in all, where kinds of clients say their shares")
    fleet: str | None = Field(None, description="a file (CSV, YAML, Parquet) with a row for each client")
    devices: Annotated[Shares | MeasuredDevices, WrapValidator(_devices)] = Field(
        {"raspberry-pi-4b": 1.0},
        description="device of the clients: a profile, shares of several that add up to 1, or a measured mix",
    )
    speed: PlayedTrace | None = Field(
        None,
        description="speed of the clients' devices over time, as a multiple of what their profile says (throttling)",
    )
    availability: Availability | None = Field(
        None, description="when clients are online; without it, always. Clients that are offline are not chosen"
    )
    edge_device: str = Field("edge-server", description="profile of the edge servers")
    cloud_device: str = Field("cloud-server", description="profile of the cloud")
    links: Links = Links()
    sharing: Literal["max-min", "dedicated"] = Field(
        "max-min", description="how concurrent transfers share a link: max-min fairly, or each as if it were alone"
    )
    transport: TransportKind = Field(
        "tcp",
        validate_default=True,
        description="what a transfer takes beside latency and bandwidth: nothing (fluid), or what TCP takes",
    )
    buffers: Literal["sent", "local"] = Field(
        "sent",
        description="float buffers of a model, such as running means of BatchNorm: sent with its parameters, or left out of "
        "the bytes (S5 counts parameters). Models are averaged with them either way",
    )

    @property
    def client_count(self) -> int:
        """Clients in all. Reads the file of the fleet, where there is one; raises `InputError` where it cannot be read."""
        from emulator.scenario.roster import count_clients  # which reads what is said here

        return self.clients if isinstance(self.clients, int) else count_clients(self)


_kinds: TypeAdapter[tuple[ClientKind, ...]] = TypeAdapter(tuple[ClientKind, ...])
_nodes: TypeAdapter[tuple[ServerNode, ...]] = TypeAdapter(tuple[ServerNode, ...])
_count: TypeAdapter[int] = TypeAdapter(Count)


def blocks(count: int, places: int) -> list[range]:
    """So many in so many blocks of neighbours that differ by at most one."""
    base, extra = divmod(count, places)
    starts = [place * base + min(place, extra) for place in range(places + 1)]
    return [range(a, b) for a, b in itertools.pairwise(starts)]


class Stop(Params):
    """When to stop: at the end of the first round that reaches any of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    rounds: Count | None = Field(None, description="global rounds")
    time: PositiveSeconds | None = Field(None, description="emulated time")
    cost: ClientSeconds | None = Field(None, description="client-seconds of training and group operations (S2 Eq. 5)")
    bytes: PositiveBytes | None = Field(None, description="bytes over all links")
    accuracy: Annotated[float, Field(gt=0, le=1)] | None = Field(None, description="test accuracy, as a share")

    @model_validator(mode="after")
    def _any(self) -> Stop:
        if all(v is None for v in (self.rounds, self.time, self.cost, self.bytes, self.accuracy)):
            raise PydanticCustomError("stop", "give at least one of 'rounds', 'time', 'cost', 'bytes', 'accuracy'")
        return self

    @property
    def budget(self) -> dict[str, float]:
        """Limits that the last round may cross: of time, cost and bytes, as far as there are, in SI units."""
        limits = {"time": self.time, "cost": self.cost, "bytes": self.bytes}
        return {name: limit for name, limit in limits.items() if limit is not None}


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


class Scenario(Params):
    """A whole scenario."""

    name: Name = Field(description="names the run and its default folder; without it, the name of the file does")
    notes: Annotated[str, StringConstraints(max_length=10_000)] = Field("", description="free text, kept with the run")
    seed: Annotated[int, Field(ge=0, lt=2**53)] = Field(0, description="determines everything random")
    data: Data
    model: Model = Field(description="the model that the clients train")
    topology: Topology
    method: Method = Field(description="a preset, a mix of slots, or a preset with some slots changed")
    faults: tuple[Fault, ...] = Field((), strict=False, description="what goes wrong, and when")
    attacks: Attack | None = Field(None, description="what malicious clients do")
    stop: Stop
    evaluate: Evaluate = Evaluate()
    compute: Compute = Compute()
    output: Output = Output()

    @property
    def label(self) -> str:
        """What legends call its method: the preset, or the kind."""
        return str(self.method.params.preset or self.method.kind)
