"""Fits devices, links and group operations to measured seconds: what `hfl calibrate from` does."""
