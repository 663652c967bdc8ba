"""Show the state of the engine at `/metrics`.

Names, types and labels are those of vLLM 0.32 (`vllm.yaml`). What an emulated engine would have
to guess is left out. Times are the engine's own: they do not include lateness of our event loop.
"""

import time
from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agentload.emulator.calls import Finished, Gauges
from agentload.serve.facts import VLLM

_S: Final = 1e9


class _Family(msgspec.Struct, frozen=True):
    """A counter or gauge: one figure, or with *label* one figure for each of its values."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: str | int = 0
    """A constant, or the name of one of the `figures` in `EngineMetrics.collect`."""
    labels: tuple[str, ...] = ("engine", "model_name")
    label: str | None = None
    by: dict[str, str | int] = {}
    """Such a value for each value of *label*."""


class _Buckets(msgspec.Struct, frozen=True):
    """A histogram."""

    help: str
    bounds: tuple[float, ...] = ()


_FAMILIES: Final = msgspec.convert(VLLM["families"], tuple[_Family, ...])
_HISTOGRAMS: Final = msgspec.convert(VLLM["histograms"], dict[str, _Buckets])


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the bounds 1, 2, 5, 10, … up to the model's length."""
    return tuple(
        float(step * 10**power)
        for power in range(len(str(max_model_len)))
        for step in (1, 2, 5)
        if step * 10**power <= max_model_len
    )


class Distribution:
    """Hold the counts of one histogram."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts: NDArray[np.int64] = np.zeros(len(bounds) + 1, dtype=np.int64)
        self._sum = 0.0

    def add(self, *values: float) -> None:
        """Observe a few values."""
        self.add_many(np.array(values))

    def add_many(self, values: NDArray[np.float64]) -> None:
        """Observe many values."""
        self._counts += np.bincount(
            np.searchsorted(self._bounds, values, side="left"), minlength=len(self._counts)
        )
        self._sum += float(values.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulated counts by upper bound, as Prometheus writes them."""
        names = [*map(str, self._bounds.tolist()), "+Inf"]
        return list(zip(names, np.cumsum(self._counts).astype(float).tolist(), strict=True))

    @property
    def total(self) -> float:
        """Sum of all values."""
        return self._sum


class RequestTally:
    """Hold the counters and histograms of one server."""

    def __init__(self, *, max_model_len: int) -> None:
        self.successes = Counts[str]()
        """Finished requests, by the reason of their end."""
        self.rejections = 0
        """Number of requests that a full queue turned away."""
        tokens = token_bounds(max_model_len)
        self.histograms = {
            name: Distribution(each.bounds or tokens) for name, each in _HISTOGRAMS.items()
        }

    def finished(self, end: Finished, *, submitted_ns: int, reason: str, max_tokens: int) -> None:
        """Count a request that ran to its end."""
        tokens = int(end.token_counts.sum())
        self.successes["stop" if reason == "tool_calls" else reason] += 1
        into = self.histograms
        into["request_prompt_tokens"].add(end.prompt_tokens)
        into["request_generation_tokens"].add(tokens)
        into["request_max_num_generation_tokens"].add(tokens)
        into["request_params_max_tokens"].add(max_tokens)
        into["request_prefill_kv_computed_tokens"].add(end.prompt_tokens - end.cached_tokens)
        into["request_params_n"].add(1)
        into["request_num_preemptions"].add(end.preemptions)
        token_ns = end.token_ns
        first_ns = int(token_ns[0])
        decode_s = (int(token_ns[-1]) - first_ns) / _S
        into["time_to_first_token_seconds"].add((first_ns - submitted_ns) / _S)
        # one gap an emission, not a token
        into["inter_token_latency_seconds"].add_many(np.diff(token_ns) / _S)
        into["request_time_per_output_token_seconds"].add(decode_s / max(tokens - 1, 1))
        into["e2e_request_latency_seconds"].add(int(end.at_ns - submitted_ns) / _S)
        into["request_decode_time_seconds"].add(decode_s)


class EngineMetrics(Collector):
    """Collect the engine's gauges and tallies when a scraper asks."""

    def __init__(
        self,
        *,
        model: str,
        gauges: Callable[[], Gauges],
        tally: RequestTally,
        cache_config: Mapping[str, object],
    ) -> None:
        self._labels = {"engine": "0", "model_name": model}
        self._gauges = gauges
        self._tally = tally
        self._cache_config = {"engine": "0"} | {
            name: str(value) for name, value in cache_config.items()
        }
        self._created = time.time()

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families in vLLM's order."""
        # vLLM's other reasons are constants in vllm.yaml.
        ends = {f"ended_{end}": self._tally.successes[end] for end in ("stop", "length")}
        figures = {**asdict(self._gauges()), **ends, "rejections": self._tally.rejections}
        for family in _FAMILIES:
            yield self._family(
                family, lambda value: value if isinstance(value, int) else figures[value]
            )
        for name, histogram in self._tally.histograms.items():
            shown = HistogramMetricFamily(
                f"vllm:{name}", _HISTOGRAMS[name].help, labels=list(self._labels)
            )
            shown.add_metric(
                list(self._labels.values()), buckets=histogram.buckets(), sum_value=histogram.total
            )
            shown.add_sample(f"vllm:{name}_created", self._labels, self._created)
            yield shown
        config = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=list(self._cache_config),
        )
        config.add_metric(list(self._cache_config.values()), 1)
        yield config

    def _family(self, family: _Family, figure: Callable[[str | int], float]) -> Metric:
        own = [self._labels[name] for name in family.labels]
        samples = (
            [([*own, key], value) for key, value in family.by.items()]
            if family.label
            else [(own, family.value)]
        )
        labels = [*family.labels, *([family.label] if family.label else [])]
        if family.kind == "gauge":
            gauge = GaugeMetricFamily(f"vllm:{family.name}", family.help, labels=labels)
            for label_values, value in samples:
                gauge.add_metric(label_values, figure(value))
            return gauge
        counter = CounterMetricFamily(f"vllm:{family.name}", family.help, labels=labels)
        for label_values, value in samples:
            counter.add_metric(label_values, figure(value), created=self._created)
        return counter


def registry(engine: EngineMetrics) -> CollectorRegistry:
    """Return the registry behind `/metrics`: the process itself, then the engine."""
    out = CollectorRegistry(auto_describe=False)
    GCCollector(registry=out)
    PlatformCollector(registry=out)
    ProcessCollector(registry=out)
    out.register(engine)
    return out
