"""When each chunk of a stream arrived, in the form
it is stored: µs gaps whose rounding does not add up.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import islice
from operator import sub
from typing import Final, Literal

from agentload.model.record import Record

US = 1_000
MOST: Final = {"i": (1 << 31) - 1, "H": (1 << 16) - 1}


class Stamps(Record, gc=False):
    """Chunk arrivals of one call: the first in ns, the others
    as µs gaps, with the tokens that each chunk carried.
    """

    first_ns: int
    gap_us: bytes
    """int32, native order, one a chunk: differences of the
    offsets from `first_ns` rounded to µs; the first is 0.
    """
    tokens: bytes
    """uint16, native order, one a chunk."""

    def __len__(self) -> int:
        return len(self.tokens) // 2

    def ns(self) -> array[int]:
        """Return the stamp of every chunk in ns, exact to half a µs."""
        out = array("q")
        at = self.first_ns
        for gap in memoryview(self.gap_us).cast("i"):
            at += gap * US
            out.append(at)
        return out

    def token_counts(self) -> array[int]:
        """Return the tokens of every chunk."""
        return array("H", self.tokens)


def stamps(ns: Sequence[int], tokens: Sequence[int]) -> Stamps | None:
    """Pack chunk arrivals; None when there are none."""
    if len(ns) == 0:
        return None
    if len(ns) != len(tokens):
        raise ValueError(f"{len(ns)} stamps for {len(tokens)} token counts")
    first = ns[0]
    zero = first - US // 2
    offsets = [(at - zero) // US for at in ns]
    gaps = [0, *map(sub, islice(offsets, 1, None), offsets)]
    return Stamps(first_ns=first, gap_us=_packed("i", gaps), tokens=_packed("H", tokens))


def _packed(form: Literal["i", "H"], values: Sequence[int]) -> bytes:
    try:
        return array(form, values).tobytes()
    except OverflowError:
        # A silence of half an hour, or a server that counts nonsense: as much as fits.
        return array(form, [min(value, MOST[form]) for value in values]).tobytes()
