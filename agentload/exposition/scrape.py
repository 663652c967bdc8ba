"""Read a server's /metrics text into values and histograms of one vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from prometheus_client.samples import Sample

from agentload.exposition.histogram import Histogram, of_cumulative
from agentload.exposition.names import EACH, HISTOGRAMS, INFO, SAMPLED, SHARES, SPLIT, TOGETHER, VALUES, is_level
from agentload.exposition.page import samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One reading, or the difference of two: by our names, summed over engines and models (shares: the largest)."""

    values: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    cache_config: Mapping[str, str] = field(default_factory=dict)
    """Labels of the cache configuration; those that say how large the pool is are of all engines together."""
    engines: int = 1
    """How many engines, each with a pool of its own, stand behind it."""

    def histogram(self, name: str) -> Histogram | None:
        """Return a histogram that has values."""
        found = self.histograms.get(name)
        return found if found is not None and found.count else None

    @property
    def cached_share(self) -> float | None:
        """Return the share of prompt tokens that the prefix cache held."""
        queries, hits = self.values.get("prefix_queries"), self.values.get("prefix_hits")
        return min(1.0, hits / queries) if queries and hits is not None else None

    def samples(self) -> Iterator[tuple[str, float]]:
        """Yield what is worth keeping over time: values, and of histograms the sum and the count."""
        yield from self.values.items()
        for name in SAMPLED:
            if (found := self.histograms.get(name)) is not None:
                yield f"{name}_sum", found.total
                yield f"{name}_count", found.count

    def minus(self, earlier: Scrape) -> Scrape:
        """Return what happened since an earlier reading; after a restart of the server, all of it."""
        if self.values.get("process_start_s") != earlier.values.get("process_start_s"):
            return self
        none = Histogram(bounds=(), counts=(), total=0.0)
        return Scrape(
            values={name: value if is_level(name) else value - earlier.values.get(name, 0.0) for name, value in self.values.items()},
            histograms={name: found.minus(earlier.histograms.get(name, none)) for name, found in self.histograms.items()},
            cache_config=self.cache_config,
            engines=self.engines,
        )


def parse(text: str) -> Scrape:
    """Read an exposition text. Raises ValueError when it is none."""
    values: dict[str, float] = {}
    parts: dict[str, float] = {}
    upto: dict[str, dict[float, float]] = {}
    engines: dict[str, Mapping[str, str]] = {}
    for sample in samples(text):
        if sample.name == INFO:
            engines[sample.labels.get("engine", "")] = sample.labels
        elif not math.isfinite(sample.value):
            continue
        elif (bound := _bound(sample)) is not None:
            buckets = upto.setdefault(sample.name.removesuffix("_bucket"), {})
            buckets[bound] = buckets.get(bound, 0.0) + sample.value
        elif sample.name in SPLIT:
            ours, label = SPLIT[sample.name]
            part = f"{ours}_{sample.labels.get(label)}"
            parts[part] = parts.get(part, 0.0) + sample.value
        else:
            name = sample.name
            values[name] = max(values.get(name, 0.0), sample.value) if name in _SHARES else values.get(name, 0.0) + sample.value
    return Scrape(
        values={**dict(_ours(values)), **parts},
        histograms=dict(_histograms(upto, values)),
        cache_config=_together(tuple(engines.values()), EACH),
        engines=len(engines) or 1,
    )


def joined(scrapes: Sequence[Scrape]) -> Scrape:
    """Return several replicas as one server: shares by the fullest, starts by the latest, all else summed."""
    if len(scrapes) == 1:
        return scrapes[0]
    values = {}
    for name in sorted({name for scrape in scrapes for name in scrape.values}):
        seen = [scrape.values[name] for scrape in scrapes if name in scrape.values]
        values[name] = max(seen) if name in SHARES or name == "process_start_s" else sum(seen)
    histograms = {}
    for name in sorted({name for scrape in scrapes for name in scrape.histograms}):
        histograms[name] = reduce(Histogram.plus, (scrape.histograms[name] for scrape in scrapes if name in scrape.histograms))
    configs = tuple(scrape.cache_config for scrape in scrapes)
    return Scrape(
        values=values,
        histograms=histograms,
        cache_config=_together(configs, (*EACH, *TOGETHER)),
        engines=sum(scrape.engines for scrape in scrapes) or 1,
    )


_SHARES: Final = frozenset(theirs for ours in SHARES for theirs in VALUES[ours])


def _bound(sample: Sample) -> float | None:
    return float(sample.labels["le"]) if sample.name.endswith("_bucket") and "le" in sample.labels else None


def _ours(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for ours, theirs in VALUES.items():
        if (found := next((name for name in theirs if name in values), None)) is not None:
            yield ours, values[found]


def _histograms(upto: Mapping[str, Mapping[float, float]], values: Mapping[str, float]) -> Iterator[tuple[str, Histogram]]:
    for ours, theirs in HISTOGRAMS.items():
        name = next((name for name in theirs if f"{name}_sum" in values), None)
        if name is not None and (buckets := upto.get(name) or {math.inf: values.get(f"{name}_count", 0.0)}):
            yield ours, of_cumulative(buckets, values[f"{name}_sum"])


def _together(configs: Sequence[Mapping[str, str]], added: Sequence[str]) -> Mapping[str, str]:
    """Return the configuration of the first, with a pool that is all of theirs, or not known where one does not tell its own."""
    if len(configs) < 2:
        return dict(configs[0]) if configs else {}
    first = {name: value for name, value in next(filter(None, configs), {}).items() if name not in added}
    sums = {name: _sum([config.get(name, "") for config in configs]) for name in added}
    return first | {name: text for name, text in sums.items() if text is not None}


def _sum(texts: Sequence[str]) -> str | None:
    try:
        return str(sum(int(text) if text.isdecimal() else float(text) for text in texts))
    except ValueError:  # None, of an older server
        return None
