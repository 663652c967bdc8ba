"""Compose a session turn by turn: each answer becomes history of the next turn, and the length of the context is known."""

from typing import Final, NamedTuple

from agentload.model.check import Check
from agentload.model.trace import Role, Segment, Session, Turn, TurnRef, Wait


class Pause(NamedTuple):
    """What a call waits for after those it depends on, and how long."""

    kind: Wait | None
    seconds: float


NO_PAUSE: Final = Pause(None, 0.0)


class Talk:
    """One session in the making. Keys are the session's name and a running number."""

    def __init__(self, name: str, *, workload: str, prefix: str | None = None, leads: tuple[Segment, ...] = ()) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self.context = list(leads)
        """What the last call was sent."""
        self.tokens = sum(segment.tokens for segment in leads)
        """Length of the context that the next call will be sent."""
        self._workload = workload
        self._prefix = prefix
        self._pending: list[Segment] = []
        self._keep: int | None = None
        self._keys = 0

    def key(self) -> str:
        """Return a key that no other segment has."""
        self._keys += 1
        return f"{self.name}.{self._keys}"

    def add(self, role: Role, tokens: int, key: str | None = None) -> None:
        """Add to what the next call will be sent."""
        self.put(Segment(role=role, tokens=tokens, key=key or self.key()))

    def put(self, *segments: Segment) -> None:
        """Add segments that exist already."""
        self._pending.extend(segments)
        self.tokens += sum(segment.tokens for segment in segments)

    def call(
        self,
        output: int,
        pause: Pause = NO_PAUSE,
        *,
        remembered: int | None = None,
        thinking: int | None = None,
        event: str | None = None,
        model: str | None = None,
        deadline_s: float | None = None,
        spawn: tuple[str, ...] = (),
        after: tuple[TurnRef, ...] = (),
        check: tuple[Check, ...] = (),
    ) -> None:
        """Call the model; its answer is history from now on, or as many tokens of it as are `remembered`."""
        self.turns.append(
            Turn(
                add=tuple(self._pending),
                output=output,
                wait=pause.kind,
                wait_s=pause.seconds,
                keep=self._keep,
                after=after,
                spawn=spawn,
                check=check,
                event=event,
                model=model,
                deadline_s=deadline_s,
                thinking=thinking,
            )
        )
        self.context.extend(self._pending)
        self._pending, self._keep = [], None
        history = output if remembered is None else remembered
        if history:
            self.add("assistant", history)

    def reset(self, keep: int, *segments: Segment) -> None:
        """Go on with the first segments of the context and these, in the place of all else."""
        if len(self.context) > keep:
            self._keep = keep
        self.context = self.context[:keep]
        self._pending = list(segments)
        self.tokens = sum(segment.tokens for segment in (*self.context, *segments))

    def rest(self, keep: int) -> list[Segment]:
        """Return what `reset` would drop: all after the first segments, the last answer included."""
        return self.context[keep:] + self._pending

    def session(self, start_s: float | None) -> Session:
        """Return the session as it stands."""
        return Session(session=self.name, workload=self._workload, turns=tuple(self.turns), start_s=start_s, prefix=self._prefix)


def recent(segments: list[Segment], tokens: int) -> list[Segment]:
    """Return the last segments that fit into these tokens, from a user's or assistant's message on."""
    start, left = len(segments), tokens
    while start > 0 and segments[start - 1].tokens <= left:
        start -= 1
        left -= segments[start].tokens
    while start < len(segments) and segments[start].role == "tool":  # a result without its call says nothing
        start += 1
    return segments[start:]
