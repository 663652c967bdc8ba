"""What two equal requests, or one request to two arms, say of prefix caches."""

from __future__ import annotations

import pytest

from agentload.ask.plain import Streamed
from agentload.ask.reuse import Reuse, _verdict, crossed, reuse
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify, served_model
from tests.ask.refusing import refusing
from tests.live.scripted import serving
from tests.serve.arms import arm
from tests.serve.serving import served


def streamed(cached: int | None) -> Streamed:
    return Streamed(text="so", ttft_ms=None, prompt_tokens=2000, cached_tokens=cached, token_ids=())


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
    [((300.0, 40.0), "TTFT 300 → 40 ms, 7.5 times as fast"), ((300.0, None), "TTFT 300 ms"), ((None, None), "TTFT – ms")],
)
def test_times_to_first_token_stand_beside_what_was_told(ttft_ms: tuple[float | None, float | None], said: str) -> None:
    found = Reuse(arm="a", verdict="not told", prompt_tokens=9, first_ttft_ms=ttft_ms[0], second_ttft_ms=ttft_ms[1])
    assert found.detail() == f"9 tokens; cached not told, counters not told; {said}"


@pytest.mark.loopback
async def test_a_server_that_tells_neither_usage_nor_counters_has_not_failed() -> None:
    async with serving(refusing) as server:
        endpoint = Endpoint(name="a", url=server.url, model="m", force_lengths=False, counting="usage")
        found = await reuse(endpoint, "m")
    assert (found.verdict, found.is_same, found.error) == ("not told", True, None)


@pytest.mark.loopback
async def test_two_arms_of_one_server_answer_from_one_cache_and_two_servers_do_not() -> None:
    async with served(arm()) as one, served(arm()) as other:
        arms = [Endpoint(name="a", url=one.url), Endpoint(name="b", url=one.url), Endpoint(name="c", url=other.url)]
        model = await _model(arms[0])
        found = await crossed(arms, [model] * 3)
    assert [(each.arm, each.verdict) for each in found] == [("b", "hit"), ("c", "no hit")]


async def _model(endpoint: Endpoint) -> str:
    return served_model(endpoint, await identify(endpoint))
