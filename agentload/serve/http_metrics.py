"""Count HTTP requests under the names of vLLM's web server."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter, Histogram, Summary

_FINE_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
_COARSE_S: Final = (0.1, 0.5, 1)
_SIZE: Final = "by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "
# vLLM leaves what only looks at the server out of its figures.
_UNCOUNTED: Final = frozenset({"/metrics", "/health", "/ping", "/version", "/server_info"})


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
