"""How the command line follows a run: progress on standard error, notices with it, Ctrl-C heeded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from agentload.cli._asking import Progress as Answers
from agentload.cli._print import notice, visible
from agentload.cli._progress import Progress
from agentload.cli._signals import heard
from agentload.layout.cost import Cost
from agentload.model.metrics import ClockStart
from agentload.run.ask import Listener
from agentload.run.foreground import Audience
from agentload.run.questions import Question


@contextmanager
def _progress(expected: Cost, start: ClockStart) -> Iterator[Progress]:
    progress = Progress(expected, start=start)
    with progress.shown():
        yield progress


@contextmanager
def _answers(questions: Sequence[Question], arms: int) -> Iterator[Listener]:
    progress = Answers(questions, arms=arms)
    try:
        yield progress.answered
    finally:
        progress.end()


TERMINAL: Final = Audience(notice=lambda text: notice(visible(text)), progress=_progress, answers=_answers, stopping=heard)
