"""What a dispatcher and its nodes say to each other: plain data, whoever carries it.

A node is a process that holds sockets and journals. Its work is one of two:

- a worker (`--workers`) makes the calls that the dispatcher decides on, each at its instant:
  `Act` goes out, `Done` comes back, and `Sync` asks that the journal is whole;
- a player (`--on`) has a share of the plan and a dispatcher of its own: `Reached` says that a
  round is over and its journals are whole, `Go` begins the next. No call passes the driver while
  load runs.

Both say in the same words that they are ready, alive, broken or gone.

A context grows by a few segments a turn and may have hundreds, so only what is new in it is sent.
Both ends keep the last context of each session that is played on an arm; a number says how much
of it still holds.
"""

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from agentload import __version__
from agentload.dispatch.dispatcher import PlayEnd
from agentload.live.health import Health
from agentload.model.commands import (
    Cancel,
    Forget,
    Lost,
    Open,
    Outcome,
    Prepare,
    Send,
    Settle,
    Stopped,
)
from agentload.model.trace import Segment

Key = tuple[str, str]
"""Arm and session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Carry a command out; its context has only what is new behind the segments kept."""

    command: Prepare | Send
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Have the disk hold every call that has ended; then say Synced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Go on at this instant of the node's clock; play void pairs again."""

    at_ns: int
    void: tuple[tuple[int, str], ...] = ()


Order: TypeAlias = Act | Cancel | Forget | Sync | Go | Stopped | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The node takes orders; and who it is."""

    host: str = field(default_factory=platform.node)
    version: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The node runs, with or without anything to report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """A watched call streamed: its tokens so far."""

    request_id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A call is over and written down; its stamps stay behind."""

    request_id: str
    outcome: Outcome
    chunks: int
    prompt_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The disk holds every call that had ended; and how the node has kept up so far."""

    health: Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of a journal, in bytes from its start."""

    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What a node measured in one round, as its journals have it."""

    share: str
    """The name of the share that was played."""
    rows: int
    content: tuple[Slice, ...] | bytes
    """Where it is, or all of it, compressed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The node's round is over, or servers are to be started; instants are of the node's clock."""

    command: Settle | Open
    ends: tuple[PlayEnd, ...]
    health: Health
    """Of the node, since the last time that it was said."""
    shard: Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Nothing is left to play."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The node cannot go on, for a reason that the user can mend."""

    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The node's process is gone, as the machine that it ran on says."""

    how: str


Report: TypeAlias = Ready | Alive | Streamed | Done | Synced | Reached | Over | Broken | Gone


class Contexts:
    """Remember, at one end, the last context of each session."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[Segment, ...]] = {}

    def new(self, key: Key, context: tuple[Segment, ...]) -> tuple[int, tuple[Segment, ...]]:
        """Return how many leading segments the other end has, and those behind them."""
        last = self._last.get(key, ())
        self._last[key] = context
        if last is context:
            return len(context), ()
        kept = 0
        for mine, known in zip(context, last, strict=False):
            # As good as equal, and compared at once: contexts share their segments.
            if mine is not known:
                break
            kept += 1
        return kept, context[kept:]

    def whole(self, key: Key, kept: int, new: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the context that the other end means."""
        context = self._last.get(key, ())
        if kept < len(context) or new:
            context = context[:kept] + new
            self._last[key] = context
        return context

    def forget(self, key: Key) -> None:
        """Drop a session whose play is over."""
        self._last.pop(key, None)
