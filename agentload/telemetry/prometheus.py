"""Read a server's /metrics text into values of one vocabulary, whatever server and version wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

# our name: the names that servers use for it, newest first
NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "tgi_batch_current_size"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "tgi_queue_size"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"),
    "preemptions": ("vllm:num_preemptions_total",),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_hits": ("vllm:external_prefix_cache_hits_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "cached_tokens": ("vllm:prompt_tokens_cached_total", "sglang:cached_tokens_total"),
    "output_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
    "requests_done": ("vllm:request_success_total", "sglang:num_requests_total", "tgi_request_success_total"),
    "rejections": ("vllm:admission_rejections_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "queue_s_sum": ("vllm:request_queue_time_seconds_sum",),
    "prefill_s_sum": ("vllm:request_prefill_time_seconds_sum",),
    "decode_s_sum": ("vllm:request_decode_time_seconds_sum",),
    "computed_tokens_sum": ("vllm:request_prefill_kv_computed_tokens_sum",),
    "process_start_s": ("process_start_time_seconds",),
}
SHARES = frozenset({"kv_usage"})
INSTANTS = frozenset({"process_start_s"})
INFO = "vllm:cache_config_info"
REASONS = "vllm:num_requests_waiting_by_reason"
"""Becomes `waiting_capacity`, `waiting_deferred`, … beside `waiting`, their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """Values by our name, summed over engines (shares: the largest), and the labels of the cache configuration."""

    values: Mapping[str, float]
    cache_config: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> Scrape:
    """Parse an exposition text. Raises ValueError when it is none."""
    wanted = {theirs: ours for ours, all_theirs in NAMES.items() for theirs in all_theirs}
    rank = {theirs: position for all_theirs in NAMES.values() for position, theirs in enumerate(all_theirs)}
    found: dict[str, dict[str, float]] = {}
    cache_config: dict[str, str] = {}
    for name, labels, value in _samples(text):
        if name == INFO:
            cache_config = dict(labels)
        elif name == REASONS and (reason := labels.get("reason")):
            by_reason = found.setdefault(f"waiting_{reason}", {})
            by_reason[name] = by_reason.get(name, 0.0) + value
        elif (ours := wanted.get(name)) is not None:
            by_name = found.setdefault(ours, {})
            by_name[name] = max(by_name.get(name, value), value) if ours in SHARES else by_name.get(name, 0.0) + value
    rank[REASONS] = 0
    return Scrape(values={ours: by_name[min(by_name, key=rank.__getitem__)] for ours, by_name in found.items()}, cache_config=cache_config)


def joined(scrapes: Sequence[Scrape]) -> Scrape:
    """Return several replicas as one server: shares by the fullest, starts by the latest, all else summed."""
    names = {name for scrape in scrapes for name in scrape.values}
    values = {}
    for name in sorted(names):
        seen = [scrape.values[name] for scrape in scrapes if name in scrape.values]
        values[name] = max(seen) if name in SHARES or name in INSTANTS else sum(seen)
    config = next((scrape.cache_config for scrape in scrapes if scrape.cache_config), {})
    return Scrape(values=values, cache_config=config)


def _samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
