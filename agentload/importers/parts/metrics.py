"""Read a server's metrics as what they say of its load: histograms of lengths, and counters, summed over engines and models."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

PROMPT: Final = ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram")
OUTPUT: Final = ("vllm:request_generation_tokens", "sglang:generation_tokens_histogram")
TTFT: Final = ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
QUERIES: Final = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total")
HITS: Final = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total")
RUNNING: Final = ("vllm:num_requests_running", "sglang:num_running_reqs")
KV_USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage")
STARTED: Final = "process_start_time_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts of values up to each bound, in order of the bounds; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    """Of each bucket alone."""
    total: float
    """Of all values."""

    @property
    def count(self) -> float:
        """Return how many values there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return self.total / self.count if self.count else None

    def bucket(self, share: float) -> tuple[float, float]:
        """Return the bounds between which this quantile lies."""
        wanted, seen = share * self.count, 0.0
        for low, high, count in zip((0.0, *self.bounds), self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted and count:
                return low, high
        return (self.bounds[-2] if len(self.bounds) > 1 else 0.0), math.inf

    def minus(self, earlier: "Histogram") -> "Histogram":
        """Return what was added since an earlier reading of the same histogram."""
        if earlier.bounds != self.bounds:
            return self
        counts = tuple(max(0.0, now - before) for now, before in zip(self.counts, earlier.counts, strict=True))
        return Histogram(bounds=self.bounds, counts=counts, total=max(0.0, self.total - earlier.total))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One reading, or the difference of two."""

    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)

    def histogram(self, names: Sequence[str]) -> Histogram | None:
        """Return the first of these histograms that has values."""
        return next((found for name in names if (found := self.histograms.get(name)) is not None and found.count), None)

    def value(self, names: Sequence[str]) -> float | None:
        """Return the first of these that was read."""
        return next((self.values[name] for name in names if name in self.values), None)

    @property
    def cached_share(self) -> float | None:
        """Return the share of prompt tokens that the prefix cache held."""
        queries, hits = self.value(QUERIES), self.value(HITS)
        return min(1.0, hits / queries) if queries and hits is not None else None

    def minus(self, earlier: "Metrics") -> "Metrics":
        """Return what happened since an earlier reading; after a restart of the server, all of it."""
        if self.values.get(STARTED) != earlier.values.get(STARTED):
            return self
        none = Histogram(bounds=(), counts=(), total=0.0)
        histograms = {name: found.minus(earlier.histograms.get(name, none)) for name, found in self.histograms.items()}
        counters = {
            name: value - earlier.values.get(name, 0.0) if name.endswith("_total") else value for name, value in self.values.items()
        }
        return Metrics(histograms=histograms, values=counters)


def read(text: str) -> Metrics:
    """Read an exposition text; raise ValueError when it is none."""
    cumulative: dict[str, dict[float, float]] = {}
    totals: dict[str, float] = {}
    values: dict[str, float] = {}
    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (KeyError, IndexError, TypeError, AttributeError) as error:  # its parser's ways to refuse a text
        raise ValueError(f"no metrics: {type(error).__name__}") from error
    for sample in samples:
        if not math.isfinite(sample.value):
            continue
        if sample.name.endswith("_bucket") and "le" in sample.labels:
            bounds = cumulative.setdefault(sample.name.removesuffix("_bucket"), {})
            bound = float(sample.labels["le"])
            bounds[bound] = bounds.get(bound, 0.0) + sample.value
        elif sample.name.endswith("_sum"):
            name = sample.name.removesuffix("_sum")
            totals[name] = totals.get(name, 0.0) + sample.value
        elif sample.name in KV_USAGE:  # a share: the pool is as full as its fullest part
            values[sample.name] = max(values.get(sample.name, 0.0), sample.value)
        else:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    return Metrics(histograms={name: _histogram(found, totals.get(name, 0.0)) for name, found in cumulative.items()}, values=values)


def _histogram(cumulative: Mapping[float, float], total: float) -> Histogram:
    bounds = tuple(sorted(cumulative))
    counts = tuple(max(0.0, cumulative[high] - cumulative[low]) for low, high in pairwise(bounds))
    return Histogram(bounds=bounds, counts=(max(0.0, cumulative[bounds[0]]), *counts), total=total)
