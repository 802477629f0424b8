"""How long devices compute.

Forward FLOPs are those of one sample: two for each multiply-accumulate of convolutions and linear layers. The
functions raise ``ValueError`` for arguments that make no sense, so that a missing figure never costs zero
seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from devices.memory import swapping
from devices.profile import DeviceProfile, Measured

# Forward, backward with respect to the inputs, and to the weights: each takes about the same FLOPs.
PASSES = 3
SAME = 1e-3  # by how much arithmetic and size of a network may differ from those of a measured one


@dataclass(frozen=True)
class Arithmetic:
    """What one pass of one sample takes: ``flops`` in all, and with ``by_kind`` those in layers that are not dense.

    ``model`` and ``parameters`` say of which network it is the forward pass, so that measured seconds of it are found;
    ``copies``, of how many such networks. ``extra_flops`` come on top, at full speed. ``memory_bytes`` is what its training
    needs beside system and framework; 0 where it is no training.
    """

    flops: float
    by_kind: tuple[tuple[str, float], ...] = ()
    model: str = ""
    parameters: int = 0
    extra_flops: float = 0.0
    memory_bytes: float = 0.0
    copies: int = 1

    def times(self, copies: int) -> Arithmetic:
        """A pass through so many networks of this kind."""
        by_kind = tuple((kind, copies * flops) for kind, flops in self.by_kind)
        return replace(self, flops=copies * self.flops, by_kind=by_kind, copies=copies * self.copies)


def training_s(
    profile: DeviceProfile, forward: Arithmetic | float, samples: float, batch_size: int, epochs: int = 1
) -> float:
    """Seconds to train on ``samples`` samples for ``epochs`` epochs in mini-batches of ``batch_size``.

    ``forward`` is the forward pass of a sample, or its FLOPs where all of them are dense. S2 Eq. 5 takes H_i(n_i) to be
    linear in the samples. So each sample carries its share of the overhead of a full batch, and a batch that is half full
    pays half.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, not {epochs}")
    return epochs * PASSES * inference_s(profile, forward, samples, batch_size)


def inference_s(profile: DeviceProfile, forward: Arithmetic | float, samples: float, batch_size: int) -> float:
    """Seconds to predict ``samples`` samples in batches of ``batch_size``.

    This is one of the three passes of training. It takes a third of both the arithmetic and the overhead.
    """
    work = forward if isinstance(forward, Arithmetic) else Arithmetic(forward)
    if not (work.flops > 0 and math.isfinite(work.flops)):
        raise ValueError(f"forward_flops must be a number greater than zero, not {work.flops}")
    if not (samples >= 0 and math.isfinite(samples)):
        raise ValueError(f"samples must be a number that is not negative, not {samples}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    measured = measurements(profile, work) if profile.measured else ()
    if measured:
        pass_s = work.copies * _measured_s(profile, work, batch_size, measured) / PASSES
        pass_s += flops_s(profile, work.extra_flops)
    else:
        pass_s = _formula_s(profile, work, batch_size)
    return samples * (pass_s * swapping(profile, work.memory_bytes))


def dense_flops(profile: DeviceProfile, work: Arithmetic) -> float:
    """The FLOPs of dense layers that take a device as long as this pass does."""
    flops = work.flops
    for kind, some in work.by_kind:
        share = getattr(profile.efficiency, kind)
        if share != 1:
            flops += some * (1 / share - 1)
    return flops + work.extra_flops


def flops_s(profile: DeviceProfile, flops: float) -> float:
    """Seconds for so many floating-point operations at the device's effective speed."""
    if not (flops >= 0 and math.isfinite(flops)):
        raise ValueError(f"flops must be a number that is not negative, not {flops}")
    if not (profile.effective_speed > 0 and math.isfinite(profile.effective_speed)):
        raise ValueError(f"the effective speed of device '{profile.name}' is {profile.effective_speed}")
    return flops / profile.effective_speed


def measurements(profile: DeviceProfile, work: Arithmetic) -> tuple[Measured, ...]:
    """What was measured of this very network on the device, by batch size. A network of the same name is not enough."""
    flops = work.flops / work.copies
    found = [
        m
        for m in profile.measured
        if m.model == work.model
        and math.isclose(m.forward_flops, flops, rel_tol=SAME)
        and math.isclose(m.parameters, work.parameters, rel_tol=SAME)
    ]
    return tuple(sorted(found, key=lambda m: m.batch_size))


def _formula_s(profile: DeviceProfile, work: Arithmetic, batch_size: float) -> float:
    """Seconds of one pass of one sample, by arithmetic and overhead."""
    return flops_s(profile, dense_flops(profile, work)) + profile.batch_overhead / batch_size / PASSES


def _measured_s(profile: DeviceProfile, work: Arithmetic, batch_size: int, measured: tuple[Measured, ...]) -> float:
    """Seconds of a sample of training by what was measured: linear in 1 / batch size between two batch sizes.

    That is how the formula depends on the batch size. Beyond them it is the formula, scaled to meet the nearest.
    """
    below = [m for m in measured if m.batch_size <= batch_size]
    above = [m for m in measured if m.batch_size >= batch_size]
    if below and above:
        low, high = below[-1], above[0]
        if low.batch_size == high.batch_size:
            return low.seconds
        span = 1 / low.batch_size - 1 / high.batch_size
        share = (1 / low.batch_size - 1 / batch_size) / span
        return low.seconds + share * (high.seconds - low.seconds)
    nearest = below[-1] if below else above[0]
    by_kind = tuple((kind, flops / work.copies) for kind, flops in work.by_kind)
    alone = Arithmetic(work.flops / work.copies, by_kind)
    return nearest.seconds * _formula_s(profile, alone, batch_size) / _formula_s(profile, alone, nearest.batch_size)
