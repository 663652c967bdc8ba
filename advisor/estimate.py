"""One number with its interval, its count and the way it was obtained."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

_T = TypeVar("_T")


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

    def inverse(self, factor: float, *, unit: str) -> "Estimate":
        """Return *factor* over this estimate, which has to be above zero.

        An end at or below zero becomes an open one.
        """
        low, high = (
            None if end is None or end <= 0 else factor / end for end in (self.high, self.low)
        )
        return replace(self, value=factor / self.value, low=low, high=high, unit=unit)

    def over(self, other: "Estimate", *, unit: str) -> "Estimate":
        """Return this estimate over an independent one; both are positive.

        The interval is what those of both give together, by MOVER on the log scale (Zou and Donner
        2008). It is open where it rests on an end that is open or zero.
        """
        value = self.value / other.value
        down = math.hypot(_log(self.low, self.value), _log(other.value, other.high))
        up = math.hypot(_log(other.low, other.value), _log(self.value, self.high))
        return replace(
            self,
            value=value,
            low=None if math.isinf(down) else value / math.exp(down),
            high=None if math.isinf(up) else value * math.exp(up),
            unit=unit,
        )

    def minus(self, other: "Estimate") -> "Estimate":
        """Return this estimate less an independent one.

        The interval is what those of both give together, by MOVER (Zou and Donner 2008). It is open
        where it rests on an open end.
        """
        value = self.value - other.value
        below = math.hypot(_distance(self.low, self.value), _distance(other.value, other.high))
        above = math.hypot(_distance(self.value, self.high), _distance(other.low, other.value))
        return replace(
            self,
            value=value,
            low=None if math.isinf(below) else value - below,
            high=None if math.isinf(above) else value + above,
            n=min(self.n, other.n),
        )

    def transformed(self, rising: Callable[[float], float]) -> "Estimate":
        """Apply a function that rises to the value and to both ends."""
        return replace(
            self,
            value=rising(self.value),
            low=None if self.low is None else rising(self.low),
            high=None if self.high is None else rising(self.high),
        )

    @property
    def closed_ends(self) -> tuple[float, float]:
        """Return both ends of the interval; the value stands for an open one."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return low, high

    @property
    def is_bound(self) -> bool:
        """Say whether the value is an end that the truth lies beyond, and no best estimate."""
        return (self.low is None) != (self.high is None) and self.value in (self.low, self.high)

    def as_bound(self, mildest: tuple[float, float] = (math.inf, -math.inf)) -> "Estimate":
        """Return the bound next to zero where the sign is sure, else the estimate as it is.

        The bound is the end of the interval next to zero, or, where nearer to zero, the first of
        *mildest* for a rise and the second for a fall: the least that was seen either way.
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
        """Say whether the whole interval lies inside plus or minus *margin*.

        This is equivalence, not lack of significance.
        """
        return self.is_above(-margin) and self.is_below(margin)


def _distance(low: float | None, high: float | None) -> float:
    """Return how far two ends are apart; infinite where one is open."""
    if low is None or high is None:
        return math.inf
    return high - low


def _log(low: float | None, high: float | None) -> float:
    """Return how far two ends are apart on the log scale; infinite where one is open or zero."""
    if not low or not high:
        return math.inf
    return math.log(high / low)


def present(values: Iterable[_T | None]) -> list[_T]:
    """Return the values that are not None."""
    return [value for value in values if value is not None]
