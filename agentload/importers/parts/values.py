"""Split a stream into JSON values without reading it whole: the elements of one array, or values behind each other.

Only strings, brackets and commas matter for that, so one regular expression finds them and a depth is counted.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

_MARK: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]|"', re.DOTALL)


def values(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number, text) for every object or array at the top, or inside one top array; text is None where the end broke it off."""
    scan = _Scan()
    number = 0
    for chunk in chunks:
        for text in scan.feed(chunk):
            number += 1
            yield number, text
    if scan.is_open:
        yield number + 1, None


class _Scan:
    """Where the stream stands: what is not consumed yet, and how deep."""

    def __init__(self) -> None:
        self._rest = b""
        self._at = 0  # scanned up to here
        self._start: int | None = None  # where the value being read starts
        self._depth = 0
        self._floor: int | None = None  # depth at which values stand: 1 inside a top array, else 0

    @property
    def is_open(self) -> bool:
        """Tell whether a value was begun and not ended."""
        return self._start is not None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take more bytes; yield the values that they complete."""
        buffer = self._rest + chunk
        for found in iter(lambda: _MARK.search(buffer, self._at), None):
            mark = found.group()
            if mark == b'"':  # a string that goes on in the next chunk
                break
            self._at = found.end()
            if mark in b"[{":
                self._open(mark, found.start())
            elif mark in b"]}":
                self._depth -= 1
                if self._start is not None and self._depth == self._floor:
                    yield buffer[self._start : self._at]
                    self._start = None
        kept = self._at if self._start is None else self._start
        self._rest, self._at = buffer[kept:], self._at - kept
        if self._start is not None:
            self._start = 0

    def _open(self, mark: bytes, at: int) -> None:
        if self._floor is None:
            self._floor = 1 if mark == b"[" else 0
        if self._start is None and self._depth == self._floor:
            self._start = at
        self._depth += 1
