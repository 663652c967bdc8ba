"""Sums over steps that each last longer than the one before by the same amount. Whole picoseconds throughout."""

from __future__ import annotations

from math import isqrt


def span(steps: int, first: int, growth: int) -> int:
    """Return how long *steps* steps last, the first of which lasts *first* and each next one *growth* more."""
    return steps * first + growth * (steps * (steps - 1) // 2)


def steps_to_reach(wait: int, first: int, growth: int) -> int:
    """Return the least number of steps that last at least *wait*."""
    if not growth:
        return -(-wait // first)
    linear = 2 * first - growth
    steps = (isqrt(linear * linear + 8 * growth * max(wait, 0)) - linear) // (2 * growth)
    while span(steps, first, growth) < wait:
        steps += 1
    return steps


def steps_within(wait: int, first: int, growth: int) -> int:
    """Return the largest number of steps that last at most *wait*."""
    steps = steps_to_reach(wait, first, growth)
    return steps if span(steps, first, growth) <= wait else steps - 1
