from __future__ import annotations

from dataclasses import replace

from agentload.model.rows import CallRow
from agentload.run.counts import Between
from tests.evidence.runs import call


def listened(*rows: CallRow) -> Between:
    between = Between()
    for row in rows:
        between.ended(row)
    return between


def test_calls_that_a_gateway_answered_void_the_arms_block_by_name_and_are_then_forgotten() -> None:
    hit = call("fp8", 0, 0.0, gateway="response cache (x-litellm-cache-key)")
    between = listened(hit, hit, call("fp8", 0, 1.0), call("bf16", 0, 0.0))
    assert between.reason("bf16") is None
    assert between.reason("fp8") == (
        "fp8: a gateway answered 2 calls in the server's place: response cache (x-litellm-cache-key); "
        "switch that off, or go to the server itself"
    )
    assert between.reason("fp8") is None


def test_answers_in_one_piece_void_a_block_only_when_most_long_ones_are() -> None:
    whole, streamed = call("fp8", 0, 0.0, output_tokens=100, coalesced_reads=99), call("fp8", 0, 0.0, output_tokens=100, coalesced_reads=3)
    assert listened(*[whole] * 4).reason("fp8") is None  # too few to judge by
    assert listened(*[whole] * 5, *[streamed] * 5).reason("fp8") is None
    told = listened(*[whole] * 6, *[streamed] * 4, replace(whole, status="reset")).reason("fp8")
    assert told == "fp8: 6 of 10 answers arrived in one piece: a gateway buffers streams, or answers from a cache"
