"""Find how much of each call's context an ideal prefix cache would know: one that forgets nothing."""

from collections.abc import Iterable, Iterator
from typing import Final

from agentload.model.trace import Header, Segment, Session

BLOCK: Final = 16
"""Tokens of a cache block: a block that is known in part counts as new, as in vLLM."""


class IdealCache:
    """A prefix cache without bounds, told of the sessions one after the other."""

    def __init__(self) -> None:
        # A place in a context is a hash of all keys and lengths before it; what stands there may be a shorter run of the same text.
        self._places: set[int] = set()
        self._longest: dict[int, int] = {}

    def calls(self, header: Header, session: Session) -> Iterator[tuple[int, int]]:
        """Yield the tokens of each call's context and how many of them were known."""
        lengths: list[int] = []
        places = [0]
        lead = header.prefixes[session.prefix] if session.prefix is not None else ()
        for turn in session.turns:
            kept = len(lengths) if turn.keep is None else max(0, turn.keep - len(lead))
            del lengths[kept:], places[kept + 1 :]
            known = sum(lengths) + self._told(places, (*lead, *turn.add))
            lengths += (segment.tokens for segment in (*lead, *turn.add))
            lead = ()
            yield sum(lengths), known // BLOCK * BLOCK

    def _told(self, places: list[int], added: Iterable[Segment]) -> int:
        known, unbroken = 0, True
        for segment in added:
            text = hash((places[-1], segment.key))
            place = hash((text, segment.tokens))
            longest = self._longest.get(text, 0)
            if unbroken:
                known += min(segment.tokens, longest)
                unbroken = place in self._places
            self._longest[text] = max(longest, segment.tokens)
            self._places.add(place)
            places.append(place)
        return known
