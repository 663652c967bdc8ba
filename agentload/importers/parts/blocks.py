"""Contexts that are known as ids of blocks: as segments, and as turns that keep what they share with the one before."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from agentload.model.trace import Segment


def shared(before: Sequence[int], now: Sequence[int]) -> int:
    """Count the leading ids that two sequences have in common."""
    low, high = 0, min(len(before), len(now))
    if (before if high == len(before) else before[:high]) == (now if high == len(now) else now[:high]):
        return high
    while low < high - 1:  # equal up to low, different somewhere before high
        middle = (low + high) // 2
        low, high = (middle, high) if before[low:middle] == now[low:middle] else (low, middle)
    return low


def segments(ids: Sequence[int], tokens: int, *, block: int, cuts: Iterable[int] = ()) -> tuple[Segment, ...]:
    """Return runs of consecutive ids as segments, split at these positions too; the last block may be partial."""
    found: list[Segment] = []
    borders = set(cuts)
    start = 0
    for position in range(1, len(ids) + 1):
        if position < len(ids) and ids[position] == ids[position - 1] + 1 and position not in borders:
            continue
        length = min(position * block, tokens) - start * block
        found.append(Segment(role="user", tokens=length, key=(ids[start], position - start)))
        start = position
    return tuple(found)


def kept(before: Sequence[Segment], now: Sequence[Segment]) -> int:
    """Count the leading segments that two contexts have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))


def fitted(ids: Sequence[int], tokens: int, block: int) -> tuple[Sequence[int], int]:
    """Return the ids that a prompt of this length can have, and how many of its tokens they cover."""
    fitting = ids[: -(-tokens // block)]
    return fitting, min(tokens, len(fitting) * block)
