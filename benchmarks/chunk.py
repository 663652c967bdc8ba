"""What one chunk costs between the kernel and the row: `python -m benchmarks.chunk`.

A stream is read from a socket that has its bytes and stamps ready, and then parsed in
goes of eight, as the pump does it. Processor time, the least of many rounds; without
the kernel, without the loop's turns, and without what a call costs once. Run it with
`AGENTLOAD_PURE=1` and without to compare compiled modules with their sources.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from itertools import pairwise

from agentload import COMPILED
from agentload.dispatch.answer import CallTerms
from agentload.dispatch.call import CallMachine
from agentload.live.channel import Channel
from agentload.live.exchange import Exchange, Reception
from agentload.live.hub import Hub
from agentload.live.pump import Pump
from agentload.live.stamps import StampClock
from agentload.model.commands import Limits

CHUNKS = 250  # under the bytes that may wait to be parsed
GO = 8
ROUNDS = 200
SAYS = (
    b'"object":"chat.completion.chunk","created":1790000000,"model":"truth",'
    b'"choices":[{"index":0,"delta":{"content":" word"}'
)
EVENT = (
    b"data: "
    b'{"id":"chatcmpl-0123456789abcdef",%s,"logprobs":null,"finish_reason":null,"token_ids":[4711]}]}\n\n'
) % SAYS
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STAMP = struct.Struct("@llllll")
SO_TIMESTAMPING = 37
SECOND = 1_000_000_000
AHEAD_NS = 10_000_000


class Ready:
    """A socket whose bytes are all there, each read with a stamp of its own."""

    family = socket.AF_INET

    def __init__(self, file: int) -> None:
        self._file = file
        began_ns = time.time_ns() + AHEAD_NS  # after the request, as stamps are
        stamps = (
            STAMP.pack(*divmod(began_ns + index * 1000, SECOND), 0, 0, 0, 0)
            for index in range(CHUNKS + 1)
        )
        data = (HEAD + CHUNK, *[CHUNK] * CHUNKS)
        self._reads = deque(
            (each, [(1, SO_TIMESTAMPING, stamp)], 0, None)
            for each, stamp in zip(data, stamps, strict=True)
        )

    def fileno(self) -> int:
        """Return a descriptor that can be watched."""
        return self._file

    def setsockopt(self, *_: int) -> None:
        """Take every option."""

    def sendmsg(self, parts: list[memoryview]) -> int:
        """Send all."""
        return sum(map(len, parts))

    def recvmsg(self, *_: int) -> object:
        """Return the next read; there is nothing else, and no stamp of a write."""
        if not self._reads:
            raise BlockingIOError
        return self._reads.popleft()


def measured(clock: StampClock, hub: Hub, pump: Pump, file: int) -> tuple[float, float, float]:
    """Read and parse one stream; return the seconds that a read
    of the socket alone, a whole read and parsing took a chunk.
    """
    alone, sock, cpu = Ready(file), Ready(file), time.process_time
    machine = CallMachine(
        released_ns=clock.now_ns(), limits=Limits(), asked=CallTerms(tokens=CHUNKS)
    )
    channel = Channel(sock, clock=clock, peer="none")  # type: ignore[arg-type]
    exchange = Exchange(channel, machine, Reception(clock=clock, hub=hub, pump=pump))
    exchange.start(b"POST", [b"body"], expects=False)
    time.sleep((AHEAD_NS + 1000 * CHUNKS) / SECOND)  # until all stamps are past
    exchange._readable()  # noqa: SLF001 - as the hub does
    marks = [cpu()]
    for _ in range(CHUNKS):
        alone.recvmsg(0, 0)
    marks.append(cpu())
    for _ in range(CHUNKS):
        exchange._readable()  # noqa: SLF001
    marks.append(cpu())
    while exchange.is_behind:
        exchange.step(GO)
    marks.append(cpu())
    exchange.halt("stopped")
    first, second, third = ((after - before) / CHUNKS for before, after in pairwise(marks))
    return first, second, third


async def main() -> None:
    """Print the least of many rounds."""
    clock, hub, pump = StampClock(), Hub(), Pump(delay_s=3600)
    file, other = os.pipe()
    rounds = [measured(clock, hub, pump, file) for _ in range(ROUNDS)]
    alone, read, parsed = (min(each) * 1e6 for each in zip(*rounds, strict=True))
    print(f"compiled: {COMPILED}")
    print(f"reading a chunk: {read - alone:.2f} µs; parsing it: {parsed:.2f} µs")
    pump.close()
    hub.close()
    os.close(file)
    os.close(other)


if __name__ == "__main__":
    asyncio.run(main())
