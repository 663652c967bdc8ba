"""The body of one answer: a stream, a document, an error, or something that nobody asked for."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from agentload.replay.document import document
from agentload.replay.fault import body_fault
from agentload.replay.sse import Parsed, StreamParser

BODY_BYTES: Final = 64 << 20  # of an answer that is not a stream

Form: TypeAlias = Literal["stream", "answer", "fault", "other"]


class Transcript:
    """Read a body by what the answer's head says of it."""

    def __init__(self, status: int, *, content_type: str, encoding: str = "identity") -> None:
        self._what = f"of type '{content_type}'" if encoding == "identity" else f"encoded as '{encoding}', which was not asked for"
        self._form = _form(status, content_type) if encoding == "identity" else "other"
        self._stream = StreamParser()
        self._body = bytearray()
        self._last_ns = 0

    @property
    def tokens_so_far(self) -> int:
        """Return the tokens up to now."""
        return self._stream.tokens_so_far

    @property
    def has_end_mark(self) -> bool:
        """Tell whether the stream has said that it is over."""
        return self._stream.has_end_mark

    def feed(self, at_ns: int, data: bytes) -> None:
        """Take the next bytes."""
        if self._form == "stream":
            self._last_ns = at_ns
            self._stream.feed(at_ns, data)
        elif len(self._body) < BODY_BYTES:
            self._body += data

    def parsed(self) -> Parsed:
        """Return what the whole body says."""
        match self._form:
            case "stream":
                return self._stream.end(self._last_ns)
            case "answer":
                return document(bytes(self._body))
            case "fault":
                return Parsed(fault=body_fault(bytes(self._body))) if self._body else Parsed()
            case "other":
                return Parsed(unreadable=f"the answer is {self._what}")


def _form(status: int, content_type: str) -> Form:
    if status >= 300:
        return "fault"
    if "json" in content_type:
        return "answer"
    return "stream" if not content_type or "event-stream" in content_type else "other"
