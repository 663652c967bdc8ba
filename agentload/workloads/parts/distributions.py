"""Distributions as inverse CDFs over `Random.random()`, the only part of `random` that is stable across Python versions.

Users round values (tokens to integers, seconds to milliseconds), so that differences in the last bit between math libraries never
reach a trace.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Protocol, TypeVar

T = TypeVar("T")


class Distribution(Protocol):
    """A distribution that can be drawn from with one uniform number."""

    def at(self, share: float) -> float:
        """Return the quantile of a share in [0, 1)."""


def tokens(rng: Random, distribution: Distribution) -> int:
    """Draw a length in tokens: at least 1."""
    return max(1, round(distribution.at(rng.random())))


def seconds(rng: Random, distribution: Distribution) -> float:
    """Draw a duration, to the millisecond."""
    return round(distribution.at(rng.random()), 3)


def happens(rng: Random, share: float) -> bool:
    """Draw whether an event of this probability happens."""
    return rng.random() < share


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A measured table of (share, value), logarithmically interpolated; it must start at share 0 and end at 1."""

    points: tuple[tuple[float, float], ...]
    _shares: tuple[float, ...] = field(init=False, repr=False)
    _logs: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        shares, values = zip(*self.points, strict=True)
        assert shares[0] == 0, self.points
        assert shares[-1] == 1, self.points
        assert list(shares) == sorted(shares), self.points
        assert list(values) == sorted(values), self.points
        assert values[0] > 0, self.points
        object.__setattr__(self, "_shares", shares)
        object.__setattr__(self, "_logs", tuple(map(math.log, values)))

    def at(self, share: float) -> float:
        """Return the interpolated value."""
        right = bisect_right(self._shares, share)
        low, high = self._shares[right - 1], self._shares[right]
        part = (share - low) / (high - low)
        return math.exp(self._logs[right - 1] * (1 - part) + self._logs[right] * part)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal by its median and the standard deviation of its logarithm, clipped."""

    median: float
    sigma: float
    low: float = 0.0
    high: float = math.inf

    def at(self, share: float) -> float:
        """Return the quantile, clipped."""
        return min(self.high, max(self.low, self.median * math.exp(self.sigma * normal(share))))


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution, clipped."""

    mean: float
    deviation: float
    low: float
    high: float

    def at(self, share: float) -> float:
        """Return the quantile, clipped."""
        return min(self.high, max(self.low, self.mean + self.deviation * normal(share)))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniform between two bounds."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """Return the quantile."""
        return self.low + (self.high - self.low) * share


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Log-uniform between two bounds."""

    low: float
    high: float

    def at(self, share: float) -> float:
        """Return the quantile."""
        return self.low * math.pow(self.high / self.low, share)


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution, clipped."""

    mean: float
    low: float = 0.0
    high: float = math.inf

    def at(self, share: float) -> float:
        """Return the quantile, clipped."""
        return min(self.high, max(self.low, -self.mean * math.log1p(-share)))


def inverse_gaussian(mean: float, shape: float, low: float, high: float) -> Quantiles:
    """Tabulate an inverse Gaussian between two values: its inverse CDF has no closed form, its CDF has."""

    def below(x: float) -> float:
        root = math.sqrt(shape / x)
        return _phi(root * (x / mean - 1)) + math.exp(2 * shape / mean) * _phi(-root * (x / mean + 1))

    steps = 200  # steps of half a percent over two orders of magnitude: finer than a rounded token
    values = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    inner = [(below(value), value) for value in values[1:-1]]
    return Quantiles(((0.0, low), *inner, (1.0, high)))


@dataclass(frozen=True, slots=True)
class Geometric:
    """Tries until the first success, at least `low`; `mean` counts from `low`."""

    mean: float
    low: int = 0

    def at(self, share: float) -> float:
        """Return the quantile, an integer."""
        return self.low + math.floor(math.log1p(-share) / math.log(self.mean / (1 + self.mean)))


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weighted distributions; one uniform number picks the component and the place in it."""

    parts: tuple[tuple[float, Distribution], ...]

    def at(self, share: float) -> float:
        """Return the value of the component that the share falls into: not a quantile of the mixture, but a valid draw."""
        left = share * sum(weight for weight, _ in self.parts)
        for weight, part in self.parts:
            if left < weight:
                return part.at(left / weight)
            left -= weight
        return self.parts[-1][1].at(math.nextafter(1.0, 0.0))


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values by weight; `pick` returns its index."""

    weights: tuple[float, ...]
    _sums: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", tuple(accumulate(self.weights)))

    def pick(self, rng: Random) -> int:
        """Draw an index."""
        return min(bisect_right(self._sums, rng.random() * self._sums[-1]), len(self._sums) - 1)


def shuffled(rng: Random, values: Sequence[T]) -> list[T]:
    """Return the values in random order."""
    left = list(values)
    for end in range(len(left) - 1, 0, -1):
        other = int(rng.random() * (end + 1))
        left[end], left[other] = left[other], left[end]
    return left


def gamma(rng: Random, *, shape: float) -> float:
    """Draw from a gamma distribution of mean `shape`, by the method of Marsaglia and Tsang (2000)."""
    if shape < 1:  # their section 6
        return gamma(rng, shape=shape + 1) * math.pow(1 - rng.random(), 1 / shape)
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(rng.random())
        v = (1 + c * x) ** 3
        if v > 0 and math.log(1 - rng.random()) < x * x / 2 + d - d * v + d * math.log(v):
            return d * v


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def normal(share: float) -> float:
    """Return the standard normal quantile, by Wichura's algorithm AS 241 (1988), PPND7: 7 digits, far more than a length needs."""
    # Half a step of `Random.random()` keeps 0 out.
    share = max(share, 2.0**-54)
    q = share - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _ratio(r, (3.3871327179, 50.434271938, 159.29113202, 59.109374720), (1.0, 17.895169469, 78.757757664, 67.187563600))
    r = math.sqrt(-math.log(min(share, 1 - share)))
    if r <= 5:
        x = _ratio(r - 1.6, (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103), (1.0, 0.73700164250, 0.12021132975))
    else:
        x = _ratio(r - 5, (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997), (1.0, 0.24197894225, 0.012258202635))
    return math.copysign(x, q)


def _ratio(r: float, above: tuple[float, ...], below: tuple[float, ...]) -> float:
    return _polynomial(r, above) / _polynomial(r, below)


def _polynomial(r: float, coefficients: tuple[float, ...]) -> float:
    total = 0.0
    for coefficient in reversed(coefficients):
        total = total * r + coefficient
    return total
