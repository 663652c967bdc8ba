"""Say which budget pays for what this one did not reach.

A larger budget makes what is asked before longer as well.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from agentload.decision.block_pairs import BlockPairs
from agentload.decision.canary import Canary
from agentload.decision.carried_load import LoadTrials
from agentload.decision.forecast import SPEED_SHARE, STEP_TIMES_SHARE
from agentload.decision.known import Known
from agentload.decision.ledger import GRADED, Ledger
from agentload.decision.look import DRAWS, PAIRS, Criterion, Look
from agentload.decision.means import Means
from agentload.decision.paired_answers import CANARY_SHARE, PairedAnswers, Screen
from agentload.decision.question_kind import QuestionKind
from agentload.decision.sequence import settling_looks
from agentload.decision.single_session import SingleSession
from agentload.decision.twin import Twins
from agentload.study.change import extend

EARLY: Final[tuple[Criterion, ...]] = ("canary", "screen")
"""Criteria that a larger budget may have time for though this one had not."""

ROOM: Final = 1.05
"""Margin on the budget: other windows and answers take a little longer, or less long."""


def enough_minutes(means: Means, twins: Twins, known: Known, look: Look, minutes: float) -> float:
    """Return the budget in minutes that pays for a question and all before it.

    Where answers are to settle something too, its dry run has as many questions as that takes. It
    holds whether the run is resumed or made again.
    """
    last = settling_looks(known, look)[-1]
    wanted = last if last.criterion == "accuracy" else None
    took = defaultdict[Criterion, float](float, {look.criterion: minutes})
    for each in known.ledger.asked:
        took[each.stage.criterion] += each.minutes
    return budget_for(
        took,
        lambda budget: _looks(means, twins, known.ledger, budget, wanted=wanted),
        spent=known.ledger.minutes + ROOM * minutes,
        budget=means.study.budget_s / 60,
    )


def budget_for(
    took: Mapping[Criterion, float],
    looks: Callable[[float], Mapping[Criterion, float]],
    *,
    spent: float,
    budget: float,
) -> float:
    """Return a budget, in whole minutes, that pays for *spent* and all that *took* time.

    *took* has the minutes of each criterion under this *budget*. *looks* returns what a look at
    each criterion takes within a budget; criteria that it leaves out take the same within every
    budget.
    """
    now = looks(budget)
    wanted = math.ceil(max(spent, budget + 1))
    while True:
        then = looks(wanted)
        longer = sum(
            minutes * then.get(each, 1.0) / now.get(each, then.get(each, 1.0))
            for each, minutes in took.items()
        )
        needed = ROOM * longer + sum(then.get(each, 0.0) for each in EARLY if each not in took)
        lacking = _lacking(then, wanted)
        if needed <= wanted and lacking <= 0:
            return wanted
        wanted = math.ceil(max(needed, wanted + max(1.0, lacking / (1 - SPEED_SHARE))))


def _lacking(looks: Mapping[Criterion, float], budget: float) -> float:
    """Return the minutes that a dry run within a *budget* lacks for the look at answers."""
    if "accuracy" not in looks:
        return 0.0
    speed = max(looks.get("speed", 0.0), SPEED_SHARE * budget)
    step_times = STEP_TIMES_SHARE * budget if "capacity" in looks else 0.0
    rest: tuple[Criterion, ...] = ("service level", "canary", "capacity", "accuracy")
    return speed + step_times + sum(looks.get(each, 0.0) for each in rest) - budget


def _looks(
    means: Means, twins: Twins, asked: Ledger, budget: float, *, wanted: Look | None
) -> dict[Criterion, float]:
    """Return the minutes of a look at each criterion that grows with the budget.

    The run begins with a *budget* of that many minutes, and needs the *wanted* look at answers.
    """
    begun = replace(
        means,
        study=extend(means.study, budget_s=60 * budget),
        place=replace(means.place, resume=None),
        began=None,
    )
    new = Known(ledger=Ledger(database=asked.database, run=means.run, given_up=asked.given_up))
    pairs = BlockPairs(means=begun, learn=lambda _: None)
    canary = Canary(means=begun)
    screen = Screen(means=begun)
    looks: dict[Criterion, tuple[QuestionKind, Look]] = {
        "speed": (pairs, Look(criterion="speed", amount=PAIRS[0]))
    }
    early_minutes = screen.price(Look(criterion="screen"), new).minutes
    if canary.look is not None:
        looks["canary"] = canary, canary.look
        early_minutes += canary.price(canary.look, new).minutes
    if early_minutes <= CANARY_SHARE * budget:
        looks["screen"] = screen, Look(criterion="screen")
    if asked.looks("service level"):
        looks["service level"] = SingleSession(means=begun), Look(criterion="service level")
    if asked.looks("step times"):
        most = twins.most_plays(60 * budget)
        looks["step times"] = twins, Look(criterion="step times", amount=most)
    answers, slower = PairedAnswers(means=begun), max(1.0, asked.pace(*GRADED))
    if wanted is not None:
        at_all = replace(wanted, lengths=begun.lengths)
        looks["accuracy"] = answers, at_all
        # a dry run on servers knows no profile, which may be faster than is assumed of them
        slower /= min(1.0, answers.pace(at_all))
    if asked.looks("capacity") or (wanted is not None and means.searches):
        trials = LoadTrials(means=begun, twins=twins)
        looks["capacity"] = trials, Look(criterion="capacity", amount=DRAWS[0])
    prices = {name: asking.price(look, new).minutes for name, (asking, look) in looks.items()}
    prices["accuracy"] = slower * prices.get("accuracy", 0.0)
    return {name: minutes for name, minutes in prices.items() if minutes}
