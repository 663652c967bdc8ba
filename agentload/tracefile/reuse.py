"""Compute how much of a call's context a prefix cache holds: an unlimited one, and one of a given size."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from agentload.model.trace import Header, Session

BLOCK: Final = 16
"""Tokens of a cache block; a partly known block counts as new, as in vLLM."""


class Place(NamedTuple):
    """A segment together with everything before it."""

    identity: int
    text: int
    """The same without the segment's own length: texts of one key are prefixes of each other."""
    tokens: int
    end: int
    """Tokens of all up to its end."""


class Chain:
    """The places of a session's context from turn to turn."""

    def __init__(self, header: Header, session: Session) -> None:
        self.places: list[Place] = []
        self._turns = session.turns
        self._lead = header.prefixes[session.prefix] if session.prefix is not None else ()

    def turn(self, index: int) -> list[Place]:
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
            self.places.append(Place(hash((text, segment.tokens)), text, segment.tokens, end + segment.tokens))
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
            total = chain.places[-1].end if chain.places else 0
            known = total - sum(place.tokens for place in added) + self._told(added)
            yield total, known // self._block * self._block

    def _told(self, added: Sequence[Place]) -> int:
        known, unbroken = 0, True
        for place in added:
            longest = self._longest.get(place.text, 0)
            if unbroken:
                known += min(place.tokens, longest)
                unbroken = place.identity in self._known
            self._longest[place.text] = max(longest, place.tokens)
            self._known.add(place.identity)
        return known


class PoolCache:
    """A prefix cache of a given size with LRU eviction, ends of contexts before their starts."""

    def __init__(self, tokens: int) -> None:
        self._room = tokens
        self._kept: OrderedDict[int, int] = OrderedDict()

    def call(self, places: Sequence[Place]) -> int:
        """Return how many tokens of a call's context are cached, and cache all of it."""
        known = 0
        for place in places:
            if place.identity not in self._kept:
                break
            known += place.tokens
        for place in reversed(places):
            if place.identity not in self._kept:
                self._kept[place.identity] = place.tokens
                self._room -= place.tokens
            self._kept.move_to_end(place.identity)
        while self._room < 0:
            self._room += self._kept.popitem(last=False)[1]
        return known // BLOCK * BLOCK
