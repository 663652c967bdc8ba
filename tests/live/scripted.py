"""A server of raw bytes that does what a test says, and remembers what it was asked."""

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: "
    b"chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def unread_bytes(port: int) -> int:
    """Return how many bytes from a port are under way, or wait in the kernel at our ends."""
    there = f"0100007F:{port:04X}"
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        sent, received = queues.split(":")
        if local == there:
            found += int(sent, 16)  # what the other end has not confirmed
        if remote == there:
            found += int(received, 16)
    return found


def await_all_read(port: int) -> None:
    """Wait until no bytes wait at our ends of connections to a port, and do not turn the loop."""
    until_s = time.monotonic() + 60
    while unread_bytes(port):
        assert time.monotonic() < until_s, "nobody reads"
        time.sleep(0.001)


@dataclass
class Request:
    head: bytes
    body: bytes = b""
    connection: int = 0

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode()

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode().split("\r\n")[1:]
        return {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name
        }


@dataclass
class Peer:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    request: Request
    number: int = 0
    """Of this request, over all connections."""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def events(self, *payloads: object) -> None:
        """Send each payload as an event in an HTTP chunk of its own."""
        for payload in payloads:
            text = payload if isinstance(payload, str) else json.dumps(payload)
            event = f"data: {text}\n\n".encode()
            await self.send(b"%x\r\n%b\r\n" % (len(event), event))

    async def answer(self, tokens: int = 3) -> None:
        """Send a whole good stream."""
        await self.send(STREAM)
        await self.events(*good(tokens))
        await self.send(END)

    async def taken(self) -> None:
        """Wait until the client has read what was sent to it."""
        port = self.writer.get_extra_info("sockname")[1]
        async with asyncio.timeout(60):
            while unread_bytes(port):  # noqa: ASYNC110  # the kernel announces it to nobody
                await asyncio.sleep(0.001)

    async def hang(self) -> None:
        """Say nothing until the client hangs up."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Break the connection, not just close it."""
        self.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.writer.transport.abort()


Answer = Callable[[Peer], Awaitable[None]]


@dataclass
class Scripted:
    url: str
    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    failures: list[BaseException] = field(default_factory=list)


def token(text: str, *, finish: str | None = None, ids: int = 1) -> dict[str, object]:
    return {
        "choices": [
            {
                "index": 0,
                "delta": {"content": text},
                "finish_reason": finish,
                "token_ids": [7] * ids,
            }
        ]
    }


def usage(tokens: int) -> dict[str, object]:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


def good(tokens: int) -> list[object]:
    texts = [
        token(f"w{index} ", finish="length" if index == tokens - 1 else None)
        for index in range(tokens)
    ]
    return [*texts, usage(tokens), "[DONE]"]


@asynccontextmanager
async def serving(
    answer: Answer,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    path: str | None = None,
    reads_body: bool = True,
) -> AsyncIterator[Scripted]:
    """Serve connections with *answer*, called for each request, until the block ends."""
    server_tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        server_tasks.add(task)
        found.connections += 1
        number = found.connections
        try:
            while not writer.is_closing():
                request = Request(await reader.readuntil(b"\r\n\r\n"), connection=number)
                found.requests.append(request)
                if reads_body:
                    request.body = await reader.readexactly(
                        int(request.headers.get("content-length", 0))
                    )
                await answer(Peer(reader, writer, request, len(found.requests)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as error:  # noqa: BLE001 (raised when the test ends)
            found.failures.append(error)
        finally:
            writer.close()
            server_tasks.discard(task)

    if path is not None:
        server = await asyncio.start_unix_server(connected, path)
        found = Scripted(f"http+unix://{path.replace('/', '%2F')}/v1", 0)
    else:
        server = await asyncio.start_server(connected, host, 0, ssl=tls, backlog=4096)
        port = server.sockets[0].getsockname()[1]
        scheme = "https" if tls else "http"
        found = Scripted(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1", port)
    try:
        yield found
    finally:
        server.close()
        for task in list(server_tasks):
            task.cancel()
        await asyncio.gather(*server_tasks, return_exceptions=True)
        await server.wait_closed()
        assert found.failures == []
