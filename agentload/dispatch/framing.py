"""Server-sent events out of bytes in any chunking (WHATWG HTML, section 9.2)."""

from __future__ import annotations

BOM = b"\xef\xbb\xbf"


class Framing:
    """Cut a byte stream into the payloads of its events."""

    __slots__ = ("_after_cr", "_is_fresh", "_payload", "_tail")

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # pieces of an unfinished line, which may come in a thousand reads
        self._payload: list[bytes] = []
        self._after_cr = False
        self._is_fresh = True

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payload of every event that *data* completes."""
        # Nearly every read of a token stream is one whole event on one line; the general path costs three times as much.
        if (
            not self._tail
            and not self._payload
            and data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
        ):
            self._after_cr = self._is_fresh = False
            return [data[6:-2]]
        return self._feed(data)

    def end(self) -> list[bytes]:
        """Return what the stream's end leaves of an event that no blank line completed."""
        if self._tail:
            self._line(b"".join(self._tail))
            self._tail.clear()
        return self._flush()

    def _feed(self, data: bytes) -> list[bytes]:
        # A line ends with LF, CR or CRLF; a CRLF may be cut in two, and a lone CR must not wait for what follows it.
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        if self._tail and len(lines) > 1:
            lines[0] = b"".join((*self._tail, lines[0]))
            self._tail.clear()
        if rest := lines.pop():
            self._tail.append(rest)
        found: list[bytes] = []
        for line in lines:
            if line:
                self._line(line)
            else:
                found += self._flush()
        return found

    def _line(self, line: bytes) -> None:
        if self._is_fresh:
            line = line.removeprefix(BOM)
            self._is_fresh = False
        field, _, value = line.partition(b":")
        if field == b"data":
            self._payload.append(value.removeprefix(b" "))

    def _flush(self) -> list[bytes]:
        if not self._payload:
            return []
        payload = b"\n".join(self._payload)
        self._payload.clear()
        return [payload]
