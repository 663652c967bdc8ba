"""Define how a run is followed and stopped.

The command line draws and hears Ctrl-C, a scheduler stops after its budget, a notebook does
neither.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

from agentload.errors import InterruptError, StoreError
from agentload.layout.cost import Cost
from agentload.live.runner import Listener
from agentload.model.metrics import ClockStart
from agentload.model.record import Record
from agentload.run.ask import Listener as AnswerListener
from agentload.run.place import StudyPlace
from agentload.run.questions import Question
from agentload.run.record import Stored

ENDING_S: Final = 30.0
"""What calls in flight have to finish, where nobody is in a hurry."""
MAY_BE_LATE: Final = "warning: requests may leave late"
Stop = Callable[[], None]
T = TypeVar("T")


class Audience(Record):
    """Describe how a run is followed and stopped."""

    notice: Callable[[str], None] = lambda _: None
    """Receives what a reader of the result should know, a line at a time."""
    progress: Callable[[Cost, ClockStart], AbstractContextManager[Listener | None]] = lambda *_: (
        nullcontext()
    )
    """Follows the calls of one part of a run."""
    answers: Callable[[Sequence[Question], int], AbstractContextManager[AnswerListener | None]] = (
        lambda *_: nullcontext()
    )
    """Follows the answers of one part of an evaluation; receives the number of arms, too."""
    stopping: Callable[[Stop], AbstractContextManager[None]] = lambda _: nullcontext()
    """Calls the given stop, from inside the event loop, to end the run."""
    step: Callable[[str], None] | None = None
    """Receives what is being done, and what came of it, where that is drawn by other means.

    None: it is a notice.
    """
    stop_words: Callable[[], tuple[str, str]] = lambda: ("stopping", "Ctrl-C again")
    """Returns why a run is stopped, and what ends the calls in flight at once."""
    ending_s: float = ENDING_S
    """Seconds that calls in flight have to finish once a run is stopped."""
    rows: Callable[[int], None] = lambda _: None
    """Receives the number of rows that a simulated run has so far."""

    def warn(self, text: str | None) -> None:
        """Pass a warning on, where there is one."""
        if text:
            self.notice(f"warning: {text}")

    def say_step(self, text: str) -> None:
        """Pass on what is being done, or what came of it."""
        (self.step or self.notice)(text)

    def hearing_once(self) -> "Audience":
        """Return an audience that hears each caveat once though each pair meets the servers.

        That requests may leave late is one caveat, whatever its figures.
        """
        said: set[str] = set()

        def notice(text: str) -> None:
            caveat = MAY_BE_LATE if text.startswith(MAY_BE_LATE) else text
            if caveat not in said:
                self.notice(text)
            if text.startswith(("caveat: ", "no server counts", MAY_BE_LATE)):
                said.add(caveat)

        return replace(self, notice=notice)


@contextmanager
def ending(stop: Stop, audience: Audience) -> Iterator[None]:
    """Stop when the audience says so, and again after its `ending_s`: an answer may never end."""
    asked = 0

    def asked_to() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            why, key = audience.stop_words()
            audience.notice(
                f"{why}: what is in flight has {audience.ending_s:g} s to end; {key} ends it now"
            )
            asyncio.get_running_loop().call_later(audience.ending_s, stop)
        stop()

    with audience.stopping(asked_to):
        yield


def finish(work: Coroutine[Any, Any, T], audience: Audience) -> T:
    """Run work that needs no clean end; a stop raises KeyboardInterrupt, as Ctrl-C does."""

    async def act() -> T:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            task.cancel()

        with audience.stopping(stop):
            return await work

    try:
        return asyncio.run(act())
    except asyncio.CancelledError as stopped:
        raise KeyboardInterrupt from stopped


def check_stored(
    ended: Stored, place: StudyPlace, audience: Audience, *, stopped: InterruptError | None = None
) -> None:
    """Raise the error that a run ends with: *stopped*, or rows missing from the database.

    Missing rows of a stopped run are only noticed.
    """
    run = ended.run_id
    if ended.load_error is not None:
        lacking = f"run {run} is in its journal but not in {place.database}: {ended.load_error}"
        remedy = f"agentload runs load {run} --db {place.database}"
        if stopped is None:
            raise StoreError(lacking, hint=remedy)
        audience.notice(f"warning: {lacking}")
        audience.notice(f"hint: {remedy}")
    if stopped is not None:
        raise stopped
