"""Draw a decision at work: its stages, how the arms compare, what plays, and what is spent.

On a terminal all of it stays in its place and is drawn again; elsewhere each question
and its answer is a line.
"""

import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from textwrap import shorten, wrap
from typing import Final

from agentload.cli._audience import DRAWN_S, CallProgress, follow_answers, rows_so_far, terminal
from agentload.cli._closing import whole_statements
from agentload.cli._print import is_watched, notice, repeatedly, transient
from agentload.decision.ledger import LedgerEntry
from agentload.decision.look import Criterion
from agentload.decision.state import DecisionState
from agentload.layout.cost import Cost
from agentload.model.metrics import ClockStart
from agentload.model.record import Record
from agentload.run.audience import Audience
from agentload.verdict.looks import SpeedInterval
from agentload.visible import visible

WIDTH: Final = 100
_NARROWEST: Final = 60
_STAGE: Final = 14
_LOOKS: Final = 4
"""Looks at one arm that are drawn, the latest."""
_LABEL: Final = 18
_AXIS: Final = 41
_LATER: Final[Mapping[Criterion, str]] = {
    "capacity": "not asked yet",
    "accuracy": "asked only of an arm that is faster or carries more",
}
_NO_CAPACITY: Final = "skipped: neither --slo nor --agents is given"


class BoardTitle(Record):
    """Say what is decided on."""

    traces: str
    arms: tuple[str, ...]
    """The first is the reference."""
    latency: str = "turn latency"
    """The latency whose change decides."""


