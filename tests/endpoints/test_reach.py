"""A server behind a Unix socket or a proxy is asked who it is like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.endpoints.launch import is_healthy
from agentload.errors import EndpointError
from agentload.model.rows import CallRow
from tests.live.scripted import Peer, serving
from tests.run.playing import answering, played

METRICS = "vllm:num_requests_running 0\n"
pytestmark = pytest.mark.loopback


async def test_a_unix_socket_is_identified_watched_and_replayed(tmp_path: Path) -> None:
    pages = {"/metrics": METRICS, "/health": "", "/tokenize": "{}"}
    async with serving(
        answering(pages=lambda path, _: pages.get(path)), path=str(tmp_path / "s.sock")
    ) as server:
        endpoint = Endpoint(name="a", url=server.url)
        found = await identify(endpoint)
        assert (found.models, found.counters) == (("m",), {"running": 0.0})
        assert await asyncio.to_thread(is_healthy, endpoint)
        rows = await played(tmp_path, [endpoint])
    assert any(request.line.startswith("POST /tokenize ") for request in server.requests)
    assert {row.status for row in rows if isinstance(row, CallRow)} == {"ok"}


async def test_a_proxy_carries_every_request_with_its_password_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    async def through(peer: Peer) -> None:
        asked.append(
            (peer.request.line.split()[1], peer.request.headers.get("proxy-authorization", ""))
        )
        await answering()(peer)

    async with serving(through) as proxy:
        monkeypatch.setenv("PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
        await identify(Endpoint(name="a", url="http://10.255.255.1:8000/v1", proxy_env="PROXY"))
    assert asked[0] == ("http://10.255.255.1:8000/v1/models", "Basic bWU6c2VjcmV0")
    monkeypatch.delenv("PROXY")
    with pytest.raises(EndpointError, match="a: environment variable PROXY is not set"):
        await identify(Endpoint(name="a", url="http://10.255.255.1:8000/v1", proxy_env="PROXY"))
