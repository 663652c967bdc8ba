"""When the root sessions of a block start, relative to the block."""

import hashlib
import math
from collections.abc import Iterator
from random import Random
from typing import assert_never

from agentload.model.plan import Arrivals, Burst, ClosedLoop, OpenLoop, Recorded

SECOND = 1_000_000_000
# below this the gaps are equal for all that can be measured, and the gamma shape runs out of range
EVEN_CV = 0.01


def seeded(*parts: object) -> Random:
    """Return a generator that depends on *parts* alone, equal on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return Random(int.from_bytes(hashlib.shake_256(text.encode()).digest(16), "big"))


def open_starts(load: OpenLoop, rng: Random) -> Iterator[int]:
    """Yield the start instants of an open loop in ns, without end.

    Starts are drawn at a rate of one, and stretched by the rate that holds at each
    instant: a ramp or a burst changes how dense they are, not how evenly they come.
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
    """Yield start instants that replace the trace's
    own; None where the trace or the completions decide.
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
    """Yield spans in which the rate is a line: (from, until,
    rate at its begin, slope), the last one without end.
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


def _burst(burst: Burst | None, at_s: float) -> tuple[float, float]:
    """Return how long the rate's factor holds, and the factor."""
    if burst is None:
        return math.inf, 1.0
    period = math.floor(at_s / burst.every_s + 1e-9)
    begins_s, ends_s = (period + 1) * burst.every_s - burst.seconds, (period + 1) * burst.every_s
    return (begins_s, 1.0) if at_s < begins_s - 1e-9 else (ends_s, burst.factor)


def _held(length_s: float, rate: float, slope: float) -> float:
    """Return how many starts a span holds on average."""
    return math.inf if length_s == math.inf else rate * length_s + slope * length_s**2 / 2


def _after(count: float, rate: float, slope: float) -> float:
    """Return the time after which a span has held so many."""
    if slope == 0:
        return count / rate if count else 0.0
    return (math.sqrt(max(0.0, rate**2 + 2 * slope * count)) - rate) / slope
