"""Show the state of the engine and its web server at `/metrics`.

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
from aiohttp import web
from aiohttp.typedefs import Handler
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agentload.emulator.calls import Finished, Gauges
from agentload.serve.facts import VLLM

_S: Final = 1e9
_FINE_S: Final = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    1.5,
    2,
    2.5,
    3,
    3.5,
    4,
    4.5,
    5,
    7.5,
    10,
    30,
    60,
)
_COARSE_S: Final = (0.1, 0.5, 1)
_SIZE: Final = (
    "by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "
)
# vLLM leaves requests that only look at the server out of its figures.
_UNCOUNTED: Final = frozenset({"/metrics", "/health", "/ping", "/version", "/server_info"})


class _Family(msgspec.Struct, frozen=True):
    """A counter or gauge: one figure, or with *label* one figure for each of its values."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: str | int = 0
    labels: tuple[str, ...] = ("engine", "model_name")
    label: str | None = None
    by: dict[str, str | int] = {}


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
        add = self.histograms
        add["request_prompt_tokens"].add(end.prompt_tokens)
        add["request_generation_tokens"].add(tokens)
        add["request_max_num_generation_tokens"].add(tokens)
        add["request_params_max_tokens"].add(max_tokens)
        add["request_prefill_kv_computed_tokens"].add(end.prompt_tokens - end.cached_tokens)
        add["request_params_n"].add(1)
        add["request_num_preemptions"].add(end.preemptions)
        first_ns = end.instant_ns(0)
        decode_s = (end.instant_ns(-1) - first_ns) / _S
        add["time_to_first_token_seconds"].add((first_ns - submitted_ns) / _S)
        add["inter_token_latency_seconds"].add_many(np.diff(end.token_ns) / _S)
        add["request_time_per_output_token_seconds"].add(decode_s / max(tokens - 1, 1))
        add["e2e_request_latency_seconds"].add(int(end.at_ns - submitted_ns) / _S)
        add["request_decode_time_seconds"].add(decode_s)


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
        values = (
            [([*own, key], value) for key, value in family.by.items()]
            if family.label
            else [(own, family.value)]
        )
        labels = [*family.labels, *([family.label] if family.label else [])]
        if family.kind == "gauge":
            gauge = GaugeMetricFamily(f"vllm:{family.name}", family.help, labels=labels)
            for found, value in values:
                gauge.add_metric(found, figure(value))
            return gauge
        counter = CounterMetricFamily(f"vllm:{family.name}", family.help, labels=labels)
        for found, value in values:
            counter.add_metric(found, figure(value), created=self._created)
        return counter


def registry(engine: EngineMetrics) -> CollectorRegistry:
    """Return the registry behind `/metrics`: the process itself, then the engine."""
    out = CollectorRegistry(auto_describe=False)
    GCCollector(registry=out)
    PlatformCollector(registry=out)
    ProcessCollector(registry=out)
    out.register(engine)
    return out


class HttpMetrics:
    """Hold the HTTP counters of one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "http_requests_total",
            "Total number of requests by method, status and handler.",
            ["method", "status", "handler"],
            registry=registry,
        )
        self._request_bytes = Summary(
            "http_request_size_bytes",
            f"Content length of incoming requests {_SIZE}",
            ["handler"],
            registry=registry,
        )
        self._response_bytes = Summary(
            "http_response_size_bytes",
            f"Content length of outgoing responses {_SIZE}",
            ["handler"],
            registry=registry,
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate "
            "percentile calculations. ",
            buckets=_FINE_S,
            registry=registry,
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation "
            "by handler is important. ",
            ["handler", "method"],
            buckets=_COARSE_S,
            registry=registry,
        )

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request and count it.

        Sizes are those of the Content-Length headers; a stream has none and counts as 0.
        """
        if request.path in _UNCOUNTED:
            return await handler(request)
        start = time.monotonic()
        response = await handler(request)
        took = time.monotonic() - start
        route = request.match_info.route.resource
        name = "none" if route is None else route.canonical
        self._requests.labels(request.method, f"{response.status // 100}xx", name).inc()
        self._request_bytes.labels(name).observe(request.content_length or 0)
        self._response_bytes.labels(name).observe(response.content_length or 0)
        self._fine.observe(took)
        self._coarse.labels(name, request.method).observe(took)
        return response
