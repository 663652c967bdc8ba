"""Show the state of the engine and of its web server at `/metrics` under the names, types and labels of vLLM 0.32.

What an emulated engine does not have (external caches, a multi-modal cache, flops accounting) is shown as zero, as vLLM does while it
is off; what it would have to guess is left out.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector, Summary
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agentload.emulator.calls import Gauges
from agentload.serve.tally import HELP, Tally

_OFF: Final = {
    "estimated_flops_per_gpu": "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
    "estimated_read_bytes_per_gpu": "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
    "estimated_write_bytes_per_gpu": "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
    "external_prefix_cache_queries": (
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens."
    ),
    "external_prefix_cache_hits": (
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens."
    ),
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
}
_WAITING: Final = (
    "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient "
    "constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting."
)
_SLEEP: Final = (
    "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; "
    "discard_all = 1 means sleep level 2."
)
_BY_TIER: Final = (
    "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred "
    "from another vLLM instance) or external_unspecified. Counted at admission; "
    "sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits."
)
_ENDS: Final = ("stop", "length", "abort", "error", "repetition")
_FINE_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
_COARSE_S: Final = (0.1, 0.5, 1)
_SIZE: Final = "by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "
# vLLM leaves what only looks at the server out of its figures.
_UNCOUNTED: Final = frozenset({"/metrics", "/health", "/ping", "/version", "/server_info"})


class EngineMetrics(Collector):
    """Read gauges and tallies when a scraper asks."""

    def __init__(self, *, model: str, gauges: Callable[[], Gauges], tally: Tally, cache_config: Mapping[str, object]) -> None:
        self._labels = {"engine": "0", "model_name": model}
        self._gauges = gauges
        self._tally = tally
        self._cache_config = {"engine": "0"} | {name: str(value) for name, value in cache_config.items()}
        self._created = time.time()

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families in vLLM's order."""
        now, tally = self._gauges(), self._tally
        for name in ("estimated_flops_per_gpu", "estimated_read_bytes_per_gpu", "estimated_write_bytes_per_gpu"):
            yield self._counter(name, _OFF[name], 0)
        yield self._gauge("num_requests_running", "Number of requests in model execution batches.", now.running)
        yield self._gauge("num_requests_waiting", "Number of requests waiting to be processed.", now.waiting)
        yield self._gauge_by("num_requests_waiting_by_reason", _WAITING, "reason", {"capacity": now.waiting, "deferred": 0})
        yield self._gauge_by("engine_sleep_state", _SLEEP, "sleep_state", {"awake": 1, "weights_offloaded": 0, "discard_all": 0})
        yield self._gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", now.kv_usage)
        yield self._counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", now.prefix_queries)
        yield self._counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", now.prefix_hits)
        for name in ("external_prefix_cache_queries", "external_prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"):
            yield self._counter(name, _OFF[name], 0)
        yield self._counter("num_preemptions", "Cumulative number of preemption from the engine.", now.preemptions)
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", now.prompt_tokens)
        sources = {"local_compute": now.prompt_tokens_computed, "local_cache_hit": now.prompt_tokens_cached, "external_kv_transfer": 0}
        yield self._counter_by("prompt_tokens_by_source", "Number of prompt tokens by source.", "source", sources)
        yield self._counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", now.prompt_tokens_cached)
        tiers = {"device": now.prefix_hits, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
        yield self._counter_by("prompt_tokens_cached_by_source", _BY_TIER, "source", tiers)
        yield self._counter("generation_tokens", "Number of generation tokens processed.", now.generation_tokens)
        ends = {end: tally.successes[end] for end in _ENDS}
        yield self._counter_by("request_success", "Count of successfully processed requests.", "finished_reason", ends)
        yield self._rejections()
        yield from self._histograms()
        config = GaugeMetricFamily("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(self._cache_config))
        config.add_metric(list(self._cache_config.values()), 1)
        yield config

    def _histograms(self) -> Iterator[Metric]:
        for name, histogram in self._tally.histograms.items():
            family = HistogramMetricFamily(f"vllm:{name}", HELP[name], labels=list(self._labels))
            family.add_metric(list(self._labels.values()), buckets=histogram.buckets(), sum_value=histogram.total)
            family.add_sample(f"vllm:{name}_created", self._labels, self._created)
            yield family

    def _rejections(self) -> Metric:
        family = CounterMetricFamily(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            labels=["model_name", "reason"],
        )
        for reason, count in (("max_num_queued_reqs", self._tally.rejections), ("max_num_queued_tokens", 0)):
            family.add_metric([self._labels["model_name"], reason], count, created=self._created)
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _gauge_by(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value, created=self._created)
        return family

    def _counter_by(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], value, created=self._created)
        return family


def registry(engine: EngineMetrics) -> CollectorRegistry:
    """Return what `/metrics` shows: the process itself, then the engine."""
    out = CollectorRegistry(auto_describe=False)
    GCCollector(registry=out)
    PlatformCollector(registry=out)
    ProcessCollector(registry=out)
    out.register(engine)
    return out


class HttpMetrics:
    """Hold the counters of one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "http_requests_total",
            "Total number of requests by method, status and handler.",
            ["method", "status", "handler"],
            registry=registry,
        )
        self._request_bytes = Summary(
            "http_request_size_bytes", f"Content length of incoming requests {_SIZE}", ["handler"], registry=registry
        )
        self._response_bytes = Summary(
            "http_response_size_bytes", f"Content length of outgoing responses {_SIZE}", ["handler"], registry=registry
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            buckets=_FINE_S,
            registry=registry,
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            ["handler", "method"],
            buckets=_COARSE_S,
            registry=registry,
        )

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request and count it, its sizes as the headers give them: a stream has none."""
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
