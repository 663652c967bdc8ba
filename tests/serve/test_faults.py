"""Each fault, as a client meets it on the wire."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import aiohttp
import pytest

from agentload.exposition.scrape import parse
from agentload.serve.delivery import TrickledBody
from agentload.serve.mishaps import Mishaps
from agentload.serve.server import ServerOptions
from tests.serve.arms import arm
from tests.serve.recorded_lines import Json, event, text
from tests.serve.serving import served

pytestmark = pytest.mark.loopback

CALL = {"messages": [{"role": "user", "content": "go on"}], "max_tokens": 30, "ignore_eos": True}
STREAM = {**CALL, "stream": True}
LONG = {**STREAM, "max_tokens": 5_000}
"""With steps of 20 ms it takes 100 s: what strikes it comes first, however busy the machine is."""


@asynccontextmanager
async def suffering(
    *faults: str, truth: Path | None = None, step_ms: float = 1
) -> AsyncIterator[aiohttp.ClientSession]:
    script = "faults:\n" + "".join(f"  - {{kind: {fault}}}\n" for fault in faults)
    async with (
        served(arm(step_ms=step_ms), ServerOptions(faults=script, truth=truth)) as running,
        aiohttp.ClientSession(running.url + "/", timeout=aiohttp.ClientTimeout(60)) as http,
    ):
        yield http


async def lines(http: aiohttp.ClientSession, body: Json = STREAM) -> list[bytes]:
    """Return the events of a stream, however it ends."""
    found = []
    async with http.post("chat/completions", json=body) as answer:
        assert answer.status == 200
        try:
            async for line in answer.content:
                if line.strip():
                    found.append(line)  # noqa: PERF401 - what came before a break counts
        except aiohttp.ClientError:
            found.append(b"broken")
    return found


def said(found: list[bytes]) -> int:
    """Count the words that arrived."""
    chunks = [event(line) for line in found if line.startswith(b'data: {"id"')]
    return sum(
        len(choice["delta"]["content"].split()) for chunk in chunks for choice in chunk["choices"]
    )


async def whole(http: aiohttp.ClientSession) -> tuple[int, Json]:
    async with http.post("chat/completions", json=CALL) as answer:
        return answer.status, await answer.json()


async def whole_again(http: aiohttp.ClientSession) -> tuple[int, Json]:
    """Ask a server that comes back until it is there."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await whole(http)
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("body", [CALL, STREAM])
async def test_a_busy_server_declines_with_status_and_time_to_wait(body: Json) -> None:
    async with suffering("busy, status: 429, retry_after_s: 2, only: 1") as http:
        async with http.post("chat/completions", json=body) as answer:
            assert (answer.status, answer.headers["retry-after"]) == (429, "2")
            assert (await answer.json())["error"]["type"] == "Too Many Requests"
        assert (await whole(http))[0] == 200


async def test_a_cut_stream_ends_without_reason_and_without_end_mark() -> None:
    async with suffering("cut, after_tokens: 7") as http:
        found = await lines(http)
        assert (said(found), found[-1]) == (7, b"broken")
        assert b'finish_reason":"' not in b"".join(found)
        with pytest.raises(aiohttp.ClientError):
            await whole(http)


async def test_a_stalled_stream_falls_silent_and_then_goes_on_with_what_has_piled_up(
    tmp_path: Path,
) -> None:
    async with suffering(
        "stall, after_tokens: 5, seconds: 0.2", truth=tmp_path / "truth.jsonl"
    ) as http:
        found = await lines(http)
        assert (said(found), found[-1]) == (30, b"data: [DONE]\n")
    (log,) = map(json.loads, (tmp_path / "truth.jsonl").read_text().splitlines()[1:])
    last = list(accumulate(log["tokens"])).index(5)
    assert log["before_ns"][last + 1] - log["before_ns"][last] > 150_000_000
    assert (log["fault"], log["end"]) == ("stall", "done")
    assert log["tokens"][last + 1] > 1


