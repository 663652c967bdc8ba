"""Take few values for many: a chart of a million calls shows no more than one of two hundred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

MARKS = 150
"""As many marks an arm as a chart of 480 pixels can show apart."""
STEPS = 60

Value = TypeVar("Value")


def every(values: Sequence[Value], most: int = MARKS) -> tuple[Value, ...]:
    """Return at most *most* of the values, evenly spread over their order, the first and the last among them."""
    if len(values) <= most:
        return tuple(values)
    return tuple(values[index] for index in np.linspace(0, len(values) - 1, most).round().astype(int))


def cloud(xs: npt.NDArray[np.float64], ys: npt.NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return points spread evenly over the order of *xs*; a row that lacks either value is left out."""
    known = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[known], ys[known]
    order = np.lexsort((ys, xs))
    kept = every(tuple(int(index) for index in order))
    return tuple(float(xs[index]) for index in kept), tuple(float(ys[index]) for index in kept)


def distribution(values: npt.NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a cumulative distribution as (values, shares of the values at or below them)."""
    known = np.sort(values[np.isfinite(values)])
    if not known.size:
        return (), ()
    ranks = every(tuple(range(1, known.size + 1)), STEPS)
    return tuple(float(known[rank - 1]) for rank in ranks), tuple(rank / known.size for rank in ranks)
