"""How the command line follows a run: progress on standard error, notices with it, Ctrl-C heeded."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from agentload.cli._asking import Progress as Answers
from agentload.cli._print import notice, visible
from agentload.cli._progress import Above, Progress
from agentload.cli._signals import heard
from agentload.layout.cost import Cost
from agentload.model.metrics import ClockStart
from agentload.run.ask import Listener
from agentload.run.foreground import Audience
from agentload.run.questions import Question


@contextmanager
def _answers(questions: Sequence[Question], arms: int) -> Iterator[Listener]:
    progress = Answers(questions, arms=arms)
    try:
        yield progress.answered
    finally:
        progress.end()


def terminal(above: Above = tuple) -> Audience:
    """Return an audience that draws progress on standard error, below the lines that *above* returns whenever it is drawn."""

    @contextmanager
    def progress(expected: Cost, start: ClockStart) -> Iterator[Progress]:
        made = Progress(expected, start=start, above=above)
        with made.shown():
            yield made

    return Audience(notice=lambda text: notice(visible(text)), progress=progress, answers=_answers, stopping=heard)


TERMINAL: Final = terminal()
