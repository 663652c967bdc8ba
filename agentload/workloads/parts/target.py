"""What a generated trace is held against: measured quantiles and shares, by the names of `tracefile.fields`."""

from dataclasses import dataclass
from typing import Final

Q50_TOLERANCE: Final = 0.10
Q90_TOLERANCE: Final = 0.20


@dataclass(frozen=True, slots=True)
class Target:
    """The measured quantiles of a field."""

    q50: float
    q90: float


@dataclass(frozen=True, slots=True)
class Range:
    """Where a share of the whole trace must lie."""

    low: float
    high: float
