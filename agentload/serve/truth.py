"""Write down what really happened on the wire: the ground truth that measurements are tested against.

One JSON line a request, after a header line with the clock's anchors. All stamps are ns of the monotonic clock of this process.
`planned_ns` is when the engine had the chunk's last token, `before_ns` and `after_ns` were read right before and right after the bytes were
handed to the kernel, `tokens` is what the chunk carried. `behind` counts chunks of which the kernel did not take all bytes at once:
their rest left later than `after_ns`.
"""

import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec


@dataclass(slots=True, kw_only=True)
class Log:
    """Collect the truth about one request."""

    request_id: str
    arrived_ns: int
    """The last byte of the request had been read."""
    submitted_ns: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    planned_ns: "array[int]" = field(default_factory=lambda: array("q"))
    before_ns: "array[int]" = field(default_factory=lambda: array("q"))
    after_ns: "array[int]" = field(default_factory=lambda: array("q"))
    tokens: "array[int]" = field(default_factory=lambda: array("H"))
    behind: int = 0
    fault: str | None = None
    end: str | None = None
    """`done`; `refused`; `left`: the connection ended before the answer did; `broken`: by a fault, or because the engine died."""
    ended_ns: int | None = None


class Truth:
    """Write logs to a file, one a turn of the event loop, so that many ends at once do not stall the streams that go on."""

    def __init__(self, path: Path, *, arm: str, speed: float) -> None:
        self._file: BinaryIO = path.open("wb")
        self._waiting: deque[Log] = deque()
        anchors = {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        self._write({"kind": "agentload-truth", "version": 1, "arm": arm, "speed": speed, **anchors})

    def add(self, log: Log) -> None:
        """Take a finished log; it is written by `write_one`."""
        self._waiting.append(log)

    def write_one(self) -> bool:
        """Write one waiting log; return whether others wait."""
        if self._waiting:
            self._write(self._waiting.popleft())
        return bool(self._waiting)

    def close(self) -> None:
        """Write all that waits and close the file."""
        while self.write_one():
            pass
        self._file.close()

    def _write(self, value: object) -> None:
        self._file.write(msgspec.json.encode(value, enc_hook=list) + b"\n")
        self._file.flush()
