"""Write the words of one segment: drawn from its key, cut to its tokens, salted, and with its plant inside."""

from typing import NamedTuple

import msgspec
import numpy as np

from agentload.model.trace import Segment
from agentload.prompts.cache import Piece
from agentload.prompts.tokenizer import Tokenizer
from agentload.prompts.words import WIDTH, draw

SALT_TOKENS = 8


class Slot(NamedTuple):
    """A segment and the place it takes in a prompt."""

    segment: Segment
    frame: int
    """Tokens of the template that count as this segment's."""
    salt: str | None
    """Replaces the first 8 tokens; None for all but the context's first segment."""


class Bodies:
    """Draw segments for one trace and one tokenizer."""

    def __init__(self, *, seed: int, tokenizer: Tokenizer, block: int) -> None:
        self._seed = seed
        self._tokenizer = tokenizer
        self._block = block
        self._table = np.array([f"{word} ".encode() for word in tokenizer.words], dtype=f"S{WIDTH}")

    def text(self, slot: Slot) -> Piece:
        """Write a text that ends in a newline, escaped for JSON."""
        text = slot.segment.text
        if text is not None and slot.segment.source is None:
            return self._literal(text, slot)
        spare = slot.frame + self._tokenizer.frame("newline")
        if text is not None:
            return self._fitted(text, slot, spare)
        if slot.segment.plant is not None:
            return self._planted(slot.segment.plant, slot, spare)
        words = self.words(slot, spare)
        return Piece(words[:-1] + rb"\n" if words else b"", self._tokenizer.cost(len(words) // WIDTH) + (spare if words else slot.frame))

    def words(self, slot: Slot, spare: int) -> bytes:
        """Draw bare words, a space after each, in the place of all tokens but the spare ones."""
        count = max(0, self._tokenizer.fit(slot.segment.tokens - spare))
        drawn = draw(self._seed, slot.segment.key, count, block=self._block, table=self._table)
        if slot.salt is None:
            return drawn
        salted = draw(self._seed, f"salt {slot.salt}", min(count, SALT_TOKENS), table=self._table)
        return salted + drawn[len(salted) :]

    def _literal(self, text: str, slot: Slot) -> Piece:
        if slot.salt is not None:
            salt = draw(self._seed, f"salt {slot.salt}", SALT_TOKENS, table=self._table).decode()
            text = salt + "".join(text.split(None, SALT_TOKENS)[SALT_TOKENS:])
        # A word must not grow together with the next segment's first.
        text = text if not text or text[-1].isspace() else text + "\n"
        return Piece(_escaped(text), self._tokenizer.count(text) + slot.frame)

    def _fitted(self, text: str, slot: Slot, spare: int) -> Piece:
        # A live answer in the place of `tokens` tokens: cut where it is longer, filled with the key's words where it is shorter.
        room = max(0, slot.segment.tokens - spare)
        words = text.split()
        low, high = 0, len(words)
        while low < high:  # the longest run of leading words that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._tokenizer.count(" ".join(words[:middle])) <= room else (low, middle - 1)
        kept = " ".join(words[:low])
        used = self._tokenizer.count(kept)
        filler = draw(self._seed, slot.segment.key, max(0, self._tokenizer.fit(room - used)), block=self._block, table=self._table)
        whole = f"{kept} {filler.decode()}".strip()
        cost = used + self._tokenizer.cost(len(filler) // WIDTH)
        return Piece(_escaped(whole + "\n") if whole else b"", cost + (spare if whole else slot.frame))

    def _planted(self, plant: str, slot: Slot, spare: int) -> Piece:
        cost = self._tokenizer.count(plant)
        words = self.words(slot, spare + cost)
        at = WIDTH * round((0.5 if slot.segment.at is None else slot.segment.at) * (len(words) // WIDTH))
        whole = words[:at] + _escaped(plant) + b" " + words[at:]
        return Piece(whole[:-1] + rb"\n", self._tokenizer.cost(len(words) // WIDTH) + cost + spare)


def _escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
