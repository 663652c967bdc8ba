"""Name contents by keyed hashes: equal content gives equal names within one import, and names tell nothing without the key."""

import base64
import hashlib
from typing import Final

_BYTES: Final = 9  # 12 characters; a collision among a million contents has a chance of 1e-10
_NUMBERS: Final = 1 << 32
"""Block ids below this are a numbering; larger ones may be hashes of content and are hashed again."""
_MASK: Final = (1 << 53) - 1  # what every JSON reader keeps exactly


class Identity:
    """Hash with the secret key of one import, which is kept nowhere."""

    def __init__(self, key: bytes) -> None:
        self._start = hashlib.blake2b(key=key, digest_size=_BYTES)
        self._number = hashlib.blake2b(key=key, digest_size=8)

    def of(self, role: str, content: str | bytes) -> str:
        """Name a content in a role; one content in two roles has two names."""
        hashed = self._start.copy()
        hashed.update(role.encode() + b"\0")
        hashed.update(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return base64.urlsafe_b64encode(hashed.digest()).decode()

    def block(self, found: int | str) -> int:
        """Name a block; small numbers stand for themselves."""
        if isinstance(found, int) and 0 <= found < _NUMBERS:
            return found
        hashed = self._number.copy()
        hashed.update(str(found).encode("utf-8", "surrogatepass"))
        return int.from_bytes(hashed.digest()) & _MASK | _NUMBERS
