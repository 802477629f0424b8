"""The YAML scenario language. Importing it does not import torch."""

from emulator.scenario.load import Loaded, bundled, dump, load, loads, parse_change, sharing
from emulator.scenario.schema import Scenario

__all__ = ["Loaded", "Scenario", "bundled", "dump", "load", "loads", "parse_change", "sharing"]
