"""Compute when the root sessions of a block start, relative to the start of the block."""

import hashlib
import math
from collections.abc import Iterator
from random import Random
from typing import assert_never

from agentload.model.plan import Arrivals, ClosedLoop, OpenLoop, PlannedBurst, Recorded

SECOND = 1_000_000_000
# Below this, the gaps look equal in any measurement, and the gamma shape (1 / cv²) overflows.
EVEN_CV = 0.01


def rng_of(*parts: object) -> Random:
    """Return a random generator that depends only on *parts*, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return Random(int.from_bytes(hashlib.shake_256(text.encode()).digest(16), "big"))


def open_starts(load: OpenLoop, rng: Random) -> Iterator[int]:
    """Yield the start instants of an open loop in ns, without end.

    Starts are first drawn at a rate of 1 per unit and then stretched by the rate that holds at each
    instant. A ramp or a burst therefore changes how dense the starts are, not how regular.
    """
    pieces = _pieces(load)
    from_s, until_s, rate, slope = next(pieces)
    done = 0.0
    for due in _unit_starts(load.cv, rng):
        while (held := _held(until_s - from_s, rate, slope)) < due - done:
            done += held
            from_s, until_s, rate, slope = next(pieces)
        yield round((from_s + _after(due - done, rate, slope)) * SECOND)


def starts(load: Arrivals, rng: Random) -> Iterator[int] | None:
    """Yield start instants that replace those of the trace, in ns from the block's start.

    None where the trace decides (recorded arrivals) or completions do (a closed loop).
    """
    match load:
        case OpenLoop():
            return open_starts(load, rng)
        case Recorded() | ClosedLoop():
            return None
        case _:
            assert_never(load)


def _unit_starts(cv: float, rng: Random) -> Iterator[float]:
    at = 0.0
    shape = math.inf if cv < EVEN_CV else 1 / cv**2
    while True:
        yield at
        at += 1.0 if shape == math.inf else rng.gammavariate(shape, 1 / shape)


def _pieces(load: OpenLoop) -> Iterator[tuple[float, float, float, float]]:
    """Yield spans of time in which the rate is linear; the last one has no end.

    Each span is (start in s, end in s, rate at its start, slope per s).
    """
    at_s = 0.0
    slope = (load.rate_per_s - load.ramp_from_per_s) / load.ramp_s if load.ramp_s > 0 else 0.0
    while True:
        is_rising = at_s < load.ramp_s
        edge_s, factor = _burst(load.burst, at_s)
        until_s = min(edge_s, load.ramp_s) if is_rising else edge_s
        rate = load.ramp_from_per_s + slope * at_s if is_rising else load.rate_per_s
        yield at_s, until_s, factor * rate, factor * slope if is_rising else 0.0
        at_s = until_s


def _burst(burst: PlannedBurst | None, at_s: float) -> tuple[float, float]:
    """Return until which second the rate's factor at *at_s* holds, and the factor."""
    if burst is None:
        return math.inf, 1.0
    period = math.floor(at_s / burst.every_s + 1e-9)
    begins_s = (period + 1) * burst.every_s - burst.seconds
    ends_s = (period + 1) * burst.every_s
    if at_s < begins_s - 1e-9:
        return (begins_s, 1.0)
    return (ends_s, burst.factor)


def _held(length_s: float, rate: float, slope: float) -> float:
    """Return how many starts a span of *length_s* contains on average."""
    if length_s == math.inf:
        return math.inf
    return rate * length_s + slope * length_s**2 / 2


def _after(count: float, rate: float, slope: float) -> float:
    """Return how many seconds into a span its average number of starts reaches *count*."""
    if slope == 0:
        return count / rate if count else 0.0
    return (math.sqrt(max(0.0, rate**2 + 2 * slope * count)) - rate) / slope