@pytest.mark.parametrize(
    ("fault", "slower", "slows"),
    [
        ("stall, after_tokens: 5", Mishaps, "stall"),
        ("trickle, ms_per_byte: 20", TrickledBody, "write"),
    ],
)
async def test_a_stream_that_is_slowed_by_a_fault_ends_when_its_client_leaves(
    fault: str, slower: type, slows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault slowed the answer, and the client's leaving ended it."""
    is_slowed, slow = asyncio.Event(), getattr(slower, slows)

    def noted(*arguments: object) -> object:
        is_slowed.set()
        return slow(*arguments)

    monkeypatch.setattr(slower, slows, noted)
    async with suffering(fault, truth=tmp_path / "truth.jsonl", step_ms=20) as http:
        async with http.post("chat/completions", json=LONG) as answer, asyncio.timeout(60):
            await is_slowed.wait()
            assert await gauge(http, "running") == 1
            answer.close()
        async with asyncio.timeout(60):
            while await gauge(http, "running"):  # noqa: ASYNC110  # a server's gauge has no event
                await asyncio.sleep(0.01)
    assert ends(tmp_path / "truth.jsonl") == [(fault.partition(",")[0], "left")]


def ends(truth: Path) -> list[tuple[str | None, str]]:
    """Return the faults and the end of each request, by their end."""
    logs = map(json.loads, truth.read_text().splitlines()[1:])
    return [(log["fault"], log["end"]) for log in logs]


async def gauge(http: aiohttp.ClientSession, name: str) -> float:
    async with http.get("../metrics") as answer:
        return parse(await answer.text()).values[name]


async def test_an_error_in_band_comes_under_200_and_ends_the_stream_properly() -> None:
    async with suffering("in_band, after_tokens: 3") as http:
        found = await lines(http)
        assert said(found) == 3
        assert found[-2].decode().strip() == text("engine_dead.sse")
        assert found[-1] == b"data: [DONE]\n"
        status, body = await whole(http)
        assert (status, body["error"]["type"]) == (500, "InternalServerError")


async def test_an_error_in_band_may_come_before_any_token() -> None:
    async with suffering("in_band, message: sorry") as http:
        found = await lines(http)
        assert [event(line)["error"]["message"] for line in found[:1]] == ["sorry"]
        assert len(found) == 2


async def test_a_trickling_answer_arrives_whole_but_slowly() -> None:
    async with suffering("trickle, ms_per_byte: 0.05") as http:
        start = time.monotonic()
        found = await lines(http)
        assert (said(found), found[-1]) == (30, b"data: [DONE]\n")
        assert time.monotonic() - start > 0.05 / 1000 * sum(map(len, found)) / 2
        status, body = await whole(http)
        assert (status, body["usage"]["completion_tokens"]) == (200, 30)


async def test_a_crash_breaks_every_connection_and_the_server_comes_back_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down_s, is_over, sleep = 77.0, asyncio.Event(), asyncio.sleep

    async def slept(seconds: float) -> None:
        await (is_over.wait() if seconds == down_s else sleep(seconds))

    monkeypatch.setattr(asyncio, "sleep", slept)
    truth = tmp_path / "truth.jsonl"
    crash = f"crash, after_tokens: 8, down_s: {down_s}, only: 2"
    async with suffering(crash, truth=truth, step_ms=20) as http:
        first = asyncio.create_task(lines(http, LONG))
        async with asyncio.timeout(60):
            while not await gauge(http, "running"):
                await sleep(0.01)
            second = await lines(http)
        assert ((await first)[-1], second[-1], said(second)) == (b"broken", b"broken", 8)
        with pytest.raises(aiohttp.ClientConnectorError):
            await whole(http)
        is_over.set()
        assert (await whole_again(http))[0] == 200
        assert await gauge(http, "running") == 0
    assert sorted(ends(truth)[:2], key=str) == [("crash", "broken"), (None, "broken")]
    assert ends(truth)[2:] == [(None, "done")]


async def test_a_restart_comes_at_its_time(tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    async with suffering("restart, at_s: 0.15", truth=truth, step_ms=20) as http:
        assert (await lines(http, LONG))[-1] == b"broken"
        assert (await whole_again(http))[0] == 200
    assert ends(tmp_path / "truth.jsonl") == [(None, "broken"), (None, "done")]


async def test_a_server_that_crashes_for_good_ends() -> None:
    async with suffering("crash, after_tokens: 2") as http:
        assert (await lines(http))[-1] == b"broken"
        with pytest.raises(aiohttp.ClientConnectorError):
            await whole(http)


async def test_running_out_of_memory_ends_all_streams_as_a_dead_engine_does() -> None:
    async with suffering("out_of_memory, tokens: 200", step_ms=5) as http:
        both = await asyncio.gather(*(lines(http, LONG) for _ in range(2)))
        for found in both:
            assert found[-2].decode().strip() == text("engine_dead.sse")
        assert (await whole(http))[0] == 200


async def test_another_dtype_behind_a_right_name_shows_only_in_what_the_server_says() -> None:
    other = replace(arm(name="fp8"), kv_dtype="fp8")
    options = ServerOptions(faults="faults: [{kind: wrong_dtype, really: fp8}]", stand_ins=(other,))
    async with (
        served(arm(name="bf16"), options) as running,
        aiohttp.ClientSession(running.url + "/") as http,
    ):
        assert running.facts.arm.name == "bf16"
        async with http.get("../metrics") as answer:
            assert parse(await answer.text()).cache_config["cache_dtype"] == "fp8"
