"""Play a replay in the foreground: progress drawn, Ctrl-C heeded."""

from __future__ import annotations

import asyncio
import signal
import sys

from agentload.cli._progress import Progress
from agentload.errors import AgentloadError, InterruptError
from agentload.experiment.replay import Leg, Played, Replay


def played(replay: Replay, progress: Progress) -> Played:
    """Play one leg. A first Ctrl-C lets what is in flight come to its end, a second cancels it."""
    leg = Leg(replay, listener=progress, notice=lambda text: print(text, file=sys.stderr))

    async def play() -> Played:
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, leg.stop)
        return await leg.play()

    with progress.shown():
        try:
            return asyncio.run(play())
        except asyncio.CancelledError as stopped:
            raise InterruptError("stopped before anything was sent") from stopped
        except BaseExceptionGroup as group:
            mendable, bugs = group.split(AgentloadError)
            if mendable is None or bugs is not None:
                raise
            raise _first(mendable) from group


def _first(group: BaseExceptionGroup[AgentloadError]) -> AgentloadError:
    """Return what the user can mend of what tasks that ran side by side raised."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, AgentloadError)
    return found
