"""Read the lines of a file, plain or compressed, or of standard input, as often as asked."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import Final

import zstandard

from agentload.errors import TraceError

STDIN: Final = "-"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MAX_WINDOW: Final = 1 << 27  # what `zstd --long` writes by default


class Source:
    """Lines that can be read again and again; standard input is kept in a temporary file for that."""

    def __init__(self, path: Path | str) -> None:
        self.name = "standard input" if str(path) == STDIN else str(path)
        self._path = Path(path)
        if str(path) == STDIN:
            # Lives as long as this object, whatever happens.
            self._kept = NamedTemporaryFile(prefix="agentload-")  # noqa: SIM115
            copyfileobj(sys.stdin.buffer, self._kept)
            self._kept.flush()
            self._path = Path(self._kept.name)

    def lines(self) -> Iterator[bytes]:
        """Yield lines with their newline; only the last one may lack it."""
        try:
            with self._path.open("rb") as file:
                yield from self._expanded(file) if file.peek(4).startswith(_ZSTD_MAGIC) else file
        except OSError as error:
            raise TraceError(f"{self.name}: {error.strerror}", hint="agentload trace generate WORKLOAD --out FILE") from error

    def _expanded(self, file: io.BufferedReader) -> Iterator[bytes]:
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(file, read_across_frames=True)
        try:
            yield from io.BufferedReader(reader, 1 << 18)
        except zstandard.ZstdError as error:
            raise TraceError(f"{self.name}: not readable as zstd: {error}", hint=f"zstd --test {self.name}") from error
