"""Find how much load an arm carries within service levels: double until it breaks, then halve the interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from agentload.model.rows import CallRow

TOLERANCE: Final = 0.05  # stop when the bracket is this narrow: closer than runs repeat
LARGEST: Final = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a turn must hold, in ms; None is no limit. `share` of the turns have to."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    turn_ms: float | None = None
    share: float = 0.95

    def holds(self, row: CallRow) -> bool:
        """Tell whether one turn was within the limits; one that failed was not."""
        if row.status != "ok" or row.first_ns is None or row.last_ns is None:
            return False
        begun_ns, tokens = row.released_ns, row.output_tokens or 1
        ttft_ms = (row.first_ns - begun_ns) / 1e6
        turn_ms = (row.last_ns - begun_ns) / 1e6
        tpot_ms = (row.last_ns - row.first_ns) / 1e6 / max(1, tokens - 1)
        limits = ((self.ttft_ms, ttft_ms), (self.tpot_ms, tpot_ms), (self.turn_ms, turn_ms))
        return all(limit is None or seen <= limit for limit, seen in limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One load that was tried."""

    load: float
    turns: int
    within: int
    preemptions: int
    peak_kv_usage: float
    hit_rate: float | None
    output_tokens_per_s: float
    waiting_share: float = 0.0
    """Of the time, with requests waiting."""
    died: bool = False
    """The server did not live to the trial's end."""
    void: str | None = None
    """Why its times are not the server's: our own side did not keep up."""

    @property
    def share(self) -> float:
        """Return the share of turns within the limits."""
        return self.within / self.turns if self.turns else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The largest load that held, and the smallest that did not; None where the search met its own bound."""

    arm: str
    holds: float | None
    breaks: float | None
    trials: tuple[Trial, ...]


def search(
    arm: str,
    attempt: Callable[[float], Trial],
    *,
    share: float,
    start: float,
    whole: bool,
    is_trouble: Callable[[Trial], bool] = lambda _: False,
) -> Found:
    """Bracket the largest load at which *share* of the turns hold and nothing is trouble, then narrow the bracket."""
    trials: dict[float, Trial] = {}

    def holds(load: float) -> bool:
        if load not in trials:
            trials[load] = attempt(load)
        return trials[load].share >= share and not is_trouble(trials[load])

    low, high = None, None
    for load in _doubling(start):
        if holds(load):
            low = load
        else:
            high = load
            break
    if low is None:
        for load in _halving(start, whole=whole):
            if holds(load):
                low = load
                break
            high = load
    while low is not None and high is not None and not _is_narrow(low, high, whole=whole):
        middle = float(math.floor((low + high) / 2)) if whole else (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Found(arm=arm, holds=low, breaks=high, trials=tuple(trials[load] for load in sorted(trials)))


def _is_narrow(low: float, high: float, *, whole: bool) -> bool:
    return high - low <= max(1.0 if whole else 0.0, TOLERANCE * low)


def _doubling(start: float) -> Iterator[float]:
    load = start
    while load <= LARGEST:
        yield load
        load *= 2


def _halving(start: float, *, whole: bool) -> Iterator[float]:
    load = start / 2
    while load >= (1 if whole else 1e-3):
        yield float(math.floor(load)) if whole else load
        load /= 2
