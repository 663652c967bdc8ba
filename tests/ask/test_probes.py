from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from agentload.ask.asker import Failed
from agentload.ask.plain import AnswerAgreement, Plain, StreamAnswer, answers
from agentload.ask.probes import (
    Probed,
    ReuseProbe,
    _verdict,
    process_change,
    reuse,
    reuse_across_arms,
    short,
    sixteen_bit,
)
from agentload.endpoints import pages
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify, served_model
from agentload.exposition.scrape import Scrape
from tests.ask.refusing import TOKENS, refusing
from tests.live.hostility import whole
from tests.live.scripted import Peer, serving
from tests.serve.arms import arm
from tests.serve.serving import served


@pytest.mark.parametrize(
    ("dtypes", "place"),
    [
        (("fp8", "bfloat16"), 1),
        (("fp8_e4m3", "auto", "bfloat16"), 1),
        (("fp8", None), None),
        (("fp8", "fp8"), None),
    ],
)
def test_answers_are_held_against_the_first_arm_whose_cache_has_sixteen_bits(
    dtypes: tuple[str | None, ...], place: int | None
) -> None:
    assert sixteen_bit([{"kv_cache_dtype": dtype} for dtype in dtypes]) == place


FINE = Probed(
    reuse=(
        ReuseProbe(arm="a", verdict="hit"),
        ReuseProbe(arm="b", verdict="not told"),
        ReuseProbe(arm="c", verdict="off"),
    ),
    crossed=(ReuseProbe(arm="b", verdict="no hit"), ReuseProbe(arm="c", verdict="off")),
    reference="a",
    agreement=(AnswerAgreement(arm="b", prompts=8, first_token=7, whole=2, failed=0),),
    mismatches=(),
    caveats=("b: no metrics",),
)


@pytest.mark.parametrize(
    ("found", "troubles"),
    [
        (FINE, ()),
        (
            replace(FINE, mismatches=("b: kv_cache_dtype: expected fp8",)),
            ("b: kv_cache_dtype: expected fp8",),
        ),
        (
            replace(
                FINE,
                reuse=(
                    ReuseProbe(arm="a", verdict="no hit"),
                    ReuseProbe(arm="b", verdict="failed", error="HTTP 500: engine died"),
                ),
            ),
            ("no prefix reuse on a", "b: prefix reuse could not be tried: HTTP 500: engine died"),
        ),
        (
            replace(FINE, reuse=(ReuseProbe(arm="a", verdict="restarted"),)),
            ("a was restarted between its requests: probe again",),
        ),
        (
            replace(FINE, reuse=(ReuseProbe(arm="a", verdict="several"),)),
            (
                (
                    "a: several replicas behind one address answer in turn, each with its own "
                    "cache: name each, --endpoints a=URL,a=URL"
                ),
            ),
        ),
        (
            replace(FINE, crossed=(ReuseProbe(arm="b", verdict="hit"),)),
            ("b answers from another arm's cache",),
        ),
        (replace(FINE, agreement=(replace(FINE.agreement[0], wrong="garbage"),)), ("b: garbage",)),
        (
            replace(FINE, agreement=(replace(FINE.agreement[0], prompts=0, failed=8),)),
            ("b: no prompt was answered",),
        ),
    ],
)
def test_whatever_unfits_arms_for_a_comparison_is_a_trouble(
    found: Probed, troubles: tuple[str, ...]
) -> None:
    assert tuple(found.troubles()) == troubles


def test_a_prompt_that_may_be_no_whole_block_is_said() -> None:
    assert list(short(2048)) == []
    assert list(short(30)) == [
        "a prompt of 30 tokens may be no whole block of a cache: take 2,048 or more"
    ]


def streamed(cached: int | None) -> StreamAnswer:
    return StreamAnswer(
        text="so", ttft_ms=None, prompt_tokens=2000, cached_tokens=cached, token_ids=()
    )


@pytest.mark.parametrize(
    ("cached", "hits", "is_on", "verdict"),
    [
        (1984, None, True, "hit"),
        (None, 1984.0, True, "hit"),
        (0, 1984.0, True, "hit"),
        (16, 16.0, True, "no hit"),
        (0, None, True, "no hit"),
        (None, 0.0, True, "no hit"),
        (None, None, True, "not told"),
        (None, None, False, "off"),
    ],
)
def test_a_hit_is_what_the_usage_or_the_counters_tell_and_silence_is_none(
    cached: int | None, hits: float | None, *, is_on: bool, verdict: str
) -> None:
    assert _verdict(streamed(cached), hits, is_on=is_on, tokens=2048) == verdict


