"""Transports: what a transfer takes beside the latency of its route and a fair share of its links."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from emulator.contracts.world import Transport, transports
from emulator.registry import NoParams, Params, Scale
from emulator.units import PositiveBytes

Segments = Annotated[int, Field(ge=1, le=1_000_000)]
NotNegative = Annotated[float, Field(ge=0, le=100)]


class TcpParams(Params):
    """The parts of TCP. Each can be switched off: ``frame`` equal to ``payload``, 0, or null."""

    payload: Segments = Field(1448, description="bytes of a full frame that are the sender's own")
    frame: Segments = Field(1514, description="bytes of a full frame on the wire; equal to 'payload': no framing")
    set_up: NotNegative = Field(
        1.0,
        description="round trips before the first byte: 1 for TCP, 2 with TLS 1.3, 0 for connections that stay open",
    )
    slow_start: Segments | None = Field(
        10, description="segments in the first round trip; they double in each. null: full speed at once"
    )
    window: PositiveBytes | None = Field(
        "3 MB", validate_default=True, description="most that may be on its way at once; null: no limit"
    )
    queue: Segments = Field(
        100,
        description="frames that fit in front of a full link: slow start overflows it, and shares count it as waiting time",
    )
    round_trip_shares: Annotated[float, Field(ge=0, le=2)] = Field(
        1.0, description="power of the round trip by which flows with a long one get less; 0: they get the same"
    )
    spread: Annotated[float, Field(ge=0, le=3)] = Field(
        0.25, description="how unequal the shares of equal flows are: standard deviation of their logarithm; 0: equal"
    )

    def problems(self, scale: Scale) -> Iterable[tuple[str, str]]:
        """See `Params.problems`."""
        if self.frame < self.payload:
            yield "frame", f"a frame of {self.frame} bytes cannot carry {self.payload}; give at least as many"
        if self.window is not None and self.window < self.payload:
            yield (
                "window",
                f"a window of {self.window:g} bytes holds no segment of {self.payload}; give at least as many",
            )


@transports.register("fluid")
def fluid(params: NoParams) -> Transport:
    """A fluid: no headers, full speed from the first byte, equal shares; the least that a transfer can take."""
    return Transport()


@transports.register("tcp", TcpParams)
def tcp(params: TcpParams) -> Transport:
    """TCP as Linux has it: frames, a handshake, slow start, a window, and shares that differ by round trip and by chance."""
    return Transport(
        payload_bytes=params.payload,
        frame_bytes=params.frame,
        set_up=params.set_up,
        initial_segments=params.slow_start or 0,
        window_bytes=math.inf if params.window is None else float(params.window),
        queue_frames=params.queue,
        round_trip_power=params.round_trip_shares,
        spread=params.spread,
    )
