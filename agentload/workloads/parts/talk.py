"""Compose a session turn by turn: each answer becomes history of the next turn."""

from random import Random
from typing import Final, NamedTuple, TypedDict, Unpack

from agentload.model.check import Check
from agentload.model.trace import Extra, Role, Segment, Session, Turn, TurnRef, Wait, total_tokens
from agentload.workloads.parts.draws import Distribution, WeightedChoice, seconds, tokens


class Pause(NamedTuple):
    """The kind and length of a wait before a call."""

    kind: Wait | None
    seconds: float


NO_PAUSE: Final = Pause(None, 0.0)
RETRY: Final = Pause("user", 2.0)
"""Pause between a call that was broken off and the same call once more: judgement."""

PARALLEL: Final = WeightedChoice((0.965, 0.026, 0.006, 0.003))
"""1, 2, 3 or 4 tools a call: more than one in 3.2 and 3.9% of
the steps of two parts of kv-cache-tester, 0.8 and 2.3% of pi's.
"""


def prompt_prefix(name: str, *, system: int, tools: int) -> tuple[Segment, ...]:
    """Return a system prompt, then tools where there are any, of this many tokens each."""
    instructions = Segment(role="system", tokens=system, key=f"{name}.system")
    if not tools:
        return (instructions,)
    return instructions, Segment(role="tools", tokens=tools, key=f"{name}.tools")


class TurnFields(TypedDict, total=False):
    """What a workload may say of a turn besides its context, its answer's length and its wait."""

    thinking: int | None
    event: str | None
    model: str | None
    deadline_s: float | None
    spawn: tuple[str, ...]
    after: tuple[TurnRef, ...]
    check: tuple[Check, ...]
    asks: Extra


class Talk:
    """A session being composed. Keys are the session's name and a running number."""

    def __init__(
        self,
        name: str,
        *,
        workload: str,
        prefix: str | None = None,
        leads: tuple[Segment, ...] = (),
    ) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self.context = list(leads)
        self.tokens = total_tokens(leads)
        """The context length of the next call."""
        self._workload = workload
        self._prefix = prefix
        self._pending: list[Segment] = []
        self._keep: int | None = None
        self._keys = 0

    def key(self) -> str:
        """Return a new, unique key."""
        self._keys += 1
        return f"{self.name}.{self._keys}"

    def add(self, role: Role, tokens: int, key: str | None = None) -> None:
        """Add to the context of the next call."""
        self.put(Segment(role=role, tokens=tokens, key=key or self.key()))

    def put(self, *segments: Segment) -> None:
        """Add existing segments."""
        self._pending.extend(segments)
        self.tokens += total_tokens(segments)

    def use_tools(self, rng: Random, result: Distribution, wait: Distribution) -> Pause:
        """Add the results of one to four tools, each of its own length; return their wait."""
        for _ in range(PARALLEL.pick(rng) + 1):
            self.add("tool", tokens(rng, result))
        return Pause("tool", seconds(rng, wait))

    def call(
        self,
        output: int,
        pause: Pause = NO_PAUSE,
        *,
        remembered: int | None = None,
        aborted: float | None = None,
        **said: Unpack[TurnFields],
    ) -> None:
        """Call the model; its answer, or `remembered` tokens of it, becomes history.

        A call that is `aborted` after this share of its
        answer is sent once more with the same context.
        """
        if aborted is not None:
            self.call(
                max(1, round(output * aborted)),
                pause,
                remembered=0,
                event="abort",
                model=said.get("model"),
                after=said.get("after", ()),
            )
            pause = RETRY
            said = {**said, "after": (), "event": said.get("event") or "retry"}
        self.turns.append(
            Turn(
                add=tuple(self._pending),
                output=output,
                wait=pause.kind,
                wait_s=pause.seconds,
                keep=self._keep,
                **said,
            )
        )
        self.context.extend(self._pending)
        self._pending, self._keep = [], None
        history = output if remembered is None else remembered
        if history:
            self.add("assistant", history)

    def reset(self, keep: int, *segments: Segment) -> None:
        """Replace all but the first segments of the context with these."""
        if len(self.context) > keep:
            self._keep = keep
        self.context = self.context[:keep]
        self._pending = list(segments)
        self.tokens = total_tokens((*self.context, *segments))

    def rest(self, keep: int) -> list[Segment]:
        """Return the segments that `reset` would drop, including the last answer."""
        return self.context[keep:] + self._pending

    def session(self, start_s: float | None) -> Session:
        """Return the session so far."""
        return Session(
            session=self.name,
            workload=self._workload,
            turns=tuple(self.turns),
            start_s=start_s,
            prefix=self._prefix,
        )


def recent(segments: list[Segment], tokens: int) -> list[Segment]:
    """Return the last segments that fit into *tokens*, without tool results at their start."""
    start, left = len(segments), tokens
    while start > 0 and segments[start - 1].tokens <= left:
        start -= 1
        left -= segments[start].tokens
    while (
        start < len(segments) and segments[start].role == "tool"
    ):  # a result makes no sense without its call
        start += 1
    return segments[start:]
