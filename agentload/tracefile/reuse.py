"""Compute how much of a call's context a prefix cache holds, unlimited or of a given size."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from agentload.model.trace import Header, Session

BLOCK: Final = 16
"""Tokens of a cache block; a partly known block counts as new, as in vLLM."""


class ChainLink(NamedTuple):
    """A segment together with everything before it."""

    identity: int
    text: int
    """`identity` without the segment's length: texts of one key are prefixes of each other."""
    tokens: int
    end: int
    """Tokens of the context up to the segment's end."""


class Chain:
    """The places of a session's context from turn to turn."""

    def __init__(self, header: Header, session: Session) -> None:
        self.places: list[ChainLink] = []
        self._turns = session.turns
        if session.prefix is not None:
            self._lead = header.prefixes[session.prefix]
        else:
            self._lead = ()

    @property
    def tokens(self) -> int:
        """Tokens of the context by now."""
        if not self.places:
            return 0
        return self.places[-1].end

    def turn(self, index: int) -> list[ChainLink]:
        """Advance to the next turn; return the places it adds."""
        turn = self._turns[index]
        added = turn.add
        if index == 0:
            added = self._lead[: turn.keep] + added
        elif turn.keep is not None:
            del self.places[turn.keep :]
        kept = len(self.places)
        for segment in added:
            before, end = (self.places[-1].identity, self.places[-1].end) if self.places else (0, 0)
            text = hash((before, segment.key))
            self.places.append(
                ChainLink(hash((text, segment.tokens)), text, segment.tokens, end + segment.tokens)
            )
        return self.places[kept:]


class IdealCache:
    """An unlimited prefix cache fed session by session; *block* is its block size in tokens."""

    def __init__(self, *, block: int = BLOCK) -> None:
        self._block = block
        self._known: set[int] = set()
        self._longest: dict[int, int] = {}

    def calls(self, header: Header, session: Session) -> Iterator[tuple[int, int]]:
        """Yield the tokens of each call's context and how many were cached."""
        chain = Chain(header, session)
        for index in range(len(session.turns)):
            added = chain.turn(index)
            total = chain.tokens
            known = total - sum(place.tokens for place in added) + self._known_tokens(added)
            yield total, known // self._block * self._block

    def _known_tokens(self, added: Sequence[ChainLink]) -> int:
        """Count the tokens of a context's new part that were met before in the same place."""
        known = 0
        unbroken = True
        for place in added:
            longest = self._longest.get(place.text, 0)
            if unbroken:
                known += min(place.tokens, longest)
                unbroken = place.identity in self._known
            self._longest[place.text] = max(longest, place.tokens)
            self._known.add(place.identity)
        return known


@dataclass(slots=True)
class _Kept:
    """A place in the cache.

    A call that uses a place uses all before it, so only its last place is marked as used.
    """

    place: ChainLink
    before: int | None
    """Identity of the place before it."""
    used: int = 0
    """Number of the latest call that ended here, or at a later place that was evicted since."""
    followers: int = 0


class PoolCache:
    """A prefix cache of a given size with LRU eviction, ends of contexts before their starts.

    The cache is a tree of places, of which only leaves are evicted: the work
    for a call grows with what the call adds, not with its context.
    """

    def __init__(self, tokens: int) -> None:
        self._size = self._room = tokens
        self._kept: dict[int, _Kept] = {}
        self._leaves: list[tuple[int, int, int]] = []
        """A heap of (used, -end, identity), also of places that are no leaves any more."""
        self._calls = 0

    def call(self, places: Sequence[ChainLink]) -> int:
        """Return how many tokens of a call's context are cached, and cache all of it that fits."""
        fits = bisect_right(places, self._size, key=lambda place: place.end)
        held = bisect_left(
            range(fits), 1, key=lambda index: places[index].identity not in self._kept
        )
        self._calls += 1
        for place, before in zip(
            places[held:fits],
            [places[held - 1] if held else None, *places[held:fits]],
            strict=False,
        ):
            self._kept[place.identity] = _Kept(place, None if before is None else before.identity)
            self._room -= place.tokens
            if before is not None:
                self._kept[before.identity].followers += 1
        if fits:
            last = self._kept[places[fits - 1].identity]
            last.used = self._calls
            self._leaf(last)
        while self._room < 0 or (
            fits < len(places) and len(self._kept) > fits
        ):  # a context larger than the pool evicts all but its own start
            self._evict()
        return (places[held - 1].end if held else 0) // BLOCK * BLOCK

    def _leaf(self, kept: _Kept) -> None:
        if not kept.followers:
            heappush(self._leaves, (kept.used, -kept.place.end, kept.place.identity))

    def _evict(self) -> None:
        used, _, identity = heappop(self._leaves)
        kept = self._kept.get(identity)
        if kept is None or kept.followers or kept.used != used:
            return
        del self._kept[identity]
        self._room += kept.place.tokens
        if kept.before is not None:
            before = self._kept[kept.before]
            before.used = max(before.used, used)
            before.followers = before.followers - 1
            self._leaf(before)
