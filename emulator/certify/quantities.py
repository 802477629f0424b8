"""What is uncertain: quantities that are drawn, and what a drawn number changes in the scenario of a run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator import yamlfile
from emulator.contracts.uncertainty import DistributionChoice, Floats
from emulator.errors import InputError
from emulator.scenario.schema import Scenario
from emulator.study.expand import Change, ordered
from emulator.units import Amount
from emulator.yamlfile import Document, Mark

DEVICES = ("topology", "devices")
PROFILES = ("topology", "profiles")
BANDWIDTHS = ("up", "down", "bandwidth")

Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Quantity:
    """Something that is uncertain. ``path`` is where it stands in a scenario; ``paths`` may have others, by the name of a run.

    ``source`` says who knows how uncertain it is; ``place`` where that was written, for messages.
    """

    name: str
    path: Path_
    source: str
    distribution: DistributionChoice
    factor: bool = False
    whole: bool = False
    place: Mark | None = None
    paths: Mapping[str, tuple[Path_, ...]] | None = field(default=None, compare=False)

    @property
    def labels(self) -> list[str] | None:
        """What is chosen from; None where numbers are drawn."""
        options = self.distribution.stands_for
        return None if options is None else [label for label, _ in options]

    @property
    def unit(self) -> str:
        """The unit of drawn values; empty for plain numbers, factors and labels."""
        dimension = self.distribution.dimension
        return "" if dimension is None else dimension.base

    @property
    def scale(self) -> str:
        """``labels``, ``log`` or ``linear``: how the values are best drawn."""
        if self.labels is not None:
            return "labels"
        return "log" if self.distribution.plugin.facts.logarithmic else "linear"

    def at(self, shares: Floats) -> Floats:
        """The numbers that these shares of all worlds are below; of labels, their places. Raises `InputError`."""
        try:
            values = self.distribution(shares)
        except InputError as error:
            raise self.wrong(error.message) from None
        return values.round() if self.whole else values

    def cell(self, number: float) -> float | str:
        """What a table of worlds holds for a drawn number."""
        return number if self.labels is None else self.labels[int(number)]

    def given(self, number: float) -> Any:
        """What is to stand at the quantity's place in the scenario, unless it is a factor."""
        options, dimension = self.distribution.stands_for, self.distribution.dimension
        if options is not None:
            return options[int(number)][1]
        if self.whole:
            return round(number)
        return Amount(float(number), dimension).plain

    def wrong(self, message: str) -> InputError:
        """An error about this quantity, with its place where it was written down."""
        from emulator.errors import Problem, ScenarioError

        if self.place is None:
            return InputError(f"{self.name}: {message}")
        return ScenarioError((Problem(self.place.file, self.place.line, self.place.column, self.name, message),))

    def places_in(self, run: str) -> tuple[Path_, ...]:
        """Where it stands in the scenario of a run; nowhere, where it has no effect there."""
        return (self.path,) if self.paths is None else self.paths.get(run, ())


