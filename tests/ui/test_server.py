import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from agentload.errors import LaunchError, StoreError, UsageError
from agentload.ui.server import Addresses, SiteOptions, serve
from tests.ui.site import empty

pytestmark = pytest.mark.loopback


async def test_pages_are_served_until_told_to_stop(tmp_path: Path) -> None:
    until, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(SiteOptions(databases=(empty(tmp_path),)), until=until, ready=ready.set_result)
    )
    running: Addresses = await ready
    ((url, path),) = running.pages.items()
    assert (url, path) == (f"{running.url}/db/bench/", (tmp_path / "bench.duckdb").resolve())
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        assert "nothing decided" in await answer.text()
    taken = SiteOptions(
        databases=(tmp_path / "bench.duckdb",), port=int(running.url.rpartition(":")[2])
    )
    with pytest.raises(LaunchError, match="cannot listen") as refused:
        await serve(taken, until=until, ready=lambda _: None)
    assert refused.value.hint == "choose another --port"
    until.set()
    await serving
    with pytest.raises(aiohttp.ClientConnectorError):
        async with aiohttp.ClientSession() as client, client.get(url):
            pass


@pytest.mark.parametrize(
    "line", [b"/" + b"a" * 70_000, b"/%ff\x01", b"/ HTTP/1.1\r\nX: " + b"c" * 70_000]
)
async def test_a_request_that_nobody_can_read_gets_its_answer_and_no_traceback(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    until, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve(SiteOptions(databases=(empty(tmp_path),)), until=until, ready=ready.set_result)
    )
    running: Addresses = await ready
    reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rpartition(":")[2]))
    writer.write(b"GET " + line + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()
    until.set()
    await serving
    assert caplog.records == []


async def test_the_address_that_it_listens_on_is_a_name_of_its_own(tmp_path: Path) -> None:
    until, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = SiteOptions(databases=(empty(tmp_path),), host="127.0.0.2")
    serving = asyncio.create_task(serve(options, until=until, ready=ready.set_result))
    running: Addresses = await ready
    async with aiohttp.ClientSession() as client, client.get(next(iter(running.pages))) as answer:
        assert answer.status == 200
    until.set()
    await serving


async def test_nothing_is_served_beyond_this_machine_without_being_asked() -> None:
    with pytest.raises(UsageError, match="no password"):
        await serve(
            SiteOptions(databases=(), host="0.0.0.0"), until=asyncio.Event(), ready=lambda _: None
        )


async def test_pages_may_be_opened_before_the_first_run_has_made_its_database(
    tmp_path: Path,
) -> None:
    until = asyncio.Event()
    until.set()
    heard: list[Addresses] = []
    await serve(
        SiteOptions(databases=(empty(tmp_path), tmp_path / "later.duckdb")),
        until=until,
        ready=heard.append,
    )
    assert len(heard[0].pages) == 2
    with pytest.raises(StoreError, match=r"nowhere/x\.duckdb: no such folder") as refused:
        await serve(
            SiteOptions(databases=(tmp_path / "nowhere/x.duckdb",)), until=until, ready=heard.append
        )
    assert refused.value.hint is not None
    assert "agentload demo" in refused.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_verb_says_where_it_is_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "agentload",
        "ui",
        "--port",
        "0",
        "--for",
        "60",
        str(empty(tmp_path)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url, path = process.stdout.readline().split()
        process.send_signal(number)
        _, complaints = process.communicate(timeout=60)
    assert (url.startswith("http://127.0.0.1:"), url.endswith("/db/bench/"), path) == (
        True,
        True,
        str(tmp_path / "bench.duckdb"),
    )
    assert (process.returncode, complaints) == (0, "")
