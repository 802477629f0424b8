"""What methods are compared in: one table for claims and for tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from emulator.units import CLIENT_TIME, ENERGY, MASS, SIZE, TIME, Dimension

SHARE: Final = "share"  # plain numbers
COUNT: Final = "count"


@dataclass(frozen=True)
class Quantity:
    """A figure of a run.

    ``column`` is where `analysis.studies.per_run` has it; ``unit`` the dimension in which it is written, or what kind of plain
    number it is. ``needs`` says what must be given for it. ``reached`` names the column that is empty or 0 in runs that never
    got as far: those are worse than any that did.
    """

    column: str
    unit: Dimension | Literal["share", "count"]
    higher: bool = False  # whether more of it is better
    needs: Literal["", "target", "budget"] = ""
    reached: str = ""
    judged: bool = (
        False  # of what runs are judged by: where that is not the accuracy, their measure says which is better
    )


def _to_target(column: str, unit: Dimension | Literal["share", "count"]) -> Quantity:
    return Quantity(column, unit, needs="target", reached="round_to_target")


QUANTITIES = {
    "accuracy": Quantity("final_accuracy", SHARE, higher=True, judged=True),
    "best-accuracy": Quantity("best_accuracy", SHARE, higher=True, judged=True),
    "accuracy-last-rounds": Quantity("accuracy_last_rounds", SHARE, higher=True, judged=True),
    "accuracy-at-budget": Quantity("accuracy_at_budget", SHARE, higher=True, needs="budget", judged=True),
    "accuracy-clusters": Quantity("accuracy_clusters", SHARE, higher=True),
    "accuracy-clients": Quantity("accuracy_clients", SHARE, higher=True),
    "adjusted-rand": Quantity("adjusted_rand", COUNT, higher=True),
    "clustering-rounds": Quantity("clustering_rounds", COUNT, reached="clustering_rounds"),
    "time": Quantity("time_s", TIME),
    "bytes": Quantity("bytes_total", SIZE),
    "cost": Quantity("cost_s", CLIENT_TIME),
    "energy": Quantity("energy_j", ENERGY),
    "money": Quantity("money", COUNT),
    "carbon": Quantity("carbon_g", MASS),
    "rounds-to-target": _to_target("round_to_target", COUNT),
    "time-to-target": _to_target("time_to_target_s", TIME),
    "bytes-to-target": _to_target("bytes_to_target", SIZE),
    "cost-to-target": _to_target("cost_to_target_s", CLIENT_TIME),
    "energy-to-target": _to_target("energy_to_target_j", ENERGY),
    "money-to-target": _to_target("money_to_target", COUNT),
    "carbon-to-target": _to_target("carbon_to_target_g", MASS),
}
