"""Plan how many questions settle whether an arm's answers are as good, and at which lengths."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from advisor import words
from advisor.assess.coverage import SLACK
from advisor.assess.reach import USUAL, lengths_about, represented_shares
from advisor.case import LONGEST, Case, doubling
from advisor.results import PooledAccuracy
from advisor.statistics.planning import PLANNED_DISCORDANCE, items_needed
from advisor.steps import Questions
from advisor.verdict import Need

# tokens, unless no call is as long: less is read in
# an instant, and four questions do not fit behind it
SHORTEST = 4096
# of an equal share, at least: few calls may be as long, but a loss there is to be seen
LEAST_SHARE = 0.3
# questions: over three to six lengths each gets as many, so needs whose lengths differ are equal
ROUND = 60
STEP = 1024  # tokens: lengths are multiples of it


# --- what to ask ---


def first(case: Case, arm: str, workload: str | None) -> Need:
    """Return the questions that settle *workload* where none were asked yet."""
    lengths = _lengths_of_calls(case, arm, workload)
    items = _items_at(case, arm, workload, lengths, PLANNED_DISCORDANCE)
    return _need(case, arm, items, lengths)


def more(case: Case, pooled: PooledAccuracy) -> Need:
    """Return the questions, those asked included, that settle what *pooled* leaves open.

    A new question is taken to be worth what one of those asked is: less than one, where several
    share a context. Where so few were asked that they say less than what is assumed before any
    were, the assumption plans.
    """
    asked = pooled.answers.questions
    independent = max(1, pooled.estimate.n)
    lengths = _lengths_of_more(case, pooled)
    # Where none of n differs, three in n may still (the rule
    # of three): agreement of a few is no proof for many.
    least = 3 / independent
    if least > PLANNED_DISCORDANCE:
        discordance = max(pooled.discordance, PLANNED_DISCORDANCE)
        items = _items_at(case, pooled.arm, pooled.workload, lengths, discordance)
    else:
        worth = independent / asked
        items = math.ceil(_items(case, max(pooled.discordance, least)) / worth)
    if items <= asked:
        # Enough for nine truths of ten, and still open: it lies at the margin itself.
        items = 2 * asked
    return _need(case, pooled.arm, _rounded(items), lengths, already=asked)


def longer(case: Case, pooled: PooledAccuracy) -> Need:
    """Return the questions that cover calls longer than any that was asked."""
    longest = case.reach_of(pooled.arm, pooled.workload).longest
    discordance = max(pooled.discordance, case.policy.accuracy_margin)
    items = _rounded(_items(case, discordance))
    window = case.evidence.deployment.max_model_len
    lengths = _ladder(pooled.asked_to, longest, window=window)
    return _need(case, pooled.arm, items, lengths)


# --- how many ---


def _items(case: Case, discordance: float) -> int:
    """Return the questions that settle the margin where a share *discordance* of them differs."""
    margin = case.policy.accuracy_margin
    return items_needed(discordance, margin, level=case.level_of_answers)


def _items_at(
    case: Case, arm: str, workload: str | None, lengths: tuple[int, ...], discordance: float
) -> int:
    """Return enough questions for the lengths that count, with as many at each other."""
    counting = lengths_about(lengths, case.reach_of(arm, workload).usual)
    items = _items(case, discordance)
    return _rounded(items * len(lengths) / max(1, len(counting)))


def _rounded(items: float) -> int:
    return ROUND * math.ceil(items / ROUND)


def _need(case: Case, arm: str, items: int, lengths: tuple[int, ...], *, already: int = 0) -> Need:
    """Return the need for *items* questions in all, where *already* many were asked.

    Those that are missing fill the lengths like water: each length that has fewer is raised to one
    level, in whole contexts. The step asks for that level at all lengths, the need counts and
    times what is missing.
    """
    asking = case.evidence.deployment.asking
    stored = asking.stored
    if stored is None:
        stored = dict.fromkeys(lengths, already // len(lengths))
    had = {each: stored.get(each, 0) for each in lengths}
    unit = asking.per_context * asking.repetitions
    level = _water_level(items - already, had.values(), unit=unit)
    lacking = {each: max(0, level - number) for each, number in had.items()}
    minutes = asking.minutes(lacking)
    return Need(
        what=f"paired questions on {arm} at {words.lengths(lengths)}",
        pairs=sum(lacking.values()),
        minutes=minutes,
        usd=case.usd(minutes),
        step=Questions(lengths=lengths, items=level * len(lengths)),
    )


def _water_level(missing: int, had: Iterable[int], *, unit: int) -> int:
    """Return the level up to which *missing* questions fill lengths that *had* some.

    It is a multiple of *unit*. Water that fills the k lowest lengths alone stands at a mean over
    these k. It stands lowest where it has reached all that lie below it.
    """
    level = math.inf
    water = missing
    for filled, number in enumerate(sorted(had), start=1):
        water += number
        level = min(level, water / filled)
    return unit * math.ceil(level / unit)


# --- at which lengths ---


def lengths(contexts: Iterable[Sequence[float]], *, window: int | None) -> tuple[int, ...]:
    """Return the lengths to ask at where calls have these *contexts*, class by class."""
    columns = [np.asarray(each, dtype=np.float64) for each in contexts]
    classes = [each for each in columns if each.size]
    if not classes:
        return _ladder(None, None, window=window)
    shortest, _ = USUAL
    usual = min(float(np.quantile(each, shortest)) for each in classes)
    longest = max(float(each.max()) for each in classes)
    return _ladder(usual / SLACK, longest, window=window)


def _lengths_of_calls(case: Case, arm: str, workload: str | None) -> tuple[int, ...]:
    """Return the lengths to ask at for the calls that *workload* has."""
    reach = case.reach_of(arm, workload)
    shortest = None if reach.usual is None else reach.usual[0] / SLACK
    return _ladder(shortest, reach.longest, window=case.evidence.deployment.max_model_len)


def _lengths_of_more(case: Case, pooled: PooledAccuracy) -> tuple[int, ...]:
    """Return the lengths to ask more at: those asked; after a canary, those of calls too."""
    deployment = case.evidence.deployment
    asked = _askable(pooled.lengths, deployment.asking.stored, window=deployment.max_model_len)
    canary = case.evidence.canary
    if not canary or not set(pooled.lengths) <= set(canary):
        return asked
    of_calls = _lengths_of_calls(case, pooled.arm, pooled.workload)
    return tuple(sorted({*asked, *of_calls}))


def _askable(
    lengths: Sequence[float], stored: Mapping[int, int] | None, *, window: int | None
) -> tuple[int, ...]:
    """Return lengths at which questions can be asked, near the *lengths* that were checked.

    Questions were *stored* at some of these. Checks of a trace and own items have any length:
    in its place stands the next step, unless a length hardly different is asked anyway.
    """
    if stored is None:
        return tuple(map(round, lengths))
    checked = {round(each) for each in lengths}
    found = checked & stored.keys()
    for each in sorted(checked - found, reverse=True):
        step = _step_above(each)
        if window is not None:
            step = min(step, _step_below(window))
        # One length speaks for another, longer or shorter, that is hardly different.
        alike = [known for known in found if step <= SLACK * known and known <= SLACK * step]
        if not alike:
            found.add(step)
    return tuple(sorted(found))


def _ladder(
    shortest: float | None, longest: float | None, *, window: int | None
) -> tuple[int, ...]:
    """Return the lengths to ask at for calls of *shortest* to *longest* tokens.

    None is longer than what the servers take. They double, and all classes share them, so that
    what one class is asked counts for the others that get there; the last is the longest context.
    """
    last = LONGEST
    if longest is not None:
        last = max(STEP, _step_above(longest))
    if window is not None:
        last = max(STEP, min(last, _step_below(window)))
    start = max(SHORTEST, _doubled_step_above(shortest or 0.0))
    *rungs, _ = doubling(min(last, start), last)
    # The longest speaks for one that is hardly shorter.
    return (*(each for each in rungs if SLACK * each < last), last)


def _step_above(tokens: float) -> int:
    """Return the least multiple of `STEP` that holds *tokens*."""
    return STEP * math.ceil(tokens / STEP)


def _step_below(tokens: int) -> int:
    """Return the largest multiple of `STEP` that *tokens* hold."""
    return tokens // STEP * STEP


def _doubled_step_above(tokens: float) -> int:
    """Return the least of `STEP` and its doubles that holds *tokens*."""
    doublings = math.ceil(math.log2(max(tokens, 1.0) / STEP))
    return STEP << max(0, doublings)


# --- how they share the questions ---


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
            represented.append(number * represented_shares(lengths, columns))
    weights = np.sum(represented, axis=0) if represented else np.ones(len(lengths))
    # A question's price is its context.
    best = weights / np.sqrt(lengths)
    least = LEAST_SHARE / len(lengths)
    floored = np.maximum(best / best.sum(), least)
    shares = floored / floored.sum()
    return dict(zip(lengths, shares.tolist(), strict=True))
