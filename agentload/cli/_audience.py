"""How the command line follows a run: a table that is drawn on a
terminal, a line now and then elsewhere; notices, and Ctrl-C heeded.

Its figures are for watching alone: no result is taken from them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from shutil import get_terminal_size
from typing import Final

from agentload.cli._print import (
    ABSENT,
    figure,
    is_watched,
    length,
    notice,
    repeatedly,
    table,
    transient,
)
from agentload.cli._signals import hear_stop
from agentload.layout.cost import Cost
from agentload.model.client import MAX_LATE_MS
from agentload.model.commands import Send
from agentload.model.metrics import Clock, ClockStart
from agentload.model.rows import AnswerRow, CallRow
from agentload.run.ask import Listener as AnswerListener
from agentload.run.audience import Audience
from agentload.run.latest import Latest, LatestSpread, share
from agentload.run.questions import Question
from agentload.visible import visible

PLAIN_S = 10.0
DRAWN_S = 0.25
BAR = 24
HEAD = (
    *("arm", "calls", "in flight", "failed", "TTFT p50", "p95", "TPOT p50", "p95", "tokens/s"),
    f"late p99 (≤ {MAX_LATE_MS:g})",
)
_NARROW: Final = 100
"""Columns of a terminal below which the table has no p95."""


class CallProgress:
    """Listen to a replay and draw it."""

    def __init__(self, expected: Cost, *, start: ClockStart = "due") -> None:
        """Start with what the plan expects; *start* is where its turns' clocks start."""
        self._clock = Clock(start)
        self._planned_s = 60 * expected.minutes
        self._expected = expected.calls_by_arm
        self._arms = {name: Latest() for name in expected.calls_by_arm}
        self._in_flight: Counter[str] = Counter()
        self._started = time.monotonic()
        self._plain_at = self._started + PLAIN_S
        self._playing = ""

    def sent(self, send: Send) -> None:
        """Note that a call went out."""
        is_priming = send.call.prime and not send.tail
        what = "priming the contexts of its window" if is_priming else f"block {send.block}"
        self._playing = f"pair {send.pair} · {what} on {send.arm} · "
        self._in_flight[send.arm] += 1

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note how a call ended."""
        self._in_flight[send.arm] -= 1
        self._arms[send.arm].take(ended, self._clock.since_ns(ended))
        now_s = time.monotonic()
        if now_s >= self._plain_at:
            self._plain_at = now_s + PLAIN_S
            if not is_watched():
                notice(self.line())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw on standard error for as long as the block runs.

        Plain lines when it is no terminal.
        """
        if not is_watched():
            yield
            return
        transient(*self.lines())
        try:
            with repeatedly(lambda: transient(*self.lines()), every_s=DRAWN_S):
                yield
        finally:
            transient()

    def line(self) -> str:
        """Return the state in one line."""
        parts = []
        for name, arm in self._arms.items():
            failed = sum(count for _, count in arm.failed)
            parts.append(f"{name} {self._done(name)}, {failed} failed")
        seconds = time.monotonic() - self._started
        late = [arm.late_ms for arm in self._arms.values() if arm.late_ms is not None]
        lateness = f" · late p99 {_lateness(max(late))}" if late else ""
        return f"{seconds:6.0f} s  {' · '.join(parts)}{lateness} · left {self._left()}"

    def lines(self) -> tuple[str, ...]:
        """Return the state as it is drawn: a bar, what is played, and a row an arm."""
        done = share(self._arms, self._expected)
        bar = ""
        if done is not None:
            full = round(done * BAR)
            bar = f"{'█' * full}{'░' * (BAR - full)} {done:4.0%} · "
        head = f"{bar}{self._playing}{self._left()} left"
        rows = [HEAD, *(self._row(name, arm) for name, arm in self._arms.items())]
        if get_terminal_size((_NARROW, 0)).columns < _NARROW:
            has_room = [name != "p95" for name in HEAD]
            rows = [tuple(compress(row, has_room)) for row in rows]
        return (head, *table(rows[0], rows[1:]))

    def _row(self, name: str, arm: Latest) -> tuple[str, ...]:
        failed = ", ".join(f"{count} {status}" for status, count in arm.failed[:2]) or "0"
        rate = figure(arm.tokens_per_s, ",.0f")
        in_flight = str(self._in_flight[name])
        times = (*_ms(arm.ttft_ms), *_ms(arm.tpot_ms))
        return (name, self._done(name), in_flight, failed, *times, rate, _lateness(arm.late_ms))

    def _done(self, arm: str) -> str:
        """Return how many calls of an arm are done, and of how many."""
        latest = self._arms[arm]
        total = latest.total(self._expected[arm])
        return str(latest.done) if total is None else f"{latest.done}/{total}"

    def _left(self) -> str:
        done = share(self._arms, self._expected)
        if done is None or sum(arm.done for arm in self._arms.values()) < 3:
            return "…"
        rest = 1 - done
        # The whole is what has passed and what the plan expects of the rest, waits included.
        whole_s = (time.monotonic() - self._started) + rest * self._planned_s
        seconds = rest * whole_s
        return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(0.0, seconds):.0f} s"


