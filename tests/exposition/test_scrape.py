"""Pages of servers as values of one vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from agentload.exposition.scrape import Histogram, Scrape, of_replicas, parse
from tests.importers.test_prometheus import CHAT, text

PAGES: Final = Path(__file__).parent / "pages"
INF: Final = float("inf")
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
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_sum 2.0
vllm:time_per_output_token_seconds_count 100.0
"""
BOTH = OLD + "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.6\n"

SAMPLES: Final = {
    "vllm": {
        "running": 0.0, "waiting": 0.0, "waiting_capacity": 0.0, "waiting_deferred": 0.0, "kv_usage": 0.0, "preemptions": 0.0,
        "prefix_queries": 15_019.0, "prefix_hits": 256.0, "external_queries": 0.0, "external_hits": 0.0,
        "prompt_tokens": 15_019.0, "cached_tokens": 256.0, "output_tokens": 12_368.0, "requests_done": 41.0, "rejections": 0.0,
        "prompt_tokens_local_compute": 14_763.0, "prompt_tokens_local_cache_hit": 256.0, "prompt_tokens_external_kv_transfer": 0.0,
        "process_start_s": 1_795_178_018.62,
        "computed_tokens_sum": 14_763.0, "computed_tokens_count": 41.0, "ttft_s_sum": 4.800855398178101, "ttft_s_count": 41.0,
        "itl_s_sum": 27.4195936730016, "itl_s_count": 12_327.0, "e2e_s_sum": 32.17282319068909, "e2e_s_count": 41.0,
        "queue_s_sum": 1.1818579209989366, "queue_s_count": 41.0, "prefill_s_sum": 2.483175122998773, "prefill_s_count": 41.0,
        "decode_s_sum": 27.4195936730016, "decode_s_count": 41.0,
    },
    "sglang": {
        "running": 5.0, "waiting": 1.0, "kv_usage": 0.73, "preemptions": 2.0, "prefix_queries": 8_000.0, "prefix_hits": 4_800.0,
        "prompt_tokens": 8_000.0, "cached_tokens": 4_800.0, "output_tokens": 700.0, "requests_done": 7.0, "pool_tokens": 200_000.0,
        "ttft_s_sum": 1.4, "ttft_s_count": 7.0, "itl_s_sum": 13.86, "itl_s_count": 693.0, "e2e_s_sum": 15.4, "e2e_s_count": 7.0,
        "queue_s_sum": 0.35, "queue_s_count": 7.0,
    },
    "llama_cpp": {"running": 4.0, "waiting": 46.0, "kv_usage": 0.42, "prompt_tokens": 5_000.0, "output_tokens": 900.0},
    "tgi": {
        "running": 5.0, "waiting": 7.0, "requests_done": 148.0, "e2e_s_sum": 75.0, "e2e_s_count": 150.0, "queue_s_sum": 3.0,
        "queue_s_count": 150.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("server", SAMPLES)
def test_every_servers_page_is_read_in_our_words(server: str) -> None:
    assert dict(parse((PAGES / f"{server}.txt").read_text()).samples()) == SAMPLES[server]


@pytest.mark.parametrize(
    ("server", "prompts", "cached"),
    [("vllm", 15_019 / 41, 256 / 15_019), ("sglang", 8_000 / 7, 0.6), ("tgi", 400.0, None)],
)
def test_lengths_and_the_cached_share_are_of_all_requests(
    server: str, prompts: float, cached: float | None
) -> None:
    found = parse((PAGES / f"{server}.txt").read_text())
    lengths = found.histogram("prompt_tokens")
    assert lengths is not None
    assert lengths.mean == pytest.approx(prompts)
    assert found.cached_share == (None if cached is None else pytest.approx(cached))


def test_engines_are_summed_and_shares_are_the_largest() -> None:
    assert parse(NEW) == Scrape(
        values={"running": 5.0, "kv_usage": 0.75, "prefix_hits": 256.0},
        cache_config={
            "cache_dtype": "fp8",
            "kv_cache_size_tokens": "1048576",
            "kv_cache_dtype_skip_layers": "['sliding_window']",
        },
    )


def info(engine: int, tokens: object, blocks: int = 200, concurrency: object = 12.5) -> str:
    labels = f'cache_dtype="fp8",engine="{engine}",kv_cache_size_tokens="{tokens}",kv_cache_max_concurrency="{concurrency}"'
    return f'vllm:cache_config_info{{{labels},num_gpu_blocks="{blocks}"}} 1.0\n'


def test_a_pool_is_that_of_all_engines_and_replicas_and_blocks_are_added_up_by_the_server_itself() -> (
    None
):
    one = parse(info(0, 1_000) + info(1, 1_000))
    other = parse(info(0, 900, blocks=90))
    assert (one.engines, other.engines, of_replicas([one, other]).engines) == (2, 1, 3)
    pools = [
        tuple(
            found.cache_config.get(name)
            for name in (
                "kv_cache_size_tokens",
                "kv_cache_max_concurrency",
                "num_gpu_blocks",
                "cache_dtype",
            )
        )
        for found in (
            one,
            other,
            of_replicas([one, other]),
            of_replicas([one, parse(info(0, "None"))]),
            of_replicas([one, Scrape()]),
        )
    ]
    assert pools == [
        ("2000", "25.0", "200", "fp8"),
        ("900", "12.5", "90", "fp8"),
        ("2900", "37.5", "290", "fp8"),
        (None, "37.5", "400", "fp8"),  # what one does not tell is not known of both
        (None, None, None, "fp8"),
    ]


def test_waiting_and_prompts_are_told_apart_and_the_external_cache_from_the_servers_own() -> None:
    page = """vllm:num_requests_waiting{engine="0"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="1",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="deferred"} 1.0
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 40.0
vllm:external_prefix_cache_queries_total 100.0
vllm:external_prefix_cache_hits_total 40.0
"""
    assert parse(page).values == {
        "waiting": 5.0,
        "waiting_capacity": 4.0,
        "waiting_deferred": 1.0,
        "prompt_tokens_external_kv_transfer": 40.0,
        "external_queries": 100.0,
        "external_hits": 40.0,
    }


def test_older_names_are_known_and_newer_ones_win() -> None:
    assert dict(parse(OLD).samples()) == {
        "kv_usage": 0.5,
        "prefix_hits": 9.0,
        "itl_s_sum": 2.0,
        "itl_s_count": 100.0,
    }
    assert parse(BOTH).values["kv_usage"] == 0.6


def test_what_a_server_does_not_say_is_absent_not_zero() -> None:
    assert parse("# TYPE other gauge\nother 1.0\n") == Scrape()
    assert parse("vllm:num_requests_running nan\n") == Scrape()


@pytest.mark.parametrize("page", ["<html><body>login</body></html>", "vllm: {{{\n", 'a{b="'])
def test_a_page_that_is_no_exposition_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(page)


def test_engines_are_added_up_and_a_difference_is_what_came_between() -> None:
    one, two = (
        parse(CHAT),
        parse(text([20, 50, 30, 0], [70, 30, 0, 0], (1_800.0, 120.0), cached=0.6, engines=2)),
    )
    told = two.histogram("prompt_tokens")
    assert told == Histogram(
        bounds=(100.0, 1_000.0, 10_000.0, INF), counts=(40.0, 100.0, 60.0, 0.0), total=360_000.0
    )
    assert two.minus(one).histogram("prompt_tokens") == one.histogram("prompt_tokens")
    assert two.minus(one).cached_share == pytest.approx(0.6)
    assert of_replicas([one, one]).histogram("prompt_tokens") == told
    restarted = parse(
        text([20, 50, 30, 0], [70, 30, 0, 0], (1_800.0, 120.0), cached=0.6, started=5_000.0)
    )
    assert restarted.minus(one) == restarted


def test_a_gauge_has_no_difference() -> None:
    assert parse(NEW).minus(parse(NEW)).values == {
        "running": 5.0,
        "kv_usage": 0.75,
        "prefix_hits": 0.0,
    }


def test_histograms_of_other_buckets_have_their_count_and_sum_in_common() -> None:
    fine = Histogram(bounds=(1.0, INF), counts=(3.0, 1.0), total=5.0)
    assert fine.plus(Histogram(bounds=(2.0, INF), counts=(1.0, 1.0), total=4.0)) == Histogram(
        bounds=(INF,), counts=(6.0,), total=9.0
    )


def test_a_quantile_of_a_histogram_lies_between_two_bounds() -> None:
    told = parse(CHAT).histogram("prompt_tokens")
    assert told is not None
    assert [told.bucket(share) for share in (0.1, 0.5, 0.9)] == [
        (0.0, 100.0),
        (100.0, 1_000.0),
        (1_000.0, 10_000.0),
    ]
    assert told.mean == 1_800.0


def test_without_a_cache_nothing_is_shared() -> None:
    assert Scrape().cached_share is None
    assert Scrape(values={"prefix_queries": 0.0, "prefix_hits": 0.0}).cached_share is None


@pytest.mark.parametrize("bound", ["nan", "-Inf", "-1"])
def test_a_bucket_whose_bound_is_no_number_of_tokens_is_none(bound: str) -> None:
    name = "vllm:request_prompt_tokens_bucket"
    buckets = f'{name}{{le="1"}} 1\n{name}{{le="+Inf"}} 2\n{name[:-6]}sum 9\n{name[:-6]}count 2\n'
    assert parse(buckets).histogram("prompt_tokens") is not None
    assert parse(f'{buckets}{name}{{le="{bound}"}} 2\n') == parse(buckets)


def test_a_server_is_as_young_as_its_youngest_replica_and_as_full_as_its_fullest() -> None:
    replicas = [
        Scrape(values={"process_start_s": start, "kv_usage": usage, "running": 2.0})
        for start, usage in ((100.0, 0.9), (300.0, 0.2), (200.0, 0.4))
    ]
    found = of_replicas(replicas)
    assert found.values == {"kv_usage": 0.9, "process_start_s": 300.0, "running": 6.0}
