"""One client under measurement, in a process of its own:
`python -m benchmarks.transport_client CLIENT URL LOAD…` writes what it measured to stdout.

Every client plays the same load: so many streams, each call after call, or
calls at a fixed rate. It notes when a call was released, when it was sent as
far as the client can know, and when each chunk with a token arrived.
"""

import argparse
import asyncio
import ctypes
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from agentload.model.plan import Plan
    from agentload.model.rows import CallRow

clock = time.monotonic_ns
SECOND = 1_000_000_000
# to the first token, and so much a token: what the server of truth does unless told otherwise
CALL_S = 0.05
TOKEN_S = 0.02
MESSAGES = [{"role": "user", "content": "x" * 400}]


class Load(msgspec.Struct):
    """What is played."""

    streams: int | None
    rate: float | None
    seconds: float
    spread_s: float
    tokens: int
    workers: int
    held_ms: float


class Measured(msgspec.Struct):
    """What a client says of one call."""

    id: str
    released_ns: int
    sent_ns: int | None
    stamps_ns: list[int]
    tokens: list[int]
    is_first: bool
    """It opened its session's connection."""
    coalesced: int = 0


class Run(msgspec.Struct):
    """What a client says of all its calls, and what they cost."""

    calls: list[Measured]
    cpu_s: float
    wall_s: float
    note: str = ""
    read_path: str = ""
    """Who read the sockets, where a client has more than one way."""


Call = Callable[[str, int], Awaitable[Measured]]


async def agentload(url: str, load: Load) -> Run:
    """Play a plan through all of agentload's replayer: dispatcher,
    prompts, sockets and journals, in one process or more.
    """
    from agentload.live.caller import RequestStyle
    from agentload.live.runner import RunLeg, Runner
    from agentload.live.station import Job
    from agentload.live.target import Target
    from agentload.live.workers.pool import calling
    from agentload.model.rows import CallRow
    from agentload.prompts.tokenizer import WORD_TOKENS
    from agentload.store import journal
    from agentload.store.places import worker_journals

    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "leg001.journal"
        journals = () if load.workers == 1 else worker_journals(own, load.workers)
        job = Job(
            run_id="bench",
            leg=1,
            seed=0,
            targets=partial(tuple, [Target(arm="a", url=url)]),
            styles={"a": RequestStyle(model="truth")},
            trace_seed=0,
            block=64,
            tokenizer=WORD_TOKENS,
        )

        async def barrier(*_: object, **__: object) -> tuple[()]:
            return ()

        with journal.Writer(own) as writer:
            async with calling(job, writer.append, journals=journals) as caller:
                began = time.monotonic()
                runner = Runner(_plan(load), caller, barrier, leg=RunLeg(number=1), journal=writer)
                health = await runner.play()
                wall_s = time.monotonic() - began
        rows = [
            row
            for path in (own, *journals)
            for row in journal.read(path)
            if isinstance(row, CallRow)
        ]
    return Run(
        calls=[_measured(row) for row in rows],
        cpu_s=health.cpu_share * wall_s,
        wall_s=wall_s,
        note=health.void or "",
        read_path=health.read_path or "",
    )


def _plan(load: Load) -> "Plan":
    from agentload.model.plan import Block, Budget, OpenLoop, Plan, Play, Recorded, Round
    from agentload.model.plan import Load as Wanted
    from agentload.model.trace import Header, Segment, Session, Turn

    def turns(count: int, session: int) -> tuple[Turn, ...]:
        said = (Segment(role="user", tokens=60, key=f"{session}.{turn}") for turn in range(count))
        return tuple(Turn(add=(each,), output=load.tokens, keep=0) for each in said)

    if load.rate is not None:
        sessions = [
            Session(session=str(i), workload="b", start_s=0.0, turns=turns(1, i))
            for i in range(round(load.rate * load.seconds))
        ]
        wanted = Wanted(arrivals=OpenLoop(rate_per_s=load.rate, cv=0.0))
    else:
        assert load.streams is not None
        count = ceil(load.seconds / (CALL_S + TOKEN_S * (load.tokens - 1))) + 1
        starts = [load.spread_s * i / load.streams for i in range(load.streams)]
        sessions = [
            Session(session=str(i), workload="b", start_s=start_s, turns=turns(count, i))
            for i, start_s in enumerate(starts)
        ]
        wanted = Wanted(arrivals=Recorded(), budget=Budget(seconds=load.seconds))
    return Plan(
        run="bench",
        seed=0,
        header=Header(name="bench"),
        arms=("a",),
        blocks=(Block(index=0, sessions=tuple(sessions)),),
        rounds=(Round(index=0, plays=(Play(block=0, arm="a", pair=0, salt="salt"),)),),
        load=wanted,
    )


def _measured(row: "CallRow") -> Measured:
    if row.status != "ok" or row.chunks is None:
        raise SystemExit(f"{row.request_id}: {row.status} {row.error}")
    return Measured(
        id=row.request_id,
        released_ns=row.released_ns,
        sent_ns=row.sent_ns,
        stamps_ns=row.chunks.ns().tolist(),
        tokens=row.chunks.token_counts().tolist(),
        is_first=row.turn == 0,
        coalesced=row.coalesced_reads or 0,
    )


