import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agentload.emulator.calls import Finished, Gauges
from agentload.emulator.steplog import Stay, StepLog
from agentload.exposition.scrape import parse
from agentload.kvmath.pool import pool_of
from agentload.serve.facts import Facts
from agentload.serve.metrics import (
    Distribution,
    EngineMetrics,
    RequestTally,
    registry,
    token_bounds,
)
from tests.serve.arms import arm
from tests.serve.recorded_lines import lines

# Nobody reads those of vLLM's web server.
WEB = "http_"
# Only what happens inside vLLM's scheduler and between its processes would tell these.
UNKNOWN = {
    "vllm:iteration_tokens_total",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
}
GAUGES = Gauges(
    running=3, waiting=2, kv_usage=0.25, preemptions=1, prefix_queries=100, prefix_hits=60, prompt_tokens=90, prompt_tokens_cached=50,
    prompt_tokens_computed=40, generation_tokens=70, steps=9,
)  # fmt: skip
LOG = StepLog()
for second in (1, 2, 4):
    LOG.append(second * 10**12)
END = Finished(
    id="1", at_ns=4_000_000_000, stays=(Stay(LOG, 1, 3),), prompt_tokens=100, cached_tokens=64, preemptions=1,
)  # fmt: skip


@pytest.fixture
def exposition() -> str:
    tally = RequestTally(max_model_len=8192)
    tally.finished(END, submitted_ns=500_000_000, reason="length", max_tokens=3)
    tally.rejections = 4
    cache_config = Facts(arm=arm(), pool=pool_of(arm()), created=0).cache_config()
    shown = registry(
        EngineMetrics(model="tiny", gauges=lambda: GAUGES, tally=tally, cache_config=cache_config)
    )
    return generate_latest(shown).decode()


def test_names_types_and_labels_are_vllms(exposition: str) -> None:
    ours = {}
    for line in exposition.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            ours[name] = kind
    theirs = dict(line.split()[:2] for line in lines("metrics.txt"))
    assert {name: kind for name, kind in ours.items() if name in theirs} == {
        n: kind for n, kind in theirs.items() if n not in UNKNOWN and not n.startswith(WEB)
    }
    assert {
        name for name in ours if name.startswith("vllm:") and not name.endswith("_created")
    } <= set(theirs)

    labels = {
        name: set(labels.split(","))
        for name, _, labels in (line.split() for line in lines("metrics.txt"))
        if name.startswith("vllm:")
    }
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            name = sample.name.removesuffix("_bucket")
            if name in labels:
                assert set(sample.labels) == labels[name], name


def test_the_scraper_of_this_project_reads_every_value_it_looks_for(exposition: str) -> None:
    found = parse(exposition)
    expected = {
        "running": 3, "waiting": 2, "kv_usage": 0.25, "preemptions": 1, "prefix_queries": 100, "prefix_hits": 60, "prompt_tokens": 90,
        "cached_tokens": 50, "output_tokens": 70, "requests_done": 1, "rejections": 4, "decode_s_sum": 3, "computed_tokens_sum": 36,
    }  # fmt: skip
    told = dict(found.samples())
    assert {name: told[name] for name in expected} == expected
    assert found.values["process_start_s"] > 0
    assert found.cache_config["cache_dtype"] == "bfloat16"


def test_histograms_count_what_finished_requests_did(exposition: str) -> None:
    found = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }
    name = "vllm:inter_token_latency_seconds"
    assert [found[f"{name}_bucket", bound] for bound in ("0.75", "1.0", "2.5", "+Inf")] == [
        0,
        1,
        2,
        2,
    ]
    assert (found[f"{name}_count", None], found[f"{name}_sum", None]) == (2, 3)
    assert found["vllm:time_to_first_token_seconds_sum", None] == 0.5
    assert found["vllm:e2e_request_latency_seconds_sum", None] == 3.5
    assert found["vllm:request_time_per_output_token_seconds_sum", None] == 1.5


def test_bounds_of_token_histograms_end_at_the_models_length() -> None:
    assert token_bounds(8192) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
    assert token_bounds(100) == (1, 2, 5, 10, 20, 50, 100)


@given(st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 99.0])))
def test_a_bucket_holds_what_is_at_most_its_bound(values: list[float]) -> None:
    histogram = Distribution((1.0, 2.0))
    histogram.add_many(np.array(values))
    expected = [("1.0", 1.0), ("2.0", 2.0), ("+Inf", float("inf"))]
    assert histogram.buckets() == [
        (name, sum(value <= bound for value in values)) for name, bound in expected
    ]
    assert histogram.total == pytest.approx(sum(values))
