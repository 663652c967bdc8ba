from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import is_healthy
from agentload.prompts.words import WORDS
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from tests.live.scripted import serving
from tests.run.playing import answering

pytestmark = pytest.mark.loopback


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(arms_of("llama-3.1-8b-h100", ["bf16"]), ServerOptions(noise=False)) as running:
        yield running


def test_a_server_that_counts_is_measured_exactly(servers: Servers) -> None:
    (url,) = servers.urls.values()
    found = asyncio.run(tokenizer(Endpoint(name="a", url=url), "any"))
    assert found is not None
    assert (found.exact, found.words, set(found.frames.values())) == ("exact", WORDS, {0})


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "unix:/nowhere"])
def test_a_server_that_does_not_count_leaves_it_at_words(url: str) -> None:
    assert asyncio.run(tokenizer(Endpoint(name="a", url=url), "any")) is None


def test_a_page_that_is_no_count_is_no_count(servers: Servers) -> None:
    (url,) = servers.urls.values()
    assert (
        asyncio.run(
            tokenizer(Endpoint(name="a", url=f"{url.removesuffix('/v1')}/nowhere/v1"), "any")
        )
        is None
    )


async def test_a_server_that_gives_every_request_the_same_count_does_not_count() -> None:
    async with serving(
        answering(pages=lambda path, _: '{"count": 7}' if path == "/tokenize" else None)
    ) as server:
        assert await tokenizer(Endpoint(name="a", url=server.url), "any") is None


def test_a_proxy_of_the_environment_counts_for_nobody_as_calls_do_not_take_it(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (url,) = servers.urls.values()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    endpoint = Endpoint(name="a", url=url)
    assert is_healthy(endpoint)
    assert asyncio.run(tokenizer(endpoint, "any")) is not None
