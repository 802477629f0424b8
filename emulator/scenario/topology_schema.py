"""The scenario language: who takes part, on which devices, and when."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from devices.profile import ProfileFactors
from emulator.contracts.files import TraceFormat, TraceGenerator
from emulator.contracts.world import TransportKind
from emulator.registry import Params
from emulator.scenario.link_schema import Links, OwnLinks, PlayedTrace, SharedLink
from emulator.scenario.movement_schema import Movement
from emulator.scenario.words import Count, Name, TierName
from emulator.units import PositiveSeconds


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
    movement: Movement | None = Field(
        None, description="clients that move between servers; without it, each stays behind its own"
    )
    edge_device: str = Field("edge-server", description="profile of the edge servers")
    cloud_device: str = Field("cloud-server", description="profile of the cloud")
    profiles: dict[str, ProfileFactors] = Field(
        {}, description="factors on figures of device profiles, by profile, such as {raspberry-pi-4b: {speed: 1.1}}"
    )
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
