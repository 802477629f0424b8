"""Time series that drive the emulated world."""
