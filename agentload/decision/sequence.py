"""What a decision asks next: the cheapest question
that can still change it, and nothing once it is made.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import scipy

from advisor.steps import MorePairs, Questions, Restarts, Step, Swap, counted
from advisor.verdict import ArmVerdict, Decision, Leg

Criterion: TypeAlias = Literal[
    "checks", "service level", "canary", "screen", "speed", "step times", "capacity", "accuracy"
]
"""Five are none of their own: checks, the service level, a canary
and a screen say whether measuring is worth it, step times where.
"""

PAIRS: Final = (4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 46, 64)
"""Block pairs in all, look by look."""
FIRST: Final = 1
"""Pair that shows what the servers are: what is known of
their version and kernel may decide before speed is looked at.
"""
ITEMS: Final = (30, 120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550, 2100)
"""Paired questions in all, look by look; the first tell whether the reference can answer at all."""
TRIED: Final = (3, 6, 12)
"""Draws of sessions in all that every arm plays at two loads, look by look."""
REPEATS: Final = 3
"""Plays of the grid of step times, at most."""
TOLD: Final = 300
"""Paired questions from which on it is asked whether more of them may settle anything."""
STARTED: Final[Mapping[int, int]] = MappingProxyType({1: 16, 2: 20, 4: 26, 8: 34})
"""Pairs, by the starts that they take turns on, beyond which what
is left open is what those add, which no pair of theirs tells.
"""
STAYS: Final[Mapping[int, float]] = MappingProxyType({1: 0.055, 2: 0.0275, 4: 0.013, 8: 0.008})
"""Half width of an interval, on the log scale, that stays whatever the number
of pairs, by the starts that they take turns on: of several, which tell by how
much they differ, what a quarter of them leave at most.
"""
OF_TWINS: Final = 0.15
"""And of the ratio of two capacities, whatever the
number of trials: how well twins know their own long run.
"""
UNLIKELY: Final = 0.05
LIKELY: Final = 0.5
"""Chances that the last look settles something, below which nothing
more is asked: where that settles an arm, and where it only may.
"""
QUARTILE: Final = 1.36
"""Standard error of a quartile of so many normal values, in deviations
of one over the root of their number: what a bound may rest on.
"""
LENGTHS: Final = (8192, 32768)
"""Where nothing tells how long contexts get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a run holds, and what follows from it."""

    decision: Decision
    pairs: int = 0
    items: int = 0
    lengths: tuple[int, ...] = ()
    """At which questions were asked."""
    tried: int = 0
    """Draws of sessions that were played for capacity;
    as many as there can be where it was searched.
    """
    step_times: int = 0
    """Plays of the grid that are wanted before capacity is measured."""
    starts: int = 1
    """Which pairs take turns on, where servers run all the time."""

    @property
    def challengers(self) -> tuple[ArmVerdict, ...]:
        """Return the verdicts of the arms that could take the place of the one in use."""
        return tuple(each for each in self.decision.server if each.arm != self.decision.reference)

    @property
    def open(self) -> tuple[ArmVerdict, ...]:
        """Return the verdicts that are no decision yet."""
        return tuple(each for each in self.challengers if each.verdict == "test further")

    def seen(self, arm: str) -> tuple[float, ...]:
        """Return the relative change of an arm's turn
        latency in each pair, of the class with most calls.
        """
        own = [
            each
            for each in self.decision.changes
            if (each.arm, each.metric) == (arm, "turn_ms") and each.by_pair
        ]
        return max(own, key=lambda each: each.calls).by_pair if own else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One question: so many pairs in all, so many items in all at
    these lengths, so many plays of a grid, so many draws for capacity.
    """

    criterion: Criterion
    amount: int
    lengths: tuple[int, ...] = ()


def following(
    known: Known | None,
    *,
    capacity: bool,
    pairs: int = 0,
    level: bool = False,
    cheap: Sequence[Stage] = (),
) -> Iterator[Stage]:
    """Yield what could be asked next, the best thing first; nothing where
    the decision is made, or no question is left that could make it.

    Nothing is known while there are few *pairs*. What is *cheap* comes after the first
    of them, and may end it all. Speed comes next, and is looked at often: a clear loss
    ends it all. *capacity* is measured where the user named a service level or a peak,
    and again only while it is what is open. Accuracy is the dearest, so it is asked
    only of what pays. Whether an arm meets the service *level* at all is asked as soon
    as there is a run to keep it in: where none does, nothing else matters.
    """
    if level and pairs and (known is None or known.open):
        yield Stage(criterion="service level", amount=1)
    if known is None:
        yield from cheap if pairs else ()
        yield Stage(criterion="speed", amount=PAIRS[0] if pairs else FIRST)
    elif known.open:
        yield from dict.fromkeys(_stages(known, _of_capacity(known) if capacity else []))


