"""Define the messages between a dispatcher and its nodes: plain data, whatever carries them.

A node is a process that holds sockets and journals. It is one of two kinds:

- a worker (`--workers`) makes the calls that the dispatcher decides on, each at its instant:
  `Act` goes out, `Done` comes back, and `Sync` asks that the journal is on disk;
- a player (`--on`) has a share of the plan and a dispatcher of its own: `Reached` says that a
  round is over and its journals are on disk, `Go` starts the next. No call passes through the
  driver while load runs.

Both use the same messages to say that they are ready, alive, broken or gone.

A context grows by a few segments a turn and may have hundreds, so only its new segments are sent.
Both ends keep the last context of each session that is played on an arm; a number says how many
of its leading segments still hold.
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
from agentload.model.record import Record
from agentload.model.trace import Segment

Key = tuple[str, str]
"""Arm and session."""


class Act(Record):
    """Carry out a command; its context holds only the segments after the first *kept*."""

    command: Prepare | Send
    kept: int


class Sync(Record):
    """Have the disk hold every call that has ended; then send Synced."""


class Go(Record):
    """Continue at this instant of the node's clock; play these invalid pairs again."""

    at_ns: int
    void: tuple[tuple[int, str], ...] = ()


Order: TypeAlias = Act | Cancel | Forget | Sync | Go | Stopped | Lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The node takes orders; names its host and version."""

    host: str = field(default_factory=platform.node)
    version: str = __version__


class Alive(Record):
    """The node runs, whether or not it has anything to report."""


class StreamedTokens(Record):
    """Report how many tokens a watched call has streamed so far."""

    request_id: str
    tokens: int


class Done(Record):
    """A call is over and written down; its stamps stay in the node."""

    request_id: str
    outcome: Outcome
    chunks: int
    prompt_hash: str | None


class Synced(Record):
    """The disk holds every call that had ended; reports how the node has kept up so far."""

    health: Health


class Slice(Record):
    """A part of a journal, as byte offsets from its start."""

    path: Path
    start: int
    end: int


class Shard(Record):
    """Describe what a node measured in one round, as its journals hold it."""

    share: str
    """Name of the share of the plan that the node played."""
    rows: int
    content: tuple[Slice, ...] | bytes
    """The parts of journals that hold the rows, or all their bytes, compressed."""


class Reached(Record):
    """The node's round is over, or needs servers started; instants are of the node's clock."""

    command: Settle | Open
    ends: tuple[PlayEnd, ...]
    health: Health
    """How the node has kept up since its last Reached."""
    shard: Shard


class Over(Record):
    """Nothing is left for the node to play."""


class BrokenNode(Record):
    """The node cannot continue, for a reason that the user can fix."""

    message: str
    hint: str | None


class Gone(Record):
    """The node's process is gone, as reported by the machine that it ran on."""

    how: str


Report: TypeAlias = (
    Ready | Alive | StreamedTokens | Done | Synced | Reached | Over | BrokenNode | Gone
)


class Contexts:
    """Remember, at one end, the last context of each session."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[Segment, ...]] = {}

    def new(self, key: Key, context: tuple[Segment, ...]) -> tuple[int, tuple[Segment, ...]]:
        """Return how many leading segments the other end has, and the segments after them."""
        last = self._last.get(key, ())
        self._last[key] = context
        if last is context:
            return len(context), ()
        kept = 0
        for mine, known in zip(context, last, strict=False):
            # Contexts share their segments, so identity is as good as equality, and quicker.
            if mine is not known:
                break
            kept += 1
        return kept, context[kept:]

    def whole(self, key: Key, kept: int, new: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the whole context from the kept segments and the new ones."""
        context = self._last.get(key, ())
        if kept < len(context) or new:
            context = context[:kept] + new
            self._last[key] = context
        return context

    def forget(self, key: Key) -> None:
        """Drop a session whose play is over."""
        self._last.pop(key, None)