async def aiohttp(url: str, load: Load) -> Run:
    """Play through aiohttp, as most load generators do: an event
    ends at a blank line, its stamp is the time of its reading.
    """
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(id: str, released_ns: int) -> Measured:
            stamps: list[int] = []
            sent_ns = clock()
            asked = {"model": "truth", "messages": MESSAGES, "stream": True}
            async with session.post(
                f"{url}/chat/completions", json=asked, headers={"X-Request-Id": id}
            ) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        at_ns = clock()
                        choices = msgspec.json.decode(line[6:])["choices"]
                        if choices and choices[0]["delta"].get("content"):
                            stamps.append(at_ns)
            return _noted(id, released_ns, sent_ns, stamps)

        return await _played(call, load)


async def openai(url: str, load: Load) -> Run:
    """Play through the openai SDK."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none", timeout=600, max_retries=0) as client:

        async def call(id: str, released_ns: int) -> Measured:
            stamps: list[int] = []
            sent_ns = clock()
            answer = await client.chat.completions.create(
                model="truth",
                messages=[{"role": "user", "content": "x" * 400}],
                stream=True,
                extra_headers={"X-Request-Id": id},
            )
            async for chunk in answer:
                if chunk.choices and chunk.choices[0].delta.content:
                    stamps.append(clock())  # noqa: PERF401 - a user's loop has a body
            return _noted(id, released_ns, sent_ns, stamps)

        return await _played(call, load)


def _noted(id: str, released_ns: int, sent_ns: int, stamps: list[int]) -> Measured:
    is_first = id.endswith("-0")
    return Measured(
        id=id,
        released_ns=released_ns,
        sent_ns=sent_ns,
        stamps_ns=stamps,
        tokens=[1] * len(stamps),
        is_first=is_first,
    )


CLIENTS = {"agentload": agentload, "aiohttp": aiohttp, "openai": openai}


async def _played(call: Call, load: Load) -> Run:
    gc.collect()
    gc.freeze()
    cpu_s, wall_s = time.process_time(), time.monotonic()
    found = await (opened(call, load) if load.rate is not None else closed(call, load))
    return Run(calls=found, cpu_s=time.process_time() - cpu_s, wall_s=time.monotonic() - wall_s)


async def closed(call: Call, load: Load) -> list[Measured]:
    """Keep so many streams going; they start spread over some time."""
    assert load.streams is not None
    found: list[Measured] = []
    until_ns = clock() + round(load.seconds * SECOND)

    async def session(index: int) -> None:
        assert load.streams is not None
        await asyncio.sleep(load.spread_s * index / load.streams)
        number = 0
        while clock() < until_ns:
            found.append(await call(f"{index}-{number}", clock()))
            number += 1

    async with asyncio.TaskGroup() as tasks:
        for index in range(load.streams):
            tasks.create_task(session(index))
    return found


async def opened(call: Call, load: Load) -> list[Measured]:
    """Start calls at a fixed rate, each at its own instant, whatever becomes of the others."""
    from agentload.live.alarm import Timetable

    assert load.rate is not None
    found: list[Measured] = []
    start_ns = clock() + SECOND
    timetable = Timetable()

    async def one(number: int, released_ns: int) -> None:
        found.append(await call(f"{number}-0", released_ns))

    async with asyncio.TaskGroup() as tasks:

        def start(number: int, released_ns: int) -> None:
            tasks.create_task(one(number, released_ns))

        over = asyncio.Event()
        for number in range(round(load.rate * load.seconds)):
            at_ns = start_ns + round(number * SECOND / load.rate)
            timetable.at(at_ns, partial(start, number, at_ns))
        timetable.at(start_ns + round(load.seconds * SECOND), over.set)
        await over.wait()
    timetable.close()
    return found


def hold(held_ms: float) -> None:
    """Hold the interpreter again and again, as a long call of an extension does."""
    library = ctypes.PyDLL(None)  # does not give the interpreter away during a call
    while True:
        time.sleep(0.1)
        library.usleep(round(held_ms * 1000))


async def main() -> None:
    """Play one load and write the run to stdout."""
    options = argparse.ArgumentParser()
    options.add_argument("client", choices=CLIENTS)
    options.add_argument("url")
    options.add_argument("--streams", type=int)
    options.add_argument("--rate", type=float)
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--spread-s", type=float, default=2)
    options.add_argument("--tokens", type=int, default=100)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument(
        "--held-ms", type=float, default=0, help="so long, ten times a second, nothing else runs"
    )
    chosen = vars(options.parse_args())
    client, url = chosen.pop("client"), chosen.pop("url")
    if chosen["held_ms"]:
        threading.Thread(target=hold, args=(chosen["held_ms"],), daemon=True).start()
    sys.stdout.buffer.write(msgspec.msgpack.encode(await CLIENTS[client](url, Load(**chosen))))


if __name__ == "__main__":
    asyncio.run(main())
