"""What time computing takes: what a client's or the server's code did, as seconds on their emulated device.

There are four ways, and the ledger names the one that was taken: counted operations of torch, at the device's effective
speed, plus the device's overhead for each step of an optimiser; samples a second, of which the user or the app says how many;
seconds of this host times a factor; nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from pydantic_core import PydanticCustomError

from devices.compute import Arithmetic, dense_flops, flops_s
from devices.profile import DeviceProfile
from emulator.errors import HflError

Kind = Literal["none", "flops", "samples", "host"]
RATE = "samples-per-second"  # the metric of a reply in which an app reports it
SAMPLES = "num-examples"
_NAMES: dict[Kind, str] = {"none": "", "flops": "counted", "samples": "by rate", "host": "host time"}


@dataclass(frozen=True)
class Price:
    """A way to say what time computing takes. ``number`` is the rate or the factor; None where the app reports the rate."""

    kind: Kind
    number: float | None = None

    @staticmethod
    def parse(text: str, allowed: tuple[Kind, ...]) -> Price:
        """``flops``, ``samples``, ``samples:RATE``, ``host:FACTOR`` or ``none``. Raises ``PydanticCustomError`` for others."""
        found = re.fullmatch(r"(none|flops|samples|host)(?::([0-9.eE+-]+))?", text)
        forms = {"none": "none", "flops": "flops", "samples": "samples, samples:RATE", "host": "host:FACTOR"}
        known = ", ".join(forms[kind] for kind in allowed)
        wrong = PydanticCustomError("price", "is '{text}'; write one of {known}", {"text": text[:40], "known": known})
        if found is None or found[1] not in allowed:
            raise wrong
        kind: Kind = found[1]  # type: ignore[assignment]
        try:
            number = None if found[2] is None else float(found[2])
        except ValueError:
            raise wrong from None
        if number is None:
            if kind == "host":
                raise wrong
        elif kind in ("none", "flops") or not 0 < number < math.inf:
            raise wrong
        return Price(kind, number)

    def named(self, what: str) -> str:
        """What the ledger says that the time was taken for, and how it was found."""
        return f"{what} ({_NAMES[self.kind]})" if _NAMES[self.kind] else what

    def seconds(self, device: DeviceProfile, work: Work) -> float:
        """Seconds on a device. Raises `HflError` where an app does not report what is needed."""
        if self.kind == "none":
            return 0.0
        if self.kind == "host":
            return work.host_s * (self.number or 0.0)
        if self.kind == "flops":
            by_kind = tuple((kind, float(n)) for kind, n in work.flops.items() if kind in ("depthwise", "recurrent"))
            dense = dense_flops(device, Arithmetic(float(sum(work.flops.values())), by_kind))
            return flops_s(device, dense) + work.steps * device.batch_overhead
        rate = self.number if self.number is not None else work.rate
        if rate is None or not rate > 0:
            how = f"'{RATE}' above 0 in a MetricRecord of the reply, or give --client-time samples:RATE"
            raise HflError(f"--client-time samples needs the rate: report {how}")
        if work.samples is None:
            raise HflError(f"--client-time samples needs '{SAMPLES}' in a MetricRecord of the reply; or take flops")
        return work.samples / rate


@dataclass(frozen=True)
class Work:
    """What was done: operations by kind of layer, steps of optimisers, real seconds; samples and their rate as reported."""

    flops: dict[str, int]
    steps: int = 0
    host_s: float = 0.0
    samples: float | None = None
    rate: float | None = None
