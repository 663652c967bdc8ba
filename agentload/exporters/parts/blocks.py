"""Name the blocks of contexts: equal numbers for equal content behind equal content."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from agentload.model.trace import Segment

_OWN: Final = 1 << 33
"""Where numbers made here begin, above those of imported blocks that keep theirs."""


class Blocks:
    """Number the blocks of one export."""

    def __init__(self, *, block: int, source: int) -> None:
        self._block = block
        self._source = source  # tokens of a block of an imported run
        self._numbers: dict[bytes, int] = {}

    def ids(self, context: Sequence[Segment]) -> list[int]:
        """Return the ids of a context's blocks, the last and partial one included."""
        own = self._imported(context)
        return list(self._chained(context)) if own is None else own

    def _imported(self, context: Sequence[Segment]) -> list[int] | None:
        """Return the ids that a context was imported with, where it is made of such blocks alone."""
        if self._block != self._source:
            return None
        found: list[int] = []
        for number, segment in enumerate(context):
            if isinstance(segment.key, str) or (segment.tokens % self._block and number < len(context) - 1):
                return None
            first = segment.key[0]
            found += range(first, first + -(-segment.tokens // self._block))
        return found

    def _chained(self, context: Sequence[Segment]) -> Iterator[int]:
        chain = hashlib.blake2b(digest_size=12)
        room = self._block
        for name, tokens in (piece for segment in context for piece in self._pieces(segment)):
            start = 0
            while start < tokens:
                length = min(room, tokens - start)
                chain.update(f"{name} {start} {length}\0".encode("utf-8", "surrogatepass"))
                start += length
                room -= length
                if not room:
                    yield self._number(chain.digest())
                    room = self._block
        if room < self._block:
            yield self._number(chain.digest())

    def _pieces(self, segment: Segment) -> Iterator[tuple[str, int]]:
        """Yield a segment's content as (name, tokens); a run of imported blocks block by block, since runs may share some."""
        match segment.key:
            case str() as key:
                yield f"{key!r} {segment.size}", segment.tokens
            case (first, _):
                for position, start in enumerate(range(0, segment.tokens, self._source)):
                    yield f"#{first + position}", min(self._source, segment.tokens - start)

    def _number(self, digest: bytes) -> int:
        return self._numbers.setdefault(digest, _OWN + len(self._numbers))
