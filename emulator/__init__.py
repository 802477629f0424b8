"""A discrete-event emulator of hierarchical federated learning: real training on an emulated clock."""

__version__ = "0.1.0"
