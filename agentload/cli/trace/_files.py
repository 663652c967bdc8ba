"""Write lines to a file that appears when it is complete, or to stdout."""

import sys
from collections.abc import Iterable
from pathlib import Path

import zstandard


def write_lines(out: str, lines: Iterable[bytes]) -> None:
    """Write to `out`; `-` is stdout, a name that ends in .zst is compressed."""
    if out == "-":
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            if path.suffix == ".zst":
                with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
                    for line in lines:
                        packed.write(line)
            else:
                file.writelines(lines)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
