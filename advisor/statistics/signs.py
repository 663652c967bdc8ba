"""Look for a small shift in one direction that no single bucket can show: the sign test over buckets, and the trend over length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Count the buckets that fell, rose and did not move, with the two-sided p-value of so uneven a count."""

    down: int
    up: int
    still: int
    p: float

    @property
    def all_down(self) -> bool:
        """Say whether every bucket that moved fell."""
        return self.down > 0 and self.up == 0


def sign_test(differences: Sequence[float]) -> Signs:
    """Return the sign test over bucket differences; buckets without a difference carry no sign."""
    down = sum(each < 0 for each in differences)
    up = sum(each > 0 for each in differences)
    p = 1.0 if down + up == 0 else float(stats.binomtest(down, down + up).pvalue)
    return Signs(down=down, up=up, still=len(differences) - down - up, p=p)


def slope_per_doubling(lengths: Sequence[float], differences: Sequence[float], items: Sequence[float]) -> tuple[float, float] | None:
    """Return the slope of the difference per doubling of length and its two-sided p-value, or None with fewer than three lengths.

    A bucket weighs as much as it has items; how far the buckets scatter about the line is its own error.
    """
    if len(set(lengths)) < 3:
        return None
    if len(set(differences)) == 1:
        return 0.0, 1.0
    root = np.sqrt(np.asarray(items, dtype=np.float64))
    design = np.stack([np.ones(len(lengths)), np.log2(np.asarray(lengths))], axis=1) * root[:, None]
    target = np.asarray(differences) * root
    (intercept, slope), *_ = np.linalg.lstsq(design, target, rcond=None)
    free = len(lengths) - 2
    left = target - design @ np.array([intercept, slope])
    error = float(np.sqrt(left @ left / free * np.linalg.inv(design.T @ design)[1, 1]))
    p = float(2 * stats.t.sf(abs(slope) / error, free)) if error > 0 else 0.0
    return float(slope), p
