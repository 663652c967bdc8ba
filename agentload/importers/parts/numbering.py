"""Number the blocks of prompts in the order in which they are first met: equal numbers for equal content up to a block's end.

The numbers are all that is kept, beside a table of hashes that grows with the distinct blocks and is forgotten after the import.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Final

_BYTES_PER_TOKEN: Final = 4


class Numbering:
    """Blocks of one import."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._numbers: dict[bytes, int] = {}

    def text(self, text: str) -> list[int]:
        """Return the numbers of a text's blocks, a token being four bytes."""
        return self._numbered(text.encode("utf-8", "surrogatepass"), self._block * _BYTES_PER_TOKEN)

    def tokens(self, ids: Sequence[int]) -> list[int]:
        """Return the numbers of blocks of tokens."""
        packed = array("Q", ids)
        return self._numbered(packed.tobytes(), self._block * packed.itemsize)

    def _numbered(self, content: bytes, size: int) -> list[int]:
        hashed = hashlib.blake2b(digest_size=12)
        found = []
        for start in range(0, len(content), size):
            hashed.update(content[start : start + size])
            found.append(self._numbers.setdefault(hashed.digest(), len(self._numbers)))
        return found
