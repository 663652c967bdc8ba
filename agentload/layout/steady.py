"""Hold a trace in its steady state: its families under a load, and a line to draw them from.

A family takes the times of its turns from `layout.timeline`, which are nominal: the same for
every arm. On the line (`layout.line`) families with contexts of similar length are next to each
other, so that few points of it span the trace.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeAlias

from agentload.errors import PlanError
from agentload.layout.carried import Carried, carry
from agentload.layout.line import DrawingLine, Timed, line_of_arrivals, line_of_turns
from agentload.layout.nominal import UNBOUNDED_S
from agentload.layout.timeline import Timeline, lasts_s, timeline
from agentload.layout.traces import another
from agentload.model.plan import ClosedLoop, Load, OpenLoop, Recorded
from agentload.model.trace import PRIME, UNDER_WAY, Header, Segment, Session, Trace, Turn
from agentload.model.walk import context_tokens, families

KEPT: Final = 500
"""Families with new content that are kept; more take memory for what is seldom played."""
Family: TypeAlias = tuple[Session, ...]


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The families of a trace under a load, with the times at which their turns are sent."""

    header: Header
    families: tuple[Family, ...]
    load: Load
    copies: dict[tuple[int, int], Family] = field(default_factory=dict, compare=False, repr=False)
    """Families with new content, by place and copy; kept as trials play the same ones again."""
    timings: dict[int, Timeline] = field(default_factory=dict, compare=False, repr=False)
    """When the turns of families are sent and answered, by place."""

    def under(self, load: Load) -> "Steady":
        """Return the same families under another load."""
        timings = self.timings if load.waits == self.load.waits else {}
        return replace(self, load=load, timings=timings)

    def timeline(self, place: int) -> Timeline:
        """Return when the turns of a family are sent and answered."""
        if place not in self.timings:
            self.timings[place] = timeline(self.families[place], self.load)
        return self.timings[place]

    def from_then_on(self, place: int, at_s: float, copies: Counter[int]) -> Carried:
        """Carry a family over an instant; with new content if it was carried before."""
        family = self.fresh(place, copies)
        timings = self.timeline(place)
        of_copy = {}
        for old, new in zip(self.families[place], family, strict=True):
            if old.session in timings:
                of_copy[new.session] = timings[old.session]
        return carry(self.header, family, of_copy, at_s=at_s)

    def fresh(self, place: int, copies: Counter[int]) -> Family:
        """Return a family, with new content each time but the first.

        *copies* counts how often each family was returned.
        """
        copy = copies[place]
        copies[place] += 1
        if not copy:
            return self.families[place]
        kept = self.copies.get((place, copy))
        if kept is not None:
            return kept
        made = another(self.families[place], copy)
        if len(self.copies) < KEPT:
            self.copies[place, copy] = made
        return made

    @cached_property
    def ends_s(self) -> tuple[float, ...]:
        """When each family ends if they are played one after the other, in s."""
        return tuple(accumulate(lasts_s(family, timings) for family, timings in self._timed()))

    def _timed(self) -> Iterator[Timed]:
        for place, family in enumerate(self.families):
            yield family, self.timeline(place)

    @cached_property
    def starts_s(self) -> tuple[float, ...]:
        """When each family of recorded arrivals starts after the first, in s, as the load says."""
        assert isinstance(self.load.arrivals, Recorded)
        starts = [family[0].start_s or 0.0 for family in self.families]
        first = min(starts)
        return tuple((each - first) / self.load.arrivals.speed for each in starts)

    @cached_property
    def line(self) -> DrawingLine:
        """The line that windows are drawn from.

        It runs over the families one after the other, or over the trace's own starts.
        """
        match self.load.arrivals:
            case Recorded():
                return line_of_arrivals(self._timed(), self.starts_s, window_s=self.window_s)
            case ClosedLoop() | OpenLoop():
                return line_of_turns(self._timed(), window_s=self.window_s)

    @cached_property
    def quotes(self) -> bool:
        """Whether any call quotes an answer."""
        turns = (turn for family in self.families for session in family for turn in session.turns)
        return any(segment.source is not None for turn in turns for segment in turn.add)

    def lasting_s(self, place: int) -> float:
        """Return how long a family takes, in s."""
        return self.ends_s[place] - self._begins_s(place)

    def at(self, position_s: float) -> tuple[int, float]:
        """Return the family at a position of the line over all of them, and how far into it."""
        at_s = self.line.at(position_s)
        place = min(bisect_right(self.ends_s, at_s), len(self.families) - 1)
        return place, at_s - self._begins_s(place)

    def _begins_s(self, place: int) -> float:
        if not place:
            return 0.0
        return self.ends_s[place - 1]

    @property
    def window_s(self) -> float:
        """How long a window lasts, in s."""
        return self.load.budget.seconds or UNBOUNDED_S


def steady(trace: Trace, load: Load) -> Steady:
    """Return a trace in its steady state under a load.

    Raises PlanError for a trace without sessions.
    """
    found = [_alone(family) for family in families(trace.sessions)]
    if not found:
        raise PlanError("the trace has no session", hint="agentload trace show TRACE")
    found.sort(key=lambda family: _mean_context(trace.header, family))
    return Steady(header=trace.header, families=tuple(found), load=load)


def _mean_context(header: Header, family: Family) -> float:
    """Return how long the contexts of a family's calls are on average."""
    found = [tokens for session in family for tokens in context_tokens(header, session)]
    return sum(found) / max(1, len(found))


def _alone(family: Sequence[Session]) -> Family:
    """Return a family without dependencies on others of its trace.

    Its own priming calls become calls that do not count, as only a window primes.
    """
    names = frozenset(each.session for each in family)

    def unquoted(segment: Segment) -> Segment:
        is_own = segment.source is None or segment.source.session in names
        return segment if is_own else replace(segment, source=None)

    def alone(turn: Turn) -> Turn:
        return replace(
            turn,
            after=tuple(ref for ref in turn.after if ref.session in names),
            add=tuple(map(unquoted, turn.add)),
            event=UNDER_WAY if turn.event == PRIME else turn.event,
        )

    return tuple(replace(each, turns=tuple(map(alone, each.turns))) for each in family)
