"""What a dispatcher and its workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from agentload.live.health import Health
from agentload.live.station import Job
from agentload.model.commands import Cancel, Forget, Outcome, Prepare, Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Open a journal and get ready; then say Ready."""

    job: Job
    journal: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Do this; of its context only what is new was sent along."""

    command: Prepare | Send
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Have the disk hold every call that has ended; then say Synced."""


Order: TypeAlias = Start | Told | Cancel | Forget | Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The worker takes orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """The worker runs, with or without anything to report."""


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
    """What had ended is on the disk; and how the worker has kept up so far."""

    health: Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The worker cannot go on, for a reason that the user can mend."""

    message: str
    hint: str | None


Report: TypeAlias = Ready | Alive | Streamed | Done | Synced | Broken
