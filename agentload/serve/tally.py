"""Count what happened to requests, for `/metrics`, in the buckets of vLLM's histograms.

Times are the engine's own: they do not know how late our event loop was.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import Finished

REQUEST_S: Final = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)
FIRST_TOKEN_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_S: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
CHOICES: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_S: Final = 1e9
HELP: Final = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": "Histogram of time_per_output_token_seconds per request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
}
_BOUNDS: Final = {
    "request_params_n": CHOICES,
    "time_to_first_token_seconds": FIRST_TOKEN_S,
    "inter_token_latency_seconds": TOKEN_S,
    "request_time_per_output_token_seconds": TOKEN_S,
    "e2e_request_latency_seconds": REQUEST_S,
    "request_decode_time_seconds": REQUEST_S,
    "request_num_preemptions": PREEMPTIONS,
}
"""All others count tokens, up to the model's length."""


def token_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the bounds 1, 2, 5, 10, … up to the model's length."""
    return tuple(
        float(step * 10**power) for power in range(len(str(max_model_len))) for step in (1, 2, 5) if step * 10**power <= max_model_len
    )


class Histogram:
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
        self._counts += np.bincount(np.searchsorted(self._bounds, values, side="left"), minlength=len(self._counts))
        self._sum += float(values.sum())

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulated counts by upper bound, as Prometheus writes them."""
        names = [*map(str, self._bounds.tolist()), "+Inf"]
        return list(zip(names, np.cumsum(self._counts).astype(float).tolist(), strict=True))

    @property
    def total(self) -> float:
        """Return the sum of all values."""
        return self._sum


class Tally:
    """Hold the counters and histograms of one server."""

    def __init__(self, *, max_model_len: int) -> None:
        self.successes: Counter[str] = Counter()
        """Finished requests by the reason of their end."""
        self.rejections = 0
        """Requests that a full queue turned away."""
        tokens = token_bounds(max_model_len)
        self.histograms = {name: Histogram(_BOUNDS.get(name, tokens)) for name in HELP}

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
        decode_s = int(end.token_ns[-1] - end.token_ns[0]) / _S
        add["time_to_first_token_seconds"].add(int(end.token_ns[0] - submitted_ns) / _S)
        add["inter_token_latency_seconds"].add_many(np.diff(end.token_ns) / _S)
        add["request_time_per_output_token_seconds"].add(decode_s / max(tokens - 1, 1))
        add["e2e_request_latency_seconds"].add(int(end.at_ns - submitted_ns) / _S)
        add["request_decode_time_seconds"].add(decode_s)
