"""Compare a trace's or a run's lengths, reuse and load with a production server's metrics."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from agentload.exposition.scrape import Histogram, Scrape
from agentload.model.record import Record

_ALIKE: Final = 1.25
"""Judgement: within a quarter is alike.

Production's quantiles are known to a bucket, often a factor of 2 wide.
"""
_POINTS: Final = 0.1
"""Judgement: cached shares within ten points are alike; a trace's assumes an unlimited cache."""

Alike = Literal["alike", "more", "less"]
Unit = Literal["tokens", "seconds", "requests", "share"]


class MeanAndQuantiles(Record):
    """Mean and some quantiles."""

    mean: float
    quantiles: Mapping[float, float]
    """By share, such as 0.9."""


class Level(Record):
    """The usual range of a gauge over a run."""

    low: float
    middle: float
    high: float


class Figures(Record):
    """Figures of a trace or a run; None where unknown."""

    prompt: MeanAndQuantiles | None = None
    output: MeanAndQuantiles | None = None
    ttft_s: MeanAndQuantiles | None = None
    cached: float | None = None
    """Share of prompt tokens served from the cache."""
    running: Level | None = None
    kv_usage: Level | None = None


class Likeness(Record):
    """One figure and production's."""

    what: str
    unit: Unit
    ours: float
    low: float
    """The bounds of production's value; equal if it is known exactly."""
    high: float
    verdict: Alike
    """Whether ours is alike, more, or less."""


def likeness(ours: Figures, told: Scrape) -> Iterator[Likeness]:
    """Compare every figure that both sides have."""
    yield from _spread("prompt tokens", "tokens", ours.prompt, told.histogram("prompt_tokens"))
    yield from _spread("output tokens", "tokens", ours.output, told.histogram("output_tokens"))
    cached = told.cached_share
    if cached is not None and ours.cached is not None:
        verdict = _placed(ours.cached, cached - _POINTS, cached + _POINTS)
        yield Likeness(
            what="cached share of prompts",
            unit="share",
            ours=ours.cached,
            low=cached,
            high=cached,
            verdict=verdict,
        )
    yield from _spread("time to first token", "seconds", ours.ttft_s, told.histogram("ttft_s"))
    running = told.values.get("running")
    if running:  # an idle moment says nothing about the load
        yield from _level("concurrent requests", "requests", ours.running, running)
        yield from _level("KV pool in use", "share", ours.kv_usage, told.values.get("kv_usage"))


def _spread(
    what: str, unit: Unit, ours: MeanAndQuantiles | None, histogram: Histogram | None
) -> Iterator[Likeness]:
    """Compare a mean and quantiles with those of production's histogram."""
    if ours is None or histogram is None:
        return
    mean = histogram.mean or 0.0
    yield _ranged(f"{what} mean", unit, ours.mean, (mean, mean))
    for share, value in ours.quantiles.items():
        yield _ranged(f"{what} q{share * 100:g}", unit, value, histogram.bucket(share))


def _ranged(what: str, unit: Unit, ours: float, ends: tuple[float, float]) -> Likeness:
    """Compare a figure with the ends of production's."""
    low, high = ends
    verdict = _placed(ours, low / _ALIKE, high * _ALIKE)
    return Likeness(what=what, unit=unit, ours=ours, low=low, high=high, verdict=verdict)


def _level(what: str, unit: Unit, ours: Level | None, value: float | None) -> Iterator[Likeness]:
    """Compare a gauge with production's of one moment, which has to be in our usual range."""
    if ours is None or value is None:
        return
    verdict: Alike = "alike"
    if ours.low > value:
        verdict = "more"
    elif ours.high < value:
        verdict = "less"
    yield Likeness(what=what, unit=unit, ours=ours.middle, low=value, high=value, verdict=verdict)


def _placed(value: float, low: float, high: float) -> Alike:
    """Return whether a value is alike: between two others; else less or more."""
    if value < low:
        return "less"
    return "more" if value > high else "alike"
