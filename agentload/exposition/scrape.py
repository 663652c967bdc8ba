"""Read a server's /metrics text into values and histograms by our names.

`names.yaml` lists the names of vLLM, SGLang, llama.cpp and TGI for each of ours, newest first.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Final

import msgspec

from agentload import documents
from agentload.exposition.text import MetricSample, samples
from agentload.model.record import Record

_NAMES: Final = documents.own_document("agentload.exposition", "names.yaml")
VALUES: Final = msgspec.convert(_NAMES["values"], dict[str, tuple[str, ...]])
HISTOGRAMS: Final = msgspec.convert(_NAMES["histograms"], dict[str, tuple[str, ...]])
SPLIT: Final = msgspec.convert(_NAMES["split"], dict[str, tuple[str, str]])
"""Their names of values that a label splits, with our name and the label."""
SHARES: Final = frozenset({"kv_usage"})
"""Values combined by their maximum: a server is as full as its fullest part."""
_THEIR_SHARES: Final = frozenset(theirs for ours in SHARES for theirs in VALUES[ours])
_LATEST: Final = frozenset({"process_start_s"})
"""Values of replicas that are combined by their maximum: a server is as young as its youngest."""
LEVELS: Final = SHARES | _LATEST | {"running", "waiting", "pool_tokens"}
"""Gauges; all other values are counters."""
SAMPLED: Final = ("computed_tokens", "ttft_s", "itl_s", "e2e_s", "queue_s", "prefill_s", "decode_s")
"""Histograms sampled by sum and count: enough for means.

Quantiles would be too coarse: vLLM's first TPOT bucket ends at 10 ms.
"""
LARGEST: Final = 1e300
"""A larger value, an infinite one or NaN is no measurement."""
INFO: Final = "vllm:cache_config_info"
"""A gauge of 1 for each engine; its labels are the cache configuration."""
OF_ENGINES: Final = ("kv_cache_size_tokens", "kv_cache_max_concurrency")
"""Labels with each engine's own number: summed over engines and over replicas."""
OF_REPLICAS: Final = ("num_gpu_blocks",)
"""Labels that vLLM sums over its engines at start: summed over replicas only."""
DIGITS: Final = 16  # more are no number of tokens


def _wanted_names() -> Iterator[str]:
    yield INFO
    yield from SPLIT
    for theirs in VALUES.values():
        yield from theirs
    for theirs in HISTOGRAMS.values():
        for name in theirs:
            yield from (f"{name}_bucket", f"{name}_sum", f"{name}_count")


WANTED: Final = frozenset(_wanted_names())
"""Names of the samples that are read from a page."""


# --- what is read ---


class Histogram(Record):
    """Counts of values by bucket, in order of the upper bounds; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        """Number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Mean of the values; None if there are none."""
        count = self.count
        return self.total / count if count else None

    def bucket(self, share: float) -> tuple[float, float]:
        """Return the bounds of the bucket with this quantile."""
        wanted = share * self.count
        seen = 0.0
        low = 0.0
        for high, count in zip(self.bounds, self.counts, strict=True):
            seen += count
            if seen >= wanted and count:
                return low, high
            low = high
        last_finite = self.bounds[-2] if len(self.bounds) > 1 else 0.0
        return last_finite, math.inf

    def minus(self, earlier: "Histogram | None") -> "Histogram":
        """Return what was added since an earlier reading; everything if the buckets changed."""
        if earlier is None or earlier.bounds != self.bounds:
            return self
        counts = []
        for now, before in zip(self.counts, earlier.counts, strict=True):
            counts.append(max(0.0, now - before))
        total = max(0.0, self.total - earlier.total)
        return Histogram(bounds=self.bounds, counts=tuple(counts), total=total)

    def plus(self, other: "Histogram") -> "Histogram":
        """Return the sum of both; with different buckets only count and sum are kept."""
        total = self.total + other.total
        if other.bounds != self.bounds:
            count = self.count + other.count
            return Histogram(bounds=(math.inf,), counts=(count,), total=total)
        counts = tuple(map(add, self.counts, other.counts))
        return Histogram(bounds=self.bounds, counts=counts, total=total)


def of_cumulative(upto: Mapping[float, float], total: float) -> Histogram:
    """Make a histogram from the count up to each bound and the sum of the values."""
    bounds = tuple(sorted(upto))
    counts = []
    below = 0.0
    for bound in bounds:
        counts.append(max(0.0, upto[bound] - below))
        below = upto[bound]
    return Histogram(bounds=bounds, counts=tuple(counts), total=total)


def is_level(name: str) -> bool:
    """Return whether a value is a gauge; all others count from the server's start."""
    return name in LEVELS or name.startswith("waiting_")


class Scrape(Record):
    """One reading or the difference of two, summed over engines and models (shares: largest)."""

    values: Mapping[str, float] = msgspec.field(default_factory=dict)
    histograms: Mapping[str, Histogram] = msgspec.field(default_factory=dict)
    cache_config: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Labels of the cache configuration; the pool size is that of all engines together."""
    engines: int = 1
    """Number of engines, each with its own pool."""

    def histogram(self, name: str) -> Histogram | None:
        """Return a histogram that is not empty."""
        found = self.histograms.get(name)
        if found is None or not found.count:
            return None
        return found

    @property
    def cached_share(self) -> float | None:
        """Share of prompt tokens served from the prefix cache; None if unknown."""
        queries = self.values.get("prefix_queries")
        hits = self.values.get("prefix_hits")
        if queries and hits is not None:
            return min(1.0, hits / queries)
        return None

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield the samples to keep over time: values, and sum and count of histograms."""
        yield from self.values.items()
        for name in SAMPLED:
            found = self.histograms.get(name)
            if found is not None:
                yield f"{name}_sum", found.total
                yield f"{name}_count", found.count

    def minus(self, earlier: "Scrape") -> "Scrape":
        """Return the counts since an earlier reading, or all of them after a restart.

        Gauges keep their latest value.
        """
        if self.values.get("process_start_s") != earlier.values.get("process_start_s"):
            return self
        return Scrape(
            values={
                name: value if is_level(name) else value - earlier.values.get(name, 0.0)
                for name, value in self.values.items()
            },
            histograms={
                name: found.minus(earlier.histograms.get(name))
                for name, found in self.histograms.items()
            },
            cache_config=self.cache_config,
            engines=self.engines,
        )


