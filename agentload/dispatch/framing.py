"""Cut bytes in any chunking into server-sent events (WHATWG HTML, section 9.2)."""

from typing import Final

from agentload.dispatch.shapes import ErrorEvent

BOM = b"\xef\xbb\xbf"
MOST_BYTES: Final = 16 << 20
"""Limit of a line, of an event, and of an answer that is no stream."""


class OverlongError(Exception):
    """The answer is longer than the longest that is read."""


class Framing:
    """Cut a byte stream into the payloads of its events."""

    __slots__ = ("_after_cr", "_is_error", "_is_fresh", "_payload", "_payload_bytes", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()  # an unfinished line, which may come in a thousand reads
        # One text, not a list of its lines: there may be 200,000 of them.
        self._payload: bytes | bytearray | None = None
        self._payload_bytes = 0
        self._after_cr = False
        self._is_error = False
        self._is_fresh = True

    @property
    def held_bytes(self) -> int:
        """How many bytes of an unfinished event are kept."""
        return len(self._tail) + self._payload_bytes

    def feed(self, data: bytes) -> list[bytes | bytearray]:
        """Return the payload of every event that *data* completes; raises `OverlongError`."""
        # Nearly every read of a token stream is one whole event
        # on one line; the general path costs three times as much.
        if (
            not self._tail
            and self._payload is None
            and data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and not self._is_error
        ):
            self._after_cr = self._is_fresh = False
            return [data[6:-2]]
        return self._feed(data)

    def end(self) -> list[bytes | bytearray]:
        """Return the event whose blank line the stream's end cut off, if there is one."""
        if self._tail:
            self._line(self._tail)
            self._tail = bytearray()
        return self._flush()

    def _feed(self, data: bytes) -> list[bytes | bytearray]:
        # A line ends with LF, CR or CRLF; a CRLF may be cut in
        # two, and a lone CR must not wait for what follows it.
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines: list[bytes | bytearray] = [*data.split(b"\n")]
        if self._tail and len(lines) > 1:
            self._tail += lines[0]
            lines[0], self._tail = self._tail, bytearray()
        self._tail += lines.pop()
        found: list[bytes | bytearray] = []
        for line in lines:
            if line:
                self._line(line)
            else:
                found += self._flush()
        if self.held_bytes > MOST_BYTES:
            self._tail = bytearray()
            self._payload = None
            self._payload_bytes = 0
            raise OverlongError(f"an event of more than {MOST_BYTES >> 20} MB")
        return found

    def _line(self, line: bytes | bytearray) -> None:
        if self._is_fresh:
            line = line.removeprefix(BOM)
            self._is_fresh = False
        if line.startswith(b"data:") or line == b"data":
            start = 6 if line.startswith(b"data: ") else 5
            self._payload_bytes += len(line)
            if isinstance(line, bytes):
                line = line[start:]
            else:
                del line[:start]  # which copies nothing
            if self._payload is None:
                self._payload = line
            else:
                if isinstance(self._payload, bytes):
                    self._payload = bytearray(self._payload)
                self._payload += b"\n"
                self._payload += line
        elif line.startswith(b"event:"):
            self._is_error = line[6:].strip() == b"error"

    def _flush(self) -> list[bytes | bytearray]:
        is_error, payload = self._is_error, self._payload
        self._is_error, self._payload, self._payload_bytes = False, None, 0
        if payload is None:
            return []
        return [ErrorEvent(payload) if is_error else payload]
