"""Bound a quantile by order statistics, free of any distribution, and refuse it where the sample cannot bound it.

Calls of one session resemble each other, so the count behind the binomial is the effective one: calls divided by the design effect of the
indicator "at or below the quantile" (Woodruff 1952). Refusal counts sessions: p99 needs 299 of them for a one-sided 95 % bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from advisor.estimate import Estimate
from advisor.evidence import Floats, Ints
from advisor.statistics.resampling import cluster_variance

BOUND_LEVEL = 0.95  # one-sided; sets the least count


def least_sessions(q: float) -> int:
    """Return the least count of independent sessions that bounds quantile *q* from the far side."""
    tail = max(q, 1 - q)
    return math.ceil(math.log(1 - BOUND_LEVEL) / math.log(tail))


def quantile(values: Floats, clusters: Ints, q: float, *, unit: str, level: float = 0.95) -> Estimate | None:
    """Return quantile *q* of *values* with its interval, or None below the least count of sessions.

    NaN rows are left out; infinite ones never ended, and a quantile or an end among them is not known.
    """
    seen = ~np.isnan(values)
    values, clusters = values[seen], clusters[seen]
    if not values.size:
        return None
    index = np.unique(clusters, return_inverse=True)[1]
    sessions = int(index.max()) + 1
    if sessions < least_sessions(q):
        return None
    ordered = np.sort(values)
    n = ordered.size
    value = float(ordered[min(n - 1, math.ceil(q * n) - 1)])
    if not math.isfinite(value):
        return None
    below = (values <= value).astype(np.float64)
    wider = 1.0 if sessions in (1, n) else max(1.0, cluster_variance(below, index) * n / (q * (1 - q)))
    effective = max(1.0, n / wider)
    low, high = (float(stats.binom.ppf(each, round(effective), q)) / round(effective) for each in ((1 - level) / 2, (1 + level) / 2))
    first, last = math.floor(low * n) - 1, math.ceil(high * n)
    return Estimate(
        value=value,
        low=float(ordered[first]) if first >= 0 else None,
        high=float(ordered[last]) if last < n and math.isfinite(ordered[last]) else None,
        n=sessions,
        unit=unit,
        method=f"order statistics of {n} calls in {sessions} sessions, effective {effective:.0f}",
        level=level,
    )
