"""Lay out blocks by the rules of AgentX 1.0, the benchmark of agents' sessions of InferenceX.

A slot of the load holds a whole session tree: a session with all sub-agents that it starts, until
the last of them has ended. It begins in the middle. An instant is drawn from the middle half of the
tree's nominal time, every tree of the trace with equal chance, and what the tree has sent before is
*primed*: each conversation's last prompt goes out once more and asks for one token. Then the tree
takes ten more turns, each cut to one token and sent without its wait, so that the server's cache
has seen what it would hold. Only then the clock starts, and turns are played as they were recorded.

What bounds the wait is the idleness of the whole load: after ten seconds without any call, all that
is due moves nearer. A single wait is bounded by five minutes. Trees that follow start at their
first turn, in an order that plays every tree once before any comes again. No two plays of a tree
share content, so that a tree finds in the cache what it has sent itself, and nothing else.

`evidence.agentx` says whether a run kept to these rules.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from agentload.dispatch.arrivals import rng_of
from agentload.layout.carried import carry
from agentload.layout.steady import Family, Steady, steady
from agentload.layout.timeline import Timeline, TurnTiming, timeline
from agentload.layout.traces import another
from agentload.layout.windows import BEYOND_S, FASTER, Laid
from agentload.model.plan import Block, ClosedLoop, Load, WaitScale
from agentload.model.record import Record
from agentload.model.trace import PRIME, Session, Trace, Turn

WAITS: Final = ("schedule", "tool", "user")


class Rules(Record):
    """Hold the figures of one edition of the benchmark."""

    name: str
    lasts_s: float
    """How long calls count."""
    turns: int
    """Turns of one token that each slot takes between its primers and the clock."""
    starts: tuple[float, float] = (0.25, 0.75)
    """Between which shares of a tree's time a slot begins."""
    idle_s: float = 10.0
    """How long the whole load may be idle."""
    wait_s: float = 300.0
    """The longest single wait."""
    failed: float = 0.1
    """Largest share of calls that may fail."""


RULES: Final = {
    each.name: each
    for each in (
        Rules(name="agentx", lasts_s=3600.0, turns=10),
        Rules(name="agentx-fast", lasts_s=1200.0, turns=1),
    )
}


def _ruled_load(rules: Rules, load: Load) -> Load:
    """Return a closed loop's load under the rules; caps that it has already stay."""
    assert isinstance(load.arrivals, ClosedLoop), load
    caps = {kind: WaitScale(cap_s=rules.wait_s) for kind in WAITS}
    return replace(
        load,
        arrivals=ClosedLoop(sessions=load.arrivals.sessions, holds_trees=True),
        waits={**caps, **load.waits},
        idle_cap_s=rules.idle_s,
    )


def ruled_blocks(rules: Rules, trace: Trace, load: Load, *, pairs: int, seed: int) -> Laid:
    """Lay out a block for each pair by the rules, under the load of a closed loop."""
    ruled = _ruled_load(rules, load)
    stock = steady(trace, ruled)
    blocks = tuple(
        Block(
            index=pair,
            sessions=_Trees(rules=rules, stock=stock, pair=pair, seed=seed),
            is_window=True,
        )
        for pair in range(pairs)
    )
    return Laid(blocks=blocks, load=ruled)


