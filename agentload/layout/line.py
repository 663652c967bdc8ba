"""Build the line that windows are drawn from, so that every call is met equally often.

The line is the time in which a window may start. Let a window be D seconds long. In
hours of steady load a call is met by windows that start in the D seconds before it. A window that
starts in a wait sends the next call at once, so that call is met from all of the wait; of a longer
wait only D seconds count. Where sessions arrive at recorded times, an instant counts if a session
is there and a call is sent in the D seconds after it. Time in which no session is there is a wait
for the next one: a window that falls there starts with that session.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeAlias

from agentload.layout.timeline import Timeline, TurnTiming, lasts_s
from agentload.model.record import Record
from agentload.model.trace import Session

BEFORE_S: Final = 1e-6
"""How long before a session's start a window starts that falls into the wait for it.

At the very instant the first call would be under way, and its answer would count for nothing.
"""

Span: TypeAlias = tuple[float, float]
"""Start and end, in seconds."""
Timed: TypeAlias = tuple[Sequence[Session], Timeline]
"""A family, and when its turns are sent and answered."""


class Stretch(Record):
    """A stretch of time, and how many seconds of the line it counts for."""

    begins_s: float
    lasts_s: float
    counts_s: float


class DrawingLine(Record, dict=True):
    """Stretches of time one after the other, each as long as it counts."""

    stretches: tuple[Stretch, ...]

    @cached_property
    def _ends_s(self) -> tuple[float, ...]:
        return tuple(accumulate(each.counts_s for each in self.stretches))

    @property
    def seconds(self) -> float:
        """Length of the line."""
        if not self.stretches:
            return 0.0
        return self._ends_s[-1]

    def at(self, position_s: float) -> float:
        """Return the time at a position of the line."""
        if not self.stretches:
            return 0.0
        place = min(bisect_right(self._ends_s, position_s), len(self.stretches) - 1)
        stretch = self.stretches[place]
        left = (self._ends_s[place] - position_s) / stretch.counts_s
        return stretch.begins_s + (1 - left) * stretch.lasts_s


def line_of_turns(families: Iterable[Timed], *, window_s: float) -> DrawingLine:
    """Return the line of families that are played one after the other."""
    stretches = [each for each in _stretches(families, window_s) if each.counts_s > 0]
    return DrawingLine(stretches=tuple(stretches))


def _stretches(families: Iterable[Timed], window_s: float) -> Iterator[Stretch]:
    """Yield a stretch for each time in which a family is being answered, and for each wait."""
    begins_s = 0.0
    for timed in families:
        calls, lasts_s = _calls(timed)
        before_s = 0.0
        sent = (each for each in calls if each.sent_s < lasts_s)
        spans = _union((each.sent_s, min(each.answered_s, lasts_s)) for each in sent)
        for sent_s, answered_s in spans:
            wait_s = sent_s - before_s
            yield Stretch(
                begins_s=begins_s + before_s, lasts_s=wait_s, counts_s=min(wait_s, window_s)
            )
            answering_s = answered_s - sent_s
            yield Stretch(begins_s=begins_s + sent_s, lasts_s=answering_s, counts_s=answering_s)
            before_s = answered_s
        begins_s += lasts_s


def _calls(timed: Timed) -> tuple[list[TurnTiming], float]:
    """Return when each call of a family is made, and how long the family lasts."""
    family, timings = timed
    return [each for turns in timings.values() for each in turns], lasts_s(family, timings)


def line_of_arrivals(
    families: Iterable[Timed], starts_s: Iterable[float], *, window_s: float
) -> DrawingLine:
    """Return the line of families that start at given times.

    Where no session is there, a window starts with the next one that comes.
    """
    present: list[Span] = []
    followed: list[Span] = []
    for timed, start_s in zip(families, starts_s, strict=True):
        calls, lasts_s = _calls(timed)
        if calls:
            present.append((start_s, start_s + lasts_s))
        for each in calls:
            if each.sent_s - window_s < lasts_s:
                begin_s = start_s + each.sent_s - window_s
                followed.append((begin_s, start_s + min(each.sent_s, lasts_s)))
    there = _union(present)
    stretches = []
    for begin_s, end_s in _overlap(there, _union(followed)):
        span_s = end_s - begin_s
        stretches.append(Stretch(begins_s=begin_s, lasts_s=span_s, counts_s=span_s))
    before_s = -math.inf
    for begin_s, end_s in there:
        counts_s = min(begin_s - before_s, window_s)
        stretches.append(Stretch(begins_s=begin_s - BEFORE_S, lasts_s=0.0, counts_s=counts_s))
        before_s = end_s
    stretches.sort(key=lambda each: (each.begins_s, each.lasts_s))
    return DrawingLine(stretches=tuple(stretches))


def _overlap(some: Sequence[Span], others: Sequence[Span]) -> Iterator[Span]:
    """Yield the overlaps of two lists of spans, each ordered and without overlaps of its own."""
    left = right = 0
    while left < len(some) and right < len(others):
        begin_s = max(some[left][0], others[right][0])
        end_s = min(some[left][1], others[right][1])
        if begin_s < end_s:
            yield begin_s, end_s
        if some[left][1] < others[right][1]:
            left += 1
        else:
            right += 1


def _union(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, joined where one starts before another ends."""
    found: list[Span] = []
    for begin_s, end_s in sorted(spans):
        if found and begin_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((begin_s, end_s))
    return found
