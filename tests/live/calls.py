"""Short ways to call a scripted server."""

import time

from agentload.dispatch.answer import CallTerms
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits, Outcome

MS = 1_000_000
SHORT = Limits(connect_ns=300 * MS, first_ns=300 * MS, idle_ns=200 * MS, total_ns=600 * MS)


def request(
    number: int = 0,
    *,
    session: str = "s",
    body: tuple[bytes, ...] = (b'{"n":', b"1}"),
    limits: Limits = SHORT,
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


async def one_call(url: str) -> Outcome:
    async with Wire([Target(arm="a", url=url)]) as wire:
        return await wire.call(request())
