"""What an untimed question leaves behind when it fails:
the kind of error and 200 characters, without keys.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.ask.asker import Asker
from agentload.ask.asker import Failed as NotAnswered
from agentload.endpoints.endpoint import Endpoint
from tests.live.hostility import whole
from tests.live.scripted import Peer, serving

SECRETS = {"KEY": "plainkeyword", "TEAM_KEY": "tobeornottobe"}


async def echo(peer: Peer) -> None:
    headers = peer.request.headers
    message = (
        f"{headers['authorization']} of {headers['x-team']} said: {peer.request.body.decode()}"
    )
    body = json.dumps({"error": {"message": message, "type": "BadRequest"}}).encode()
    await peer.send(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "
        b"%d\r\n\r\n%b" % (len(body), body)
    )


@pytest.mark.loopback
async def test_a_server_that_echoes_key_and_prompt_gives_neither_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    prompt = "the launch code is four words long " * 50
    async with serving(echo) as server:
        endpoint = Endpoint(
            name="a", url=server.url, key_env="KEY", header_env={"X-Team": "TEAM_KEY"}
        )
        async with Asker(endpoint, "m") as asker:
            failed = await asker.ask(
                [{"role": "user", "content": prompt}],
                tools=(),
                output_tokens=4,
                seed=0,
                request_id="r1",
            )
    assert isinstance(failed, NotAnswered)
    assert failed.http_status == 400
    assert failed.error.startswith("400: BadRequest: ")
    assert len(failed.error) <= len("400: BadRequest: ") + 200
    assert not any(secret in failed.error for secret in SECRETS.values())
    assert prompt[:60] not in failed.error


@pytest.mark.loopback
async def test_an_error_inside_a_good_answer_gives_no_key_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEY", SECRETS["KEY"])

    async def told(peer: Peer) -> None:
        body = json.dumps({"error": {"message": f"no {SECRETS['KEY']} here"}}).encode()
        await whole(peer, body, status=b"200 OK")

    async with (
        serving(told) as server,
        Asker(Endpoint(name="a", url=server.url, key_env="KEY"), "m") as asker,
    ):
        failed = await asker.ask(
            [{"role": "user", "content": "so"}], tools=(), output_tokens=4, seed=0, request_id="r1"
        )
    assert failed == NotAnswered(error="error: no *** here", http_status=200)


@pytest.mark.loopback
async def test_a_proxy_of_the_environment_is_not_taken_as_timed_calls_do_not_take_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    async with (
        serving(echo) as server,
        Asker(Endpoint(name="a", url=server.url, headers={"X-Team": "t"}), "m") as asker,
    ):
        failed = await asker.ask(
            [{"role": "user", "content": "so"}], tools=(), output_tokens=4, seed=0, request_id="r1"
        )
    assert isinstance(failed, NotAnswered)
    assert failed.http_status == 400  # the server's own answer


@pytest.mark.loopback
async def test_a_server_on_a_unix_socket_is_asked_like_any_other(tmp_path: Path) -> None:
    async with (
        serving(echo, path=str(tmp_path / "s.sock")) as server,
        Asker(Endpoint(name="a", url=server.url, headers={"X-Team": "t"}), "m") as asker,
    ):
        failed = await asker.ask(
            [{"role": "user", "content": "so"}], tools=(), output_tokens=4, seed=0, request_id="r1"
        )
    assert isinstance(failed, NotAnswered)
    assert failed.http_status == 400
    assert {request.line for request in server.requests} == {"POST /v1/chat/completions HTTP/1.1"}
