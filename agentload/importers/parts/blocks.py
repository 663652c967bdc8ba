"""Turn contexts that are known as block ids into segments, and into turns that share them.

If ids only have meaning within one conversation (`PromptTree`), each prompt owns
everything after the longest prefix that it shares with an earlier prompt. Its
context is that prompt up to there, and its own part. Own parts are cut where a
later prompt branches off and where a role ends, so that every context is a whole
number of segments, exact to the token, and shares exactly what the ids share.
"""

import hashlib
from array import array
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from agentload.model.trace import Role, Segment
from agentload.model.walk import common_start

_BYTES_PER_TOKEN: Final = 4


def common_ids(before: Sequence[int], now: Sequence[int]) -> int:
    """Count the leading ids that two sequences have in common."""
    equal = 0
    differ = min(len(before), len(now))
    if _start(before, differ) == _start(now, differ):
        return differ
    # Both are equal up to `equal`, and differ somewhere before `differ`.
    while equal < differ - 1:
        middle = (equal + differ) // 2
        if before[equal:middle] == now[equal:middle]:
            equal = middle
        else:
            differ = middle
    return equal


def _start(ids: Sequence[int], count: int) -> Sequence[int]:
    """Return the leading ids, without a copy of all."""
    return ids if count == len(ids) else ids[:count]


def segments(
    ids: Sequence[int], tokens: int, *, block: int, cuts: Iterable[int] = ()
) -> tuple[Segment, ...]:
    """Return runs of consecutive ids as segments, split at *cuts*; the last may be partial."""
    found: list[Segment] = []
    borders = set(cuts)
    start = 0
    for position in range(1, len(ids) + 1):
        is_next = position < len(ids) and ids[position] == ids[position - 1] + 1
        if is_next and position not in borders:
            continue
        length = min(position * block, tokens) - start * block
        found.append(Segment(role="user", tokens=length, key=(ids[start], position - start)))
        start = position
    return tuple(found)


class Numbering:
    """Number the blocks of one import: equal numbers mean equal contents up to a block's end."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._numbers: dict[bytes, int] = {}

    def text(self, text: str) -> list[int]:
        """Return the numbers of a text's blocks, at four bytes a token."""
        return self._numbers_of(
            text.encode("utf-8", "surrogatepass"), self._block * _BYTES_PER_TOKEN
        )

    def tokens(self, ids: Sequence[int]) -> list[int]:
        """Return the numbers of blocks of tokens."""
        packed = array("Q", ids)
        return self._numbers_of(packed.tobytes(), self._block * packed.itemsize)

    def _numbers_of(self, content: bytes, size: int) -> list[int]:
        """Return the numbers of the blocks of *size* bytes; equal starts have equal ones."""
        hashed = hashlib.blake2b(digest_size=12)
        found = []
        for start in range(0, len(content), size):
            hashed.update(content[start : start + size])
            found.append(self._numbers.setdefault(hashed.digest(), len(self._numbers)))
        return found


@dataclass(slots=True, kw_only=True, eq=False)
class BlockPrompt:
    """One prompt: a prefix of an earlier one, of `start` tokens, and its own part up to `end`."""

    parent: "BlockPrompt | None"
    start: int
    end: int
    ids: Sequence[int]
    """Its full blocks."""
    key: str = ""
    roles: tuple[tuple[Role, int], ...] = ()
    """Roles of the own part, each with its end; the last one ends with the prompt."""
    cuts: list[int] = field(default_factory=list)
    _made: list[tuple[int, Segment]] = field(default_factory=list)

    def cut(self, at: int) -> None:
        """End a segment at this position, in whichever prompt owns the position."""
        owner = self
        while at <= owner.start and owner.parent is not None:
            owner = owner.parent
        if owner.start < at < owner.end and at not in owner.cuts:
            insort(owner.cuts, at)

    def own(self, until: int) -> list[Segment]:
        """Return the own part's segments up to a position; call once all prompts are known."""
        if not self._made:
            self._made = list(self._segments())
        return [segment for end, segment in self._made if end <= until]

    def context(self, until: int) -> list[Segment]:
        """Return all segments up to a position; call once all prompts are known."""
        owner = self
        parts = [owner.own(until)]
        while owner.parent is not None and owner.start:
            until = min(owner.start, until)
            owner = owner.parent
            parts.append(owner.own(until))
        return list(chain.from_iterable(reversed(parts)))

    def _segments(self) -> Iterator[tuple[int, Segment]]:
        """Yield the own part's segments, each with its end."""
        at = self.start
        stops = {stop for _, stop in self.roles}
        for border in sorted({*self.cuts, *stops, self.end}):
            if at < border:
                key = self.key if at == self.start else f"{self.key}+{at - self.start}"
                yield border, Segment(role=self._role_at(border), tokens=border - at, key=key)
                at = border

    def _role_at(self, end: int) -> Role:
        """Return the role of what ends here."""
        for role, stop in self.roles:
            if end <= stop:
                return role
        return self.roles[-1][0]


class PromptTree:
    """All prompts of one conversation, in time order."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._first: dict[int, BlockPrompt] = {}  # the prompt that had a block first

    def add(self, ids: Sequence[int], tokens: int, *, after: BlockPrompt | None) -> BlockPrompt:
        """Add a prompt; `after` is the one it most likely continues.

        The caller sets its key and roles.
        """
        full = ids[: tokens // self._block]
        parent, common = self._nearest(full, after)
        start = 0
        if parent is not None:
            # A prompt that continues at another's end has
            # all of it, including its partial last block.
            has_all = common == len(parent.ids) and tokens >= parent.end
            start = parent.end if has_all else common * self._block
            parent.cut(start)
        prompt = BlockPrompt(parent=parent, start=start, end=tokens, ids=full)
        for found in full[common:]:
            self._first.setdefault(found, prompt)
        return prompt

    def _nearest(
        self, full: Sequence[int], after: BlockPrompt | None
    ) -> tuple[BlockPrompt | None, int]:
        nearest = after
        common = 0 if after is None else common_ids(after.ids, full)
        # The first owner of a block may share more; each step extends the prefix or ends.
        while common < len(full):
            other = self._first.get(full[common])
            longer = 0 if other is None else common_ids(other.ids, full)
            if longer <= common:
                break
            nearest = other
            common = longer
        return (nearest if common else None), common


def change(before: BlockPrompt | None, now: BlockPrompt) -> tuple[int | None, tuple[Segment, ...]]:
    """Return how many segments a turn keeps of the previous context, and what it adds.

    None means all. Call this once all prompts are known.
    """
    if before is None:
        return None, tuple(now.context(now.end))
    if now.parent is before:
        keep = None if now.start == before.end else len(before.context(now.start))
        return keep, tuple(now.own(now.end))
    held = before.context(before.end)
    context = now.context(now.end)
    keep = common_start(held, context)
    return (None if keep == len(held) else keep), tuple(context[keep:])
