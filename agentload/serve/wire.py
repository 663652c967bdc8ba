"""Frame events: server-sent events inside HTTP/1.1 chunks, and what both faces put into theirs."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

DONE: Final = b"data: [DONE]\n\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


class Face(Protocol):
    """Turn one answer into bytes. Events come ready to be framed; tokens are counted from 0."""

    def opening(self) -> bytes:
        """Return what precedes the first token; it leaves together with it."""
        ...

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries these tokens."""
        ...

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the events that follow the last token."""
        ...

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        ...


def chunk(payload: bytes) -> bytes:
    """Frame bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: object) -> bytes:
    """Encode one event, compact and in the order of its fields."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the counts that every usage object starts with."""
    return {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + completion_tokens, "completion_tokens": completion_tokens}
