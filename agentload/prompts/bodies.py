"""Write and cache the words of a segment: drawn from its key, cut to its tokens, salted, with its plant."""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from agentload.model.trace import Segment
from agentload.prompts.tokenizer import Tokenizer
from agentload.prompts.words import WIDTH, draw

SALT_TOKENS: Final = 8


class Piece(NamedTuple):
    """A piece of a request: JSON text and token count."""

    json: bytes
    tokens: int
    over: int = 0


class Cache:
    """An LRU cache of pieces."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: dict[Hashable, Piece] = {}

    def piece(self, key: Hashable, make: Callable[[], Piece]) -> Piece:
        """Return the piece of this key, making it if needed."""
        # A dict keeps insertion order: removing and inserting a key makes it the youngest.
        piece = self._kept.pop(key, None)
        if piece is None:
            piece = make()
            self._size += len(piece.json)
        self._kept[key] = piece
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest).json)
        return piece


class Slot(NamedTuple):
    """A segment and its place in a prompt."""

    segment: Segment
    frame: int = 0
    """Template tokens charged to this segment."""
    newline: int = 0
    """Tokens of the newline after it; the one at a message's end belongs to the message's frame."""
    owed: int = 0
    """Tokens by which earlier segments exceeded their length: a frame may be larger than its content."""
    salt: str | None = None
    """Replaces the first 8 tokens; None for all but the context's first segment."""


class Bodies:
    """Draw segments for one trace and one tokenizer."""

    def __init__(self, *, seed: int, tokenizer: Tokenizer, block: int) -> None:
        self._seed = seed
        self._tokenizer = tokenizer
        self._block = block
        self._table = np.array([f"{word} ".encode() for word in tokenizer.words], dtype=f"S{WIDTH}")

    def text(self, slot: Slot) -> Piece:
        """Draw text that ends in a newline, escaped for JSON."""
        segment = slot.segment
        if segment.text is not None:
            return self._literal(segment.text, slot) if segment.source is None else self._fitted(segment.text, slot)
        if segment.plant is not None:
            return self._planted(segment.plant, slot)
        words = self.words(slot)
        return self.piece(words[:-1] + rb"\n" if words else b"", self.cost(words), slot)

    def words(self, slot: Slot, *, taken: int = 0, least: int = 1) -> bytes:
        """Draw words, each followed by a space, for the remaining tokens.

        With template frames there are at least `least` words: frames were measured around text, so none may be empty.
        """
        drawn = self._drawn(slot, taken, least)
        if slot.salt is None:
            return drawn
        salt = self._salt(slot.salt)[: len(drawn)]
        return salt + drawn[len(salt) :]

    def cost(self, words: bytes) -> int:
        """Count the tokens of drawn words."""
        return self._tokenizer.cost(len(words) // WIDTH)

    def piece(self, json: bytes, tokens: int, slot: Slot) -> Piece:
        """Return a segment's piece with its frame, and its excess over the requested length."""
        tokens += slot.frame + (slot.newline if json else 0)
        return Piece(json, tokens, tokens - slot.segment.tokens)

    def _drawn(self, slot: Slot, taken: int, least: int) -> bytes:
        fitting = self._tokenizer.fit(slot.segment.tokens - slot.frame - slot.newline - slot.owed - taken)
        count = max(least if slot.frame else 0, fitting)
        return draw(self._seed, slot.segment.key, count, block=self._block, table=self._table)

    def _salt(self, salt: str) -> bytes:
        return draw(self._seed, f"salt {salt}", SALT_TOKENS, table=self._table)

    def _literal(self, text: str, slot: Slot) -> Piece:
        if slot.salt is not None:
            text = self._salt(slot.salt).decode() + "".join(text.split(None, SALT_TOKENS)[SALT_TOKENS:])
        # A word must not merge with the first word of the next segment.
        text = text if not text or text[-1].isspace() else text + "\n"
        return Piece(_escaped(text), self._tokenizer.count(text) + slot.frame)

    def _fitted(self, text: str, slot: Slot) -> Piece:
        # A live answer in place of `tokens` tokens: cut if longer, padded with the key's words if shorter.
        room = max(0, slot.segment.tokens - slot.frame - slot.newline - slot.owed)
        words = text.split()
        low, high = 0, len(words)
        while low < high:  # the longest run of leading words that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._tokenizer.count(" ".join(words[:middle])) <= room else (low, middle - 1)
        kept = " ".join(words[:low])
        used = self._tokenizer.count(kept)
        filler = self._drawn(slot, used, 0)
        whole = f"{kept} {filler.decode()}".strip()
        return self.piece(_escaped(whole + "\n") if whole else b"", used + self.cost(filler), slot)

    def _planted(self, plant: str, slot: Slot) -> Piece:
        cost = self._tokenizer.count(plant)
        words = self.words(slot, taken=cost, least=0)
        at = WIDTH * round((0.5 if slot.segment.at is None else slot.segment.at) * (len(words) // WIDTH))
        whole = words[:at] + _escaped(plant) + b" " + words[at:]
        return self.piece(whole[:-1] + rb"\n", self.cost(words) + cost, slot)


def _escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
