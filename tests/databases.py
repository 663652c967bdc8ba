"""Databases and journals that older versions of agentload wrote,
each named by the commit that did (tests/fixtures/databases).
"""

from pathlib import Path
from typing import Final

import zstandard

FOLDER: Final = Path(__file__).parent / "fixtures" / "databases"
COMMITS: Final = ("9618594", "7933c57", "ed8c596")


def unpacked(name: str, to: Path) -> Path:
    """Unpack one of them, such as `9618594.duckdb`, to a path."""
    to.write_bytes(
        zstandard.ZstdDecompressor().decompress(
            (FOLDER / f"{name}.zst").read_bytes(), max_output_size=1 << 26
        )
    )
    return to
