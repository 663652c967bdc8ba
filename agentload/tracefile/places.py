"""Tell places in contexts apart: a place is a hash of all keys and lengths up to and including one segment."""

from typing import NamedTuple

from agentload.model.trace import Header, Session


class Place(NamedTuple):
    """A segment in a context, told from the same segment behind other ones."""

    identity: int
    text: int
    """The same without the segment's own length: texts of one key are prefixes of each other."""
    tokens: int


class Chain:
    """The places of one session's context, from turn to turn."""

    def __init__(self, header: Header, session: Session) -> None:
        self.places: list[Place] = []
        self._turns = session.turns
        self._lead = header.prefixes[session.prefix] if session.prefix is not None else ()

    def turn(self, index: int) -> list[Place]:
        """Go on to the next turn and return the places that it adds to those it keeps."""
        turn = self._turns[index]
        added = turn.add
        if index == 0:
            added = self._lead[: turn.keep] + added
        elif turn.keep is not None:
            del self.places[turn.keep :]
        kept = len(self.places)
        for segment in added:
            text = hash((self.places[-1].identity if self.places else 0, segment.key))
            self.places.append(Place(hash((text, segment.tokens)), text, segment.tokens))
        return self.places[kept:]
