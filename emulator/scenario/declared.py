"""What the method and the attack of a scenario declare of the files that they write."""

from __future__ import annotations

from emulator.contracts.methods import AttackChoice, MethodChoice
from emulator.scenario.schema import Scenario
from emulator.tables import Table


def tables_of(scenario: Scenario) -> dict[str, Table]:
    """The further tables that a run of a scenario may write, by name: those of its method, then those of its attack."""
    return {table.name: table for chosen in (scenario.method, scenario.attacks) for table in _tables(chosen)}


def metrics_columns_of(scenario: Scenario) -> tuple[str, ...]:
    """The further columns that the scenario's method adds to ``metrics.csv``."""
    return scenario.method.plugin.facts.columns


def shared_tables(scenario: Scenario) -> list[str]:
    """Names of tables that both method and attack would write."""
    return sorted({table.name for table in _tables(scenario.method)} & {t.name for t in _tables(scenario.attacks)})


def _tables(chosen: MethodChoice | AttackChoice | None) -> tuple[Table, ...]:
    return () if chosen is None else chosen.plugin.facts.tables
