"""Say, before anything is measured, what a budget can settle.

The forecast states how much of each criterion the budget pays for, and how likely that is enough.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

import scipy

from advisor.assess.broken import LEAST_LOST
from advisor.policy import Policy
from advisor.statistics.looks import AnswerTruth, Ends, ends
from advisor.statistics.pair_looks import chances_shown
from advisor.statistics.planning import (
    PLANNED_ANSWERS,
    PLANNED_CORRELATION,
    PLANNED_DISCORDANCE,
    planned_level,
)
from agentload.decision.look import DRAWS as DRAWS_OF_SESSIONS
from agentload.decision.look import ITEMS, LENGTHS, PAIRS, Criterion, Look
from agentload.model.record import Record

PAIR_SPREAD: Final = 0.03
"""Standard deviation of the change from pair to pair, assumed before any was played."""
STEP_TIMES_SHARE: Final = 0.15
"""Share of the budget that the step times of twins may take.

How much of it they need is known once servers have said what they are.
"""
SPEED_SHARE: Final = 1 / 3
"""Share of the budget that block pairs may take."""
EQUAL, SMALL, WORSE = "equally accurate", "1 pp worse", "10 pp worse"
DRAWS: Final = 400
Chances: TypeAlias = tuple[tuple[str, float], ...]


class LookPrice(Record):
    """State what a question takes."""

    minutes: float
    priming_minutes: float = 0.0
    """Minutes of these that prime the contexts of windows."""
    calls: int | None = None
    tokens: int | None = None

    def usd(self, per_hour: float, gpus: int) -> float:
        """Return what the GPUs cost meanwhile."""
        return per_hour * gpus * self.minutes / 60


class Forecast(Record):
    """State how much of one criterion a budget pays for, and what that can show."""

    criterion: Criterion
    amount: int
    price: LookPrice
    chances: Chances
    """Chance that each possible truth is shown."""


class Terms(Record):
    """State what a budget is divided for, besides the prices of questions."""

    budget_minutes: float
    min_change: float
    accuracy_margin: float
    together: int
    """Questions behind one context."""
    capacity: bool
    """Whether the load that arms carry is part of the answer."""
    starts: int | None
    """Starts that pairs take turns on; None: each pair has its own."""
    rivals: int = 1
    start_spread: float = Policy().start_spread
    level: bool = False
    """Whether the service level is asked about first."""
    canary: Look | None = None
    lengths: tuple[int, ...] = LENGTHS
    """Lengths at which questions will be asked."""


def forecast(price: Callable[[Look], LookPrice], terms: Terms) -> tuple[Forecast, ...]:
    """Divide a budget as the sequence would: a third for pairs, a search, then questions."""
    out: list[Forecast] = []

    def add(look: Look, taken: LookPrice, chances: Chances = ()) -> None:
        out.append(
            Forecast(criterion=look.criterion, amount=look.amount, price=taken, chances=chances)
        )

    if terms.level:
        alone = Look(criterion="service level")
        add(alone, price(alone))
    if terms.canary is not None:
        broken = shown_broken(terms.canary.amount)
        add(terms.canary, price(terms.canary), (("broken everywhere", broken),))
    pairs = [Look(criterion="speed", amount=each) for each in PAIRS]
    speed = _largest(pairs, price, SPEED_SHARE * terms.budget_minutes)
    add(speed, price(speed), _faster(terms, speed.amount))
    if terms.capacity:
        step_times = LookPrice(minutes=STEP_TIMES_SHARE * terms.budget_minutes)
        add(Look(criterion="step times"), step_times)
        trials = Look(criterion="capacity", amount=DRAWS_OF_SESSIONS[0])
        add(trials, price(trials))
    left = terms.budget_minutes - sum(each.price.minutes for each in out)
    items = [Look(criterion="accuracy", amount=each, lengths=terms.lengths) for each in ITEMS]
    asked = _largest(items, price, left)
    add(asked, price(asked), _as_accurate(terms, asked.amount))
    return tuple(out)


def _faster(terms: Terms, pairs: int) -> Chances:
    """Return how likely this many pairs show that an arm is faster."""
    return gains_shown(
        terms.min_change,
        pairs=pairs,
        rivals=terms.rivals,
        capacity=terms.capacity,
        start_spread=terms.start_spread,
        starts=terms.starts,
    )


def _as_accurate(terms: Terms, answers: int) -> Chances:
    """Return how likely this many answers show that an arm is as accurate, or worse."""
    ended = likely(
        ITEMS,
        margin=terms.accuracy_margin,
        together=terms.together,
        rivals=terms.rivals,
        truths=(EQUAL, WORSE),
        most=answers,
    )
    return ((EQUAL, ended[EQUAL].by(answers, 1)), (WORSE, ended[WORSE].by(answers, -1)))


def _largest(looks: Sequence[Look], price: Callable[[Look], LookPrice], minutes: float) -> Look:
    """Return the largest look that fits into these minutes; the first where none does."""
    return next((look for look in reversed(looks) if price(look).minutes <= minutes), looks[0])


ANSWERED: Final = 0.85
"""Share of the questions at the longest contexts that an ordinary reference has right."""


def shown_broken(questions: int) -> float:
    """Return the chance that these questions show an arm that answers none to be broken."""
    return float(scipy.special.bdtrc(LEAST_LOST - 1, questions, ANSWERED))


TRUTHS: Final[Mapping[str, tuple[float, float]]] = {
    EQUAL: (0.0, PLANNED_DISCORDANCE),
    SMALL: (-0.01, PLANNED_DISCORDANCE),
    WORSE: (-0.10, PLANNED_DISCORDANCE + 0.02),
}
"""Possible truths of an arm's answers.

Each has the change of the share of right answers, and the share of answers that differ.
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
    """Return how looks at answers are likely to end, for each possible truth; simulated.

    *together* questions follow each context. Any of the *rivals* could be chosen, so they share the
    level. Nothing is looked at beyond *most* answers.
    """
    return {
        truth: ends(
            looks,
            AnswerTruth(
                flips=flips, change=change, together=together, correlation=PLANNED_CORRELATION
            ),
            margin=margin,
            level=PLANNED_ANSWERS / rivals,
            draws=DRAWS,
            most=most,
        )
        for truth, (change, flips) in TRUTHS.items()
        if truth in truths
    }


def gains_shown(
    min_change: float,
    *,
    pairs: int,
    starts: int | None,
    rivals: int = 1,
    capacity: bool = False,
    start_spread: float = Policy().start_spread,
) -> Chances:
    """Return how likely the pairs, looked at as they are played, show two and four margins."""
    looks = []
    for look in (each for each in PAIRS if each <= pairs):
        # Until pairs return to a start, each has its own.
        turns = starts if starts == 1 or (starts is not None and look > starts) else None
        # Once capacity was measured as well, speed or capacity may decide: they share the level.
        sharing = 2 if capacity and look > PAIRS[0] else 1
        looks.append((look, planned_level(Policy().alpha, starts=turns) / rivals / sharing))
    changes = (2 * min_change, 4 * min_change)
    found = chances_shown(
        looks,
        gains=[-math.log1p(-change) for change in changes],
        margin=-math.log1p(-min_change),
        deviation=PAIR_SPREAD,
        scale=math.sqrt(2) * start_spread,
        starts=starts,
    )
    return tuple(
        (f"{change:.0%} faster", chance) for change, chance in zip(changes, found, strict=True)
    )