class RunWorlds:
    """What worlds change in one run. The plain data of its scenario are made once."""

    def __init__(self, run: str, scenario: Scenario, quantities: Sequence[Quantity]) -> None:
        self._run = run
        self._data = scenario.model_dump()
        self._quantities = quantities

    def changes(self, numbers: Sequence[float | None]) -> list[tuple[str, Any]]:
        """Keys and values that make the scenario one of the world with these numbers; None leaves a quantity as it is written.

        Raises `InputError` where there is no such world, or a quantity cannot be put where it is said to stand.
        """
        found: dict[Path_, Any] = {}
        shares: dict[str, float] = {}
        for quantity, number in zip(self._quantities, numbers, strict=True):
            if number is None:
                continue
            for path in quantity.places_in(self._run):
                if quantity.factor:
                    made = self._multiplied(quantity, path, float(number))
                    # The speed of a device may have two factors: that of all devices, and how uncertain its profile is.
                    twice = {p: found[p] * factor for p, factor in made.items() if p[:2] == PROFILES and p in found}
                    found |= made | twice
                elif path[:2] == DEVICES and len(path) == 3 and isinstance(self._at(DEVICES), dict):
                    shares[path[2]] = float(number)
                else:
                    found[path] = quantity.given(number)
        if shares:
            found[DEVICES] = self._shared_out(shares)
        within = [path for path in found if path[:2] == PROFILES and len(path) > 2]
        profiles = {path[2:]: found.pop(path) for path in within}
        changes = [(".".join(path), value) for path, value in found.items()]
        return changes + ([(".".join(PROFILES), self._profiles(profiles))] if profiles else [])

    def _at(self, path: Path_) -> Any:
        place: Any = self._data
        for part in path:
            if isinstance(place, list | tuple) and part.isdecimal() and int(part) < len(place):
                place = place[int(part)]
            elif isinstance(place, Mapping) and part in place:
                place = place[part]
            else:
                return None
        return place

    def _multiplied(self, quantity: Quantity, path: Path_, factor: float) -> dict[Path_, Any]:
        if path == DEVICES:
            speeds = [(*PROFILES, name, "speed") for name in self._client_profiles(quantity)]
            return {speed: factor * float(self._at(speed) or 1.0) for speed in speeds}
        if path[:2] == PROFILES and len(path) > 2:
            return {path: factor * float(self._at(path) or 1.0)}
        value = self._at(path)
        found = dict(_products(value, path, factor))
        if not found:
            what = (
                "nothing stands there"
                if value is None
                else "what stands there has no number, no bandwidth and no device"
            )
            raise quantity.wrong(f"there is nothing to multiply at '{'.'.join(path)}': {what}")
        played = [p for p in found if self._at((*p[:-1], "trace")) is not None]
        if played:
            raise quantity.wrong(f"'{'.'.join(played[0][:-1])}' plays a trace, which a factor does not change")
        return found

    def _client_profiles(self, quantity: Quantity) -> list[str]:
        devices = self._at(DEVICES)
        if not isinstance(devices, Mapping):
            raise quantity.wrong("there are no devices whose speed could be multiplied")
        return [str(devices["median"])] if "mix" in devices else list(devices)

    def _shared_out(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Shares of devices of which some are given: the others keep their proportions and take what is left."""
        devices: Mapping[str, float] = self._at(DEVICES)
        left = 1 - sum(shares.values())
        others = {name: share for name, share in devices.items() if name not in shares}
        if left < -1e-9 or min(shares.values()) < 0 or (left > 1e-9 and not others):
            raise InputError(f"shares of devices add up to {1 - left:g}", ".".join(DEVICES))
        whole = sum(others.values())
        made = {**shares, **{name: max(0.0, left) * share / whole for name, share in others.items()}}
        return {name: share for name, share in made.items() if share > 1e-9}

    def _profiles(self, factors: Mapping[Path_, float]) -> dict[str, Any]:
        """The section with factors on figures of profiles: what the scenario says, and these."""
        made: dict[str, Any] = copy.deepcopy(self._at(PROFILES) or {})
        for path, factor in factors.items():
            place = made
            for part in path[:-1]:
                place = place.setdefault(part, {})
            place[path[-1]] = factor
        return made


def _products(value: Any, path: Path_, factor: float) -> Iterator[tuple[Path_, Any]]:
    """What a value becomes, or the bandwidths in a section of links, when it is multiplied."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield path, value * factor
    elif isinstance(value, str):
        try:
            amount = Amount.read(value)
        except ValueError:
            return
        yield path, Amount(amount.value * factor, amount.dimension).plain
    elif isinstance(value, Mapping):
        for name, below in value.items():
            if name in BANDWIDTHS or isinstance(below, Mapping | tuple | list):
                yield from _products(below, (*path, name), factor)
    elif isinstance(value, tuple | list):
        for number, below in enumerate(value):
            if isinstance(below, Mapping):
                yield from _products(below, (*path, str(number)), factor)


def as_documents(changes: Sequence[tuple[str, Any]], place: Mark | None = None) -> list[Change]:
    """Changes as `emulator.whatif` takes them: those of a section before those in it. ``place`` is for messages."""
    mark = place or Mark("this world", 0, 0)
    return ordered([[Change(key, Document(mark.file, data, {(): mark}, {(): mark})) for key, data in changes]])


def as_options(changes: Sequence[tuple[str, Any]]) -> list[str]:
    """The same changes as ``--set`` takes them."""
    import json

    texts = [(change.key, change.given.data) for change in as_documents(changes)]
    return [f"{key}={data if isinstance(data, str) and _plain(data) else json.dumps(data)}" for key, data in texts]


def _plain(text: str) -> bool:
    """Whether a text needs no quotes in YAML."""
    return bool(yamlfile.parse(text, "text").data == text)
