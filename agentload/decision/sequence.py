"""Choose what a decision asks next: the cheapest question that can still change it.

Nothing is asked once the decision is made.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import scipy

from advisor.steps import MorePairs, Questions, Restarts, Step, Swap, without_amount
from advisor.verdict import ArmVerdict, Decision, Leg, Need
from agentload.decision.known import Known
from agentload.decision.look import DRAWS, FIRST, ITEMS, LENGTHS, PAIRS, Criterion, Look

SETTLING: Final[Mapping[Criterion, tuple[type[Step], ...]]] = MappingProxyType(
    {"speed": (MorePairs, Swap), "accuracy": (Questions,)}
)
"""Steps that ask for more of a criterion."""
FEW_ITEMS: Final = 300
"""Paired questions from which on the chance that more settle anything is estimated."""
LAST_PAIRS: Final[Mapping[int, int]] = MappingProxyType({1: 16, 2: 20, 4: 26, 8: 34})
"""Most pairs, by the starts that they take turns on.

Beyond these, what is left open is what the starts add, which more pairs on them do not show.
"""
STAYS: Final[Mapping[int, float]] = MappingProxyType({1: 0.055, 2: 0.0275, 4: 0.013, 8: 0.008})
"""Half width of an interval, on the log scale, that stays whatever the number of pairs.

The keys are the starts that pairs take turns on. Several starts show by how much they differ: then
the value is what a quarter of them leave at most.
"""
OF_TWINS: Final = 0.15
"""Half width that stays for the ratio of two capacities, whatever the number of trials.

It is how well twins know their own long run.
"""
UNLIKELY: Final = 0.05
LIKELY: Final = 0.5
"""Chances that the last look settles something, below which nothing more is asked.

The first where settling settles the arm, the second where it only may.
"""
QUARTILE: Final = 1.36
"""Standard error of a quartile of n normal values, in deviations over the root of n.