class Board:
    """Draw the state of a decision, with the calls that it plays, until it ends."""

    def __init__(self, title: BoardTitle, state: Callable[[], DecisionState]) -> None:
        self._title, self._state = title, state
        self._progress: CallProgress | None = None
        self._passing = ""

    def audience(self) -> Audience:
        """Return an audience whose progress this board draws, if standard error is watched."""
        usual = terminal()
        if not is_watched():
            return usual
        return replace(
            usual,
            notice=_notice_folded,
            progress=self._follow_calls,
            answers=partial(follow_answers, draw=self._pass),
            rows=lambda count: self._pass(rows_so_far(count)),
            step=self._pass,
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw the board for as long as the block runs; an error leaves its stages there."""
        if not is_watched():
            yield
            return
        lines: Iterable[str] = ()
        try:
            with repeatedly(lambda: transient(*self.lines(width())), every_s=DRAWN_S):
                yield
        except BaseException:
            lines = stage_lines(self._state(), width())
            raise
        finally:
            transient()
            for line in lines:
                print(line, file=sys.stderr, flush=True)

    def lines(self, columns: int) -> Iterator[str]:
        """Yield the board as it is drawn."""
        state = self._state()
        first, *others = self._title.arms
        yield f"agentload decide  {self._title.traces}   {first} → {', '.join(others)}"[:columns]
        yield from stage_lines(state, columns)
        yield from interval_lines(state, self._title, columns)
        yield from (self._progress.lines() if self._progress is not None else ())
        if self._passing:
            yield f" {self._passing}"[:columns]
        yield _spent_line(state)[:columns]

    def _pass(self, text: str) -> None:
        if text.startswith("warning: "):
            _notice_folded(text)
            return
        is_of_stages = text.startswith(("  ", "asking: "))
        self._passing = "" if is_of_stages else text

    @contextmanager
    def _follow_calls(self, expected: Cost, start: ClockStart) -> Iterator[CallProgress]:
        self._progress = progress = CallProgress(expected, start=start)
        try:
            yield progress
        finally:
            self._progress = None


def _notice_folded(text: str) -> None:
    """Say something above the board, folded at words."""
    lines = wrap(visible(text), width(), subsequent_indent="  ", break_on_hyphens=False)
    notice("\n".join(lines))


def width() -> int:
    """Return how many columns a line of the board may have: those of the terminal, 100 at most."""
    columns = shutil.get_terminal_size((WIDTH + 1, 0)).columns
    return max(_NARROWEST, min(WIDTH, columns - 1))


def stage_lines(state: DecisionState, columns: int) -> Iterator[str]:
    """Yield a line for each stage: done, at work, or when it comes, with its time."""
    stage = partial(_stage, columns=columns)
    asking = None if state.asking is None else state.asking.look.criterion
    by_stage: dict[Criterion, list[LedgerEntry]] = {}
    for entry in state.asked:
        by_stage.setdefault(entry.stage.criterion, []).append(entry)
    for name, entries in by_stage.items():
        if name != asking:
            yield stage("✓", name, entries[-1].said, _minutes(entries))
    if state.asking is not None:
        look = state.asking.look
        earlier = by_stage.get(look.criterion, ())
        minutes = _minutes(earlier) + state.asking.minutes
        yield stage("▶", look.criterion, look.what, minutes)
    for later, when in _LATER.items():
        if later in by_stage or later == asking:
            continue
        is_skipped = later == "capacity" and not state.searches_capacity
        yield stage(" ", later, _NO_CAPACITY if is_skipped else when, None)


def _minutes(entries: Sequence[LedgerEntry]) -> float:
    return sum(each.minutes for each in entries)


def _stage(mark: str, name: str, said: str, minutes: float | None, *, columns: int) -> str:
    """Return the statements of a stage that fit into its line, which its time ends."""
    took = "" if minutes is None else f"{int(minutes)}:{int(60 * minutes) % 60:02}"
    room = columns - _STAGE - len(took) - 5
    # the first statement alone may be longer
    line = shorten(" ".join(whole_statements(said, room, most=1)), room, placeholder=" …")
    return f" {mark} {name:<{_STAGE}}{line:<{room}} {took}".rstrip()


def interval_lines(state: DecisionState, title: BoardTitle, columns: int) -> Iterator[str]:
    """Yield the change of the latency look by look, drawn against the margins."""
    if not state.intervals:
        return
    axis = min(_AXIS, columns - _LABEL - 32)
    margin = state.intervals[-1].margin
    span = max(map(_reach, state.intervals))
    yield ""
    margins = f"use < {_percent(-margin)} · avoid > {_percent(margin)}"
    yield f" {title.latency} against {title.arms[0]}: {margins}"[:columns]
    yield f" {'':<{_LABEL}}{_percent(-span):<{axis // 2}}0{_percent(span):>{axis // 2}}"
    for arm, found in groupby(sorted(state.intervals, key=lambda each: each.arm), _arm):
        shown = tuple(found)[-_LOOKS:]
        for each in shown:
            label = f"{each.pairs} pairs {arm}"[: _LABEL - 1]
            interval = f"[{_percent(each.low)}, {_percent(each.high)}]"
            figure = f"{_percent(each.value)} {interval}"
            yield f" {label:<{_LABEL}}{_interval_over_axis(each, span, axis)}  {figure}"[:columns]
        if shown[-1].is_open:
            yield f" still possible for {arm}: {', '.join(shown[-1].possible)}"
    yield ""


def _reach(interval: SpeedInterval) -> float:
    """Return how far an axis reaches that shows an interval and its margins."""
    ends = [abs(end) for end in (interval.low, interval.high) if math.isfinite(end)]
    return max([2 * interval.margin, *ends])


def _arm(interval: SpeedInterval) -> str:
    return interval.arm


def _interval_over_axis(interval: SpeedInterval, span: float, axis: int) -> str:
    """Draw an interval over the margins and zero."""

    def place(value: float) -> int:
        inside = max(-span, min(span, value))
        return round((inside + span) / (2 * span) * (axis - 1))

    cells = [" "] * axis
    for value, mark in ((-interval.margin, "┆"), (0.0, "┼"), (interval.margin, "┆")):
        cells[place(value)] = mark
    low, high = place(interval.low), place(interval.high)
    for at in range(low, high + 1):
        cells[at] = "─" if cells[at] == " " else cells[at]
    cells[low], cells[high] = "├", "┤"
    cells[place(interval.value)] = "●"
    return "".join(cells)


def _percent(share: float) -> str:
    """Write a change: +3.0%, −3.5%; open where nothing bounds it."""
    if not math.isfinite(share):
        return "open"
    return f"{100 * share:+.1f}%".replace("-", "−")


def _spent_line(state: DecisionState) -> str:
    """Say what is spent, and what the running question takes."""
    spent = f" spent {state.spent_minutes:.0f} of {state.budget_minutes:.0f} min"
    if state.asking is None:
        return spent
    price = state.asking.price
    calls = "" if price.calls is None else f"{price.calls:,} calls, "
    takes = f"this takes {calls}{price.minutes:.0f} min"
    return f"{spent} · {takes} · Ctrl-C decides on what is there"
