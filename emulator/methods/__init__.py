"""Methods: SimPy processes that ask the world for time and the lab for models."""