def _lateness(late_ms: float | None) -> str:
    """Say how late requests leave, and whether that invalidates the timings."""
    if late_ms is None:
        return ABSENT
    return f"{late_ms:.1f} ms {'✓' if late_ms <= MAX_LATE_MS else '✗'}"


def _ms(spread: LatestSpread | None) -> tuple[str, str]:
    if spread is None:
        return ABSENT, ABSENT
    return _shown_ms(spread.p50), _shown_ms(spread.p95)


def _shown_ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


class AnswerProgress:
    """Tell on standard error how far each cell of an evaluation is.

    A line drawn again on a terminal, a line now and then elsewhere.
    """

    def __init__(
        self, questions: Sequence[Question], *, arms: int, draw: Callable[[str], None]
    ) -> None:
        self._draw = draw
        self._totals: Counter[tuple[str, int]] = Counter()
        for each in questions:
            self._totals[each.task, each.context] += arms
        self._done: Counter[tuple[str, int]] = Counter()
        self._failed = 0
        self._told_at = time.monotonic()

    def answered(self, question: Question, _arm: str, row: AnswerRow) -> None:
        """Note one answer."""
        cell = (question.task, question.context)
        self._done[cell] += 1
        self._failed += row.right is None
        if is_watched():
            self._draw(self._line(cell))
        elif time.monotonic() - self._told_at >= PLAIN_S:
            self._told_at = time.monotonic()
            notice(self._line(cell))

    def end(self) -> None:
        """Leave the line that was drawn."""
        self._draw("")

    def _line(self, cell: tuple[str, int]) -> str:
        done, asked = self._done.total(), self._totals.total()
        ready = sum(self._done[each] >= total for each, total in self._totals.items())
        cells = f"{ready}/{len(self._totals)} cells"
        task, context = cell
        own = f"{task} {length(context)} {self._done[cell]}/{self._totals[cell]}"
        return f"{done:,}/{asked:,} answers, {cells}, {self._failed} failed · {own}"


@contextmanager
def follow_answers(
    questions: Sequence[Question], arms: int, *, draw: Callable[[str], None] = transient
) -> Iterator[AnswerListener]:
    """Give what listens to the answers of an evaluation, and draws how far it is."""
    progress = AnswerProgress(questions, arms=arms, draw=draw)
    try:
        yield progress.answered
    finally:
        progress.end()


def rows_so_far(rows: int) -> str:
    """Say how far a simulation is, by the rows that it has written."""
    return f"simulating: {rows:,} calls and gauge readings so far"


def terminal() -> Audience:
    """Return an audience that draws progress on standard error."""

    @contextmanager
    def progress(expected: Cost, start: ClockStart) -> Iterator[CallProgress]:
        made = CallProgress(expected, start=start)
        with made.shown():
            yield made

    return Audience(
        notice=lambda text: notice(visible(text)),
        progress=progress,
        answers=follow_answers,
        stopping=hear_stop,
        rows=lambda count: transient(rows_so_far(count)),
    )


TERMINAL: Final = terminal()
