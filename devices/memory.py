"""What training needs of a device's memory, and what it costs where there is not enough.

An estimate: what system and framework take before anything is trained, the weights, their gradients, the vectors of the
same size that the optimiser and the local rule keep, and what autograd keeps of the samples of a batch until the backward
pass. Workspaces of kernels, gradients of activations and the samples at rest come on top and are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from devices.profile import DeviceProfile, Swap

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Need:
    """Bytes that training needs, by what they hold; ``state`` is that of the optimiser and of the local rule."""

    weights_bytes: int
    gradients_bytes: int
    state_bytes: int
    activations_bytes: int

    @property
    def training_bytes(self) -> int:
        """All beside what system and framework take."""
        return self.weights_bytes + self.gradients_bytes + self.state_bytes + self.activations_bytes

    def parts(self, profile: DeviceProfile) -> dict[str, float]:
        """Bytes by what they hold, on a device."""
        return {
            "system and framework": profile.reserve,
            "weights": self.weights_bytes,
            "gradients": self.gradients_bytes,
            "optimiser and local rule": self.state_bytes,
            "activations": self.activations_bytes,
        }


def missing_bytes(profile: DeviceProfile, training_bytes: float) -> float:
    """By how much a device's memory is too small for so many bytes; 0 where they fit or its memory is not known."""
    return 0.0 if profile.memory is None else max(0.0, profile.reserve + training_bytes - profile.memory)


def swapping(profile: DeviceProfile, training_bytes: float) -> float:
    """The factor on the seconds of a training that needs so many bytes: 1 where they fit, or where nothing is swapped.

    The share of the bytes that does not fit takes ``swap`` times as long.
    """
    swap = profile.out_of_memory
    if not isinstance(swap, Swap) or not training_bytes:
        return 1.0
    share = min(1.0, missing_bytes(profile, training_bytes) / training_bytes)
    return 1.0 + (swap.swap - 1.0) * share
