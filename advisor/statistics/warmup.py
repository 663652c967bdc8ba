"""Find where a series has settled: MSER-5 truncation, checked by comparing the first and the last third of what is left.

MSER-5 alone is known to miss slow drifts (Wang & Glynn 2016), hence the second look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from advisor.evidence import Floats

BATCH = 5
LEAST_BATCHES = 12  # fewer cannot be told apart in thirds
DRIFT_P = 0.01  # the check runs on every series of a report: rare false alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Say how many observations to drop, and whether the rest is level."""

    drop: int
    settled: bool
    moved: float | None  # last third minus first third of what is left; None when it was still settling half way


def mser5(series: Floats) -> Warmup | None:
    """Return the truncation of *series* (in time order), or None when it is too short to judge."""
    batches = series.size // BATCH
    if batches < LEAST_BATCHES:
        return None
    means = series[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    left = np.arange(batches, 0, -1)
    tail_sum, tail_square = np.cumsum(means[::-1])[::-1], np.cumsum((means**2)[::-1])[::-1]
    error = (tail_square - tail_sum**2 / left)[: batches - 2] / left[: batches - 2] ** 2
    cut = int(np.argmin(error))
    if cut > batches // 2:
        return Warmup(drop=cut * BATCH, settled=False, moved=None)
    rest = means[cut:]
    third = rest.size // 3
    # Neighbouring batches are alike; a few coarse means per third keep the test honest.
    first, last = (np.array([each.mean() for each in np.array_split(part, 4)]) for part in (rest[:third], rest[-third:]))
    p = float(stats.ttest_ind(first, last, equal_var=False).pvalue) if np.ptp(rest) > 0 else 1.0
    return Warmup(drop=cut * BATCH, settled=p >= DRIFT_P, moved=float(last.mean() - first.mean()))
