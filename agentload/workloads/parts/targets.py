"""Compare a generated trace with measured quantiles and shares, by the field names of `tracefile.overview`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:  # generators declare targets and run without numpy
    from agentload.tracefile.overview import Overview

Q50_TOLERANCE: Final = 0.10
Q90_TOLERANCE: Final = 0.20
FEWEST: Final = 1_500
"""Fewer values cannot judge a generator: with 1,500, the median of a lognormal with sigma 1.5 scatters by 5 %."""
Figure: TypeAlias = Literal["q50", "q90", "share"]


@dataclass(frozen=True, slots=True)
class Target:
    """The measured quantiles of a field."""

    q50: float
    q90: float


@dataclass(frozen=True, slots=True)
class Range:
    """The allowed range of a share of the whole trace."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One figure and its target."""

    field: str
    figure: Figure
    seen: float
    low: float
    high: float
    count: int
    holds: bool


def held(targets: Mapping[str, Target | Range], found: "Overview") -> Iterator[Held]:
    """Compare the fields with enough values in a trace."""
    from agentload.tracefile.overview import SHARES

    for field, target in targets.items():
        match target:
            case Target(q50=q50, q90=q90):
                summary = found.fields.get(field)
                if summary is not None and summary.count >= FEWEST:
                    yield _held(field, "q50", summary.quantiles[SHARES.index(0.50)], _around(q50, Q50_TOLERANCE), summary.count)
                    yield _held(field, "q90", summary.quantiles[SHARES.index(0.90)], _around(q90, Q90_TOLERANCE), summary.count)
            case Range(low=low, high=high):
                share, count = _share(field, found)
                if count >= FEWEST:
                    yield _held(field, "share", share, (low, high), count)


def _around(aim: float, tolerance: float) -> tuple[float, float]:
    return aim * (1 - tolerance), aim * (1 + tolerance)


def _held(field: str, figure: Figure, seen: float, bounds: tuple[float, float], count: int) -> Held:
    low, high = bounds
    return Held(field=field, figure=figure, seen=seen, low=low, high=high, count=count, holds=low <= seen <= high)


def _share(field: str, found: "Overview") -> tuple[float, int]:
    """Return a share of the whole trace and its number of calls or sessions."""
    if field == "compacted":
        sessions = found.sessions - found.spawned
        return found.events.get("compact", 0) / max(1, sessions), sessions
    event = field.partition("@")[2]
    reuse = found.reuse_by_event.get(event)
    contexts = found.fields.get(f"context@{event}" if event else "context")
    return (0.0, 0) if reuse is None or contexts is None else (reuse.share, contexts.count)
