"""One number with its interval, its count and the way it was obtained."""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """State one figure so that nobody has to trust a bare mean.

    `low` and `high` bound the value at `level`; None is an open end; both None is
    a figure without sampling error (a counted one). `n` counts the independent
    things behind it (block pairs, items, calls), which `method` names.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    unit: str
    method: str
    level: float = 0.95

    def inverse(self, factor: float, *, unit: str, method: str | None = None) -> "Estimate":
        """Return *factor* over this estimate, which is above
        zero; an end at or below zero becomes an open one.
        """
        low, high = (
            None if end is None or end <= 0 else factor / end for end in (self.high, self.low)
        )
        return replace(
            self,
            value=factor / self.value,
            low=low,
            high=high,
            unit=unit,
            method=self.method if method is None else method,
        )

    @property
    def is_bound(self) -> bool:
        """Say whether the value is no best estimate, but an end that the truth lies beyond."""
        return (self.low is None) != (self.high is None) and self.value in (self.low, self.high)

    def as_bound(self, mildest: tuple[float, float] = (math.inf, -math.inf)) -> "Estimate":
        """Return how far from zero the value is at least, where
        it surely is above or below; anything else as it is.

        That is the end of the interval next to zero, or nearer where
        *mildest*, the least that was seen of it on either side, is.
        """
        low = min(mildest[0], -math.inf if self.low is None else self.low)
        high = max(mildest[1], math.inf if self.high is None else self.high)
        if low > 0:
            return replace(self, value=low, low=low, high=None)
        if high < 0:
            return replace(self, value=high, low=None, high=high)
        return self

    def is_above(self, bound: float) -> bool:
        """Say whether the whole interval lies above *bound*."""
        return self.low is not None and self.low > bound

    def is_below(self, bound: float) -> bool:
        """Say whether the whole interval lies below *bound*."""
        return self.high is not None and self.high < bound

    def is_within(self, margin: float) -> bool:
        """Say whether the whole interval lies inside plus or
        minus *margin*: equivalence, not lack of significance.
        """
        return (
            self.low is not None
            and self.high is not None
            and -margin < self.low
            and self.high < margin
        )
