from __future__ import annotations

import asyncio
import re
from collections import Counter
from itertools import pairwise

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentload.telemetry import watch as module
from agentload.telemetry.watch import LONGEST_S, Refusals, TelemetrySource, TelemetryWatch


@pytest.mark.loopback
async def test_replicas_are_one_server_and_gpus_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SPARED_LOOKS", 10_000)
    asked: Counter[str] = Counter()
    enough = asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        asked[request.path] += 1
        if asked["/gpu"] >= 3:
            enough.set()
        match request.path:
            case "/a" | "/b":
                return web.Response(
                    text="vllm:num_requests_running 2\nvllm:kv_cache_usage_perc "
                    f"0.{1 if request.path == '/a' else 7}\n"
                )
            case "/gpu":
                return web.Response(text='DCGM_FI_DEV_POWER_USAGE{gpu="3"} 70\n')
            case _:
                raise web.HTTPNotFound

    app = web.Application()
    app.router.add_get("/{any}", page)
    async with TestServer(app) as server:

        def url(path: str) -> str:
            return str(server.make_url(path))

        sources = {
            "two": TelemetrySource(urls=(url("/a"), url("/b")), gpu_url=url("/gpu")),
            "none": TelemetrySource(urls=(url("/nothing"),)),
        }
        watch = TelemetryWatch(sources, every_s=0.01)
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(enough.wait(), 60)
        task.cancel()
    rows = list(watch.rows(run_id="r", leg=1))
    assert {(row.arm, row.name, row.value, row.labels) for row in rows} == {
        ("two", "running", 4.0, None),
        ("two", "kv_usage", 0.7, None),
        ("two", "gpu_power_w", 70.0, '{"gpu": "3"}'),
    }
    assert asked["/nothing"] == 1
    assert list(watch.rows(run_id="r", leg=1)) == []


@pytest.mark.loopback
async def test_a_page_that_is_no_text_is_no_sample_and_does_not_end_the_run() -> None:
    asked = 0
    twice = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked >= 3:  # the second has been read
            twice.set()
        body = b"\x1f\x8b\xff" if asked == 1 else b"vllm:num_requests_running 2\n"
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/metrics", page)
    async with TestServer(app) as server:
        watch = TelemetryWatch(
            {"a": TelemetrySource(urls=(str(server.make_url("/metrics")),))}, every_s=0.01
        )
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(asyncio.gather(twice.wait(), asyncio.sleep(0.05)), 60)
        assert not task.done()
        task.cancel()
    assert {(row.name, row.value) for row in watch.rows(run_id="r", leg=1)} == {("running", 2.0)}


@pytest.mark.loopback
async def test_metrics_that_are_refused_for_a_while_are_sampled_again_and_that_is_said() -> None:
    asked = 0
    again = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked in {2, 3}:
            raise web.HTTPForbidden
        if asked == 5:
            again.set()
        return web.Response(text=f"vllm:num_requests_running {asked}\n")

    app = web.Application()
    app.router.add_get("/metrics", page)
    said: list[str] = []
    async with TestServer(app) as server:
        url = str(server.make_url("/metrics"))
        watch = TelemetryWatch(
            {"a": TelemetrySource(urls=(url.replace("//", "//name:secret@"),))},
            every_s=0.01,
            notice=said.append,
        )
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(again.wait(), 60)
        task.cancel()
    assert [row.value for row in watch.rows(run_id="r", leg=1)][:2] == [1.0, 4.0]
    assert [re.sub(r"\d+ s$", "N s", line) for line in said] == [
        f"a: {url} answers 403: asked less often until it answers again",
        f"a: {url} answers again after N s",
    ]


def test_a_page_that_stays_refused_is_asked_for_less_and_less_but_never_given_up() -> None:
    refusals = Refusals(first_s=10.0)
    asked: list[int] = []
    for second in range(2000):
        if refusals.is_due("page", second):
            asked.append(second)
            refusals.refused("page", second)
    waits = [after - before for before, after in pairwise(asked)]
    assert waits == [10, 20, 40, 80, 160, *[LONGEST_S] * 5]


def test_a_page_that_answers_again_says_for_how_long_it_was_refused_and_begins_anew() -> None:
    refusals = Refusals(first_s=10.0)
    assert refusals.answered("page", 5) is None
    refusals.refused("page", 10)
    refusals.refused("page", 20)
    assert (refusals.is_due("page", 30), refusals.is_due("other", 30)) == (False, True)
    assert refusals.answered("page", 41) == 31
    assert refusals.is_due("page", 41)
    refusals.refused("page", 50)
    assert refusals.is_due("page", 60)


@pytest.mark.loopback
async def test_a_page_beyond_the_bounds_is_said_once_and_its_text_is_not_kept() -> None:
    asked = 0
    enough = asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        nonlocal asked
        if request.path == "/good":
            return web.Response(text="vllm:num_requests_running 2\n" + "# nothing\n" * 100_000)
        asked += 1
        if asked > 3:
            enough.set()
        return web.Response(text='vllm:num_requests_running{a="' + "x" * 100_000 + '"} 1\n')

    said: list[str] = []
    app = web.Application()
    app.router.add_get("/{any}", page)
    async with TestServer(app) as server:
        sources = {
            name: TelemetrySource(urls=(str(server.make_url(f"/{name}")),))
            for name in ("good", "long")
        }
        watch = TelemetryWatch(sources, every_s=0.01, notice=said.append)
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(enough.wait(), 60)
        task.cancel()
    (line,) = said
    assert line.endswith("/long: a line of more than 64 kB: left out")
    assert {(row.arm, row.name, row.value) for row in watch.rows(run_id="r", leg=1)} == {
        ("good", "running", 2.0)
    }
