"""Look for a small shift in one direction that no single bucket can show: the sign test over buckets, and the trend over length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Count the buckets that fell and rose, with the two-sided p-value of so uneven a count."""

    down: int
    up: int
    p: float

    @property
    def all_down(self) -> bool:
        """Say whether every bucket that moved fell."""
        return self.down > 0 and self.up == 0


def sign_test(differences: Sequence[float]) -> Signs:
    """Return the sign test over bucket differences; buckets without a difference do not count."""
    down = sum(each < 0 for each in differences)
    up = sum(each > 0 for each in differences)
    return Signs(down=down, up=up, p=1.0 if down + up == 0 else float(stats.binomtest(down, down + up).pvalue))


def slope_per_doubling(lengths: Sequence[float], differences: Sequence[float]) -> tuple[float, float] | None:
    """Return the slope of the difference per doubling of length and its two-sided p-value, or None with fewer than three lengths."""
    if len(set(lengths)) < 3:
        return None
    fit = stats.linregress(np.log2(np.asarray(lengths)), np.asarray(differences))
    return float(fit.slope), float(fit.pvalue)
