"""The area under a curve of scores over lengths, as MRCR results are published: trapezoids on a linear axis, divided by its range.

The longest length alone has about a quarter of the weight, so a curve that falls only there can look recovered: read the worst length
beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise


def area(scores: Mapping[int, float]) -> float | None:
    """Return the mean height of the curve; None where there are fewer than two lengths."""
    points = sorted(scores.items())
    if len(points) < 2:
        return None
    whole = sum((long - short) * (low + high) / 2 for (short, high), (long, low) in pairwise(points))
    return whole / (points[-1][0] - points[0][0])