# --- a page ---


def parse(text: str) -> Scrape:
    """Parse an exposition text. Raises ValueError if it is not one."""
    page = _Page()
    for sample in samples(text, WANTED):
        page.add(sample)
    return Scrape(
        values={**dict(_values(page.values)), **page.parts},
        histograms=dict(_histograms(page.upto, page.values)),
        cache_config=_one_config(tuple(page.engines.values()), OF_ENGINES),
        engines=len(page.engines) or 1,
    )


def _sums() -> dict[Any, float]:
    return defaultdict(float)


@dataclass(slots=True)
class _Page:
    """The samples of a page, added up over the engines and models of a server."""

    values: dict[str, float] = field(default_factory=_sums)
    """Values by the server's own names."""
    parts: dict[str, float] = field(default_factory=_sums)
    """Values that a label splits, by our names."""
    upto: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(_sums))
    """Count up to each bound of each histogram."""
    engines: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """The cache configuration of each engine."""

    def add(self, sample: MetricSample) -> None:
        """Add one sample; a value that is no measurement is left out."""
        name = sample.name
        value = sample.value
        if name == INFO:
            self.engines[sample.labels.get("engine", "")] = sample.labels
            return
        if not abs(value) <= LARGEST:  # NaN is not above it either
            return
        bound = _bound(sample)
        if bound is not None:
            if bound >= 0:  # NaN is no bound
                self.upto[name.removesuffix("_bucket")][bound] += value
        elif name in SPLIT:
            ours, label = SPLIT[name]
            part = sample.labels.get(label)
            self.parts[f"{ours}_{part}"] += value
        elif name in _THEIR_SHARES:
            self.values[name] = max(self.values.get(name, 0.0), value)
        else:
            self.values[name] += value


def _bound(sample: MetricSample) -> float | None:
    """Return the upper bound of a histogram's bucket; None where the sample is none."""
    if sample.name.endswith("_bucket") and "le" in sample.labels:
        return float(sample.labels["le"])
    return None


def _values(theirs: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield each value by our name, from the newest of its names that the page has."""
    for name, known in VALUES.items():
        found = next((each for each in known if each in theirs), None)
        if found is not None:
            yield name, theirs[found]


def _histograms(
    upto: Mapping[str, Mapping[float, float]], theirs: Mapping[str, float]
) -> Iterator[tuple[str, Histogram]]:
    """Yield each histogram that has a sum; one bucket holds all where the page has no others."""
    for name, known in HISTOGRAMS.items():
        found = next((each for each in known if f"{each}_sum" in theirs), None)
        if found is not None:
            everything = {math.inf: theirs.get(f"{found}_count", 0.0)}
            counts = upto.get(found) or everything
            yield name, of_cumulative(counts, theirs[f"{found}_sum"])


# --- replicas of one server ---


def of_replicas(scrapes: Sequence[Scrape]) -> Scrape:
    """Combine replicas into one server: largest shares, latest start, sums of all else."""
    if len(scrapes) == 1:
        return scrapes[0]
    configs = [scrape.cache_config for scrape in scrapes]
    return Scrape(
        values=_joined_values(scrapes),
        histograms=_joined_histograms(scrapes),
        cache_config=_one_config(configs, (*OF_ENGINES, *OF_REPLICAS)),
        engines=sum(scrape.engines for scrape in scrapes) or 1,
    )


def _joined_values(scrapes: Sequence[Scrape]) -> dict[str, float]:
    found: dict[str, float] = {}
    for scrape in scrapes:
        for name, value in scrape.values.items():
            if name not in found:
                found[name] = value
            elif name in SHARES | _LATEST:
                found[name] = max(found[name], value)
            else:
                found[name] += value
    return dict(sorted(found.items()))


def _joined_histograms(scrapes: Sequence[Scrape]) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for scrape in scrapes:
        for name, histogram in scrape.histograms.items():
            before = found.get(name)
            found[name] = histogram if before is None else before.plus(histogram)
    return dict(sorted(found.items()))


def _one_config(configs: Sequence[Mapping[str, str]], summed: Collection[str]) -> Mapping[str, str]:
    """Return the first configuration, with the labels that are *summed* over all of them.

    A label is left out where one of its numbers is not known.
    """
    if not configs:
        return {}
    if len(configs) == 1:
        return dict(configs[0])
    first = next(filter(None, configs), {})
    out = {name: value for name, value in first.items() if name not in summed}
    for name in summed:
        text = _sum([config.get(name, "") for config in configs])
        if text is not None:
            out[name] = text
    return out


def _sum(texts: Sequence[str]) -> str | None:
    """Return the sum of numbers as text; None where one is unknown: older servers write "None"."""
    try:
        return str(sum(map(_number, texts)))
    except ValueError:
        return None


def _number(text: str) -> float:
    """Read a whole number as one, so that its text stays whole."""
    is_whole = text.isdecimal() and len(text) < DIGITS
    return int(text) if is_whole else float(text)