@pytest.mark.parametrize(
    ("ttft_ms", "said"),
    [
        ((300.0, 40.0), "TTFT 300 → 40 ms, 7.5 times as fast"),
        ((300.0, None), "TTFT 300 ms"),
        ((None, None), "TTFT – ms"),
    ],
)
def test_times_to_first_token_stand_beside_what_was_told(
    ttft_ms: tuple[float | None, float | None], said: str
) -> None:
    found = ReuseProbe(
        arm="a",
        verdict="not told",
        prompt_tokens=9,
        first_ttft_ms=ttft_ms[0],
        second_ttft_ms=ttft_ms[1],
    )
    assert found.detail() == f"9 tokens; cached not told, counters not told; {said}"


@pytest.mark.loopback
async def test_a_server_that_tells_neither_cached_tokens_nor_counters_has_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentload.ask.probes.OUTPUT", TOKENS)
    async with serving(refusing) as server:
        endpoint = Endpoint(
            name="a", url=server.url, model="m", force_lengths=False, counting="usage"
        )
        found = await reuse(endpoint, "m")
    assert (found.verdict, found.is_same, found.error) == ("not told", True, None)


@pytest.mark.loopback
async def test_a_server_that_restarts_between_the_two_requests_is_said_to_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[StreamAnswer | Failed] = []
    async with served(arm()) as server:
        stream = Plain.stream

        async def moving(self: Plain, *words: Any, **more: Any) -> StreamAnswer | Failed:
            asked.append(await stream(self, *words, **more))
            return asked[-1]

        async def started_later(one: Endpoint, *, known: Identity | None = None) -> Identity:
            found = await identify(one, known=known)
            begin = {"process_start_s": 2.0 if asked else 1.0}
            return replace(found, counters={**found.counters, **begin})

        monkeypatch.setattr("agentload.ask.probes.identify", started_later)
        monkeypatch.setattr(Plain, "stream", moving)
        found = await reuse(Endpoint(name="a", url=server.url), "tiny")
    assert len(asked) == 2
    assert (found.verdict, found.counted_hits) == ("restarted", None)


@pytest.mark.parametrize(
    ("starts", "change"),
    [
        ([5.0, 5.0, 5.0], None),
        ([None, None], None),
        ([5.0, None, 5.0], None),
        ([5.0, 7.0, 7.0], "restarted"),
        ([5.0, 7.0, 5.0], "several"),
        ([7.0, 5.0, 5.0], "several"),
        ([5.0, 5.0, 7.0, None, 5.0], "several"),
    ],
)
def test_a_process_that_began_earlier_and_answers_later_is_a_replica(
    starts: list[float | None], change: str | None
) -> None:
    assert process_change(starts) == change


@pytest.mark.loopback
async def test_replicas_that_answer_in_turn_are_not_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = itertools.count()

    async def in_turn(*words: Any) -> Scrape | None:
        page = await scrape(*words)
        if page is None:
            return None
        return replace(page, values={**page.values, "process_start_s": 5.0 + next(looks) % 2})

    scrape = pages.scrape
    monkeypatch.setattr(pages, "scrape", in_turn)
    async with served(arm()) as server:
        found = await reuse(Endpoint(name="a", url=server.url), "tiny")
    assert (found.verdict, found.counted_hits) == ("several", None)


@pytest.mark.loopback
async def test_two_arms_of_one_server_answer_from_one_cache_and_two_servers_do_not() -> None:
    async with served(arm()) as one, served(arm()) as other:
        arms = [
            Endpoint(name="a", url=one.url),
            Endpoint(name="b", url=one.url),
            Endpoint(name="c", url=other.url),
        ]
        model = await _model(arms[0])
        found = await reuse_across_arms(arms, [model] * 3)
    assert [(each.arm, each.verdict) for each in found] == [("b", "hit"), ("c", "no hit")]


async def _model(endpoint: Endpoint) -> str:
    return served_model(endpoint, await identify(endpoint))


@pytest.mark.loopback
async def test_a_server_that_fails_twice_in_a_row_is_asked_no_more_prompts() -> None:
    async def dies(peer: Peer) -> None:
        await whole(peer, b"{}")

    async with serving(dies) as server:
        found = await answers(Endpoint(name="a", url=server.url), "m", prompts=8)
    assert found == (None,) * 8
    assert len(server.requests) == 2


def test_an_arm_is_silent_where_it_answered_neither_the_long_prompt_nor_any_short_one() -> None:
    failed = ReuseProbe(arm="a", verdict="failed", error="500: no such token")
    assert FINE.silent == {}
    assert replace(FINE, reuse=(failed,)).silent == {}  # it is the reference of eight answers
    none = AnswerAgreement(
        arm="b", prompts=0, first_token=0, whole=0, failed=8, is_answering=False, is_answered=False
    )
    found = replace(FINE, reuse=(failed, replace(failed, arm="b")), agreement=(none,))
    assert found.silent == {"a": "500: no such token", "b": "500: no such token"}
    # No prompt was answered by both, yet one of them answers.
    heard = replace(none, is_answering=True)
    assert replace(found, agreement=(heard,)).silent == {"a": "500: no such token"}
    heard = replace(none, is_answered=True)
    assert replace(found, agreement=(heard,)).silent == {"b": "500: no such token"}
