"""Keep rendered pieces within a bound of bytes; the ones used longest ago go first."""

from collections.abc import Callable, Hashable
from typing import NamedTuple


class Piece(NamedTuple):
    """A part of a request: its JSON text and its tokens."""

    json: bytes
    tokens: int
    over: int = 0
    """How many more tokens than were asked for."""


class Cache:
    """Remember pieces by what they are made from."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: dict[Hashable, Piece] = {}

    def piece(self, key: Hashable, make: Callable[[], Piece]) -> Piece:
        """Return the piece of this key, made now if it is not kept."""
        # A dict keeps the order of insertion: taking out and putting back makes a key the youngest.
        piece = self._kept.pop(key, None)
        if piece is None:
            piece = make()
            self._size += len(piece.json)
        self._kept[key] = piece
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest).json)
        return piece
