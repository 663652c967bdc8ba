"""Which blocks are evidence: a pair counts as a whole or not at all."""

from collections import defaultdict
from collections.abc import Iterable

from agentload.model.rows import BlockRow


def pair_faults(blocks: Iterable[BlockRow], arms: int) -> dict[tuple[int, str], str]:
    """Say by pair and salt what is wrong with a pair of *arms* blocks.

    What voids one half voids the other, and a half alone compares nothing.
    """
    played: dict[tuple[int, str], set[str]] = defaultdict(set)
    faults: dict[tuple[int, str], str] = {}
    for row in blocks:
        played[row.pair, row.salt].add(row.arm)
        if row.void is not None:
            faults[row.pair, row.salt] = row.void
        elif row.ended_ns is None:
            faults.setdefault((row.pair, row.salt), "not played to its end")
    for key, on in played.items():
        if len(on) < min(arms, 2):
            faults.setdefault(key, "played on one arm alone")
    return faults
