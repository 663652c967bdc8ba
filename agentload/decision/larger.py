"""Say which budget pays for what this one did not reach:
a larger one makes what is asked before longer as well.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from agentload.decision.accuracy import CANARY_SHARE, Screen
from agentload.decision.canary import Canary
from agentload.decision.capacity import Capacity
from agentload.decision.forecast import Price
from agentload.decision.ledger import Ledger
from agentload.decision.level import Level
from agentload.decision.means import Means
from agentload.decision.sequence import PAIRS, TRIED, Criterion, Stage
from agentload.decision.speed import Speed
from agentload.decision.twin import Twins
from agentload.study.change import extended

EARLY: Final[tuple[Criterion, ...]] = ("canary", "screen")
"""What a larger budget may have time for though this one had not."""

ROOM: Final = 1.05
"""Other windows and other answers take a little longer, or less long."""


def enough_minutes(means: Means, twins: Twins, stage: Stage, minutes: float) -> float:
    """Return the budget that pays for a question and
    for all before it, be the run resumed or made again.
    """
    took = defaultdict[Criterion, float](float, {stage.criterion: minutes})
    for each in means.ledger.asked:
        took[each.stage.criterion] += each.minutes
    spent, budget = means.ledger.minutes + minutes, means.study.budget_s / 60
    return budget_for(took, lambda most: _looks(means, twins, most), spent=spent, budget=budget)


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


def _looks(means: Means, twins: Twins, budget: float) -> dict[Criterion, float]:
    """Return what one look takes in a run that begins with so many
    minutes, at each criterion that is asked longer of a larger budget.
    """
    begun = replace(
        means,
        study=extended(means.study, budget_s=60 * budget),
        place=replace(means.place, resume=None),
        ledger=Ledger(
            database=means.ledger.database, run=means.run, given_up=means.ledger.given_up
        ),
        pairs=0,
        trials={},
    )
    canary, capacity = Canary(means=begun), Capacity(means=begun, twins=twins)
    found: dict[Criterion, Price] = {
        "speed": Speed(means=begun).price(Stage(criterion="speed", amount=PAIRS[0]))
    }
    if canary.stage is not None:
        found["canary"] = canary.price(canary.stage)
    screen, early = (
        Screen(means=begun).price(Stage(criterion="screen", amount=1)),
        found.get("canary", Price(minutes=0.0)),
    )
    if early.minutes + screen.minutes <= CANARY_SHARE * budget:
        found["screen"] = screen
    if means.ledger.looks("service level"):
        found["service level"] = Level(means=begun).price(
            Stage(criterion="service level", amount=1)
        )
    if means.ledger.looks("step times"):
        found["step times"] = twins.price(
            Stage(criterion="step times", amount=twins.most(60 * budget))
        )
    if means.ledger.looks("capacity"):
        found["capacity"] = capacity.price(Stage(criterion="capacity", amount=TRIED[0]))
    return {name: price.minutes for name, price in found.items() if price.minutes}
