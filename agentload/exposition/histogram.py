"""A histogram as servers keep it: counts of values up to each bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of values up to each bound, in order of the bounds; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    """Of each bucket alone."""
    total: float
    """Of all values."""

    @property
    def count(self) -> float:
        """Return how many values there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return self.total / self.count if self.count else None

    def bucket(self, share: float) -> tuple[float, float]:
        """Return the bounds between which this quantile lies."""
        wanted, seen = share * self.count, 0.0
        for low, high, count in zip((0.0, *self.bounds), self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted and count:
                return low, high
        return (self.bounds[-2] if len(self.bounds) > 1 else 0.0), math.inf

    def minus(self, earlier: Histogram) -> Histogram:
        """Return what was added since an earlier reading of the same histogram."""
        if earlier.bounds != self.bounds:
            return self
        counts = tuple(max(0.0, now - before) for now, before in zip(self.counts, earlier.counts, strict=True))
        return Histogram(bounds=self.bounds, counts=counts, total=max(0.0, self.total - earlier.total))

    def plus(self, other: Histogram) -> Histogram:
        """Return both as one; of buckets that differ only how many values there are, and their sum."""
        total = self.total + other.total
        if other.bounds != self.bounds:
            return Histogram(bounds=(math.inf,), counts=(self.count + other.count,), total=total)
        return Histogram(bounds=self.bounds, counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)), total=total)


def of_cumulative(upto: Mapping[float, float], total: float) -> Histogram:
    """Make a histogram of how many values lie at or below each bound."""
    bounds = tuple(sorted(upto))
    counts = tuple(max(0.0, upto[high] - upto[low]) for low, high in pairwise(bounds))
    return Histogram(bounds=bounds, counts=(max(0.0, upto[bounds[0]]), *counts), total=total)
