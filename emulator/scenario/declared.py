"""What the method, its training and selection of clients, and the attack of a scenario declare of the files that they write."""

from __future__ import annotations

from collections import Counter

from emulator.contracts.methods import TrainingChoice
from emulator.contracts.selection import SelectionChoice
from emulator.registry import choices
from emulator.scenario.schema import Scenario
from emulator.tables import Table


def tables_of(scenario: Scenario) -> dict[str, Table]:
    """The further tables that a run may write, by name: those of the method, of its selection, then of the attack."""
    return {table.name: table for table in _tables(scenario)}


def metrics_columns_of(scenario: Scenario) -> tuple[str, ...]:
    """The further columns that the scenario's method adds to ``metrics.csv``."""
    return scenario.method.plugin.facts.columns


def shared_tables(scenario: Scenario) -> list[str]:
    """Names of tables that two of them would write."""
    return sorted(name for name, times in Counter(t.name for t in _tables(scenario)).items() if times > 1)


def _tables(scenario: Scenario) -> list[Table]:
    parts = [each for _, each in choices(scenario.method.params) if isinstance(each, SelectionChoice | TrainingChoice)]
    of_attack = () if scenario.attacks is None else scenario.attacks.plugin.facts.tables
    of_parts = (table for chosen in parts for table in chosen.plugin.facts.tables)
    return [*scenario.method.plugin.facts.tables, *of_parts, *of_attack]
