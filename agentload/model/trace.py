"""A trace: sessions of turns, each turn a model call with what it adds to its session's context.

Fields carry the names of the file format `agentload-trace/1`. `extra` keeps
fields this version does not know, as (name, JSON text) pairs, so that reading
and writing a file of a newer minor version loses nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

from agentload.model.check import Check
from agentload.model.record import Record

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "tools", "image"]
Wait: TypeAlias = Literal["tool", "user", "schedule"]
Key: TypeAlias = str | tuple[int, int]
"""Identity of a segment's content: equal keys give equal text.

An imported run of blocks is (first, count).
"""
Extra: TypeAlias = tuple[tuple[str, str], ...]
PRIME: Final = "prime"
"""Event of a turn that tells a server what came before a
session's first turn; how long it takes is nobody's figure.
"""
UNDER_WAY: Final = "under way"
"""Event of a turn that asks for the rest of an answer that
a window begins in the middle of; nobody's figure either.
"""


class TurnRef(Record):
    """Point at a turn of a session; turn -1 is the session's last."""

    session: str
    turn: int

    def place_in(self, session: "Session") -> int:
        """Return the turn's number in its session, from 0."""
        if self.turn >= 0:
            return self.turn
        return len(session.turns) - 1


class Segment(Record):
    """A piece of context. Its text is a function of (trace seed,
    key); a shorter segment of a key is a prefix of a longer one.
    """

    role: Role
    tokens: int
    key: Key
    pixels: tuple[int, int] | None = None
    """Width and height of an image."""
    source: TurnRef | None = None
    """Live edge (`from`): filled with that turn's answer, cut or padded to `tokens`."""
    plant: str | None = None
    """A fact that is written into the text at the
    relative position `at`, in place of as many tokens.
    """
    at: float | None = None
    text: str | None = None
    """Literal text: a live answer, or an import that kept its words. None: made from the key."""
    extra: Extra = ()


class Recorded(Record):
    """The turn where it was recorded, for comparison only."""

    ttft_s: float | None = None
    api_s: float | None = None
    output: int | None = None
    cached: int | None = None
    start_s: float | None = None
    """When it was sent, on the axis of the sessions' `start_s`."""
    answer: str | None = None
    """What was said, where the import kept its words; no trace file holds it."""


class Turn(Record):
    """One model call: due when the turn before it,
    and every `after`, are complete, plus `wait_s`.
    """

    add: tuple[Segment, ...]
    output: int
    wait: Wait | None = None
    wait_s: float = 0.0
    after: tuple[TurnRef, ...] = ()
    spawn: tuple[str, ...] = ()
    keep: int | None = None
    """How many leading segments of the previous context
    stay, the prefix's included; None keeps all.
    """
    check: tuple[Check, ...] = ()
    event: str | None = None
    model: str | None = None
    """Alias that an arm maps to one of its models."""
    deadline_s: float | None = None
    thinking: int | None = None
    """How many of the output tokens are thinking."""
    asks: Extra = ()
    """Further fields of the request, each with its JSON text,
    such as tool_choice, response_format, reasoning_effort.
    """
    recorded: Recorded | None = None
    context: int | None = None
    """Prompt tokens where it was recorded."""
    extra: Extra = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One agent conversation.

    Without `start_s` it is spawned by a turn and starts when that turn completes.
    """

    session: str
    workload: str
    turns: tuple[Turn, ...]
    start_s: float | None = None
    prefix: str | None = None
    extra: Extra = ()
    line: int | None = field(default=None, compare=False)
    """Line of the file that it was read from; no field of the format."""


class Header(Record):
    """First line of a trace file: what holds for all its sessions."""

    name: str
    seed: int = 0
    block: int = 64
    tokenizer: str | None = None
    prefixes: Mapping[str, tuple[Segment, ...]] = msgspec.field(default_factory=dict)
    source: Extra = ()
    extra: Extra = ()

    def prefix_of(self, session: Session) -> tuple[Segment, ...]:
        """Return the shared prefix of a session; empty where it has none."""
        if session.prefix is None:
            return ()
        return self.prefixes[session.prefix]


class Trace(Record):
    """A header and its sessions in order of start;
    each spawned session follows its parent directly.

    `sessions` may be iterated several times; a reader gives them one by one from the file.
    """

    header: Header
    sessions: Iterable[Session]


def total_tokens(segments: Iterable[Segment]) -> int:
    """Return how many tokens segments have together."""
    return sum(segment.tokens for segment in segments)


def image_tokens(size: tuple[int, int]) -> int:
    """Count the context tokens of an image by the 28-pixel patch rule of the Qwen-VL family."""
    width, height = size
    return max(1, -(-width // 28) * -(-height // 28))
