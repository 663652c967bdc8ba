from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentload.telemetry.log_tail import LogTail
from agentload.telemetry.watch import Source, Watch

LINE = (
    "(APIServer pid=7) INFO 11-20 13:46:20 [loggers.py:273] Engine 000: Avg prompt throughput: 20.5 tokens/s, "
    "Avg generation throughput: 92.0 tokens/s, Running: 3 reqs, Waiting: 5 reqs, {preempted}GPU KV cache usage: 91.5%, "
    "Prefix cache hit rate: 40.0%\n"
)
BUSY = LINE.format(preempted="Preemptions: 2, ")
SEEN = {
    "running": 3.0,
    "waiting": 5.0,
    "kv_usage": 0.915,
    "prefix_hit_rate": 0.4,
    "prompt_tokens_per_s": 20.5,
    "output_tokens_per_s": 92.0,
}


def test_only_what_was_written_since_the_last_look_is_told_and_preemptions_add_up(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(BUSY)  # before the run
    tail = LogTail(str(log))
    assert list(tail.values()) == []
    with log.open("a") as file:
        file.write(BUSY + "INFO something else\n")
    assert dict(tail.values()) == SEEN | {"preemptions": 2.0}
    with log.open("a") as file:
        file.write(BUSY[:40])  # half a line
    assert list(tail.values()) == []
    with log.open("a") as file:
        file.write(BUSY[40:] + LINE.format(preempted=""))
    assert dict(tail.values()) == SEEN | {"preemptions": 4.0}


def test_a_log_that_was_begun_anew_is_read_from_its_start_and_one_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(BUSY * 3)
    tail = LogTail(str(log))
    log.write_text(BUSY)
    assert dict(tail.values()) == SEEN | {"preemptions": 2.0}
    log.unlink()
    assert list(tail.values()) == []


def test_engines_that_write_lines_of_their_own_are_one_server(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.touch()
    tail = LogTail(str(log))
    second = (
        BUSY.replace("Engine 000", "Engine 001").replace("91.5%", "50.0%").replace("Preemptions: 2", "Deferred: 1 reqs, Preemptions: 3")
    )
    with log.open("a") as file:
        file.write(BUSY + second)
    added = {name: 2 * value for name, value in SEEN.items() if name not in {"kv_usage", "prefix_hit_rate"}}
    assert dict(tail.values()) == added | {"kv_usage": 0.915, "preemptions": 5.0}
    with log.open("a") as file:
        file.write(second.replace("Running: 3", "Running: 1"))
    assert dict(tail.values()) == added | {"kv_usage": 0.915, "preemptions": 8.0, "running": 4.0}


@pytest.mark.loopback
async def test_the_log_stands_in_where_metrics_are_closed_and_only_there(tmp_path: Path) -> None:
    seen, enough = 0, asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        nonlocal seen
        if request.path == "/open":
            seen += 1
            if seen == 3:
                enough.set()
            return web.Response(text="vllm:num_requests_running 9\n")
        raise web.HTTPForbidden

    app = web.Application()
    app.router.add_get("/{any}", page)
    logs = {name: tmp_path / f"{name}.log" for name in ("open", "closed")}
    for log in logs.values():
        log.write_text("")
    async with TestServer(app) as server:
        watch = Watch({name: Source(urls=(str(server.make_url(f"/{name}")),), log=str(log)) for name, log in logs.items()}, every_s=0.01)
        for log in logs.values():
            log.write_text(BUSY)
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(enough.wait(), 10)
        task.cancel()
    rows = list(watch.rows(run_id="r", leg=1))
    assert {(row.name, row.value, row.labels) for row in rows if row.arm == "open"} == {("running", 9.0, None)}
    assert {row.name: row.value for row in rows if row.arm == "closed"} == SEEN | {"preemptions": 2.0}
    assert {row.labels for row in rows if row.arm == "closed"} == {'{"source": "log"}'}