A bound may rest on it.
"""


def next_looks(
    known: Known, *, capacity: bool, level: bool = False, cheap: Sequence[Look] = ()
) -> Iterator[Look]:
    """Yield what could be asked next, the best question first.

    Nothing is yielded where the decision is made, or no question is left that could make it.
    Nothing follows from few pairs. What is *cheap* comes after the first of them, and may end
    everything. Speed comes next, and is looked at often: a clear loss ends everything. *capacity*
    is measured where the user named a service level or a peak, and again only while it is what is
    open. Accuracy is the dearest, so it is asked only of an arm that is faster or carries more.
    Whether an arm meets the service *level* at all is asked as soon as there is a run to keep it
    in: where no arm does, nothing else matters.
    """
    is_early = known.decision is None
    if level and known.pairs and (is_early or known.undecided):
        yield Look(criterion="service level")
    if is_early:
        yield from cheap if known.pairs else ()
        yield Look(criterion="speed", amount=PAIRS[0] if known.pairs else FIRST)
    elif known.undecided:
        yield from dict.fromkeys(_refining(known, _of_capacity(known) if capacity else []))


def _of_capacity(known: Known) -> list[Look]:
    """Return what is asked of capacity next, step times first.

    Nothing where capacity is settled, or was looked at often enough.
    """
    draws = _next(DRAWS, known.draws_asked)
    if known.draws_asked:
        is_open = any(_may_settle_agents(each, known.draws_asked) for each in known.undecided)
    else:
        # Pools of one size carry the same number of agents: the sizes
        # settle that, and a measurement would leave it open.
        states = [each.capacity.state for each in known.undecided if each.capacity is not None]
        is_unknown = len(states) < len(known.undecided)
        is_open = is_unknown or not {"unclear", "untested"}.isdisjoint(states)
    if draws is None or not is_open:
        return []
    plays = known.grid_plays_wanted
    first = [Look(criterion="step times", amount=plays)] if plays else []
    return [*first, Look(criterion="capacity", amount=draws)]


def _refining(known: Known, capacity: Sequence[Look]) -> Iterator[Look]:
    """Yield what could settle an open verdict, the first question first."""
    first = () if known.draws_asked else capacity
    paying = [each for each in known.undecided if _pays(each)]
    items = _next(ITEMS, known.items)
    if items is not None and any(may_settle_answers(each.safe, known.items) for each in paying):
        yield from first  # capacity counts too, and an arm that loses there need not be asked
        assert known.decision is not None
        at = lengths(known.decision, asked=known.lengths)
        yield Look(criterion="accuracy", amount=items, lengths=at)
    # More of the same pairs settle nothing where other starts,
    # longer trials or a quieter client are needed.
    if any(_may_settle_speed(each, known) for each in known.undecided):
        # A look at few pairs says little: the load that they carry is
        # asked for once, as soon as speed alone has not settled it.
        if known.pairs >= PAIRS[2]:
            yield from first
        if (pairs := _next(PAIRS, known.pairs)) is not None:
            yield Look(criterion="speed", amount=pairs)
    yield from capacity


def settling_look(known: Known, look: Look) -> Look:
    """Return the look that is likely to settle what *look* is only the next step of.

    Before anything is known, that is *look* itself.
    """
    if known.decision is None:
        return look
    kinds = SETTLING.get(look.criterion)
    if kinds is None:
        return look
    schedule = PAIRS if look.criterion == "speed" else ITEMS
    needs = [need for each in known.undecided for need in (*each.pays.needs, *each.safe.needs)]
    wanted = [_amount(need, known) for need in needs if isinstance(need.step, kinds)]
    least = max((look.amount, *wanted))
    return replace(look, amount=next((each for each in schedule if each >= least), schedule[-1]))


def _amount(need: Need, known: Known) -> float:
    """Return how much there is once a need is met; lengths may have unlike many questions."""
    assert need.step is not None
    if isinstance(need.step, Questions):
        return known.items + (need.pairs or 0)
    return without_amount(need.step)[1]


def settling_looks(known: Known, look: Look) -> tuple[Look, ...]:
    """Return the look that settles what *look* is about, and the look at answers that follows.

    It follows where speed is what is missing and answers are open as well.
    """
    first = settling_look(known, look)
    if known.decision is None or look.criterion == "accuracy":
        return (first,)
    needs = [need for each in known.undecided for need in each.safe.needs]
    if not any(isinstance(need.step, Questions) for need in needs):
        return (first,)
    at = lengths(known.decision, asked=known.lengths)
    return first, settling_look(known, Look(criterion="accuracy", amount=ITEMS[0], lengths=at))


def _may_settle_speed(verdict: ArmVerdict, known: Known) -> bool:
    """Tell whether more of the same pairs may settle the speed of an arm."""
    by_pair = known.change_by_pair(verdict.arm)
    steps = [need.step for need in verdict.pays.needs]
    return any(
        may_settle_pairs(verdict.pays, step, known.pairs, by_pair, starts=known.starts)
        for step in steps
    )


def pairs_of_starts(starts: int) -> int:
    """Return how many pairs are looked at when they take turns on these starts."""
    return LAST_PAIRS[_counted(starts)]


def _counted(starts: int) -> int:
    return max(each for each in LAST_PAIRS if each <= starts)


def may_settle_pairs(
    pays: Leg, step: Step | None, pairs: int, by_pair: Sequence[float] = (), *, starts: int = 1
) -> bool:
    """Tell whether more of the same pairs may settle an arm, whose *step* says what would."""
    if not isinstance(step, MorePairs | Swap | Restarts):
        return False
    most = pairs_of_starts(starts)
    stays = STAYS[_counted(starts)]
    if starts == 1 and not isinstance(step, Restarts):
        most = PAIRS[-1]
        stays = 0.0
    if pairs >= most:
        return False
    chance = _chance(pays, share=pairs / most, stays=stays, within=2, by_pair=by_pair)
    return chance >= UNLIKELY


def _may_settle_agents(verdict: ArmVerdict, draws: int) -> bool:
    """Tell whether more trials may settle how many agents an arm carries, and thereby the arm.

    Where turns may be longer, more agents settle nothing yet: they are a reason to ask for answers,
    and those may be worse.
    """
    pays, capacity = verdict.pays, verdict.capacity
    if pays.state == "yes" or capacity is None or capacity.state != "unclear":
        # more trials change neither a failed check nor a pool that never filled
        return False
    change, margin = pays.estimate, pays.margin
    may_harm = change is None or margin is None or not change.is_below(margin)
    wants_pairs = any(isinstance(need.step, MorePairs | Restarts | Swap) for need in pays.needs)
    least = LIKELY if may_harm and wants_pairs else UNLIKELY
    return _chance(capacity, share=draws / DRAWS[-1], stays=OF_TWINS, within=1) >= least


def may_settle_answers(safe: Leg, items: int) -> bool:
    """Tell whether more questions may settle whether an arm's answers are as right."""
    found, margin = safe.estimate, safe.margin
    if safe.state not in ("unclear", "untested"):
        return False
    if safe.state == "untested" and items:
        # A check of the answers failed, or they are at other lengths.
        return any(isinstance(need.step, Questions) for need in safe.needs)
    if (
        items < FEW_ITEMS
        or found is None
        or found.low is None
        or found.high is None
        or margin is None
    ):
        return True
    chance = 0.0
    for end in (found.low, found.high):
        chance += _reached(
            found.value, end, share=items / ITEMS[-1], level=found.level, bound=-margin
        )
    return chance >= UNLIKELY


