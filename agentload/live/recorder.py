"""Carry calls out in this process, and write each down as it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agentload.live.caller import PromptCaller
from agentload.live.health import Health
from agentload.live.wire import WireFacts
from agentload.model.commands import Cancel, Forget, Outcome, Prepare, Send
from agentload.model.rows import CallRow, Row
from agentload.replay.checking import checked
from agentload.replay.row import row


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """One attempt that is over and written down."""

    outcome: Outcome
    row: CallRow
    chunks: int
    """Stamps that were written down; those of another process's call stay with it."""


class Recorder:
    """A caller whose sockets and journal are this process's own."""

    lead_ns: Final = 2_000_000  # what is done ahead of a call's instant takes some 0.3 ms, and a batch of reads may be in its way

    def __init__(self, caller: PromptCaller, *, run_id: str, leg: int, write: Callable[[Row], None]) -> None:
        self._caller = caller
        self._run_id = run_id
        self._leg = leg
        self._write = write

    def prepare(self, command: Prepare) -> None:
        """Render a request before its instant comes."""
        self._caller.prepare(command)

    async def call(self, send: Send, streamed: Callable[[int], None]) -> Called:
        """Send a call, follow it to its end and write it down, with its grade where its answer is checked."""
        outcome, prompt_hash = await self._caller.call(send, streamed)
        ended = row(send, outcome, run_id=self._run_id, leg=self._leg, prompt_hash=prompt_hash)
        self._write(ended)
        if (graded := checked(send, outcome, run_id=self._run_id)) is not None:
            self._write(graded)
        return Called(outcome=outcome, row=ended, chunks=len(outcome.chunks or ()))

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection; its outcome says why."""
        self._caller.cancel(command)

    def forget(self, command: Forget) -> None:
        """Drop what is kept for a session whose play is over."""
        self._caller.forget(command)

    async def sync(self) -> None:
        """Do nothing: who owns the journal syncs it."""

    def facts(self) -> WireFacts:
        """Return what went wrong with stamps and clocks so far."""
        return self._caller.facts()

    def workers(self) -> tuple[Health, ...]:
        """Return nothing: no other process is at work."""
        return ()
