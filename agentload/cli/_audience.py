"""How the command line follows a run: a table that is drawn on a
terminal, a line now and then elsewhere; notices, and Ctrl-C heeded.

Nothing here is measured.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Final

from agentload.cli._print import ABSENT, is_watched, length, notice, table, transient
from agentload.cli._signals import heard
from agentload.layout.cost import Cost
from agentload.model.commands import Send
from agentload.model.metrics import Clock, ClockStart
from agentload.model.rows import AnswerRow, CallRow
from agentload.run.ask import Listener
from agentload.run.foreground import Audience
from agentload.run.latest import Latest, Spread
from agentload.run.questions import Question
from agentload.visible import visible

Above = Callable[[], Sequence[str]]
PLAIN_S = 10.0
DRAWN_S = 0.25
BAR = 24
HEAD = ("arm", "calls", "in flight", "failed", "TTFT p50", "p95", "TPOT p50", "p95", "tokens/s")


@dataclass(slots=True)
class _Arm:
    total: int
    in_flight: int = 0
    latest: Latest = field(default_factory=Latest)
    output_tokens: int = 0
    busy_from: float | None = None
    busy_s: float = 0.0

    def done(self) -> str:
        """Say how many calls are done, and of how many: what a time
        budget leaves room for is a guess, not shown once it was too low.
        """
        return (
            f"{self.latest.done}/{self.total}"
            if self.latest.done <= self.total
            else str(self.latest.done)
        )

    def seconds(self) -> float:
        return self.busy_s + (
            time.monotonic() - self.busy_from if self.busy_from is not None else 0.0
        )


class Progress:
    """Listen to a replay and draw it."""

    def __init__(self, expected: Cost, *, start: ClockStart = "due", above: Above = tuple) -> None:
        """Begin with what the plan expects; the clocks of its turns
        *start* as its load has it, lines *above* say what it is part of.
        """
        self._above = above
        self._clock = Clock(start)
        self._planned_s = 60 * expected.minutes
        self._arms = {name: _Arm(total) for name, total in expected.calls_by_arm.items()}
        self._started = time.monotonic()
        self._plain_at = self._started + PLAIN_S
        self._playing = ""

    def sent(self, send: Send) -> None:
        """Note that a call went out."""
        arm = self._arms[send.arm]
        what = (
            "priming the contexts of its window"
            if send.call.prime and not send.tail
            else f"block {send.block}"
        )
        self._playing = f"pair {send.pair} · {what} on {send.arm} · "
        if arm.in_flight == 0:
            arm.busy_from = time.monotonic()
        arm.in_flight += 1

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note how a call ended."""
        arm = self._arms[send.arm]
        arm.in_flight -= 1
        if arm.in_flight == 0 and arm.busy_from is not None:
            arm.busy_s, arm.busy_from = arm.seconds(), None
        arm.latest.take(ended, self._clock.since_ns(ended))
        arm.output_tokens += ended.output_tokens or 0
        if not sys.stderr.isatty() and time.monotonic() >= self._plain_at:
            self._plain_at = time.monotonic() + PLAIN_S
            notice(self.line())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw on standard error for as long as the
        block runs; plain lines when it is no terminal.
        """
        if not is_watched():
            yield
            return
        ended = threading.Event()

        def drawing() -> None:
            transient(*self.lines())
            while not ended.wait(DRAWN_S):
                transient(*self.lines())

        drawer = threading.Thread(
            target=copy_context().run, args=(drawing,), name="progress", daemon=True
        )
        drawer.start()
        try:
            yield
        finally:
            ended.set()
            drawer.join()
            transient()

    def line(self) -> str:
        """Return the state in one line."""
        parts = [
            f"{name} {arm.done()}, {sum(count for _, count in arm.latest.failed)} failed"
            for name, arm in self._arms.items()
        ]
        return (
            f"{time.monotonic() - self._started:6.0f} s  "
            + " · ".join(parts)
            + f" · left {self._left()}"
        )

    def lines(self) -> tuple[str, ...]:
        """Return the state as it is drawn: a bar, what is played, and a row an arm."""
        done, total = (
            sum(arm.latest.done for arm in self._arms.values()),
            sum(arm.total for arm in self._arms.values()),
        )
        share = min(1.0, done / total) if total else 0.0
        full = round(share * BAR)
        head = f"{'█' * full}{'░' * (BAR - full)} {share:4.0%} · {self._playing}{self._left()} left"
        return (
            *self._above(),
            head,
            *table(HEAD, [self._row(name, arm) for name, arm in self._arms.items()]),
        )

    def _row(self, name: str, arm: _Arm) -> tuple[str, ...]:
        failed = ", ".join(f"{count} {status}" for status, count in arm.latest.failed[:2]) or "0"
        seconds = arm.seconds()
        rate = f"{arm.output_tokens / seconds:,.0f}" if seconds > 1 else ABSENT
        return (
            name,
            arm.done(),
            str(arm.in_flight),
            failed,
            *_ms(arm.latest.ttft_ms),
            *_ms(arm.latest.tpot_ms),
            rate,
        )

    def _left(self) -> str:
        done, total = (
            sum(a.latest.done for a in self._arms.values()),
            sum(a.total for a in self._arms.values()),
        )
        if done < 3 or done > total:
            return "…"
        share = done / total
        # The plan knows of waits that are still to come; what
        # was seen counts for as much as it is of the whole.
        whole_s = (time.monotonic() - self._started) + (1 - share) * self._planned_s
        seconds = (1 - share) * whole_s
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(0.0, seconds):.0f} s"


def _ms(spread: Spread | None) -> tuple[str, str]:
    if spread is None:
        return ABSENT, ABSENT
    p50, p95 = (
        f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"
        for value in (spread.p50, spread.p95)
    )
    return p50, p95


class Answers:
    """Tell on standard error how far each cell of an evaluation is:
    a line drawn again on a terminal, a line now and then elsewhere.
    """

    def __init__(self, questions: Sequence[Question], *, arms: int) -> None:
        self._totals = Counter(
            {
                cell: count * arms
                for cell, count in Counter((each.task, each.context) for each in questions).items()
            }
        )
        self._done: Counter[tuple[str, int]] = Counter()
        self._failed = 0
        self._told_at = time.monotonic()

    def answered(self, question: Question, _arm: str, row: AnswerRow) -> None:
        """Note one answer."""
        cell = (question.task, question.context)
        self._done[cell] += 1
        self._failed += row.right is None
        if sys.stderr.isatty():
            transient(self._line(cell))
        elif time.monotonic() - self._told_at >= PLAIN_S:
            self._told_at = time.monotonic()
            print(self._line(cell), file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line that was drawn."""
        transient("")

    def _line(self, cell: tuple[str, int]) -> str:
        ready = sum(self._done[each] >= total for each, total in self._totals.items())
        task, context = cell
        return (
            f"{sum(self._done.values()):,}/{sum(self._totals.values()):,} answers, "
            f"{ready}/{len(self._totals)} cells, {self._failed} failed"
            f" · {task} {length(context)} {self._done[cell]}/{self._totals[cell]}"
        )


@contextmanager
def _answers(questions: Sequence[Question], arms: int) -> Iterator[Listener]:
    progress = Answers(questions, arms=arms)
    try:
        yield progress.answered
    finally:
        progress.end()


def terminal(above: Above = tuple) -> Audience:
    """Return an audience that draws progress on standard error,
    below the lines that *above* returns whenever it is drawn.
    """

    @contextmanager
    def progress(expected: Cost, start: ClockStart) -> Iterator[Progress]:
        made = Progress(expected, start=start, above=above)
        with made.shown():
            yield made

    return Audience(
        notice=lambda text: notice(visible(text)),
        progress=progress,
        answers=_answers,
        stopping=heard,
    )


TERMINAL: Final = terminal()
