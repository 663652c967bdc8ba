"""Hold what is known of one figure: Student's t or a mixture of normals, and its tails."""

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Floats


def normal_reach(level: float) -> float:
    """Return how many standard errors a two-sided normal interval at *level* reaches."""
    return float(scipy.special.ndtri(0.5 + level / 2))


def student_reach(level: float, df: int) -> float:
    """Return how many standard errors Student's two-sided interval at *level* reaches."""
    return float(scipy.special.stdtrit(df, 0.5 + level / 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Hold the distribution of one statistic: Student's t, or the normals it is mixed of."""

    value: float
    se: float
    df: int
    units: int
    unit_name: str
    # weight, centre and standard error of each
    normals: tuple[Floats, Floats, Floats] | None = field(default=None, compare=False)

    @classmethod
    def mixed(
        cls, weight: Floats, centre: Floats, se: Floats, *, units: int, unit_name: str
    ) -> "Spread":
        """Return a mixture of normals."""
        weight = weight / weight.sum()
        value = float(weight @ centre)
        # A mixture varies by what each normal does, and by how far their centres lie apart.
        squares = se**2 + (centre - value) ** 2
        variance = float(weight @ squares)
        return cls(
            value=value,
            se=variance**0.5,
            df=units - 1,
            units=units,
            unit_name=unit_name,
            normals=(weight, centre, se),
        )

    def shifted(self, by: float, se: float) -> "Spread":
        """Return the distribution with *by* subtracted, whose own standard error is *se*."""
        normals = None
        if self.normals is not None:
            weight, centre, of_normals = self.normals
            normals = (weight, centre - by, np.hypot(of_normals, se))
        wider = float(np.hypot(self.se, se))
        return replace(self, value=self.value - by, se=wider, normals=normals)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided interval at *level*."""
        if self.normals is not None:
            half = level / 2
            return self._end(0.5 - half), self._end(0.5 + half)
        reach = student_reach(level, self.df) * self.se
        return self.value - reach, self.value + reach

    def _end(self, share: float) -> float:
        """Return the value that the truth is above with a p-value of *share*."""
        assert self.normals is not None
        normals = tuple(each.tobytes() for each in self.normals)
        return _end_of_mixture(self.value, self.se, normals, share)

    def estimate(self, *, unit: str, method: str, level: float = 0.95) -> Estimate:
        """Return the value with its interval at *level*."""
        low, high = self.interval(level)
        return Estimate(
            value=self.value,
            low=low,
            high=high,
            n=self.units,
            unit=unit,
            method=method,
            level=level,
        )

    def p_below(self, bound: float) -> float:
        """Return the one-sided p-value of the claim that the truth lies below *bound*."""
        return self._tail(bound, 1.0)

    def p_above(self, bound: float) -> float:
        """Return the one-sided p-value of the claim that the truth lies above *bound*."""
        return self._tail(bound, -1.0)

    def _tail(self, bound: float, side: float) -> float:
        """Return how likely the truth lies above *bound* (side 1) or below it (side -1)."""
        if self.normals is not None:
            weight, centre, se = self.normals
            tails = scipy.special.ndtr(side * (centre - bound) / se)
            return float(weight @ tails)
        distance = side * (bound - self.value)
        if self.se == 0:
            return 0.0 if distance > 0 else 1.0
        return float(scipy.special.stdtr(self.df, -distance / self.se))

    def relative(self, *, unit: str, method: str, level: float = 0.95) -> Estimate:
        """Return a log ratio as a relative change, arm / reference - 1."""
        low, high = self.interval(level)
        low, value, high = np.expm1([low, self.value, high]).tolist()
        return Estimate(
            value=value,
            low=low,
            high=high,
            n=self.units,
            unit=unit,
            method=f"{method}, {self.unit_name}",
            level=level,
        )


@lru_cache
def _end_of_mixture(value: float, se: float, normals: tuple[bytes, ...], share: float) -> float:
    """Return the value that the truth is above with a p-value of *share*.

    The looks of a decision ask for the same ends again, and finding one takes milliseconds.
    """
    weight, centre, of_normals = (np.frombuffer(each) for each in normals)
    found = Spread(
        value=value, se=se, df=0, units=0, unit_name="", normals=(weight, centre, of_normals)
    )
    far = 12 * se + 1e-12

    def excess(end: float) -> float:
        return found.p_above(end) - share

    return float(scipy.optimize.brentq(excess, value - far, value + far, xtol=1e-9))
