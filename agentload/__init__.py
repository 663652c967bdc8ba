"""Replay agent traces against serving configurations and write the decision."""

__version__ = "0.1.0"
