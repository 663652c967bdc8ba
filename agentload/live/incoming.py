"""Read one HTTP answer from bytes as they come.

Its body is a stream, a whole answer, an error, or something that nobody asked for.
"""

from typing import Final, Literal, TypeAlias

import httptools

from agentload.dispatch.answer import Parsed
from agentload.dispatch.fault import body_fault, masked_word
from agentload.dispatch.framing import MOST_BYTES, OverlongError
from agentload.dispatch.sse import StreamParser, document

FAULT_BYTES: Final = 1 << 20  # read of an error's body; the rest is dropped
# Limit of everything between two pieces of a body: interim heads, the head, trailers.
HEAD_BYTES: Final = 256 << 10
MOST_HEADERS: Final = 1_000
Form: TypeAlias = Literal["stream", "answer", "fault", "other"]
REDIRECTS: Final = frozenset({307, 308})  # the redirects that keep method and body


class BodyTranscript:
    """Read a body in the form that the answer's head announces."""

    def __init__(self, status: int, *, content_type: str, encoding: str = "identity") -> None:
        self._type, self._encoding = content_type, encoding
        self._form = _form(status, content_type) if encoding == "identity" else "other"
        self._stream = StreamParser()
        self._body = bytearray()
        self._last_ns = 0

    @property
    def tokens_so_far(self) -> int:
        """How many tokens have come so far."""
        return self._stream.tokens_so_far

    @property
    def model(self) -> str | None:
        """The model that a stream names in its first chunk; None if it names none."""
        return self._stream.model

    @property
    def has_end_mark(self) -> bool:
        """Whether the stream has said `[DONE]`."""
        return self._stream.has_end_mark

    @property
    def held_bytes(self) -> int:
        """How many bytes of memory the answer takes so far."""
        return self._stream.held_bytes + len(self._body)

    def feed(self, at_ns: int, data: bytes) -> None:
        """Take the next bytes; raises `OverlongError`."""
        if self._form == "stream":
            self._last_ns = at_ns
            self._stream.feed(at_ns, data)
        elif self._form == "answer":
            self._body += data
            if len(self._body) > MOST_BYTES:
                raise OverlongError(f"an answer of more than {MOST_BYTES >> 20} MB")
        elif self._form == "fault" and len(self._body) < FAULT_BYTES:
            self._body += data

    def parsed(self) -> Parsed:
        """Return what the whole body says."""
        match self._form:
            case "stream":
                return self._stream.end(self._last_ns)
            case "answer":
                return document(self._body)
            case "fault":
                if self._body:
                    return Parsed(fault=body_fault(self._body))
                return Parsed()
            case "other":
                if self._encoding == "identity":
                    return Parsed(unreadable=f"the answer is of type '{masked_word(self._type)}'")
                return Parsed(
                    unreadable=f"the answer is encoded as '{masked_word(self._encoding)}', which "
                    "was not asked for"
                )


def _form(status: int, content_type: str) -> Form:
    if status >= 300:
        return "fault"
    if "json" in content_type:
        return "answer"
    if not content_type or "event-stream" in content_type:
        return "stream"
    return "other"


class NotHttpError(Exception):
    """The bytes that came are no HTTP answer."""


class Incoming:
    """Follow one answer through interim heads, head, body and end."""

    __deletable__ = ("_parser",)  # a class compiled by mypyc needs this for `del self._parser`

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.transcript: BodyTranscript | None = None
        self.body_ns: int | None = None
        """When the last bytes of the body so far came."""
        self.is_whole = False
        self.is_clean = True
        """Whether the connection may carry another request after this answer."""
        self.is_chunked = False
        self.is_continued = False
        """Whether the server has asked for the body (`100 Continue`)."""
        self._is_framed = False
        self._at_ns = 0
        self._bare_bytes = 0
        """Bytes that came since the last piece of the body."""
        self._bare_since_ns: int | None = None
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_redirect(self) -> bool:
        """Whether the whole answer is a redirect that keeps method and body."""
        return self.is_whole and self.status in REDIRECTS

    def feed(self, at_ns: int, data: bytes) -> None:
        """Take the next bytes, which arrived at *at_ns*.

        Raises `NotHttpError` or `OverlongError`.
        """
        self._at_ns = at_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None  # an exception of our own callbacks
        except httptools.HttpParserError as error:
            self.is_clean = False
            if not self.is_whole:  # bytes that follow a whole answer belong to no call
                raise NotHttpError(f"this is not HTTP: {error}") from error
        if self.body_ns != at_ns:
            self._bare(len(data))

    def _bare(self, count: int) -> None:
        if self.body_ns != self._bare_since_ns:
            self._bare_bytes, self._bare_since_ns = 0, self.body_ns
        self._bare_bytes += count
        if self._bare_bytes > HEAD_BYTES and not self.is_whole:
            raise OverlongError(f"a head of more than {HEAD_BYTES >> 10} kB")

    def hung_up(self) -> bool:
        """Note the connection's end; return whether it ends the answer.

        RFC 9112, section 6.3: without a length, an answer ends with its connection.
        """
        self.is_clean = False
        self.is_whole = self.status is not None and not self._is_framed
        return self.is_whole

    def close(self) -> None:
        """Take no more bytes, and drop the parser.

        The parser and this object refer to each other, and a million of them must not wait for the
        garbage collector.
        """
        del self._parser

    # --- what the parser calls ---

    def on_message_begin(self) -> None:
        """Note bytes that follow the whole answer, which nobody asked for."""
        if self.is_whole:
            self.is_clean = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if len(self.headers) == MOST_HEADERS:
            raise OverlongError(f"more than {MOST_HEADERS:,} headers")
        if not self.is_whole:
            self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Note the head, unless it is an interim one."""
        if self.is_whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        named = {name: value.lower() for name, value in self.headers}
        self.is_chunked = "chunked" in named.get("transfer-encoding", "")
        self._is_framed = self.is_chunked or "content-length" in named or status in {204, 304}
        self.transcript = BodyTranscript(
            status,
            content_type=named.get("content-type", ""),
            encoding=named.get("content-encoding", "identity"),
        )

    def on_body(self, data: bytes) -> None:
        """Read the next bytes of the body."""
        if self.transcript is None or self.is_whole or self.status in REDIRECTS:
            return
        self.body_ns = self._at_ns
        self.transcript.feed(self._at_ns, data)

    def on_message_complete(self) -> None:
        """Note the end of the answer, or of an interim one."""
        if self.status is None:
            self.is_continued = True
        elif not self.is_whole:
            self.is_clean = self._parser.should_keep_alive()
            self.is_whole = True
