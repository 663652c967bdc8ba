"""Answers that later turns quote: kept for as long as somebody may still read them."""

from collections.abc import Set as AbstractSet

from agentload.model.commands import Reply
from agentload.model.trace import Session, TurnRef


class Replies:
    """Hold what one arm answered where a live edge, or live history, needs it."""

    def __init__(self, quoted: AbstractSet[tuple[str, int]], *, live_history: bool) -> None:
        """*quoted* are the turns that live edges name (-1: a session's last)."""
        self._live = live_history
        self._wanted = quoted
        self._kept: dict[tuple[str, int], Reply] = {}

    def of(self, ref: TurnRef) -> Reply | None:
        """Return the answer of a turn (-1: its session's last), if there is one."""
        return self._kept.get((ref.session, ref.turn))

    def are_read(self, session: Session, turn: int) -> bool:
        """Tell whether a later call quotes this turn's answer."""
        is_last = turn + 1 == len(session.turns)
        return (
            (self._live and not is_last) or (session.session, turn) in self._wanted or (is_last and (session.session, -1) in self._wanted)
        )

    def keep(self, session: Session, turn: int, reply: Reply) -> None:
        """Keep an answer."""
        self._kept[session.session, turn] = reply
        if turn + 1 == len(session.turns):
            self._kept[session.session, -1] = reply

    def forget(self, session: Session, *, turns: int) -> None:
        """Drop what only the session's own history needed, now that it is over."""
        if self._live:
            for turn in range(turns):
                if (session.session, turn) not in self._wanted:
                    self._kept.pop((session.session, turn), None)
