"""When the root sessions of a block start, relative to the block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from random import Random
from typing import assert_never

from agentload.model.plan import Arrivals, ClosedLoop, OpenLoop, Recorded

SECOND = 1_000_000_000
EVEN_CV = 0.01  # below this the gaps are equal for all that can be measured, and the gamma shape runs out of range


def seeded(*parts: object) -> Random:
    """Return a generator that depends on *parts* alone, equal on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return Random(int.from_bytes(hashlib.shake_256(text.encode()).digest(16), "big"))


def open_starts(load: OpenLoop, rng: Random) -> Iterator[int]:
    """Yield the start instants of an open loop in ns, without end; a ramp raises the rate linearly to its final value."""
    at_s = 0.0
    while True:
        rate = load.rate_per_s
        if load.ramp_from_per_s is not None and at_s < load.ramp_s:
            rate = load.ramp_from_per_s + (load.rate_per_s - load.ramp_from_per_s) * at_s / load.ramp_s
        yield round(at_s * SECOND)
        if load.cv < EVEN_CV:
            at_s += 1 / rate
        else:
            shape = 1 / load.cv**2
            at_s += rng.gammavariate(shape, 1 / (shape * rate))


def starts(load: Arrivals, rng: Random) -> Iterator[int] | None:
    """Yield start instants that replace the trace's own; None where the trace or the completions decide."""
    match load:
        case OpenLoop():
            return open_starts(load, rng)
        case Recorded() | ClosedLoop():
            return None
        case _:
            assert_never(load)
