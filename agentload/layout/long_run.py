"""Lay out a run that can measure capacity: windows so long that they fill the KV pools.

Sessions that all start at their first turn take an hour until
their contexts are long, and a pool that is not full limits nobody.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from agentload.errors import UsageError
from agentload.layout.cost import fill_s
from agentload.layout.steady import steady
from agentload.layout.windows import Laid, windows, windows_a_pair
from agentload.model.plan import ClosedLoop, Load, Recorded
from agentload.model.record import Record
from agentload.model.trace import Trace

# Pools that differ by a factor of two showed no effect in blocks of 2 minutes, and
# 42 points of hit rate in blocks of 30.
LASTS_S: Final = 1800.0
MOST_S: Final = 4 * 3600.0  # a user who wants to wait longer gives --duration
# Times the slowest pool's filling time, so that two thirds are played on full pools
FILLS: Final = 3
STEP_S: Final = 600.0


class LongRun(Record):
    """Hold what a run for capacity plays, and when it fills the pools."""

    laid: Laid
    fills: "Fills"


def long_run(
    trace: Trace,
    load: Load,
    *,
    agents: int,
    pairs: int,
    began: int | None = None,
    seed: int,
    pools: Mapping[str, float | None],
    lasted_s: float | None = None,
) -> LongRun:
    """Lay out a run that keeps *agents* sessions going.

    It lasts as long as the load says, else as long as filling the pools takes. *pools* are the
    tokens of each arm's pool. For a run that is resumed, *lasted_s* is the length of its blocks and
    *began* the number of pairs it started with, by which windows divide the trace.
    """
    if load.arrivals != Recorded():
        raise UsageError(
            "--capacity keeps sessions going by itself",
            hint="leave out --sessions, --rate and --speed",
        )
    if agents < 1:
        raise UsageError(f"--capacity must be >= 1, got {agents}")
    said_s = load.budget.seconds or lasted_s
    kept = replace(load, arrivals=ClosedLoop(sessions=agents))
    laid = _lasting(said_s or MOST_S, trace, kept, pairs=pairs, began=began or pairs, seed=seed)
    played = Trace(header=trace.header, sessions=laid.blocks[0].sessions)
    filled_s: dict[str, float] = {}
    for arm, tokens in pools.items():
        seconds = None if tokens is None else fill_s(played, laid.load, tokens)
        if seconds is not None:
            filled_s[arm] = seconds
    lasts_s = said_s or _enough(filled_s.values())
    if said_s is None:
        laid = _lasting(lasts_s, trace, kept, pairs=pairs, began=began or pairs, seed=seed)
    minutes = {arm: seconds / 60 for arm, seconds in filled_s.items()}
    fills = Fills(
        lasts_minutes=lasts_s / 60,
        because=_reason(load, lasted_s, lasts_s),
        pools=pools,
        minutes=minutes,
    )
    return LongRun(laid=laid, fills=fills)


def _lasting(
    lasts_s: float, trace: Trace, load: Load, *, pairs: int, began: int, seed: int
) -> Laid:
    budget = replace(load.budget, seconds=lasts_s)
    stock = steady(trace, replace(load, budget=budget))
    return windows(stock, number=windows_a_pair(stock) * began, pairs=pairs, seed=seed)


def _enough(filled_s: Iterable[float]) -> float:
    filled_again_s = FILLS * max(filled_s, default=0.0)
    wanted_s = math.ceil(filled_again_s / STEP_S) * STEP_S
    return min(max(wanted_s, LASTS_S), MOST_S)


def _reason(load: Load, lasted_s: float | None, lasts_s: float) -> str:
    if load.budget.seconds:
        return "as --duration says"
    if lasted_s is not None:
        return "as the run began"
    if lasts_s == LASTS_S:
        said = "the least that tells anything"
    else:
        said = f"{FILLS} times what the slowest pool takes to fill"
    return f"{said}; --duration SECONDS says otherwise"


class Fills(Record):
    """When each arm's pool is full, at the speeds that a plan's cost assumes."""

    lasts_minutes: float
    because: str
    """Why a block lasts so long."""
    pools: Mapping[str, float | None]
    """Tokens that each arm's pool holds; None if unknown."""
    minutes: Mapping[str, float]
    """Minutes until each pool is full; only of arms whose pool the load fills."""

    def lines(self) -> Iterator[str]:
        """Yield one line for each arm."""
        for arm, tokens in self.pools.items():
            if tokens is None:
                yield f"{arm} does not say how large its pool is"
            elif arm in self.minutes:
                yield (
                    f"{arm} {tokens:,.0f} tokens, full after about {self.minutes[arm]:.1f} of "
                    f"{self.lasts_minutes:.0f} min"
                )
            else:
                yield f"{arm} {tokens:,.0f} tokens, never full"

    def warning(self) -> str | None:
        """Return which pools fill too late, with a remedy; None if none does.

        A pool fills too late if less than half of the run is played with the pool full.
        """
        half = self.lasts_minutes / 2
        late = [
            arm
            for arm, tokens in self.pools.items()
            if tokens is not None and self.minutes.get(arm, math.inf) > half
        ]
        if not late:
            return None
        longest = max((self.minutes[arm] for arm in late if arm in self.minutes), default=None)
        if longest is None:
            remedy = "more sessions"
        else:
            remedy = f"--duration {math.ceil(FILLS * longest) * 60}, or more sessions"
        return (
            f"the KV pool of {' and '.join(late)} is full for less than half of "
            f"{self.lasts_minutes:.0f} min: {remedy}"
        )
