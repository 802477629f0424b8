"""How long devices compute.

Forward FLOPs are those of one sample: two for each multiply-accumulate of convolutions and linear layers. The
functions raise ``ValueError`` for arguments that make no sense, so that a missing figure never costs zero
seconds.
"""

from __future__ import annotations

import math

from devices.profile import DeviceProfile

# Forward, backward with respect to the inputs, and to the weights: each takes about the same FLOPs.
PASSES = 3


def training_s(profile: DeviceProfile, forward_flops: float, samples: float, batch_size: int, epochs: int = 1) -> float:
    """Seconds to train on ``samples`` samples for ``epochs`` epochs in mini-batches of ``batch_size``.

    S2 Eq. 5 takes H_i(n_i) to be linear in the samples. So each sample carries its share of the overhead of a
    full batch, and a batch that is half full pays half.
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, not {epochs}")
    return epochs * PASSES * inference_s(profile, forward_flops, samples, batch_size)


def inference_s(profile: DeviceProfile, forward_flops: float, samples: float, batch_size: int) -> float:
    """Seconds to predict ``samples`` samples in batches of ``batch_size``.

    This is one of the three passes of training. It takes a third of both the arithmetic and the overhead.
    """
    if not (forward_flops > 0 and math.isfinite(forward_flops)):
        raise ValueError(f"forward_flops must be a number greater than zero, not {forward_flops}")
    if not (samples >= 0 and math.isfinite(samples)):
        raise ValueError(f"samples must be a number that is not negative, not {samples}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    overhead_s = profile.batch_overhead / batch_size / PASSES
    return samples * (flops_s(profile, forward_flops) + overhead_s)


def flops_s(profile: DeviceProfile, flops: float) -> float:
    """Seconds for so many floating-point operations at the device's effective speed."""
    if not (flops >= 0 and math.isfinite(flops)):
        raise ValueError(f"flops must be a number that is not negative, not {flops}")
    if not (profile.effective_speed > 0 and math.isfinite(profile.effective_speed)):
        raise ValueError(f"the effective speed of device '{profile.name}' is {profile.effective_speed}")
    return flops / profile.effective_speed