def _reached(value: float, end: float, *, share: float, level: float, bound: float) -> float:
    """Return how likely this end of an interval passes a bound at the last look.

    *share* is the part that was asked of all that can be.
    """
    half_width = abs(end - value)
    last_half_width = half_width * math.sqrt(share)
    moves = half_width * math.sqrt(1 - share) / scipy.special.ndtri(0.5 + level / 2)
    distance = value - bound if end < value else bound - value
    return float(scipy.special.ndtr((distance - last_half_width) / max(moves, 1e-12)))


def _chance(
    leg: Leg, *, share: float, stays: float, within: int, by_pair: Sequence[float] = ()
) -> float:
    """Return how likely the last look shows a change beyond the margin, or the absence of one.

    Absent is a change within *within* margins. The chance is 1 before there is an interval. *share*
    is the part that was asked of all that can be. The interval narrows to what *stays*, and its
    value moves by what that takes away. An interval that is open on a side never shows that there
    is no change. Where its value is a bound, the changes *by_pair* have the value.
    """
    found, margin = leg.estimate, leg.margin
    if found is None or margin is None:
        return 1.0
    if found.is_bound and len(by_pair) < 2:
        return 1.0
    if found.low is not None and found.low <= -1:
        # An end rounded to -100% is no interval: it comes
        # from few pairs that differ by orders of magnitude.
        return 1.0
    near, far = (found.low, found.high) if found.value > 0 else (found.high, found.low)
    if near is None:
        # The value is at most `far`, which may be beyond the margin.
        return float(far is None or abs(math.log1p(far)) > margin)
    # All that follows is on the log scale, where the change is positive.
    side = math.copysign(1.0, found.value)
    value = side * math.log1p(found.value)
    least = side * math.log1p(near)
    least_moves = 1e-6
    if found.is_bound:
        changes = [side * math.log1p(each) for each in by_pair]
        value = max(value, statistics.fmean(changes))
        quartile = statistics.quantiles(changes, method="inclusive")[0]
        stays = max(stays, value - quartile)
        left = (1 - share) / len(changes)
        least_moves += QUARTILE * statistics.stdev(changes) * math.sqrt(left)
    half_width = value - least
    narrowing = max(0.0, half_width**2 - stays**2)
    last_half_width = math.hypot(stays, math.sqrt(narrowing * share))
    taken_away = math.sqrt(max(0.0, half_width**2 - last_half_width**2))
    moves = max(least_moves, taken_away / scipy.special.ndtri(0.5 + found.level / 2))
    chance = float(scipy.special.ndtr((value - margin - last_half_width) / moves))
    if far is not None:
        chance += float(scipy.special.ndtr((within * margin - last_half_width - value) / moves))
    return chance


def _pays(verdict: ArmVerdict) -> bool:
    capacity = verdict.capacity
    return verdict.pays.state == "yes" or (capacity is not None and capacity.state == "yes")


def _next(looks: tuple[int, ...], so_far: int) -> int | None:
    return next((look for look in looks if look > so_far), None)


def lengths(decision: Decision, *, asked: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the lengths at which questions are worth asking.

    They are those of the user's contexts, and of those *asked* the ones that decide.
    """
    steps = [
        need.step for verdict in decision.server for need in (*verdict.needs, *verdict.safe.needs)
    ]
    wanted = [step.lengths for step in steps if isinstance(step, Questions) and step.lengths]
    if not asked:
        return next(iter(wanted), LENGTHS)
    return tuple(each for each in asked if any(each in step for step in wanted)) or asked


def reasons(known: Known, leg: Callable[[ArmVerdict], Leg]) -> str:
    """Say of each arm what is known by one criterion, or by the one that decided it."""
    said = []
    for each in known.challengers:
        own = leg(each)
        is_decided_elsewhere = own.state == "untested" and each not in known.undecided
        said.append(f"{each.arm}: {each.reason if is_decided_elsewhere else own.reason}")
    return "; ".join(said)
