"""Draw from distributions by their inverse CDFs over `Random.random()`.

No other part of `random` is stable across Python versions. Users round values (tokens to
integers, seconds to milliseconds), so that differences in the last bit between math
libraries never reach a trace.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import TypeAlias, TypeVar

T = TypeVar("T")


Distribution: TypeAlias = Callable[[float], float]
"""Inverse CDF: returns the quantile of a share in [0, 1); one uniform number draws from it."""


def tokens(rng: Random, distribution: Distribution) -> int:
    """Draw a length in tokens: at least 1."""
    return max(1, round(distribution(rng.random())))


def seconds(rng: Random, distribution: Distribution) -> float:
    """Draw a duration, to the millisecond."""
    return round(distribution(rng.random()), 3)


def happens(rng: Random, share: float) -> bool:
    """Draw whether an event of this probability happens."""
    return rng.random() < share


def even(rng: Random, count: int) -> Iterator[tuple[float, ...]]:
    """Yield points that fill the unit cube of *count* axes evenly.

    A few sessions then do not decide the lengths of a whole trace. An additive recurrence
    by the powers of the root of x^(count + 1) = x + 1 (Roberts 2018), from a random point on.
    """
    root = 2.0
    for _ in range(40):
        root = (1 + root) ** (1 / (count + 1))
    steps = [root ** -(axis + 1) for axis in range(count)]
    at = [rng.random() for _ in steps]
    while True:
        yield tuple(at)
        at = [(place + step) % 1 for place, step in zip(at, steps, strict=True)]


def quantiles(*points: tuple[float, float]) -> Distribution:
    """Interpolate a measured table of (share, value) logarithmically, from share 0 to 1."""
    shares, values = zip(*points, strict=True)
    assert shares[0] == 0, points
    assert shares[-1] == 1, points
    assert values[0] > 0, points
    assert list(shares) == sorted(shares), points
    assert list(values) == sorted(values), points
    logs = tuple(map(math.log, values))

    def quantile(share: float) -> float:
        right = bisect_right(shares, share)
        low = shares[right - 1]
        high = shares[right]
        part = (share - low) / (high - low)
        return math.exp(logs[right - 1] * (1 - part) + logs[right] * part)

    return quantile


def lognormal(
    median: float, sigma: float, low: float = 0.0, high: float = math.inf
) -> Distribution:
    """Return a lognormal by its median and the standard deviation of its logarithm, clipped."""
    return lambda share: min(high, max(low, median * math.exp(sigma * normal(share))))


def gaussian(mean: float, deviation: float, low: float, high: float) -> Distribution:
    """Return a normal distribution, clipped."""
    return lambda share: min(high, max(low, mean + deviation * normal(share)))


def uniform(low: float, high: float) -> Distribution:
    """Return a uniform distribution between two bounds."""
    return lambda share: low + (high - low) * share


def log_uniform(low: float, high: float) -> Distribution:
    """Return a log-uniform distribution between two bounds."""
    return lambda share: low * math.pow(high / low, share)


def exponential(mean: float, low: float = 0.0, high: float = math.inf) -> Distribution:
    """Return an exponential distribution, clipped."""
    return lambda share: min(high, max(low, -mean * math.log1p(-share)))


def inverse_gaussian(mean: float, shape: float, low: float, high: float) -> Distribution:
    """Tabulate an inverse Gaussian between two values: only its CDF has a closed form."""

    def cdf(x: float) -> float:
        root = math.sqrt(shape / x)
        tail = math.exp(2 * shape / mean) * _phi(-root * (x / mean + 1))
        return _phi(root * (x / mean - 1)) + tail

    steps = 200  # steps of half a percent over two orders of magnitude: finer than a rounded token
    values = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    inner = [(cdf(value), value) for value in values[1:-1]]
    return quantiles((0.0, low), *inner, (1.0, high))


def geometric(mean: float, low: int = 0) -> Distribution:
    """Return the tries until the first success, at least *low*; *mean* counts from *low*."""
    return lambda share: low + math.floor(math.log1p(-share) / math.log(mean / (1 + mean)))


def mixture(*parts: tuple[float, Distribution]) -> Distribution:
    """Return weighted distributions: one uniform number picks the component and the place in it.

    That is not a quantile of the mixture, but a valid draw.
    """
    whole = sum(weight for weight, _ in parts)

    def draw(share: float) -> float:
        left = share * whole
        for weight, part in parts:
            if left < weight:
                return part(left / weight)
            left -= weight
        return parts[-1][1](math.nextafter(1.0, 0.0))  # rounding left a little over

    return draw


@dataclass(frozen=True, slots=True)
class WeightedChoice:
    """One of several values by weight; `pick` returns its index."""

    weights: tuple[float, ...]
    _sums: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", tuple(accumulate(self.weights)))

    def pick(self, rng: Random) -> int:
        """Draw an index."""
        return min(bisect_right(self._sums, rng.random() * self._sums[-1]), len(self._sums) - 1)


def permutation(rng: Random, values: Sequence[T]) -> list[T]:
    """Return the values in random order."""
    left = list(values)
    for end in range(len(left) - 1, 0, -1):
        other = int(rng.random() * (end + 1))
        left[end], left[other] = left[other], left[end]
    return left


def gamma(rng: Random, *, shape: float) -> float:
    """Draw from a gamma distribution of mean *shape* (Marsaglia and Tsang 2000)."""
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
    """Return the standard normal quantile to 7 digits, far more than a length needs.

    By Wichura's algorithm AS 241 (1988), PPND7.
    """
    # Half a step of `Random.random()` keeps 0 out.
    share = max(share, 2.0**-54)
    q = share - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _ratio(
            r,
            (3.3871327179, 50.434271938, 159.29113202, 59.109374720),
            (1.0, 17.895169469, 78.757757664, 67.187563600),
        )
    r = math.sqrt(-math.log(min(share, 1 - share)))
    if r <= 5:
        x = _ratio(
            r - 1.6,
            (1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103),
            (1.0, 0.73700164250, 0.12021132975),
        )
    else:
        x = _ratio(
            r - 5,
            (6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997),
            (1.0, 0.24197894225, 0.012258202635),
        )
    return math.copysign(x, q)


def _ratio(r: float, above: tuple[float, ...], below: tuple[float, ...]) -> float:
    return _polynomial(r, above) / _polynomial(r, below)


def _polynomial(r: float, coefficients: tuple[float, ...]) -> float:
    total = 0.0
    for coefficient in reversed(coefficients):
        total = total * r + coefficient
    return total
