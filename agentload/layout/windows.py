"""Draw windows: what a server sees from a random instant of a trace's steady state on.

A server that has run for hours holds sessions in their middle, and long ones more often. So each
session that is kept going starts where a point on a line through all of them falls
(`layout.steady`): points lie in equal steps after one random start, and sessions with contexts of
similar length are next to each other, so that few points span the trace. What a session has sent
before its point is primed: sent once, untimed, in one call with an answer of one token. Then
the window plays; sessions continue with what follows, and others replace those that end. In a
closed loop a window is one session's, and a block plays a window for each session at once.

All times are nominal (`layout.timeline`): every arm
plays the same windows, however long it takes for them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heapify, heapreplace
from itertools import count, islice
from typing import Final

from agentload.dispatch.arrivals import SECOND, open_starts, rng_of
from agentload.errors import PlanError
from agentload.layout.steady import Steady
from agentload.model.plan import Block, ClosedLoop, Load, OpenLoop, Recorded
from agentload.model.record import Record
from agentload.model.trace import PRIME, Segment, Session, Turn, total_tokens

GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Golden ratio: its multiples modulo 1 stay spread, however many there are."""
FASTER: Final = 4.0
"""Speed, in multiples of the nominal one, at which sessions must still not run out."""
BEYOND_S: Final = 120.0
"""How long past its end a window's load stays on at most,
for calls that count and are still under way.
"""
WINDOW_S: Final = 75.0
"""Duration that a replay of windows is given where it names no end."""
USER: Final = (Segment(role="user", tokens=8, key="prefix"),)
"""Message after a prefix that is primed alone, as servers need something to answer."""


class Laid(Record):
    """Hold the blocks of a plan, and the load under which they are played."""

    blocks: tuple[Block, ...]
    load: Load


def most_windows(stock: Steady) -> int:
    """Return for how many windows of the load's duration the trace has time.

    Each window needs a stretch of its own.
    """
    return max(1, math.floor(stock.line.seconds / stock.window_s))


def windows_a_pair(stock: Steady) -> int:
    """Return how many windows a pair has: one per session kept going, else one."""
    arrivals = stock.load.arrivals
    if isinstance(arrivals, ClosedLoop):
        return arrivals.sessions
    return 1


def windows_played(stock: Steady, pairs: int) -> int:
    """Return how many windows *pairs* pairs play, as far as the trace has time for them."""
    a_pair = windows_a_pair(stock)
    most = most_windows(stock) // a_pair
    return a_pair * max(1, min(pairs, most))


def check_room(stock: Steady, number: int) -> None:
    """Raise PlanError if *number* windows are too few for a pair, or too many for the trace.

    A pair needs a window for each session that is kept going.
    """
    least = windows_a_pair(stock)
    with_time = most_windows(stock)
    most = max(least, with_time)
    if number < least:
        raise PlanError(
            f"--windows {number} is less than one for each of {least} sessions",
            hint=f"--windows {least}",
        )
    if number > most:
        raise PlanError(
            f"the trace has time for {with_time} window{'' if with_time == 1 else 's'} "
            f"of {stock.window_s:g} s, got {number}",
            hint=f"--windows {most}, or a shorter --duration",
        )


