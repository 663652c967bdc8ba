"""Hold a trace against a server in production: how alike lengths and reuse are, by what the server's metrics tell."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from agentload.importers.parts.metrics import OUTPUT, PROMPT, Histogram, Metrics

_ALIKE: Final = 1.25
"""Judgement: a mean within a quarter is alike; quantiles of a histogram are known no better than its buckets of a factor of 2."""
_POINTS: Final = 0.1
"""Judgement: cached shares within ten points are alike; the trace's is of a cache without bounds."""

Verdict = Literal["alike", "more", "less"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """One figure of a trace beside production's."""

    what: str
    trace: float
    low: float
    """Production's value lies between these; they are equal where it is known exactly."""
    high: float
    verdict: Verdict
    """Of the trace: alike, or more or less than production has."""


def likeness(quantiles: Mapping[str, Mapping[float, float]], means: Mapping[str, float], reuse: float, told: Metrics) -> Iterator[Likeness]:
    """Compare prompts and outputs (quantiles by share, and means, under "prompt" and "output") and the ideal share of hits."""
    for name, names in (("prompt", PROMPT), ("output", OUTPUT)):
        histogram = told.histogram(names)
        if histogram is None or name not in means:
            continue
        yield from _lengths(name, quantiles[name], means[name], histogram)
    cached = told.cached_share
    if cached is not None:
        yield Likeness(
            what="cached share of prompts", trace=reuse, low=cached, high=cached, verdict=_placed(reuse, cached - _POINTS, cached + _POINTS)
        )


def _lengths(name: str, quantiles: Mapping[float, float], mean: float, histogram: Histogram) -> Iterator[Likeness]:
    average = histogram.mean or 0.0
    yield Likeness(
        what=f"{name} tokens, mean", trace=mean, low=average, high=average, verdict=_placed(mean, average / _ALIKE, average * _ALIKE)
    )
    for share, value in quantiles.items():
        low, high = histogram.bucket(share)
        yield Likeness(what=f"{name} tokens, q{share * 100:g}", trace=value, low=low, high=high, verdict=_placed(value, low, high))


def _placed(value: float, low: float, high: float) -> Verdict:
    return "less" if value < low else "more" if value > high else "alike"
