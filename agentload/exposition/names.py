"""One vocabulary for what servers count: our names, and theirs, newest first. vLLM, SGLang, llama.cpp and TGI are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing", "tgi_batch_current_size"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred", "tgi_queue_size"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "llamacpp:kv_cache_usage_ratio"),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "prefix_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total"),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total"),
    "external_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_hits": ("vllm:external_prefix_cache_hits_total",),
    "prompt_tokens": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "cached_tokens": ("vllm:prompt_tokens_cached_total", "sglang:cached_tokens_total"),
    "output_tokens": ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
    "requests_done": ("vllm:request_success_total", "sglang:num_requests_total", "tgi_request_success_total"),
    "rejections": ("vllm:admission_rejections_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "pool_tokens": ("sglang:max_total_num_tokens",),
    "process_start_s": ("process_start_time_seconds",),
}
HISTOGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "prompt_tokens": ("vllm:request_prompt_tokens", "sglang:prompt_tokens_histogram", "tgi_request_input_length"),
    "output_tokens": ("vllm:request_generation_tokens", "sglang:generation_tokens_histogram", "tgi_request_generated_tokens"),
    "computed_tokens": ("vllm:request_prefill_kv_computed_tokens",),
    "ttft_s": ("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds"),
    "itl_s": (
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
        "sglang:inter_token_latency_seconds",
        "sglang:time_per_output_token_seconds",
    ),
    "e2e_s": ("vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds", "tgi_request_duration"),
    "queue_s": ("vllm:request_queue_time_seconds", "sglang:queue_time_seconds", "tgi_request_queue_duration"),
    "prefill_s": ("vllm:request_prefill_time_seconds",),
    "decode_s": ("vllm:request_decode_time_seconds",),
}
SPLIT: Final[Mapping[str, tuple[str, str]]] = {
    "vllm:num_requests_waiting_by_reason": ("waiting", "reason"),
    "vllm:prompt_tokens_by_source_total": ("prompt_tokens", "source"),
}
"""Parts of a value by a label: `waiting_capacity`, `waiting_deferred`, `prompt_tokens_local_compute`, … beside their sum."""
SHARES: Final = frozenset({"kv_usage"})
"""A server is as full as its fullest part."""
LEVELS: Final = SHARES | {"running", "waiting", "pool_tokens", "process_start_s"}
"""What goes up and down; all else is counted from the start."""
SAMPLED: Final = ("computed_tokens", "ttft_s", "itl_s", "e2e_s", "queue_s", "prefill_s", "decode_s")
"""Histograms whose sums and counts are samples: means follow, and no quantiles, for vLLM's first bucket of a token ends at 10 ms."""
INFO: Final = "vllm:cache_config_info"
"""A gauge of 1 an engine; its labels are the configuration."""
EACH: Final = ("kv_cache_size_tokens", "kv_cache_max_concurrency")
"""Labels that tell of one engine alone, …"""
TOGETHER: Final = ("num_gpu_blocks",)
"""… and of all engines of a server: vLLM adds them up when it starts."""


def is_level(name: str) -> bool:
    """Tell whether a value goes up and down; all others are counted from the server's start."""
    return name in LEVELS or name.startswith("waiting_")
