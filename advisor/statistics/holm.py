"""Adjust p-values for the number of gates a verdict stands on (Holm 1979)."""

from __future__ import annotations

from collections.abc import Sequence


def adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's adjusted p-values in the order given; reject those at or below the family's level."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    out = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        out[index] = running
    return tuple(out)
