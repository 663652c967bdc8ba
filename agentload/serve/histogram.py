"""Count observations in the buckets of vLLM's histograms, many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

REQUEST_S: Final = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)
FIRST_TOKEN_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
CHOICES: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the bounds 1, 2, 5, 10, … up to the model's length."""
    return tuple(
        float(step * 10**power) for power in range(len(str(max_model_len))) for step in (1, 2, 5) if step * 10**power <= max_model_len
    )


class Histogram:
    """Hold the counts of one histogram."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts: NDArray[np.int64] = np.zeros(len(bounds) + 1, dtype=np.int64)
        self._sum = 0.0

    def add(self, *values: float) -> None:
        """Observe a few values."""
        self.add_many(np.array(values))

    def add_many(self, values: NDArray[np.float64]) -> None:
        """Observe many values."""
        self._counts += np.bincount(np.searchsorted(self._bounds, values, side="left"), minlength=len(self._counts))
        self._sum += float(values.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulated counts by upper bound, as Prometheus writes them."""
        names = [*map(str, self._bounds.tolist()), "+Inf"]
        return list(zip(names, np.cumsum(self._counts).astype(float).tolist(), strict=True))

    @property
    def total(self) -> float:
        """Return the sum of all values."""
        return self._sum