def _of_capacity(known: Known) -> list[Stage]:
    """Return what is asked of capacity next, step times first;
    nothing where that is settled, or was looked at often enough.
    """
    # Pools of one size carry the same, whatever that is:
    # measured, it would leave open what they settle.
    unknown = (
        each.capacity is None or each.capacity.state in ("unclear", "untested")
        for each in known.open
    )
    is_open = (
        any(_is_carried(each, known.tried) for each in known.open) if known.tried else any(unknown)
    )
    if not is_open or (draws := _next(TRIED, known.tried)) is None:
        return []
    first = [Stage(criterion="step times", amount=known.step_times)] if known.step_times else []
    return [*first, Stage(criterion="capacity", amount=draws)]


def _stages(known: Known, capacity: Sequence[Stage]) -> Iterator[Stage]:
    """Yield what could settle an open verdict, the first thing first."""
    first = () if known.tried else capacity
    paying = [each for each in known.open if _pays(each)]
    if (
        any(is_told(each.safe, known.items) for each in paying)
        and (items := _next(ITEMS, known.items)) is not None
    ):
        yield from first  # it is part of the answer, and an arm that loses there need not be asked
        yield Stage(
            criterion="accuracy", amount=items, lengths=lengths(known.decision, asked=known.lengths)
        )
    # Where it takes other starts, longer trials or a
    # quieter client, more of the same pairs settle nothing.
    needs = ((each, need) for each in known.open for need in each.pays.needs)
    if any(
        is_narrowed(each.pays, need.step, known.pairs, known.seen(each.arm), starts=known.starts)
        for each, need in needs
    ):
        # A look at few pairs says little: the load that they carry is
        # asked for once, as soon as speed alone has not settled it.
        if known.pairs >= PAIRS[2]:
            yield from first
        if (pairs := _next(PAIRS, known.pairs)) is not None:
            yield Stage(criterion="speed", amount=pairs)
    yield from capacity


def settling(known: Known, stage: Stage) -> Stage:
    """Return the look that is likely to settle what *stage* is only the next look at."""
    steps = [
        need.step
        for each in known.open
        for need in (*each.pays.needs, *each.safe.needs)
        if need.step is not None
    ]
    match stage.criterion:
        case "speed":
            looks, wanted = (
                PAIRS,
                [counted(step)[1] for step in steps if isinstance(step, MorePairs | Swap)],
            )
        case "accuracy":
            looks, wanted = (
                ITEMS,
                [counted(step)[1] for step in steps if isinstance(step, Questions)],
            )
        case _:
            return stage
    return replace(
        stage,
        amount=next((look for look in looks if look >= max((stage.amount, *wanted))), looks[-1]),
    )


def pairs_of_starts(starts: int) -> int:
    """Return how many pairs are looked at where they take turns on so many starts."""
    return STARTED[_counted(starts)]


def _counted(starts: int) -> int:
    return max(each for each in STARTED if each <= starts)


def is_narrowed(
    pays: Leg, step: Step | None, pairs: int, seen: Sequence[float] = (), *, starts: int = 1
) -> bool:
    """Tell whether more of the same pairs may settle
    an arm, where this is what settles it for certain.
    """
    most, stays = pairs_of_starts(starts), STAYS[_counted(starts)]
    match step:
        case MorePairs() | Swap() if starts == 1:
            most, stays = PAIRS[-1], 0.0
        case MorePairs() | Swap() | Restarts():
            pass
        case _:
            return False
    return (
        pairs < most
        and _chance(pays, share=pairs / most, stays=stays, within=2, seen=seen) >= UNLIKELY
    )


def _is_carried(verdict: ArmVerdict, tried: int) -> bool:
    """Tell whether more trials may settle how many
    agents an arm carries, and that may settle the arm.

    Where turns may be longer, more agents settle nothing yet:
    they are a reason to ask for answers, and those may be worse.
    """
    pays, capacity = verdict.pays, verdict.capacity
    if pays.state == "yes" or capacity is None or capacity.state != "unclear":
        # a check that failed, or a pool that never filled, is the same after more of them
        return False
    may_harm = (
        pays.estimate is None or pays.margin is None or not pays.estimate.is_below(pays.margin)
    )
    is_slower = may_harm and any(
        isinstance(need.step, MorePairs | Restarts | Swap) for need in pays.needs
    )
    least = LIKELY if is_slower else UNLIKELY
    return _chance(capacity, share=tried / TRIED[-1], stays=OF_TWINS, within=1) >= least


