"""The scenario language: links, and traces that are played on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from emulator.contracts.files import TraceFormat
from emulator.registry import Params
from emulator.scenario.words import TierName
from emulator.units import BitsPerSecond, PositiveSeconds, Seconds


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
    reach: Literal["fleet", "server"] = Field(
        "fleet",
        description="whom a client reaches: everybody, or those behind the same server; to others it sends through servers",
    )


Ends = Annotated[tuple[str, str], Field(strict=False)]


class DirectLink(Imperfect):
    """Links beside the tree: between servers of one tier, or between clients that are named."""

    bandwidth: BitsPerSecond = Field(description="in each direction by itself")
    tier: TierName | None = Field(None, description="for 'shape': whose servers are joined; without it, 'edge'")
    shape: Literal["ring", "line", "mesh"] | None = Field(
        None, description="which servers of the tier are neighbours: in a ring, in a line, or all"
    )
    pairs: tuple[Ends, ...] | None = Field(
        None,
        min_length=1,
        description="in place of 'shape': pairs of names, of two servers of a tier or of two clients",
    )

    @model_validator(mode="after")
    def _one_way(self) -> DirectLink:
        if (self.shape is None) == (self.pairs is None):
            raise PydanticCustomError("direct", "give either 'shape' or 'pairs'")
        if self.tier is not None and self.shape is None:
            raise PydanticCustomError("direct", "'tier' goes with 'shape'; pairs name their ends")
        return self


class SiteLatencies(Params):
    """Latencies between sites, at which the cloud and the edges are: each edge at a random one, drawn from the seed."""

    file: str = Field(description="a matrix of latencies, or the name of a bundled sample (hfl traces inspect)")
    format: TraceFormat | None = Field(None, description="its format; without it the format is told by the content")
    cloud: Annotated[int, Field(ge=1)] | None = Field(
        None, description="number of the cloud's site, from 1; without it the one with the least mean latency"
    )


# A union would answer a mistake in one of its members with both; so this looks at what is given first.
def _named_or_listed(given: Any, _: Any) -> Any:
    """A text names a file; anything else lists links."""
    if isinstance(given, str):
        return given
    return _direct.validate_python(tuple(given) if isinstance(given, list) else given)


_direct: TypeAdapter[tuple[DirectLink, ...]] = TypeAdapter(tuple[DirectLink, ...])


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
    direct: Annotated[str | tuple[DirectLink, ...], WrapValidator(_named_or_listed)] = Field(
        (),
        description="links beside the tree, between servers of a tier or between clients: a list, or a file (CSV, YAML, "
        "Parquet) with a row for each",
    )
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
