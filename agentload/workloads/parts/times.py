"""Session starts (gamma-distributed gaps, a daily load curve) and measured waits of agents."""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from random import Random
from typing import Final

from agentload.plugins import Peak, Positive, Rate, Spread
from agentload.workloads.parts.draws import gamma, log_uniform, lognormal, mixture, quantiles

DAY_S: Final = 86_400.0
_SLOTS: Final = 288
_SLOT_S: Final = DAY_S / _SLOTS
OPENCLAW_TOOL: Final = mixture(
    (0.80, log_uniform(0.016, 0.1)), (0.14, log_uniform(0.1, 10)), (0.06, log_uniform(10, 60))
)
"""Tools of OpenClaw sessions: 80% below 0.1 s, 6% above 10 s; q50
0.03-0.08, q90 0.7-2.3 s (chus-chus/blogpost_agentic_workloads).
"""
PI_USER: Final = lognormal(45, 1.0, 2, 600)
"""A user's think time in two pi sessions: q50 39-46,
q90 145-202 s (badlogic/pi-mono test fixtures).
"""
CODE_TOOL: Final = quantiles(
    (0, 1),
    (0.10, 4),
    (0.25, 5.6),
    (0.50, 8.7),
    (0.75, 20),
    (0.90, 71),
    (0.95, 160),
    (0.99, 950),
    (0.995, 1_900),
    (1, 20_000),
)
"""From an answer to the next call of Claude Code, approvals and a proxy included.

In whole seconds (callanjfox/kv-cache-tester).
"""
CODE_USER: Final = quantiles(
    (0, 2),
    (0.10, 20),
    (0.25, 42),
    (0.50, 115),
    (0.75, 330),
    (0.90, 1_300),
    (0.95, 2_600),
    (0.99, 9_000),
    (0.995, 14_000),
    (1, 150_000),
)
"""A developer's think time (same trace); replays cap it."""


@dataclass(frozen=True, slots=True, kw_only=True)  # a plug-in may extend it as one
class ArrivalProcess:
    """How many sessions start, and when: options that most workloads share."""

    sessions: Positive
    rate_per_s: Rate
    cv: Spread = 1.0
    peak: Peak = 1.0

    def draw(self, rng: Random) -> Iterator[float]:
        """Yield the start of each session in seconds."""
        endless = starts(rng, rate_per_s=self.rate_per_s, cv=self.cv, peak=self.peak)
        return islice(endless, self.sessions)


def starts(
    rng: Random, *, rate_per_s: float, cv: float = 1.0, peak: float = 1.0
) -> Iterator[float]:
    """Yield start times in seconds, to the millisecond, without end.

    `cv` is the coefficient of variation of the gaps (1 is Poisson, 0 constant), `peak`
    the ratio of the day's highest to its mean load; the trace starts at the lowest.
    """
    warp = _Day(peak) if peak > 1 else None
    at = 0.0
    while True:
        at += 1 / rate_per_s if cv == 0 else gamma(rng, shape=1 / cv**2) * cv**2 / rate_per_s
        yield round(at if warp is None else warp.clock(at), 3)


class _Day:
    """Map load-uniform time to clock time by a von Mises curve over the day."""

    def __init__(self, peak: float) -> None:
        low, high = 0.0, 100.0
        for _ in range(60):  # the concentration at which the highest slot is `peak` times the mean
            middle = (low + high) / 2
            low, high = (middle, high) if max(_loads(middle)) < peak else (low, middle)
        self._bounds = (0.0, *accumulate(load * _SLOT_S for load in _loads(low)))

    def clock(self, even_s: float) -> float:
        days, rest = divmod(even_s, self._bounds[-1])
        slot = min(bisect_right(self._bounds, rest), _SLOTS) - 1
        first, last = self._bounds[slot : slot + 2]
        return days * DAY_S + (slot + (rest - first) / (last - first)) * _SLOT_S


def _loads(concentration: float) -> list[float]:
    weights = [
        math.exp(-concentration * (1 + math.cos(2 * math.pi * (slot + 0.5) / _SLOTS)))
        for slot in range(_SLOTS)
    ]
    mean = sum(weights) / _SLOTS
    return [weight / mean for weight in weights]
