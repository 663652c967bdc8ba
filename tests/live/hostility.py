"""What hostile servers are made of: modes by name, each with
the ends that its calls may have, and the pieces of bad answers.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from agentload.model.commands import Status
from tests.live.scripted import END, STREAM, Answer, Peer, good

MB = 1 << 20
TIMED_OUT: frozenset[Status] = frozenset({"first_timeout", "idle_timeout", "total_timeout"})


@dataclass(frozen=True)
class Mode:
    answer: Callable[[Peer], Awaitable[None]]
    ends: frozenset[Status]
    says: str = ""
    """Part of the error."""


MODES: dict[str, Mode] = {}


def mode(
    *ends: Status, says: str = ""
) -> Callable[[Callable[[Peer], Awaitable[None]]], Callable[[Peer], Awaitable[None]]]:
    def named(answer: Callable[[Peer], Awaitable[None]]) -> Callable[[Peer], Awaitable[None]]:
        MODES[answer.__name__] = Mode(answer, frozenset(ends), says)
        return answer

    return named


async def raw(peer: Peer, *events: bytes) -> None:
    """Send events as they are, in chunks of HTTP of at most 64 kB, and end the answer well."""
    await peer.send(STREAM)
    await body(peer, b"".join(events))
    await peer.send(END)


async def body(peer: Peer, data: bytes) -> None:
    for start in range(0, len(data), 65_536):
        piece = data[start : start + 65_536]
        await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))


async def whole(
    peer: Peer, content: bytes, *, status: bytes = b"500 No", kind: bytes = b"application/json"
) -> None:
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    await peer.send(head % (status, kind, len(content)) + content)


async def flood(peer: Peer, pieces: Iterable[bytes]) -> None:
    """Send for as long as the client listens."""
    for piece in pieces:
        if peer.writer.is_closing():
            return
        await peer.send(piece)
    await peer.hang()


def behind(
    url: str, wrong: Answer, *, only: Literal["streams", "questions"] | None = None
) -> Answer:
    """Return what asks the server at *url*, but leaves chats of several tokens to *wrong*.

    Those are *only* the ones that are streamed, or the questions that are not, where one is said.
    """
    at = urlsplit(url)

    async def answer(peer: Peer) -> None:
        request = peer.request
        asked = json.loads(request.body) if request.body else {}
        kind = "streams" if asked.get("stream") else "questions"
        if asked.get("max_tokens", 0) > 1 and only in (None, kind):
            await wrong(peer)
            return
        if request.line.split()[1].endswith("/metrics"):  # they would count what went astray
            await peer.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        await passed_on(peer, at.hostname, at.port)

    return answer


async def passed_on(peer: Peer, host: str | None, port: int | None) -> None:
    """Answer as another server does, and close."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(peer.request.head[:-2] + b"connection: close\r\n\r\n" + peer.request.body)
        while piece := await reader.read(65_536):
            await peer.send(piece)
    finally:
        writer.close()
    peer.writer.close()


def again(piece: bytes, total: int) -> Iterable[bytes]:
    return (piece for _ in range(total // len(piece) + 1))


def event(payload: object, *, name: str | None = None) -> bytes:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return (b"" if name is None else b"event: %b\n" % name.encode()) + b"data: " + text + b"\n\n"


def finish(reason: str, *, text: str = "") -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


DONE = event(b"[DONE]")
TOKENS = b"".join(event(each) for each in good(3)[:-1])
NESTED = b"[" * 100_000 + b"]" * 100_000