class _Trees(Record, dict=True):
    """The trees that a block plays: those in the middle first, then those that follow."""

    rules: Rules
    stock: Steady
    pair: int
    seed: int

    def __iter__(self) -> Iterator[Session]:
        yield from self._begun
        for play, place in self._plays(since=self._slots):
            yield from self._played(play, place)

    def telling(self) -> Iterable[Session]:
        """Return the sessions that prime contexts or quote answers; followers prime none."""
        return self if self.stock.quotes else self._begun

    @property
    def _slots(self) -> int:
        arrivals = self.stock.load.arrivals
        assert isinstance(arrivals, ClosedLoop), arrivals
        return arrivals.sessions

    @cached_property
    def _begun(self) -> tuple[Session, ...]:
        """The trees that the slots begin with, each in its middle."""
        rng = rng_of(self.seed, "agentx starts", self.pair)
        cuts = []
        for play, place in islice(self._plays(), self._slots):
            family = self._played(play, place)
            timings = timeline(family, self.stock.load)
            least, most = self.rules.starts
            share = rng.uniform(least, most)
            cuts.append(_Cut(stock=self.stock, family=family, timings=timings, share=share))
        turns = _dealt([each.spare(self.rules.turns) for each in cuts], self.rules.turns)
        sessions: list[Session] = []
        for cut, number in zip(cuts, turns, strict=True):
            sessions += cut.advanced(number, most=self.rules.turns)
        return tuple(sessions)

    def _plays(self, *, since: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the number of each play and its family's place, as many as a block may need."""
        horizon_s = (self.stock.load.budget.seconds or self.rules.lasts_s) + BEYOND_S
        left_s = FASTER * self._slots * horizon_s
        rng = rng_of(self.seed, "agentx order", self.pair)
        play = 0
        places = range(len(self.stock.families))
        while left_s > 0 or play < self._slots:
            for place in rng.sample(places, len(places)):
                if play >= since:
                    yield play, place
                play += 1
                left_s -= max(self._least_s(place), horizon_s / 10_000)

    def _least_s(self, place: int) -> float:
        """Return how long a family takes if the load is idle whenever it waits."""
        idle_s = 0.0
        for session in self.stock.families[place]:
            for turn in session.turns:
                idle_s += max(0.0, turn.wait_s - self.rules.idle_s)
        nominal = self.stock.timeline(place)
        return max(0.0, _ends_s(nominal) - idle_s)

    def _played(self, play: int, place: int) -> Family:
        """Return a family with content that no other play of any family has."""
        own = [self._alone(each) for each in self.stock.families[place]]
        return another(own, 1 + play)

    def _alone(self, session: Session) -> Session:
        """Return a session whose shared prefix is part of its first turn."""
        if session.prefix is None:
            return session
        first, *others = session.turns
        shared = self.stock.header.prefixes[session.prefix][: first.keep]
        first = replace(first, add=(*shared, *first.add), keep=None)
        return replace(session, prefix=None, turns=(first, *others))


def _ends_s(timings: Timeline) -> float:
    return max((each[-1].answered_s for each in timings.values() if each), default=0.0)


def _dealt(spare: Sequence[int], turns: int) -> list[int]:
    """Return how many turns each tree takes before the clock, *turns* of them on average.

    A tree that has fewer to spare leaves its own to the others.
    """
    dealt = [min(turns, each) for each in spare]
    for place, each in enumerate(spare):
        missing = turns * len(spare) - sum(dealt)
        dealt[place] += min(missing, each - dealt[place])
    return dealt


class _Cut(Record, dict=True):
    """A tree that a slot begins with, cut at a share of its time."""

    stock: Steady
    family: Family
    timings: Timeline
    share: float

    @cached_property
    def _sent_s(self) -> list[float]:
        """When each turn of the tree is sent, in order."""
        return sorted(each.sent_s for found in self.timings.values() for each in found)

    def _at_s(self, turns: int) -> float:
        """Return the instant of the cut: early enough that *turns* and one more turn are left."""
        sent_s = self._sent_s
        left = min(turns + 1, len(sent_s) - 1)
        return min(self.share * _ends_s(self.timings), sent_s[-1 - left])

    def _left(self, at_s: float) -> int:
        return sum(1 for each in self._sent_s if each > at_s)

    def spare(self, turns: int) -> int:
        """Return how many turns the tree can take before the clock, one left to be played."""
        return max(0, self._left(self._at_s(turns)) - 1)

    def advanced(self, number: int, *, most: int) -> list[Session]:
        """Return the tree with its primers, *number* turns of one token, then the others.

        A tree of one turn has nothing to prime: it is played from its start.
        """
        if len(self._sent_s) == 1:
            return list(self.family)
        at_s = self._at_s(most)
        # What is being answered at the instant counts as answered: its prompt is primed.
        sent = {
            name: tuple(TurnTiming(each.sent_s, each.sent_s) for each in found)
            for name, found in self.timings.items()
        }
        carried = carry(self.stock.header, self.family, sent, at_s=at_s).sessions
        following = sorted(
            (timing.sent_s, name, place)
            for name, found in sent.items()
            for place, timing in enumerate(found)
            if timing.sent_s > at_s
        )[:number]
        taken = {(name, place) for _, name, place in following}
        until_s = following[-1][0] if following else at_s
        members = {each.session: each for each in self.family}
        return [
            replace(each, turns=tuple(self._turns(each, members[each.session], taken, until_s)))
            for each in carried
        ]

    def _turns(
        self, carried: Session, whole: Session, taken: set[tuple[str, int]], until_s: float
    ) -> Iterator[Turn]:
        """Yield a session's turns: primers, turns of one token, then those that count.

        The first that counts waits for what is left of its wait at *until_s*.
        """
        primers = sum(turn.event == PRIME for turn in carried.turns)
        first = len(whole.turns) - (len(carried.turns) - primers)
        yield from carried.turns[:primers]
        is_first = True
        for place, turn in enumerate(carried.turns[primers:], start=first):
            if (whole.session, place) in taken:
                yield replace(turn, output=1, event=PRIME, wait=None, wait_s=0.0, check=())
                continue
            if not is_first:
                yield turn
                continue
            is_first = False
            recorded = whole.turns[place]
            left_s = max(0.0, self.timings[whole.session][place].sent_s - until_s)
            yield replace(turn, wait=recorded.wait, wait_s=min(recorded.wait_s, left_s))
