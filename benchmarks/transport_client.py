"""One client under measurement, in a process of its own: `transport_client.py CLIENT URL LOAD…` writes what it measured to stdout.

Every client plays the same load: so many streams, each call after call, or calls at a fixed rate. It notes when a call was released, when
it was sent as far as the client can know, and when each chunk with a token arrived.
"""

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine

import msgspec

from agentload.model.commands import Outcome

clock = time.monotonic_ns
SECOND = 1_000_000_000
AHEAD_S = 0.2
MESSAGES = [{"role": "user", "content": "x" * 400}]


class Measured(msgspec.Struct):
    """What a client says of one call."""

    id: str
    released_ns: int
    sent_ns: int | None
    stamps_ns: list[int]
    tokens: list[int]
    opened_ns: int | None = None
    coalesced: int = 0


class Run(msgspec.Struct):
    """What a client says of all its calls, and what they cost."""

    calls: list[Measured]
    cpu_s: float
    wall_s: float
    note: str = ""


Say = Callable[[], Measured]
"""Tells of a call when the load is over: putting it into our form is no cost of the client's."""
Call = Callable[[str, str, int], Awaitable[Say]]
Ahead = Callable[[str], Coroutine[None, None, None]]
"""Makes ready what a session's first call needs, as far as the client can."""
Load = Callable[[Call, Ahead], Awaitable[None]]


async def ours(url: str, load: Load) -> str:
    """Play through agentload's own transport."""
    from agentload.live import body
    from agentload.live.target import Target
    from agentload.live.wire import Wire, WireRequest
    from agentload.replay.call import Asked

    content = msgspec.json.encode(MESSAGES)
    async with Wire([Target(arm="a", url=url)]) as wire:

        async def call(id: str, session: str, released_ns: int) -> Say:
            pieces = body.chat(content, sampling=body.Sampling(model="truth", max_tokens=1, is_forced=False))
            outcome = await wire.call(
                WireRequest(request_id=id, arm="a", session=session, body=pieces, released_ns=released_ns, asked=Asked())
            )
            return lambda: _measured(id, released_ns, outcome)

        await load(call, lambda session: wire.ready("a", session))
        return str(wire.facts())


def _measured(id: str, released_ns: int, outcome: Outcome) -> Measured:
    if outcome.status != "ok" or outcome.chunks is None:
        raise SystemExit(f"{id}: {outcome.status} {outcome.error}")
    return Measured(
        id=id,
        released_ns=released_ns,
        sent_ns=outcome.sent_ns,
        stamps_ns=outcome.chunks.ns().tolist(),
        tokens=outcome.chunks.token_counts().tolist(),
        opened_ns=outcome.opened_ns,
        coalesced=outcome.coalesced_reads or 0,
    )


async def _nothing(_session: str) -> None:
    """Make nothing ready."""


async def aiohttp(url: str, load: Load) -> str:
    """Play through aiohttp, as most load generators do: an event ends at a blank line, its stamp is the time of its reading."""
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(id: str, _session: str, released_ns: int) -> Say:
            stamps: list[int] = []
            sent_ns = clock()
            asked = {"model": "truth", "messages": MESSAGES, "stream": True}
            async with session.post(f"{url}/chat/completions", json=asked, headers={"X-Request-Id": id}) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        at_ns = clock()
                        choices = msgspec.json.decode(line[6:])["choices"]
                        if choices and choices[0]["delta"].get("content"):
                            stamps.append(at_ns)
            return lambda: Measured(id=id, released_ns=released_ns, sent_ns=sent_ns, stamps_ns=stamps, tokens=[1] * len(stamps))

        await load(call, _nothing)
    return ""


async def openai(url: str, load: Load) -> str:
    """Play through the openai SDK."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none", timeout=600, max_retries=0) as client:

        async def call(id: str, _session: str, released_ns: int) -> Say:
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
            return lambda: Measured(id=id, released_ns=released_ns, sent_ns=sent_ns, stamps_ns=stamps, tokens=[1] * len(stamps))

        await load(call, _nothing)
    return ""


CLIENTS = {"agentload": ours, "aiohttp": aiohttp, "openai": openai}


async def closed(call: Call, *, streams: int, seconds: float, spread_s: float) -> list[Say]:
    """Keep so many streams going; they start spread over some time."""
    found: list[Say] = []
    until_ns = clock() + round(seconds * SECOND)

    async def session(index: int) -> None:
        await asyncio.sleep(spread_s * index / streams)
        number = 0
        while clock() < until_ns:
            found.append(await call(f"{index}-{number}", str(index), clock()))
            number += 1

    async with asyncio.TaskGroup() as tasks:
        for index in range(streams):
            tasks.create_task(session(index))
    return found


async def opened(call: Call, ahead: Ahead, *, rate: float, seconds: float) -> list[Say]:
    """Start calls at a fixed rate, each at its own instant, whatever becomes of the others."""
    from agentload.live.alarm import Alarm

    found: list[Say] = []
    total = round(rate * seconds)
    start_ns = clock() + SECOND
    early = round(rate * AHEAD_S)
    sent = 0

    async with asyncio.TaskGroup() as tasks:
        over = asyncio.Event()
        for number in range(early):
            await ahead(f"open-{number}")

        async def one(number: int, released_ns: int) -> None:
            found.append(await call(f"open-{number}", f"open-{number}", released_ns))

        def release() -> None:
            nonlocal sent
            while sent < total and (due_ns := start_ns + round(sent * SECOND / rate)) <= clock():
                tasks.create_task(one(sent, due_ns))
                tasks.create_task(ahead(f"open-{sent + early}"))
                sent += 1
            if sent < total:
                alarm.set(start_ns + round(sent * SECOND / rate))
            else:
                over.set()

        alarm = Alarm(release)
        alarm.set(start_ns)
        await over.wait()
        alarm.close()
    return found


async def main() -> None:
    """Play one load and write the run to stdout."""
    options = argparse.ArgumentParser()
    options.add_argument("client", choices=CLIENTS)
    options.add_argument("url")
    options.add_argument("--streams", type=int)
    options.add_argument("--rate", type=float)
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--spread-s", type=float, default=2)
    chosen = options.parse_args()
    calls: list[Say] = []
    cpu_s = wall_s = 0.0

    async def load(call: Call, ahead: Ahead) -> None:
        nonlocal cpu_s, wall_s
        gc.collect()
        gc.freeze()
        cpu_s, wall_s = time.process_time(), time.monotonic()
        if chosen.rate is not None:
            calls.extend(await opened(call, ahead, rate=chosen.rate, seconds=chosen.seconds))
        else:
            calls.extend(await closed(call, streams=chosen.streams, seconds=chosen.seconds, spread_s=chosen.spread_s))
        cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s

    note = await CLIENTS[chosen.client](chosen.url, load)
    sys.stdout.buffer.write(msgspec.msgpack.encode(Run(calls=[say() for say in calls], cpu_s=cpu_s, wall_s=wall_s, note=note)))


if __name__ == "__main__":
    asyncio.run(main())
