from __future__ import annotations

import json

import pytest

from agentload.endpoints.identity import Identity
from agentload.model.rows import FingerprintRow
from agentload.run.known import began_as, dated, differences, is_restarted, newly_missing, remembered
from agentload.telemetry.log_lines import StartUp

KNOWN = Identity(
    models=("m",),
    version="0.32.0",
    max_model_len=8192,
    cache_config={"cache_dtype": "fp8"},
    counters={"process_start_s": 7.0, "requests_done": 4.0},
    replicas=2,
    engines=4,
    settings={"eager": True},
    log=StartUp(attention_backend="FLASHINFER"),
    gateway="LiteLLM",
    missing=("http://x/other: 404",),
)


def test_what_does_not_answer_is_what_it_was() -> None:
    silent = Identity(models=("m",), missing=("http://x/other: 404", "http://x/metrics: 403"))
    assert remembered(silent, KNOWN).facts() == KNOWN.facts()
    assert newly_missing(silent, KNOWN) == ("http://x/metrics: 403",)
    # Of a log that was rotated, what was read before; of a replica that is gone, nothing.
    one = Identity(models=("m",), version="0.32.0", counters={"requests_done": 5.0}, log=StartUp(warnings=("w",)))
    now = remembered(one, KNOWN)
    assert (now.replicas, now.counters, now.log) == (
        1,
        {"process_start_s": 7.0, "requests_done": 5.0},
        StartUp(attention_backend="FLASHINFER", warnings=("w",)),
    )


@pytest.mark.parametrize(
    ("before", "now", "is_another"),
    [
        ({"process_start_s": 7.0, "requests_done": 4.0}, {"process_start_s": 7.0, "requests_done": 9.0}, False),
        ({"process_start_s": 7.0}, {"process_start_s": 8.0}, True),
        ({"requests_done": 4.0, "running": 3.0}, {"requests_done": 4.0, "running": 0.0}, False),
        # Several API servers share a page that does not say when they were started.
        ({"requests_done": 4.0}, {"requests_done": 1.0}, True),
        ({"prompt_tokens": 900.0}, {"prompt_tokens": 20.0}, True),
        ({"requests_done": 4.0}, {}, False),
    ],
)
def test_another_process_is_known_by_its_start_or_by_counters_that_begin_anew(
    before: dict[str, float], now: dict[str, float], *, is_another: bool
) -> None:
    assert is_restarted(Identity(models=(), counters=before), Identity(models=(), counters=now)) == is_another


def test_a_server_that_does_not_say_when_it_was_started_gets_the_instant_at_which_we_know_it_was() -> None:
    assert dated(Identity(models=(), counters={"requests_done": 1.0}), 9.0).facts()["process_start_s"] == 9.0
    assert dated(Identity(models=(), counters={"process_start_s": 2.0}), 9.0).facts()["process_start_s"] == 2.0


def test_a_server_is_held_against_what_its_arm_was_first_and_a_process_against_what_it_was_last() -> None:
    first = {"kv_cache_dtype": "fp8", "pool_tokens": "100", "process_start_s": 7.0}
    since = {"kv_cache_dtype": "auto", "pool_tokens": "50", "process_start_s": 8.0}
    assert differences(first, since, since) == ("kv_cache_dtype fp8 → auto",)
    assert differences(since, first, since) == ("pool_tokens 100 → 50", "process_start_s 7.0 → 8.0")


def test_a_run_began_with_what_each_arm_told_first() -> None:
    def row(leg: int, at_ns: int, **facts: object) -> FingerprintRow:
        return FingerprintRow(run_id="r", leg=leg, arm="a", at_ns=at_ns, moment="before", round=0, facts=json.dumps(facts))

    rows = [row(2, 1, version="2", kv_cache_dtype="fp8"), row(1, 9, version="1", kv_cache_dtype=None)]
    assert began_as(rows) == {"a": {"version": "1", "kv_cache_dtype": "fp8"}}
