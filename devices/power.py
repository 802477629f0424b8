"""What devices draw.

A device is always on and draws its idle power all the time. Computing, sending and receiving each add what
that state draws above idle, for as long as it lasts. The three may overlap; then their additions add up.
Within one state time counts once: two transfers that are sent at the same moment keep the radio busy for one
span, not for two.
"""

from __future__ import annotations

from devices.profile import DeviceProfile

_ROUNDING = 1e-9  # relative: sums of many spans may exceed the whole by rounding


def energy_j(profile: DeviceProfile, compute_s: float, send_s: float, receive_s: float, elapsed_s: float) -> float:
    """Joules over ``elapsed_s`` seconds, of which the device spent so many in each state.

    Raises ``ValueError`` where a time is negative or not a number, or where a state outlasts ``elapsed_s``.
    """
    power = profile.power
    if not elapsed_s >= 0:
        raise ValueError(f"elapsed_s must not be negative, not {elapsed_s}")
    joules = power.idle * elapsed_s
    for state, watts, seconds in (
        ("compute_s", power.compute, compute_s),
        ("send_s", power.send, send_s),
        ("receive_s", power.receive, receive_s),
    ):
        if not 0 <= seconds <= elapsed_s * (1 + _ROUNDING):
            raise ValueError(f"{state} must be between 0 and the elapsed {elapsed_s} s, not {seconds}")
        joules += (watts - power.idle) * seconds
    return joules
