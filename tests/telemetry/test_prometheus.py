from __future__ import annotations

import pytest

from agentload.telemetry.prometheus import Scrape, parse

NEW = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0"} 256.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{cache_dtype="fp8",kv_cache_size_tokens="1048576",kv_cache_dtype_skip_layers="['sliding_window']"} 1.0
"""
OLD = """# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
# TYPE vllm:gpu_prefix_cache_hits counter
vllm:gpu_prefix_cache_hits_total 9.0
"""
BOTH = OLD + "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.6\n"


def test_engines_are_summed_and_shares_are_the_largest() -> None:
    assert parse(NEW) == Scrape(
        values={"running": 5.0, "kv_usage": 0.75, "prefix_hits": 256.0},
        cache_config={"cache_dtype": "fp8", "kv_cache_size_tokens": "1048576", "kv_cache_dtype_skip_layers": "['sliding_window']"},
    )


def test_waiting_is_told_apart_by_its_reason_and_the_external_cache_from_the_servers_own() -> None:
    page = """vllm:num_requests_waiting{engine="0"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="1",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="deferred"} 1.0
vllm:external_prefix_cache_queries_total 100.0
vllm:external_prefix_cache_hits_total 40.0
"""
    assert parse(page).values == {
        "waiting": 5.0,
        "waiting_capacity": 4.0,
        "waiting_deferred": 1.0,
        "external_queries": 100.0,
        "external_hits": 40.0,
    }


def test_older_names_are_known_and_newer_ones_win() -> None:
    assert parse(OLD).values == {"kv_usage": 0.5, "prefix_hits": 9.0}
    assert parse(BOTH).values["kv_usage"] == 0.6


def test_what_a_server_does_not_say_is_absent_not_zero() -> None:
    assert parse("# TYPE other gauge\nother 1.0\n") == Scrape(values={})


def test_a_page_that_is_no_exposition_is_refused() -> None:
    with pytest.raises(ValueError, match=r"."):
        parse("<html><body>login</body></html>")
