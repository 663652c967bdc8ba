"""Measure the noise floor: what the method reports when both sides are the same configuration."""

from __future__ import annotations

import math

from advisor.statistics.resampling import Spread


def noise_floor(control: Spread) -> float:
    """Return the largest relative change that the A/A control leaves possible between equal sides."""
    low, high = control.interval()
    return max(abs(math.expm1(low)), abs(math.expm1(high)))
