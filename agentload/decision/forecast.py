"""What a budget can settle, said before anything is measured: how
much of each criterion it pays for, and how likely that is enough.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

import scipy

from advisor.assess.accuracy import LEAST_LOST
from advisor.policy import Policy
from advisor.statistics.looks import Ends, ends
from advisor.statistics.pair_looks import shown
from advisor.statistics.planning import (
    PLANNED_ANSWERS,
    PLANNED_CORRELATION,
    PLANNED_DISCORDANCE,
    planned_level,
)
from agentload.decision.sequence import ITEMS, LENGTHS, PAIRS, TRIED, Criterion, Stage

PAIR_SPREAD: Final = 0.03
"""Standard deviation of the change from pair to pair that is expected before any was played."""
STEP_TIMES: Final = 0.15
"""Share of the budget that the step times of twins may take; how
much of it they need is known once servers have said what they are.
"""
EQUAL, SMALL, WORSE = "equally accurate", "1 pp worse", "10 pp worse"
DRAWS: Final = 400
Chances: TypeAlias = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What something takes."""

    minutes: float
    priming_minutes: float = 0.0
    """Of these, what it takes to prime the contexts of windows."""
    calls: int | None = None
    tokens: int | None = None

    def usd(self, per_hour: float | None, gpus: int) -> float | None:
        """Return what the GPUs cost meanwhile; None where their price is not known."""
        return None if per_hour is None else per_hour * gpus * self.minutes / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How much of one criterion a budget pays for, and what that can show."""

    criterion: Criterion
    amount: int
    price: Price
    chances: Chances
    """By what may be true: the chance that it is shown."""


def forecast(
    price: Callable[[Stage], Price],
    *,
    budget_minutes: float,
    min_change: float,
    accuracy_margin: float,
    together: int,
    capacity: bool,
    starts: int | None,
    rivals: int = 1,
    start_spread: float = Policy().start_spread,
    level: bool = False,
    canary: Stage | None = None,
    lengths: tuple[int, ...] = LENGTHS,
) -> tuple[Forecast, ...]:
    """Divide a budget as the sequence would: pairs until a third
    of it is spent, a search, and questions with what is left.

    Pairs take turns on so many *starts*; None: each has its own. The service
    *level* and a *canary* come first, where they are asked. Questions are
    priced at the *lengths* at which they will be asked.
    """
    out = []
    left = budget_minutes
    if level:
        alone = price(Stage(criterion="service level", amount=1))
        left -= alone.minutes
        out.append(Forecast(criterion="service level", amount=1, price=alone, chances=()))
    if canary is not None:
        first = price(canary)
        left -= first.minutes
        broken = (("broken everywhere", shown_broken(canary.amount)),)
        out.append(Forecast(criterion="canary", amount=canary.amount, price=first, chances=broken))
    pairs = (
        _most(
            PAIRS, lambda amount: price(Stage(criterion="speed", amount=amount)), budget_minutes / 3
        )
        or PAIRS[0]
    )
    speed = price(Stage(criterion="speed", amount=pairs))
    left -= speed.minutes
    faster = gains_shown(
        min_change,
        pairs=pairs,
        rivals=rivals,
        capacity=capacity,
        start_spread=start_spread,
        starts=starts,
    )
    out.append(Forecast(criterion="speed", amount=pairs, price=speed, chances=faster))
    if capacity:
        twins, search = (
            Price(minutes=STEP_TIMES * budget_minutes),
            price(Stage(criterion="capacity", amount=TRIED[0])),
        )
        left -= twins.minutes + search.minutes
        out.append(Forecast(criterion="step times", amount=1, price=twins, chances=()))
        out.append(Forecast(criterion="capacity", amount=TRIED[0], price=search, chances=()))
    items = (
        _most(
            ITEMS,
            lambda amount: price(Stage(criterion="accuracy", amount=amount, lengths=lengths)),
            left,
        )
        or ITEMS[0]
    )
    asked = price(Stage(criterion="accuracy", amount=items, lengths=lengths))
    ended = likely(
        ITEMS,
        margin=accuracy_margin,
        together=together,
        rivals=rivals,
        truths=(EQUAL, WORSE),
        most=items,
    )
    chances = tuple(
        (truth, each.by(items, 1 if truth == EQUAL else -1)) for truth, each in ended.items()
    )
    out.append(Forecast(criterion="accuracy", amount=items, price=asked, chances=chances))
    return tuple(out)


ANSWERED: Final = 0.85
"""Share of the questions at the longest contexts that an ordinary reference has right."""


def shown_broken(questions: int) -> float:
    """Return the chance that so many questions show
    an arm to be broken that has none of them right.
    """
    return float(scipy.special.bdtrc(LEAST_LOST - 1, questions, ANSWERED))


TRUTHS: Final[Mapping[str, tuple[float, float]]] = {
    EQUAL: (0.0, PLANNED_DISCORDANCE),
    SMALL: (-0.01, PLANNED_DISCORDANCE),
    WORSE: (-0.10, PLANNED_DISCORDANCE + 0.02),
}
"""By what may be true of an arm's answers: the change
of the share of right ones, and the share that differs.
"""


@cache
def likely(
    looks: tuple[int, ...],
    *,
    margin: float,
    together: int,
    rivals: int = 1,
    truths: tuple[str, ...] = tuple(TRUTHS),
    most: int | None = None,
) -> Mapping[str, Ends]:
    """Return how looks at answers are likely to end, so many *together*
    behind each context, by what may be true of an arm; simulated.

    Any of the *rivals* could be chosen, so they share the
    level. Nothing is looked at beyond *most* answers.
    """
    return {
        truth: ends(
            looks,
            flips=flips,
            change=change,
            margin=margin,
            level=PLANNED_ANSWERS / rivals,
            draws=DRAWS,
            together=together,
            correlation=PLANNED_CORRELATION,
            most=most,
        )
        for truth, (change, flips) in TRUTHS.items()
        if truth in truths
    }


def _most(looks: tuple[int, ...], price: Callable[[int], Price], minutes: float) -> int | None:
    """Return the largest look that fits into so many minutes."""
    return next((look for look in reversed(looks) if price(look).minutes <= minutes), None)


def gains_shown(
    min_change: float,
    *,
    pairs: int,
    starts: int | None,
    rivals: int = 1,
    capacity: bool = False,
    start_spread: float = Policy().start_spread,
    deviation: float = PAIR_SPREAD,
) -> Chances:
    """Return how likely so many pairs, looked at as
    they are played, show gains of two and four margins.
    """
    looks = []
    for look in (each for each in PAIRS if each <= pairs):
        # Until pairs return to a start, each has its own.
        turns = starts if starts == 1 or (starts is not None and look > starts) else None
        # Once capacity was measured as well, either of them would do: they share the level.
        looks.append(
            (
                look,
                planned_level(Policy().alpha, starts=turns)
                / rivals
                / (2 if capacity and look > PAIRS[0] else 1),
            )
        )
    changes = (2 * min_change, 4 * min_change)
    found = shown(
        looks,
        gains=[-math.log1p(-change) for change in changes],
        margin=-math.log1p(-min_change),
        deviation=deviation,
        scale=math.sqrt(2) * start_spread,
        starts=starts,
    )
    return tuple(
        (f"{change:.0%} faster", chance) for change, chance in zip(changes, found, strict=True)
    )
