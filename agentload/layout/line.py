"""The line that windows are drawn from: the time in which one may begin, so that every call is met equally often.

In hours of steady load a call is met from the D seconds before it, D being how long a window is. A window that begins in a
wait sends the call behind it at once, so it is met from all of that wait: of a longer one, D seconds count. Where sessions
arrive when they did, there is time in which nobody is there; an instant counts if a call is sent in the D seconds behind it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from agentload.layout.timeline import Timeline, Timing
from agentload.model.trace import Session

Span: TypeAlias = tuple[float, float]
"""A begin and an end, in seconds."""
Timed: TypeAlias = tuple[Sequence[Session], Timeline]
"""A family, and when its turns are sent and answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of time, and how much of a line it is."""

    begins_s: float
    lasts_s: float
    counts_s: float


@dataclass(frozen=True, kw_only=True)
class Line:
    """Stretches of time behind each other; none of them is empty."""

    stretches: tuple[Stretch, ...]

    @cached_property
    def _ends_s(self) -> tuple[float, ...]:
        return tuple(accumulate(each.counts_s for each in self.stretches))

    @property
    def seconds(self) -> float:
        """Return how long the line is."""
        return self._ends_s[-1] if self.stretches else 0.0

    def at(self, position_s: float) -> float:
        """Return the time at a place of the line."""
        if not self.stretches:
            return 0.0
        place = min(bisect_right(self._ends_s, position_s), len(self.stretches) - 1)
        stretch = self.stretches[place]
        left = (self._ends_s[place] - position_s) / stretch.counts_s
        return stretch.begins_s + (1 - left) * stretch.lasts_s


def line_of_turns(families: Iterable[Timed], *, window_s: float) -> Line:
    """Return the line of families that are played one after the other."""
    return Line(stretches=tuple(each for each in _stretches(families, window_s) if each.counts_s > 0))


def _stretches(families: Iterable[Timed], window_s: float) -> Iterator[Stretch]:
    """Yield when somebody of a family is being answered, and when all of it waits."""
    begins_s = 0.0
    for timed in families:
        calls, lasts_s = _calls(timed)
        before_s = 0.0
        for sent_s, answered_s in _union((each.sent_s, min(each.answered_s, lasts_s)) for each in calls if each.sent_s < lasts_s):
            wait_s = sent_s - before_s
            yield Stretch(begins_s=begins_s + before_s, lasts_s=wait_s, counts_s=min(wait_s, window_s))
            yield Stretch(begins_s=begins_s + sent_s, lasts_s=answered_s - sent_s, counts_s=answered_s - sent_s)
            before_s = answered_s
        begins_s += lasts_s


def _calls(timed: Timed) -> tuple[list[Timing], float]:
    """Return when each call of a family is made, and how long the family is there: until its first session has ended."""
    family, timings = timed
    root = timings.get(family[0].session, ())
    return [each for turns in timings.values() for each in turns], root[-1].answered_s if root else 0.0


def line_of_arrivals(families: Iterable[Timed], starts_s: Iterable[float], *, window_s: float) -> Line:
    """Return the line of families that start at given times."""
    spans = _union(_instants(families, starts_s, window_s))
    return Line(stretches=tuple(Stretch(begins_s=begin, lasts_s=end - begin, counts_s=end - begin) for begin, end in spans))


def _instants(families: Iterable[Timed], starts_s: Iterable[float], window_s: float) -> Iterator[Span]:
    """Yield from when to when an instant has a call behind it whose family is there, or will be."""
    for timed, start_s in zip(families, starts_s, strict=True):
        calls, lasts_s = _calls(timed)
        for each in calls:
            begin_s, end_s = each.sent_s - window_s, min(each.sent_s, lasts_s)
            if begin_s < end_s:
                yield start_s + begin_s, start_s + end_s


def _union(spans: Iterable[Span]) -> list[Span]:
    """Return spans in their order, joined where one begins before another ends."""
    found: list[Span] = []
    for begin_s, end_s in sorted(spans):
        if found and begin_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((begin_s, end_s))
    return found
