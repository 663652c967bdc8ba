"""Plan how many questions settle whether an arm is safe, and at which lengths."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from advisor import words
from advisor.assess.coverage import SLACK
from advisor.assess.reach import USUAL, own, standing
from advisor.case import LONGEST, Case, PooledAccuracy, doubling
from advisor.statistics.planning import PLANNED_DISCORDANCE, items_needed
from advisor.steps import Questions
from advisor.verdict import Need

# tokens, unless no call is as long: less is read in
# an instant, and four questions do not fit behind it
SHORTEST = 4096
# of an equal share, at least: few calls may be as long, but a loss there is to be seen
LEAST_SHARE = 0.3


# questions: over three to six lengths each gets as many, so needs whose lengths differ are equal
WHOLE = 60


def first(case: Case, arm: str, workload: str | None) -> Need:
    """Return the questions that settle *workload* where none were asked yet."""
    lengths = _own_ladder(case, arm, workload)
    items = _planned(case, arm, workload, lengths, PLANNED_DISCORDANCE)
    return _need(case, arm, items, lengths)


def more(case: Case, found: PooledAccuracy) -> Need:
    """Return the questions, in all, that settle what *found* leaves open.

    Each is taken to be worth what those asked were worth, several behind one context included. So
    few that they say less than what is assumed before any were asked are planned on as then.
    """
    arm = found.arm
    asked = found.answers.questions
    n = max(1, found.estimate.n)
    deployment = case.evidence.deployment
    window = deployment.max_model_len
    lengths = _askable(found.lengths, deployment.asking.stored, window=window)
    canary = case.evidence.canary
    if canary and set(found.lengths) <= set(canary):
        ladder = _own_ladder(case, arm, found.workload)
        lengths = tuple(sorted({*lengths, *ladder}))
    # Where none of n differs, three in n may still (the rule
    # of three): agreement of a few is no proof for many.
    least = 3 / n
    if least > PLANNED_DISCORDANCE:
        discordance = max(found.discordance, PLANNED_DISCORDANCE)
        items = _planned(case, arm, found.workload, lengths, discordance)
    else:
        worth = n / asked
        items = math.ceil(_needed(case, arm, max(found.discordance, least)) / worth)
    if items <= asked:
        # Enough for nine truths of ten, and still open: it lies at the margin itself.
        items = 2 * asked
    return _need(case, arm, _whole(items), lengths, already=asked)


def _askable(
    lengths: Sequence[float], stored: Mapping[int, int] | None, *, window: int | None
) -> tuple[int, ...]:
    """Return lengths to ask more at: those of questions, and steps near those of other checks.

    Checks of a trace and own items have any length; one speaks for another hardly shorter.
    """
    if stored is None:
        return tuple(map(round, lengths))
    asked = {round(each) for each in lengths}
    found = asked & stored.keys()
    for each in sorted(asked - found, reverse=True):
        step = _steps_above(each)
        if window is not None:
            step = min(step, _steps_below(window))
        # One length speaks for another, longer or shorter, that is hardly different.
        alike = [known for known in found if step <= SLACK * known and known <= SLACK * step]
        if not alike:
            found.add(step)
    return tuple(sorted(found))


def _steps_above(tokens: float) -> int:
    """Return the least length, in steps of 1,024 tokens, that holds *tokens*."""
    return 1024 * math.ceil(tokens / 1024)


def _steps_below(tokens: int) -> int:
    """Return the largest length, in steps of 1,024 tokens, that *tokens* hold."""
    return tokens // 1024 * 1024


def _planned(
    case: Case, arm: str, workload: str | None, lengths: tuple[int, ...], discordance: float
) -> int:
    """Return enough questions for the lengths that count, with as many at each other."""
    counting = own(lengths, case.reach_of(arm, workload).usual)
    needed = _needed(case, arm, discordance)
    return _whole(needed * len(lengths) / max(1, len(counting)))


def _whole(items: float) -> int:
    return WHOLE * math.ceil(items / WHOLE)


def longer(case: Case, found: PooledAccuracy) -> Need:
    """Return the questions that cover calls longer than any that was asked."""
    longest = case.reach_of(found.arm, found.workload).longest
    discordance = max(found.discordance, case.policy.accuracy_margin)
    items = _whole(_needed(case, found.arm, discordance))
    return _need(case, found.arm, items, _ladder(case, found.asked_to, longest))


def _needed(case: Case, arm: str, discordance: float) -> int:
    level = case.level(arm, alone=True)
    return items_needed(discordance, case.policy.accuracy_margin, level=level)


def _need(case: Case, arm: str, items: int, lengths: tuple[int, ...], *, already: int = 0) -> Need:
    """Return the need for *items* questions where *already* many count, with what more take.

    They fill the lengths like water: each length that has fewer is raised to one level, in whole
    contexts, and the step is told that level for all lengths.
    """
    asking = case.evidence.deployment.asking
    stored = asking.stored
    if stored is None:
        stored = dict.fromkeys(lengths, already // len(lengths))
    had = {each: stored.get(each, 0) for each in lengths}
    unit = asking.per_context * asking.repetitions
    level = _level(items - already, had.values(), unit=unit)
    lacking = {each: max(0, level - number) for each, number in had.items()}
    minutes = asking.minutes(lacking)
    return Need(
        what=f"paired questions on {arm} at {words.lengths(lengths)}",
        pairs=sum(lacking.values()),
        minutes=minutes,
        usd=case.usd(minutes),
        step=Questions(lengths=lengths, items=level * len(lengths)),
    )


def _level(missing: int, had: Iterable[int], *, unit: int) -> int:
    """Return the least multiple of *unit* that *missing* more raise those of *had* to.

    Water that fills the k lowest lengths alone stands at a mean over these k. It stands lowest
    where it has reached all that lie below it.
    """
    level = math.inf
    water = missing
    for lengths, number in enumerate(sorted(had), start=1):
        water += number
        level = min(level, water / lengths)
    return unit * math.ceil(level / unit)


def _own_ladder(case: Case, arm: str, workload: str | None) -> tuple[int, ...]:
    """Return the lengths to ask at for the calls that *workload* has."""
    found = case.reach_of(arm, workload)
    shortest = None if found.usual is None else found.usual[0] / SLACK
    return _ladder(case, shortest, found.longest)


def _ladder(case: Case, first: float | None, last: float | None) -> tuple[int, ...]:
    return ladder(first, last, window=case.evidence.deployment.max_model_len)


def lengths(contexts: Iterable[Sequence[float]], *, window: int | None) -> tuple[int, ...]:
    """Return the lengths to ask at where calls have these *contexts*, class by class."""
    columns = [np.asarray(each, dtype=np.float64) for each in contexts]
    classes = [each for each in columns if each.size]
    if not classes:
        return ladder(None, None, window=window)
    shortest, _ = USUAL
    usual = min(float(np.quantile(each, shortest)) for each in classes)
    longest = max(float(each.max()) for each in classes)
    return ladder(usual / SLACK, longest, window=window)


def shares_by_length(
    lengths: Sequence[int], calls: Sequence[tuple[int, Sequence[float]]]
) -> dict[int, float]:
    """Return which share of the questions each of *lengths* gets; they rise.

    The error of a weighted mean is least for what it takes where each part is
    asked in proportion to its weight, over the square root of its price.
    *calls* are classes: how many calls each has, and contexts that represent them.
    """
    represented = []
    for number, contexts in calls:
        if len(contexts):
            columns = np.asarray(contexts, dtype=np.float64)
            represented.append(number * standing(lengths, columns))
    weights = np.sum(represented, axis=0) if represented else np.ones(len(lengths))
    # A question's price is its context.
    best = weights / np.sqrt(lengths)
    least = LEAST_SHARE / len(lengths)
    floored = np.maximum(best / best.sum(), least)
    shares = floored / floored.sum()
    return dict(zip(lengths, shares.tolist(), strict=True))


def ladder(first: float | None, last: float | None, *, window: int | None) -> tuple[int, ...]:
    """Return the lengths to ask at for calls of *first* to *last* tokens.

    None is longer than what the servers take. They double, and all classes share them, so that
    what one class is asked counts for the others that get there; the last is the longest context.
    """
    longest = LONGEST
    if last is not None:
        longest = max(1024, _steps_above(last))
    if window is not None:
        longest = max(1024, min(longest, _steps_below(window)))
    shortest = max(SHORTEST, _holding(first or 0.0))
    *shorter, _ = doubling(min(longest, shortest), longest)
    # The longest speaks for one that is hardly shorter.
    return (*(each for each in shorter if SLACK * each < longest), longest)


def _holding(tokens: float) -> int:
    """Return the least length, of 1,024 tokens doubled, that holds *tokens*."""
    doublings = math.ceil(math.log2(max(tokens, 1.0) / 1024))
    return 1024 << max(0, doublings)
