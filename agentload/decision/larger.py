"""Say which budget pays for what this one did not reach:
a larger one makes what is asked before longer as well.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from agentload.decision.block_pairs import BlockPairs
from agentload.decision.canary import Canary
from agentload.decision.carried_load import CarriedLoad
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import DRAWS, PAIRS, Criterion, Look
from agentload.decision.means import Means
from agentload.decision.paired_answers import CANARY_SHARE, Screen
from agentload.decision.question_kind import QuestionKind
from agentload.decision.single_session import SingleSession
from agentload.decision.twin import Twins
from agentload.study.change import extended

EARLY: Final[tuple[Criterion, ...]] = ("canary", "screen")
"""What a larger budget may have time for though this one had not."""

ROOM: Final = 1.05
"""Other windows and other answers take a little longer, or less long."""


def enough_minutes(means: Means, twins: Twins, known: Known, look: Look, minutes: float) -> float:
    """Return the budget that pays for a question and
    for all before it, be the run resumed or made again.
    """
    took = defaultdict[Criterion, float](float, {look.criterion: minutes})
    for each in known.ledger.asked:
        took[each.stage.criterion] += each.minutes
    return budget_for(
        took,
        lambda budget: _looks(means, twins, known.ledger, budget),
        spent=known.ledger.minutes + minutes,
        budget=means.study.budget_s / 60,
    )


def budget_for(
    took: Mapping[Criterion, float],
    looks: Callable[[float], Mapping[Criterion, float]],
    *,
    spent: float,
    budget: float,
) -> float:
    """Return the least budget, in whole minutes, that pays for what
    is *spent*, and for what each criterion *took* of this *budget*.

    *looks* says what a look at each criterion takes within a
    budget; of those that it leaves out, no budget changes that.
    """
    now, wanted = looks(budget), math.ceil(max(spent, budget + 1))
    while True:
        then = looks(wanted)
        longer = sum(
            minutes * then.get(each, 1.0) / now.get(each, then.get(each, 1.0))
            for each, minutes in took.items()
        )
        needed = ROOM * longer + sum(then.get(each, 0.0) for each in EARLY if each not in took)
        if needed <= wanted:
            return wanted
        wanted = math.ceil(needed)


def _looks(means: Means, twins: Twins, asked: Ledger, budget: float) -> dict[Criterion, float]:
    """Return what one look takes in a run that begins with so many
    minutes, at each criterion that is asked longer of a larger budget.
    """
    begun = replace(
        means,
        study=extended(means.study, budget_s=60 * budget),
        place=replace(means.place, resume=None),
        began=None,
    )
    new = Known(ledger=Ledger(database=asked.database, run=means.run, given_up=asked.given_up))
    pairs = BlockPairs(means=begun, learn=lambda _: None)
    canary, screen = Canary(means=begun), Screen(means=begun)
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
        most = twins.most(60 * budget)
        looks["step times"] = twins, Look(criterion="step times", amount=most)
    if asked.looks("capacity"):
        trials = CarriedLoad(means=begun, twins=twins)
        looks["capacity"] = trials, Look(criterion="capacity", amount=DRAWS[0])
    prices = {name: asking.price(look, new).minutes for name, (asking, look) in looks.items()}
    return {name: minutes for name, minutes in prices.items() if minutes}
