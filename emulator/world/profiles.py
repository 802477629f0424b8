"""The device profiles of a world: those of the files, with the factors of the scenario on their figures."""

from __future__ import annotations

from devices.profile import DeviceProfile, find_profile
from emulator.errors import InputError
from emulator.scenario.topology_schema import Topology


class Profiles:
    """Profiles by the names that a scenario gives them; each is the same object whenever it is asked for."""

    def __init__(self, topology: Topology) -> None:
        self._factors = topology.profiles
        self._made: dict[str, DeviceProfile] = {}

    def __getitem__(self, name: str) -> DeviceProfile:
        """The profile, multiplied. Raises `InputError` where there is none, or where its figures do not go together."""
        factors = self._factors.get(name)
        if factors is None:
            return find_profile(name)
        if name not in self._made:
            try:
                self._made[name] = find_profile(name).times(factors)
            except ValueError as error:
                raise InputError(str(error), f"topology.profiles.{name}.power") from None
        return self._made[name]