def is_told(safe: Leg, items: int) -> bool:
    """Tell whether more questions may settle whether an arm's answers are as right."""
    found, margin = safe.estimate, safe.margin
    if safe.state not in ("unclear", "untested"):
        return False
    if (
        safe.state == "untested" and items
    ):  # what was asked is judged by a check that failed, or lies at other lengths
        return any(isinstance(need.step, Questions) for need in safe.needs)
    if items < TOLD or found is None or found.low is None or found.high is None or margin is None:
        return True
    share, ends = items / ITEMS[-1], (found.low, found.high)
    return (
        sum(
            _reached(found.value, end, share=share, level=found.level, bound=-margin)
            for end in ends
        )
        >= UNLIKELY
    )


def _reached(value: float, end: float, *, share: float, level: float, bound: float) -> float:
    """Return how likely this end of an interval passes a bound at
    the last look, so large a *share* being asked of what can be.
    """
    now, side = abs(end - value), 1.0 if end < value else -1.0
    moves = now * math.sqrt(1 - share) / scipy.special.ndtri(0.5 + level / 2)
    return float(
        scipy.special.ndtr((side * (value - bound) - now * math.sqrt(share)) / max(moves, 1e-12))
    )


def _chance(
    leg: Leg, *, share: float, stays: float, within: int, seen: Sequence[float] = ()
) -> float:
    """Return how likely the last look shows a change beyond the margin,
    or none beyond *within* margins; 1 before there is an interval.

    So large a *share* was asked of all that can be. The interval narrows to what *stays*, and
    its value moves by what that takes away. One that is open on a side never shows that there
    is no change. Where its value is a bound, what was *seen* in each pair has the value.
    """
    found, margin = leg.estimate, leg.margin
    if (
        found is None
        or margin is None
        or (found.is_bound and len(seen) < 2)
        or (found.low is not None and found.low <= -1)
    ):
        # an end that was rounded to losing all is none:
        # few pairs that differ by orders of magnitude
        return 1.0
    near, far = (found.low, found.high) if found.value > 0 else (found.high, found.low)
    if near is None:
        return float(
            far is None or abs(math.log1p(far)) > margin
        )  # at most so much, and that may be beyond the margin
    side = math.copysign(1.0, found.value)
    value, least = (side * math.log1p(each) for each in (found.value, near))
    least_moves = 1e-6
    if found.is_bound:
        changes = [side * math.log1p(each) for each in seen]
        value = max(value, statistics.fmean(changes))
        stays = max(stays, value - statistics.quantiles(changes, method="inclusive")[0])
        least_moves += QUARTILE * statistics.stdev(changes) * math.sqrt((1 - share) / len(changes))
    now = value - least
    last = math.hypot(stays, math.sqrt(max(0.0, now**2 - stays**2) * share))
    moves = max(
        least_moves,
        math.sqrt(max(0.0, now**2 - last**2)) / scipy.special.ndtri(0.5 + found.level / 2),
    )
    beyond = scipy.special.ndtr((value - margin - last) / moves)
    return float(
        beyond
        if far is None
        else beyond + scipy.special.ndtr((within * margin - last - value) / moves)
    )


def _pays(verdict: ArmVerdict) -> bool:
    return verdict.pays.state == "yes" or (
        verdict.capacity is not None and verdict.capacity.state == "yes"
    )


def _next(looks: tuple[int, ...], so_far: int) -> int | None:
    return next((look for look in looks if look > so_far), None)


def lengths(decision: Decision, *, asked: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the lengths at which questions are worth asking: those
    that the user's contexts have, and of those *asked* what decides.
    """
    steps = [
        need.step for verdict in decision.server for need in (*verdict.needs, *verdict.safe.needs)
    ]
    wanted = [step.lengths for step in steps if isinstance(step, Questions) and step.lengths]
    if not asked:
        return next(iter(wanted), LENGTHS)
    return tuple(each for each in asked if any(each in step for step in wanted)) or asked


def reasons(known: Known, leg: Callable[[ArmVerdict], Leg]) -> str:
    """Say of each arm what is known by one criterion,
    or by what it was decided where that is another.
    """
    said = (
        (
            each,
            each.reason
            if leg(each).state == "untested" and each not in known.open
            else leg(each).reason,
        )
        for each in known.challengers
    )
    return "; ".join(f"{each.arm}: {reason}" for each, reason in said)
