"""Short ways to call a scripted server."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Literal

from agentload.dispatch.answer import CallTerms
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits, Outcome

MS = 1_000_000
PATIENT = Limits(
    connect_ns=100_000 * MS, first_ns=100_000 * MS, idle_ns=100_000 * MS, total_ns=100_000 * MS
)
"""Only a call that hangs takes so long, however busy the machine is."""


def hasty(limit: Literal["connect", "first", "idle", "total"]) -> Limits:
    """Return limits of which one is over soon, and the others only where a call hangs."""
    return replace(PATIENT, **{f"{limit}_ns": 200 * MS})


def request(
    number: int = 0,
    *,
    session: str = "s",
    body: tuple[bytes, ...] = (b'{"n":', b"1}"),
    limits: Limits = PATIENT,
    tokens: int = 3,
    is_streamed: bool = True,
    arm: str = "a",
) -> WireRequest:
    asked = CallTerms(tokens=tokens, is_forced=True, is_streamed=is_streamed, wants_reply=True)
    return WireRequest(
        request_id=f"r{number}",
        arm=arm,
        session=session,
        body=body,
        released_ns=time.monotonic_ns(),
        limits=limits,
        asked=asked,
    )


async def in_time(attempt: Callable[[int], Awaitable[bool]]) -> None:
    """Try with ever more ms ahead of an instant, until they were enough for this machine."""
    for lead_ms in (300, 3_000, 30_000):
        if await attempt(lead_ms):
            return
    raise AssertionError("not in time with 30 s of lead")


async def passed(instant_ns: int) -> None:
    """Wait until an instant is over."""
    await asyncio.sleep(max(0, instant_ns - time.monotonic_ns()) / 1e9 + 0.02)


async def one_call(url: str, *, limits: Limits = PATIENT) -> Outcome:
    async with Wire([Target(arm="a", url=url)]) as wire:
        return await wire.call(request(limits=limits))
