"""Count what a prefix cache without bounds would save: the ideal hit ratio, of a source and of what was made from it alike.

A prompt is a sequence of runs (identity, tokens). A block of the cache is named by everything up to its end, so among equal calls
only the first computes it: hits are all full blocks minus the distinct ones. Runs stand for the blocks that end in them, which
keeps the books small: a run is named by a hash over all runs before it, their lengths included, and its own identity.

The set of names is bounded: when it is full, only every second, fourth, … name is kept (adaptive sampling by the bits of the name),
and the count of distinct blocks is scaled up. Until then it is exact.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from agentload.model.trace import Segment

Words = npt.NDArray[np.uint64]

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, so that its powers never vanish modulo 2^64
_WORD: Final = (1 << 64) - 1


@dataclass(slots=True)
class Reuse:
    """Blocks seen in one import."""

    block: int
    limit: int = 1 << 20
    calls: int = 0
    prompt_tokens: int = 0
    _blocks: int = 0
    _seen: dict[int, int] = field(default_factory=dict)
    _shift: int = 0
    _powers: Words = field(default_factory=lambda: np.ones(1, np.uint64))

    def trail(self) -> "Trail":
        """Begin the context of one conversation."""
        return Trail(self)

    def call(self, tokens: int) -> None:
        """Count a call with a prompt of this length."""
        self.calls += 1
        self.prompt_tokens += tokens
        self._blocks += tokens // self.block

    def meet(self, names: Words, blocks: npt.NDArray[np.int64]) -> None:
        """Count blocks that end in runs of these names."""
        wanted = blocks > 0
        if self._shift:
            wanted &= (names & np.uint64((1 << self._shift) - 1)) == 0
        names, blocks = names[wanted], blocks[wanted]
        seen = self._seen
        if not blocks.size:
            return
        if blocks.max() == 1:
            seen.update(dict.fromkeys(set(names.tolist()).difference(seen), 1))
        else:
            for name, count in zip(names.tolist(), blocks.tolist(), strict=True):
                if seen.get(name, 0) < count:
                    seen[name] = count
        while len(self._seen) > self.limit:
            self._shift += 1
            self._seen = {name: count for name, count in self._seen.items() if not name & ((1 << self._shift) - 1)}

    def powers(self, start: int, end: int) -> Words:
        """Return the weights of the runs at these positions."""
        if len(self._powers) < end:
            bases = np.full(end * 2, _BASE, np.uint64)
            bases[0] = 1
            self._powers = np.cumprod(bases, dtype=np.uint64)
        return self._powers[start:end]

    @property
    def is_exact(self) -> bool:
        """Tell whether nothing had to be left to sampling."""
        return not self._shift

    @property
    def hit_tokens(self) -> int:
        """Return the tokens of full blocks that were seen before."""
        distinct = sum(self._seen.values()) << self._shift
        return max(0, self._blocks - distinct) * self.block

    @property
    def ratio(self) -> float | None:
        """Return hit tokens over prompt tokens; None without a prompt."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None


class Trail:
    """The runs of one conversation's context, so that only what a call adds is looked at."""

    def __init__(self, reuse: Reuse) -> None:
        self._reuse = reuse
        self._sums = [0]  # hash of all runs before
        self._ends = [0]
        self._pieces = [0]  # runs up to the end of each segment

    def call(self, segments: Sequence[Segment], *, keep: int | None = None) -> None:
        """Count a call that keeps leading segments of the context before and adds these."""
        if keep is not None and keep < len(self._pieces) - 1:
            del self._pieces[keep + 1 :]
            self._cut(self._pieces[-1])
        if segments:
            idents: list[int] = []
            tokens: list[int] = []
            for segment in segments:
                match segment.key:
                    case str() as key if segment.tokens:
                        idents.append(identity(key if segment.size is None else f"{key}\0{segment.size}"))
                        tokens.append(segment.tokens)
                    case (first, _) if segment.tokens:
                        count = -(-segment.tokens // self._reuse.block)
                        idents += range(first & _WORD, (first & _WORD) + count)
                        tokens += [self._reuse.block] * (count - 1)
                        tokens.append(segment.tokens - (count - 1) * self._reuse.block)
                    case _:
                        pass
                self._pieces.append(len(self._sums) - 1 + len(idents))
            if idents:
                self._add(np.array(idents, np.uint64), np.array(tokens, np.int64))
        self._reuse.call(self._ends[-1])

    def blocks(self, found: Sequence[int], tokens: int, *, same: int = 0, scope: int = 0) -> None:
        """Count a call whose prompt is these blocks, the last one perhaps partial; the first `same` are those of the call before.

        Equal ids of two scopes are different blocks.
        """
        self._cut(same)
        block = self._reuse.block
        new = found[same:]
        if new:
            lengths = np.full(len(new), block, np.int64)
            lengths[-1] = min(block, tokens - block * (len(found) - 1))
            self._add(np.array(new, np.int64).astype(np.uint64) + np.uint64(scope << 40 & _WORD), lengths)
        self._reuse.call(tokens)

    def _cut(self, runs: int) -> None:
        del self._sums[runs + 1 :]
        del self._ends[runs + 1 :]

    def _add(self, idents: Words, tokens: npt.NDArray[np.int64]) -> None:
        start, last, before = len(self._sums) - 1, self._sums[-1], self._ends[-1]
        idents = _mixed(idents)
        powers = self._reuse.powers(start, start + len(idents))
        sums = np.cumsum(_mixed(idents + tokens.astype(np.uint64) * _BASE) * powers, dtype=np.uint64) + np.uint64(last)
        ends = before + np.cumsum(tokens)
        self._sums += sums.tolist()
        self._ends += ends.tolist()
        full = ends // self._reuse.block
        # What stands before each run, and the blocks that end in it.
        sums[1:], sums[0] = sums[:-1], last
        blocks = full.copy()
        blocks[1:] -= full[:-1]
        blocks[0] -= before // self._reuse.block
        self._reuse.meet(_mixed(sums + idents * powers), blocks)


def identity(key: str) -> int:
    """Return 64 bits for a key."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _mixed(words: Words) -> Words:
    # The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
