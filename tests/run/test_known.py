from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentload.dispatch.row import row
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity
from agentload.model.commands import Call, Limits, Outcome, Send, Status
from agentload.model.rows import CallRow, FingerprintRow
from agentload.run.known import (
    Between,
    Tally,
    began_as,
    differences,
    is_restarted,
    newly_missing,
    with_date,
    with_memory,
)
from agentload.telemetry.log_lines import StartUp
from tests.evidence.runs import call as timed

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
    assert with_memory(silent, KNOWN).facts() == KNOWN.facts()
    assert newly_missing(silent, KNOWN) == ("http://x/metrics: 403",)
    # Of a log that was rotated, what was read before; of a replica that is gone, nothing.
    one = Identity(
        models=("m",),
        version="0.32.0",
        counters={"requests_done": 5.0},
        log=StartUp(warnings=("w",)),
    )
    now = with_memory(one, KNOWN)
    assert (now.replicas, now.counters, now.log) == (
        1,
        {"process_start_s": 7.0, "requests_done": 5.0},
        StartUp(attention_backend="FLASHINFER", warnings=("w",)),
    )


@pytest.mark.parametrize(
    ("before", "now", "is_another"),
    [
        (
            {"process_start_s": 7.0, "requests_done": 4.0},
            {"process_start_s": 7.0, "requests_done": 9.0},
            False,
        ),
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
    assert (
        is_restarted(Identity(models=(), counters=before), Identity(models=(), counters=now))
        == is_another
    )


def test_a_server_that_does_not_say_when_it_was_started_gets_the_instant_at_which_we_know_it_was() -> (
    None
):
    assert (
        with_date(Identity(models=(), counters={"requests_done": 1.0}), 9.0).facts()[
            "process_start_s"
        ]
        == 9.0
    )
    assert (
        with_date(Identity(models=(), counters={"process_start_s": 2.0}), 9.0).facts()[
            "process_start_s"
        ]
        == 2.0
    )


def test_a_server_is_held_against_what_its_arm_was_first_and_a_process_against_what_it_was_last() -> (
    None
):
    first = {"kv_cache_dtype": "fp8", "pool_tokens": "100", "process_start_s": 7.0}
    since = {"kv_cache_dtype": "auto", "pool_tokens": "50", "process_start_s": 8.0}
    assert differences(first, since, since) == ("kv_cache_dtype fp8 → auto",)
    assert differences(since, first, since) == ("pool_tokens 100 → 50", "process_start_s 7.0 → 8.0")


def test_a_run_began_with_what_each_arm_told_first() -> None:
    def row(leg: int, at_ns: int, **facts: object) -> FingerprintRow:
        return FingerprintRow(
            run_id="r",
            leg=leg,
            arm="a",
            at_ns=at_ns,
            moment="before",
            round=0,
            facts=json.dumps(facts),
        )

    rows = [
        row(2, 1, version="2", kv_cache_dtype="fp8"),
        row(1, 9, version="1", kv_cache_dtype=None),
    ]
    assert began_as(rows) == {"a": {"version": "1", "kv_cache_dtype": "fp8"}}


ARM = Endpoint(name="a", url="http://x/v1", aliases={"small": "other"})


def call(status: Status, *, arm: str = "a", model: str | None = None) -> tuple[str | None, CallRow]:
    asked = Call(
        session="s", turn=0, workload="w", context=(), context_tokens=1, output=1, model=model
    )
    send = Send(
        request_id="q",
        call=asked,
        attempt=0,
        retry_of=None,
        arm=arm,
        block=0,
        pair=0,
        due_ns=0,
        released_ns=0,
        salt="",
        limits=Limits(),
    )
    return model, row(send, Outcome(status=status), run_id="r", leg=1)


def tallied(*calls: tuple[str | None, CallRow], arm: Endpoint = ARM) -> Tally:
    tally = Tally()
    tally.read(ARM, {"requests_done": 10.0})
    for model, ended in calls:
        tally.ended(arm, model, ended)
    return tally


@pytest.mark.parametrize(
    ("calls", "done", "fault"),
    [
        ([call("ok"), call("garbage"), call("long")], 13, None),
        ([call("ok")], 14, "a answered 3 requests that were not ours"),
        # It may have been done with what we gave up, and never was with what it refused.
        ([call("ok"), call("idle_timeout"), call("short")], 11, None),
        ([call("ok"), call("idle_timeout"), call("short")], 13, None),
        (
            [call("ok"), call("idle_timeout"), call("busy")],
            13,
            "a answered 1 requests that were not ours",
        ),
        (
            [call("ok"), call("ok"), call("idle_timeout")],
            11,
            (
                "a counted 1 of our 2 requests: its metrics are another server's, or somebody "
                "answered in its place"
            ),
        ),
        # Behind a gateway an alias may be another server's model.
        ([call("ok"), call("ok", model="small")], 11, None),
        ([call("ok"), call("ok", model="small")], 12, None),
    ],
)
def test_a_server_counts_our_requests_and_no_others(
    calls: list[tuple[str | None, CallRow]], done: float, fault: str | None
) -> None:
    assert tallied(*calls).fault(ARM, {"requests_done": done}) == fault


def test_a_server_that_does_not_count_is_not_accused() -> None:
    assert tallied(call("ok")).fault(ARM, {"running": 0.0}) is None


def test_an_arm_and_its_control_share_a_server_and_arms_behind_a_gateway_do_not() -> None:
    control = Endpoint(name="a@aa", url="http://x/v1")
    shared = tallied(call("ok", arm="a@aa"), arm=control)
    assert shared.fault(ARM, {"requests_done": 11.0}) is None
    beside = Endpoint(name="b", url="http://gateway/v1", metrics=("http://y/metrics",))
    apart = tallied(call("ok", arm="b"), arm=beside)
    assert apart.fault(ARM, {"requests_done": 10.0}) is None


def test_what_was_not_read_is_counted_with_the_next_block() -> None:
    tally = tallied(call("ok"))
    tally.ended(ARM, *call("ok"))  # between the two, the page did not answer
    assert tally.fault(ARM, {"requests_done": 12.0}) is None
    tally.read(ARM, {"requests_done": 12.0})
    assert tally.fault(ARM, {"requests_done": 13.0}) == "a answered 1 requests that were not ours"


def listened(*rows: CallRow) -> Between:
    between = Between()
    for each in rows:
        between.ended(each)
    return between


def test_calls_that_a_gateway_answered_void_the_arms_block_by_name_and_are_then_forgotten() -> None:
    hit = timed("fp8", 0, 0.0, gateway="response cache (x-litellm-cache-key)")
    between = listened(hit, hit, timed("fp8", 0, 1.0), timed("bf16", 0, 0.0))
    assert between.reason("bf16") is None
    assert between.reason("fp8") == (
        "fp8: a gateway answered 2 calls in the server's place: response cache "
        "(x-litellm-cache-key); "
        "switch that off, or go to the server itself"
    )
    assert between.reason("fp8") is None


def test_answers_in_one_piece_void_a_block_only_when_most_long_ones_are() -> None:
    whole, streamed = (
        timed("fp8", 0, 0.0, output_tokens=100, coalesced_reads=99),
        timed("fp8", 0, 0.0, output_tokens=100, coalesced_reads=3),
    )
    assert listened(*[whole] * 4).reason("fp8") is None  # too few to judge by
    assert listened(*[whole] * 5, *[streamed] * 5).reason("fp8") is None
    told = listened(*[whole] * 6, *[streamed] * 4, replace(whole, status="reset")).reason("fp8")
    assert told == (
        "fp8: 6 of 10 answers arrived in one piece: a gateway buffers streams, or answers "
        "from a cache"
    )


def test_a_client_that_was_late_is_named_before_any_gateway() -> None:
    """A client that is held reads whole answers at once, whoever streams them."""
    whole = timed("fp8", 0, 0.0, output_tokens=100, coalesced_reads=99)
    assert whole.sent_ns is not None
    late = replace(whole, sent_ns=whole.sent_ns + 13_800_000)
    assert listened(*[late] * 6).reason("fp8") == (
        "fp8: 6 of 6 answers arrived in one piece while this machine sent requests 14.8 ms late "
        "(p99; limit 5): see agentload doctor first; if the machine keeps up, a gateway buffers "
        "streams, or answers from a cache"
    )
    assert "late" not in (listened(*[whole] * 6).reason("fp8") or "")
