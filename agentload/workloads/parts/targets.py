"""Compare a generated trace with measured quantiles and shares, by fields of an overview."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from agentload.model.record import Record

if TYPE_CHECKING:  # generators declare targets and run without numpy
    from agentload.tracefile.overview import Overview

TOLERANCES: Final = {"q50": 0.10, "q90": 0.20, "q99": 0.25}
"""Allowed deviation with `ENOUGH` values; with fewer it grows as the root of ENOUGH / count."""
ENOUGH: Final = {"q50": 1_500, "q90": 3_000, "q99": 15_000}
"""Numbers of values for which the tolerances hold.

With 1,500 values, the median of a lognormal with sigma 1.5 scatters by 5%;
tails need more for the same.
"""
FEWEST: Final = {"q50": 100, "q90": 200, "q99": 1_000, "share": 1_000}
"""Fewest values, calls or sessions by which a generator is judged."""
Figure: TypeAlias = Literal["q50", "q90", "q99", "share"]


class QuantileTarget(Record, kw_only=False):
    """The measured quantiles of a field."""

    q50: float
    q90: float
    q99: float | None = None


class Range(Record, kw_only=False):
    """The allowed range of a share of the whole trace."""

    low: float
    high: float


class TargetFigure(Record):
    """One figure and its target."""

    field: str
    figure: Figure
    seen: float
    low: float
    high: float
    count: int
    """Values, or for contexts sessions: contexts of one session resemble each other."""
    holds: bool | None
    """None: too few values to tell."""


def target_figures(
    targets: Mapping[str, QuantileTarget | Range], found: "Overview"
) -> Iterator[TargetFigure]:
    """Compare the fields that a trace has with their targets."""
    from agentload.tracefile.overview import SHARES

    for field, target in targets.items():
        match target:
            case Range(low=low, high=high):
                share, count = _share(field, found)
                if count:
                    yield _target_figure(field, "share", share, (low, high), count)
            case QuantileTarget(q50=q50, q90=q90, q99=q99):
                name, at, label = field.partition("@")
                summary = found.fields.get(field)
                counted = found.fields.get(f"calls{at}{label}") if name == "context" else summary
                if summary is None or counted is None:
                    continue
                aims: tuple[tuple[Figure, float, float | None], ...] = (
                    ("q50", 0.50, q50),
                    ("q90", 0.90, q90),
                    ("q99", 0.99, q99),
                )
                for figure, place, aim in aims:
                    if aim is not None:
                        wide = TOLERANCES[figure] * max(
                            1.0, math.sqrt(ENOUGH[figure] / counted.count)
                        )
                        seen = summary.quantiles[SHARES.index(place)]
                        yield _target_figure(
                            field, figure, seen, (aim * (1 - wide), aim * (1 + wide)), counted.count
                        )


def _target_figure(
    field: str, figure: Figure, seen: float, bounds: tuple[float, float], count: int
) -> TargetFigure:
    """Return a figure with its bounds, and whether it holds them if there are enough values."""
    low, high = bounds
    holds = low <= seen <= high if count >= FEWEST[figure] else None
    return TargetFigure(
        field=field, figure=figure, seen=seen, low=low, high=high, count=count, holds=holds
    )


def _share(field: str, found: "Overview") -> tuple[float, int]:
    """Return a share of the whole trace and its number of calls or sessions."""
    if field == "compacted":
        sessions = found.sessions - found.spawned
        return found.events.get("compact", 0) / max(1, sessions), sessions
    event = field.partition("@")[2]
    reuse = found.reuse_by_event.get(event)
    contexts = found.fields.get(f"context@{event}" if event else "context")
    if reuse is None or contexts is None:
        return (0.0, 0)
    return (reuse.share, contexts.count)