def windows(stock: Steady, *, number: int, pairs: int, seed: int) -> Laid:
    """Lay out a block of windows for each pair.

    Later pairs start between the instants of the first *number* windows.
    In a closed loop a pair has a window for each session that
    is kept going; under any other load it has one window.
    """
    pairs_a_cycle = max(1, number // windows_a_pair(stock))
    drawn = [
        _BlockOfWindows(
            stock=stock, instant=_instant(pair, pairs_a_cycle, seed), pair=pair, seed=seed
        )
        for pair in range(pairs)
    ]
    blocks = tuple(Block(index=each.pair, sessions=each, is_window=True) for each in drawn)
    return Laid(blocks=blocks, load=_playable(stock.load))


def _instant(pair: int, pairs_a_cycle: int, seed: int) -> float:
    """Return where in each step a pair's points lie, as a share of the step.

    *pairs_a_cycle* pairs together divide each step evenly, in an order in which the
    first few already spread over it; the points of later pairs lie between theirs.
    """
    order = sorted(range(pairs_a_cycle), key=lambda place: place * GOLDEN % 1.0)
    rank = order.index(pair % pairs_a_cycle)
    start = (rng_of(seed, "windows").random() + pair // pairs_a_cycle * GOLDEN) % 1.0
    return (rank + start) / pairs_a_cycle


def _playable(load: Load) -> Load:
    """Return the load under which laid out windows are played.

    A closed loop starts at full load; other sessions have their start instants already.
    """
    match load.arrivals:
        case ClosedLoop(sessions=sessions):
            return replace(load, arrivals=ClosedLoop(sessions=sessions))
        case OpenLoop() | Recorded():
            return replace(load, arrivals=Recorded())


class _BlockOfWindows(Record, dict=True):
    """The sessions of all windows that a block plays at once.

    Primed prefixes come first, then sessions in their middle by when they were last served, then
    those that follow.
    """

    stock: Steady
    instant: float
    pair: int
    seed: int

    def __iter__(self) -> Iterator[Session]:
        first = self._first
        yield from first.sessions
        copies = Counter(first.copies)  # a copy: `fresh` counts in it
        for place, start_s in islice(self._followers(), first.followers, None):
            yield from _starting(self.stock.fresh(place, copies), start_s)

    def telling(self) -> Iterable[Session]:
        """Return the sessions to look through before the block starts (`Foretelling`).

        All where a call quotes an answer, else those laid out at once, as only these prime.
        """
        if self.stock.quotes:
            return self
        return self._first.sessions

    def _followers(self) -> Iterator[tuple[int, float]]:
        return _followers(self.stock, self.instant, self.pair, self.seed)

    @cached_property
    def _first(self) -> "_First":
        stock = self.stock
        copies = Counter[int]()
        alive = list(_alive(stock, self.instant))
        begun = [stock.from_then_on(place, at_s, copies) for place, at_s in alive]
        begun.sort(key=lambda each: -each.idle_s)
        sessions: list[Session] = []
        for each in begun:
            sessions += _starting(each.sessions, 0.0)
        soon = list(_soon(stock, alive, self._followers()))
        for place, start_s in soon:
            sessions += _starting(stock.fresh(place, copies), start_s)
        return _First(
            sessions=(*_prefixes(sessions), *sessions), copies=copies, followers=len(soon)
        )


class _First(Record):
    """The sessions of a block that are likely to be played, laid out once."""

    sessions: tuple[Session, ...]
    copies: Counter[int]
    """How often each family is among them."""
    followers: int
    """How many of the followers are among them."""


def _soon(
    stock: Steady, alive: Sequence[tuple[int, float]], followers: Iterator[tuple[int, float]]
) -> Iterator[tuple[int, float]]:
    """Yield the followers that are likely to start while the window lasts.

    Of sessions that arrive by themselves, all.
    """
    if not isinstance(stock.load.arrivals, ClosedLoop):
        yield from followers
        return
    ends_s = [stock.lasting_s(place) - at_s for place, at_s in alive]
    heapify(ends_s)
    while ends_s and ends_s[0] < stock.window_s:
        follower = next(followers, None)
        if follower is None:
            return
        place, _ = follower
        heapreplace(ends_s, ends_s[0] + stock.lasting_s(place))
        yield follower


def _starting(family: Sequence[Session], start_s: float) -> list[Session]:
    # Sessions without start_s are spawned by another of the family.
    return [each if each.start_s is None else replace(each, start_s=start_s) for each in family]


def _prefixes(sessions: Sequence[Session]) -> Iterator[Session]:
    """Yield a priming session for each cached prefix that no other primed context holds."""
    primed = {each.prefix for each in sessions if each.turns[0].event == PRIME}
    for each in sessions:
        name = each.prefix
        if name is None or name in primed:
            continue
        primed.add(name)
        turn = Turn(add=USER, output=1, event=PRIME)
        yield Session(
            session=f"prefix {name}",
            workload=each.workload,
            turns=(turn,),
            start_s=0.0,
            prefix=name,
        )


# --- what is alive at an instant, and what follows ---


def _alive(stock: Steady, instant: float) -> Iterator[tuple[int, float]]:
    """Yield the place of each family that a window starts with, and how far into it."""
    match stock.load.arrivals:
        case ClosedLoop(sessions=sessions):
            for slot in range(sessions):
                yield stock.at((slot + instant) / sessions * stock.line.seconds)
        case OpenLoop(rate_per_s=rate):
            step_s = len(stock.families) / rate
            how_many = max(0, math.ceil(stock.line.seconds / step_s - instant))
            for number in range(how_many):
                yield stock.at((number + instant) * step_s)
        case Recorded():
            at_s = stock.line.at(instant * stock.line.seconds)
            for place, start_s in enumerate(stock.starts_s):
                if start_s <= at_s < start_s + stock.lasting_s(place):
                    yield place, at_s - start_s


def _followers(stock: Steady, instant: float, pair: int, seed: int) -> Iterator[tuple[int, float]]:
    """Yield the families that start inside a window, and when.

    In a closed loop a family starts when another one ends, and its time is 0.
    """
    horizon_s = stock.window_s + BEYOND_S
    match stock.load.arrivals:
        case ClosedLoop(sessions=sessions):
            for place in _enough(stock, FASTER * sessions * horizon_s, seed, pair):
                yield place, 0.0
        case OpenLoop() as load:
            places = _drawn(stock, seed, pair)
            without_ramp = replace(load, ramp_s=0.0)
            for at_ns in open_starts(without_ramp, rng_of(seed, "arrivals", pair)):
                start_s = at_ns / SECOND
                if start_s >= horizon_s:
                    return
                yield next(places), start_s
        case Recorded():
            at_s = stock.line.at(instant * stock.line.seconds)
            starts = sorted((start_s, place) for place, start_s in enumerate(stock.starts_s))
            for start_s, place in starts:
                if at_s < start_s < at_s + horizon_s:
                    yield place, start_s - at_s


def _drawn(stock: Steady, seed: int, pair: int) -> Iterator[int]:
    """Yield places of families without end.

    Each pair spreads its own over all of them, and all pairs together spread their first, their
    second, and so on.
    """
    start = rng_of(seed, "followers").random() + pair * math.sqrt(2)
    for number in count():
        share = (start + number * GOLDEN) % 1.0
        yield int(share * len(stock.families))


def _enough(stock: Steady, seconds: float, seed: int, pair: int) -> Iterator[int]:
    """Yield drawn families until they take *seconds* in all.

    A family that takes no time counts as a moment, so that this ends.
    """
    left_s = seconds
    for place in _drawn(stock, seed, pair):
        if left_s <= 0:
            return
        yield place
        left_s -= max(stock.lasting_s(place), seconds / 10_000)


# --- what a window holds ---


def sessions_of_hours(stock: Steady) -> float | None:
    """Return how many sessions, going for hours, load a server as much as those of windows.

    Windows skip most of a long wait, so theirs are busier and the result is larger. None where no
    fixed number of sessions is kept going.
    """
    match stock.load.arrivals:
        case ClosedLoop(sessions=sessions):
            return sessions * stock.ends_s[-1] / stock.line.seconds
        case _:
            return None


PROBED: Final = 20
"""Number of instants drawn to estimate what the windows of a block hold together."""


def held_tokens(stock: Steady, *, seed: int) -> float:
    """Return how many tokens of context the windows of a block hold, in nineteen of twenty blocks.

    Shared prefixes count once; the next turn is included.
    """

    def held(primed: Sequence[Session]) -> float:
        tokens = 0
        for session in primed:
            prime_and_next = session.turns[:2]
            tokens += sum(total_tokens(turn.add) + turn.output for turn in prime_and_next)
        for name in {each.prefix for each in primed if each.prefix is not None}:
            tokens += total_tokens(stock.header.prefixes[name])
        return float(tokens)

    return _in_most_blocks(stock, held, seed)


def _in_most_blocks(
    stock: Steady, measure: Callable[[Sequence[Session]], float], seed: int
) -> float:
    """Return what the primed sessions of a block measure, in nineteen of twenty blocks."""
    found = sorted(measure(_primed(stock, _instant(pair, PROBED, seed))) for pair in range(PROBED))
    return found[PROBED * 19 // 20 - 1]


def _primed(stock: Steady, instant: float) -> list[Session]:
    """Return the sessions that a block of windows begins with in their middle."""
    out: list[Session] = []
    for place, at_s in _alive(stock, instant):
        carried = stock.from_then_on(place, at_s, Counter()).sessions
        out += [session for session in carried if session.turns[0].event == PRIME]
    return out


def longest_priming_s(stock: Steady, prefill_s: Callable[[int], float], *, seed: int) -> float:
    """Return about how long priming a block's windows takes, in nineteen of twenty blocks."""

    def priming_s(primed: Sequence[Session]) -> float:
        return sum(prefill_s(total_tokens(session.turns[0].add)) for session in primed)

    return _in_most_blocks(stock, priming_s, seed)
