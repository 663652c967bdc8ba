"""How likely a server holds what comes next: what it lists, refuses or dies of is a value."""

import asyncio
import math
from dataclasses import replace

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.ask import likely
from agentload.ask.asker import Failed
from agentload.ask.likely import Likely, Scorer, agrees, longest_list, variation
from agentload.endpoints.endpoint import Endpoint
from agentload.model.profile import Logprobs
from tests.live.hostility import whole
from tests.live.scripted import Peer, serving
from tests.serve.arms import arm
from tests.serve.serving import served

LISTED = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.001, 1.0), min_size=1).map(
    lambda weights: {
        token: math.log(weight / (1.1 * sum(weights.values()))) for token, weight in weights.items()
    }
)
PROMPT = [*range(100)]


@given(LISTED, LISTED, LISTED)
def test_a_distance_is_one(
    one: dict[str, float], other: dict[str, float], third: dict[str, float]
) -> None:
    assert variation(one, one) == pytest.approx(0, abs=1e-12)
    assert variation(one, other) == pytest.approx(variation(other, one))
    assert 0 <= variation(one, other) <= 1
    assert variation(one, third) <= variation(one, other) + variation(other, third) + 1e-12


def test_lists_without_a_common_token_are_as_far_apart_as_what_they_list() -> None:
    assert variation({"a": math.log(0.9)}, {"b": math.log(0.9)}) == pytest.approx(0.9)
    assert variation({"a": 0.0}, {"b": 0.0}) == 1
    assert not agrees({"a": -0.1, "b": -3.0}, {"a": -3.0, "b": -0.1})


async def asked(logprobs: Logprobs) -> int | str:
    listing = replace(arm(step_ms=0.2), logprobs=logprobs)
    async with (
        served(listing) as server,
        Scorer(Endpoint(name="plain", url=server.url), "tiny") as scorer,
    ):
        return await longest_list(scorer, PROMPT)


@pytest.mark.loopback
@pytest.mark.parametrize(("most", "expected"), [(20, 20), (30, 20), (19, 5), (1, 1)])
async def test_the_longest_list_is_found_small_ones_first(most: int, expected: int) -> None:
    assert await asked(Logprobs(most=most)) == expected


@pytest.mark.loopback
async def test_a_server_that_lists_nothing_says_why() -> None:
    refusal = await asked(Logprobs(most=0))
    assert isinstance(refusal, str)
    assert "max allowed: 0" in refusal


@pytest.mark.loopback
async def test_single_tokens_are_read_behind_the_cache_and_a_scored_prompt_is_not() -> None:
    async with (
        served(arm(step_ms=0.2)) as server,
        Scorer(Endpoint(name="plain", url=server.url), "tiny") as scorer,
    ):
        warm, behind = await scorer.behind(PROMPT, most=5), await scorer.behind(PROMPT[:97], most=5)
        within = await scorer.within(PROMPT, most=5)
    assert isinstance(warm, Likely)
    assert isinstance(behind, Likely)
    assert isinstance(within, tuple)
    assert (warm.cached_tokens, behind.cached_tokens, within[0].cached_tokens) == (0, 96, 0)
    assert len(within) == 99
    # What stands behind 97 tokens is what is likely in the place of the 98th.
    assert (
        variation(
            behind.listed,
            {token: value for token, value in within[96].listed.items() if token in behind.listed},
        )
        >= 0
    )


@pytest.mark.loopback
async def test_a_server_that_dies_is_a_failure_and_asked_nothing_more() -> None:
    async with served(replace(arm(step_ms=0.2), logprobs=Logprobs(crash_above=1))) as server:
        async with Scorer(Endpoint(name="plain", url=server.url), "tiny") as scorer:
            assert isinstance(await scorer.within(PROMPT, most=1), tuple)
            assert isinstance(await scorer.within(PROMPT, most=5), Failed)
        async with aiohttp.ClientSession(server.url.removesuffix("/v1")) as http:
            with pytest.raises(aiohttp.ClientError):
                await http.get("/health")


BODIES = {
    "no choices": b"{}",
    "choices of null": b'{"choices":[null]}',
    "an error inside": b'{"error":{"message":"engine died"},"choices":[]}',
    "an error without choices": b'{"error":{"message":"engine died"},"choices":null}',
    "a probability that is a text": b'{"choices":[{"logprobs":{"top_logprobs":[{"a":"-1"}]}}]}',
    "places that are numbers": b'{"choices":[{"prompt_logprobs":[null,7]}]}',
    "a count that is a text": b'{"choices":[{"logprobs":{"top_logprobs":[{"a":-1}]}}],'
    b'"usage":{"prompt_tokens":"3"}}',
    "more cached than prompted": b'{"choices":[{"logprobs":{"top_logprobs":[{"a":-1}]}}],"usage":'
    b'{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":9}}}',
}


@pytest.mark.loopback
@pytest.mark.parametrize("name", BODIES)
async def test_an_answer_that_says_nothing_of_the_kind_asked_is_a_failure(name: str) -> None:
    async def answer(peer: Peer) -> None:
        await whole(peer, BODIES[name], status=b"200 OK")

    async with serving(answer) as server, Scorer(at(server.port), "tiny") as scorer:
        for said in (await scorer.behind(PROMPT, most=1), await scorer.within(PROMPT, most=1)):
            assert isinstance(said, Failed)
            assert said.http_status == 200
            assert said.error.startswith(("the answer ", "error: engine", "9 tokens", "it"))


@pytest.mark.loopback
async def test_a_server_that_counts_nothing_is_read() -> None:
    async def answer(peer: Peer) -> None:
        said = b'{"choices":[{"logprobs":{"top_logprobs":[{"a":-1}]}}],"usage":null}'
        await whole(peer, said, status=b"200 OK")

    async with serving(answer) as server, Scorer(at(server.port), "tiny") as scorer:
        said = await scorer.behind(PROMPT, most=1)
    assert said == Likely(listed={"a": -1}, prompt_tokens=None, cached_tokens=None)


@pytest.mark.loopback
async def test_an_answer_that_drips_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likely, "TIMEOUT_S", 0.5)

    async def answer(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
        while not peer.writer.is_closing():
            await peer.send(b" ")
            await asyncio.sleep(0.1)

    async with serving(answer) as server, Scorer(at(server.port), "tiny") as scorer:
        async with asyncio.timeout(60):
            said = await scorer.within(PROMPT, most=1)
    assert said == Failed(error="no whole answer in time")


def at(port: int) -> Endpoint:
    return Endpoint(name="plain", url=f"http://127.0.0.1:{port}/v1")
