"""Bring families of sessions, read in order of when their files begin, in order of when their first calls start."""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from agentload.model.trace import Session


def in_order(families: Iterable[tuple[float, Sequence[Session]]]) -> Iterator[Session]:
    """Yield families sorted by the start of their first session.

    Each comes with a time before which neither it nor any later one starts; so only those that overlap are held.
    """
    held: list[tuple[float, int, Sequence[Session]]] = []
    for number, (not_before_s, family) in enumerate(families):
        while held and held[0][0] <= not_before_s:
            yield from heapq.heappop(held)[2]
        if family:
            heapq.heappush(held, (family[0].start_s or 0.0, number, family))
    while held:
        yield from heapq.heappop(held)[2]
