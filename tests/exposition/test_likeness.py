"""A trace and a run are held against what a server's metrics tell of production."""

from agentload.exposition.likeness import Figures, Level, Likeness, MeanAndQuantiles, likeness
from agentload.exposition.scrape import Scrape, parse
from tests.importers.test_prometheus import CHAT

TRACE = Figures(
    prompt=MeanAndQuantiles(mean=2_000.0, quantiles={0.5: 900.0, 0.9: 20_000.0}),
    output=MeanAndQuantiles(mean=40.0, quantiles={0.5: 30.0, 0.9: 80.0}),
    cached=0.65,
)
BUSY = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 5
vllm:num_requests_running{engine="1"} 4
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.4
vllm:kv_cache_usage_perc{engine="1"} 0.9
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.5"} 60
vllm:time_to_first_token_seconds_bucket{le="1.0"} 100
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 100
vllm:time_to_first_token_seconds_sum 40
vllm:time_to_first_token_seconds_count 100
"""


def test_quantiles_are_alike_and_means_are_alike_within_a_quarter() -> None:
    assert list(likeness(TRACE, parse(CHAT))) == [
        Likeness(
            what="prompt tokens mean",
            unit="tokens",
            ours=2_000.0,
            low=1_800.0,
            high=1_800.0,
            verdict="alike",
        ),
        Likeness(
            what="prompt tokens q50",
            unit="tokens",
            ours=900.0,
            low=100.0,
            high=1_000.0,
            verdict="alike",
        ),
        Likeness(
            what="prompt tokens q90",
            unit="tokens",
            ours=20_000.0,
            low=1_000.0,
            high=10_000.0,
            verdict="more",
        ),
        Likeness(
            what="output tokens mean",
            unit="tokens",
            ours=40.0,
            low=120.0,
            high=120.0,
            verdict="less",
        ),
        Likeness(
            what="output tokens q50", unit="tokens", ours=30.0, low=0.0, high=100.0, verdict="alike"
        ),
        Likeness(
            what="output tokens q90",
            unit="tokens",
            ours=80.0,
            low=100.0,
            high=1_000.0,
            verdict="alike",
        ),
        Likeness(
            what="cached share of prompts",
            unit="share",
            ours=0.65,
            low=0.6,
            high=0.6,
            verdict="alike",
        ),
    ]


def test_a_runs_first_tokens_batch_and_pool_are_compared_too() -> None:
    """Engines' requests add up, the pool is as full as its fullest
    part, and a moment is like a run that mostly lies around it.
    """
    run = Figures(
        ttft_s=MeanAndQuantiles(mean=0.45, quantiles={0.5: 0.7}),
        running=Level(low=3.0, middle=8.0, high=12.0),
        kv_usage=Level(low=0.2, middle=0.5, high=0.8),
    )
    assert list(likeness(run, parse(BUSY))) == [
        Likeness(
            what="time to first token mean",
            unit="seconds",
            ours=0.45,
            low=0.4,
            high=0.4,
            verdict="alike",
        ),
        Likeness(
            what="time to first token q50",
            unit="seconds",
            ours=0.7,
            low=0.0,
            high=0.5,
            verdict="more",
        ),
        Likeness(
            what="concurrent requests",
            unit="requests",
            ours=8.0,
            low=9.0,
            high=9.0,
            verdict="alike",
        ),
        Likeness(what="KV pool in use", unit="share", ours=0.5, low=0.9, high=0.9, verdict="less"),
    ]


def test_an_idle_moment_tells_nothing_of_the_load() -> None:
    idle = parse(
        BUSY.replace("} 5", "} 0")
        .replace("} 4\n", "} 0\n")
        .replace("} 0.9", "} 0.0")
        .replace("} 0.4", "} 0.0")
    )
    level = Level(low=3.0, middle=8.0, high=12.0)
    assert list(likeness(Figures(running=level, kv_usage=level), idle)) == []


def test_what_one_side_does_not_know_is_not_compared() -> None:
    assert list(likeness(TRACE, Scrape())) == []
    assert list(likeness(Figures(), parse(CHAT + BUSY))) == []
