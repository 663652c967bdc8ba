"""Requests that a log holds with their messages: brought into sessions, by an id or by what they continue, and played in order."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from agentload.importers.parts.dialogue import Dialogue, Timing, Usage
from agentload.importers.parts.grouped import grouped
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.pieces import Piece
from agentload.importers.parts.reuse import identity
from agentload.model.trace import Session

_WORD = (1 << 64) - 1


class Logged(msgspec.Struct, kw_only=True):
    """One request and its answer."""

    session: str
    at_s: float
    place: str
    timing: Timing
    usage: Usage
    context: list[Piece]
    """Empty: the log does not show it. Then it is taken to hold the one before and its answer where it is long enough for that."""
    answer: list[Piece] = []
    model: str | None = None
    is_new: bool = False
    """The context is what is new since the answer before, and not all of it."""


class Continuations:
    """Find the conversation that a request goes on with, where the log does not name it: the one whose last messages it begins with."""

    def __init__(self) -> None:
        self._sessions: dict[int, str] = {}  # by all messages of a conversation's latest request
        self._count = 0

    def session(self, context: Sequence[Piece]) -> str:
        """Return the name of the conversation, a new one if no earlier request is the beginning of this one."""
        found: str | None = None
        chain = 0
        for number, piece in enumerate(context, start=1):
            chain = (chain * 0x9E3779B97F4A7C15 + identity(f"{piece.role} {piece.key}")) & _WORD
            if number < len(context):  # the same request again is another conversation
                found = self._sessions.pop(chain, None) or found
        if found is None:
            found = f"#{self._count}"
            self._count += 1
        self._sessions[chain] = found
        return found


def sessions(intake: Intake, found: Iterable[Logged], *, workload: str, every_s: float = 0.0) -> Iterator[Session]:
    """Yield a session for each name; `every_s` seconds lie between two where the log has no times."""
    origin_s: float | None = None
    for number, group in enumerate(grouped(found, Logged)):
        origin_s = group[0].at_s if origin_s is None else origin_s
        is_timed = group[0].timing.sent_s is not None
        dialogue = Dialogue(
            intake=intake, origin_s=origin_s if is_timed else -number * every_s, began_s=None if is_timed else number * every_s
        )
        main = next((logged.model for logged in group if logged.model is not None), None)
        for position, logged in enumerate(group):
            answer: list[Piece] = logged.answer
            if logged.is_new:
                dialogue.add(logged.context)
            elif logged.context:
                dialogue.restart(logged.context)
            else:
                dialogue.grow(logged.usage.prompt or 1, f"s{number}.{position}")
                answer = [Piece(role="assistant", tokens=logged.usage.output or 1, key=f"s{number}.a{position}")]
            dialogue.call(
                timing=logged.timing,
                usage=logged.usage,
                answer=answer,
                place=logged.place,
                model=None if logged.model == main else logged.model,
            )
        yield dialogue.session(f"s{number}", workload=workload)
