"""Compute the ideal hit rate (of an unlimited prefix cache) of a source or a trace.

A prompt is a sequence of runs (identity, tokens). A cache block is identified by everything
up to its end, so among equal calls only the first computes it: hits are all full blocks minus
the distinct ones. Blocks are counted by the run they end in, which keeps the set small: a run
is identified by a hash over all runs before it, with their lengths, and its own identity.

The set is bounded: when it is full, only every second, fourth, … name is kept (adaptive sampling
by the bits of the name), and the count of distinct blocks is scaled up. Until then it is exact.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentload.model.trace import Segment


@dataclass(slots=True)
class BlockReuse:
    """Blocks seen in one import."""

    block: int
    limit: int = 1 << 20
    calls: int = 0
    prompt_tokens: int = 0
    _blocks: int = 0
    _seen: dict[int, int] = field(default_factory=dict)
    _mask: int = 0
    """Names with any of these bits are not kept."""

    def trail(self, scope: int = 0) -> "Trail":
        """Start the context of a conversation; equal ids in two scopes are different blocks."""
        return Trail(self, scope)

    def call(self, tokens: int) -> None:
        """Count a call with a prompt of this length."""
        self.calls += 1
        self.prompt_tokens += tokens
        self._blocks += tokens // self.block

    def meet(self, name: int, blocks: int) -> None:
        """Count blocks that end in a run of this name."""
        if blocks and not name & self._mask and self._seen.get(name, 0) < blocks:
            self._seen[name] = blocks
            self._thin_out()

    def meet_blocks(self, names: Sequence[int]) -> None:
        """Count runs of a block each."""
        mask = self._mask
        self._seen.update(
            dict.fromkeys([name for name in names if not name & mask] if mask else names, 1)
        )
        self._thin_out()

    def _thin_out(self) -> None:
        while len(self._seen) > self.limit:
            self._mask = self._mask << 1 | 1
            self._seen = {
                name: count for name, count in self._seen.items() if not name & self._mask
            }

    @property
    def is_exact(self) -> bool:
        """Whether no sampling was needed."""
        return not self._mask

    @property
    def hit_tokens(self) -> int:
        """Tokens of full blocks that were seen before."""
        distinct = sum(self._seen.values()) * (self._mask + 1)
        return max(0, self._blocks - distinct) * self.block

    @property
    def ratio(self) -> float | None:
        """Hit tokens over prompt tokens; None without a prompt."""
        if not self.prompt_tokens:
            return None
        return self.hit_tokens / self.prompt_tokens


class Trail:
    """The runs of a conversation's context, so that only a call's additions are processed."""

    def __init__(self, reuse: BlockReuse, scope: int) -> None:
        self._reuse = reuse
        self._names = [scope]  # of all up to the end of each run
        self._ends = [0]
        self._pieces = [0]  # runs up to the end of each segment

    def call(self, segments: Sequence[Segment], *, keep: int | None = None) -> None:
        """Count a call that keeps leading segments of the previous context and adds these."""
        if keep is not None and keep < len(self._pieces) - 1:
            del self._pieces[keep + 1 :]
            self._cut(self._pieces[-1])
        for segment in segments:
            if segment.tokens:
                self._segment(segment)
            self._pieces.append(len(self._names) - 1)
        self._reuse.call(self._ends[-1])

    def _segment(self, segment: Segment) -> None:
        """Count the blocks of a segment, whose key is a text or its first block."""
        match segment.key:
            case str() as key:
                if segment.pixels is not None:
                    key = f"{key}\0{segment.pixels}"
                self._run(identity(key), segment.tokens)
            case (first, _):
                count = -(-segment.tokens // self._reuse.block)
                self._run_of_blocks(range(first, first + count), segment.tokens)

    def blocks(self, found: Sequence[int], tokens: int, *, same: int = 0) -> None:
        """Count a call with these blocks, the last possibly partial.

        The first *same* are those of the previous call.
        """
        self._cut(same)
        self._run_of_blocks(found[same:], tokens - same * self._reuse.block)
        self._reuse.call(tokens)

    def _cut(self, runs: int) -> None:
        """Keep this many runs of the context."""
        del self._names[runs + 1 :]
        del self._ends[runs + 1 :]

    def _run(self, ident: int, tokens: int) -> None:
        """Add a run to the context, and count the blocks that end in it."""
        block = self._reuse.block
        before = self._ends[-1]
        name = hash((self._names[-1], ident))
        self._reuse.meet(name, (before + tokens) // block - before // block)
        # Three numbers, so that a length is never mistaken for a following block.
        self._names.append(name if tokens == block else hash((name, 0, tokens)))
        self._ends.append(before + tokens)

    def _run_of_blocks(self, found: Sequence[int], tokens: int) -> None:
        """Add a run for each of these blocks, the last possibly partial."""
        block = self._reuse.block
        end = self._ends[-1]
        name = self._names[-1]
        full = min(len(found), tokens // block)
        # Wherever it starts, exactly one cache block ends in a run of
        # a block's length. Integers hash the same in every process.
        names = [name := hash((name, ident)) for ident in found[:full]]
        self._reuse.meet_blocks(names)
        self._names += names
        self._ends += range(end + block, end + full * block + 1, block)
        if full < len(found) and tokens > full * block:
            self._run(found[full], tokens - full * block)


def identity(key: str) -> int:
    """Return 64 bits for a key."""
    return int.from_bytes(
        hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    )
