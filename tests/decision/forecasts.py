"""Compare the chances that a dry run prints with what becomes of
simulated decisions: `python -m tests.decision.forecasts [--draws 1000]`.

Block pairs are drawn call by call in worlds that the advisor is graded in, and
answers one by one. Each look is judged by the advisor's estimators, claims,
levels and validity checks, and a sequence ends where the product ends it. Noise
of another kind than the forecast expects is drawn as well, of the same size.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Final

import numpy as np

from advisor.assess.speed import controlled_change
from advisor.evidence import Calls, Floats, Ints
from advisor.gates import no_trend, one_mode
from advisor.legs.speed import claim
from advisor.policy import Policy
from advisor.statistics.accuracy import counts, p_not_worse, p_worse, tango
from advisor.statistics.paired import PairTable, pair_table
from advisor.statistics.planning import (
    PLANNED_CORRELATION,
    PLANNED_DISCORDANCE,
    answer_level,
    holm_adjusted,
    planned_level,
)
from advisor.steps import MorePairs, Restarts, Step
from advisor.verdict import Leg
from agentload.decision.forecast import EQUAL, PAIR_SPREAD, WORSE, gains_shown, likely
from agentload.decision.look import ITEMS, LENGTHS, PAIRS
from agentload.decision.means import TOGETHER
from agentload.decision.sequence import FEW_ITEMS, may_settle_answers, may_settle_pairs
from tests.advisor.cases import bare, observed
from tests.advisor.noises import (
    Disturbance,
    World,
    drawn,
    idle,
    pareto,
    plain,
    starts_of_the_prior,
    wander,
)
from tests.decision.deployments import first_pairs

POLICY: Final = Policy(planned_looks=True)
SCALE: Final = math.sqrt(2) * POLICY.start_spread
LOOKS: Final = tuple(look for look in PAIRS if look <= 16)
SHOWN: Final = (4, 6, 10, 16)
MARGINS: Final = (2, 4)
SAME: Final = "as expected"
ASKED: Final = (120, 300, 680, 1160, 2100)
MANY: Final = 2000
PROMISED: Final[Mapping[bool, float]] = {True: 0.07, False: 0.10}
"""How far a chance may be off: where noise is as the forecast expects, and elsewhere."""


NOISES: Final[Mapping[str, Disturbance]] = {
    SAME: plain,
    "one arm wanders": wander,
    "heavy tails": pareto,
    "cold after waits": idle,
}
"""What disturbs pairs besides their starts; all of them scatter by what the forecast expects."""


@cache
def _more(noise: str) -> float:
    """Return the even scatter that pairs of a noise lack to what is expected."""
    rng = np.random.default_rng(0)
    table = pair_table(
        *drawn(rng, World(disturbance=NOISES[noise]), pairs=MANY, starts=MANY), "turn_ms"
    )
    assert table is not None
    return math.sqrt(max(0.0, PAIR_SPREAD**2 - float(table.value.var())))


def played(noise: str, rng: np.random.Generator, *, starts_each_pair: bool) -> tuple[Calls, Calls]:
    """Return the calls of as many pairs as are looked at, of arms that are equally fast."""
    most = LOOKS[-1]
    world = World(disturbance=lambda scene: starts_of_the_prior(scene) + NOISES[noise](scene))
    reference, arm = drawn(rng, world, pairs=most, starts=most if starts_each_pair else 1)
    more = _more(noise) * rng.standard_normal(most)
    return reference, replace(arm, turn_ms=arm.turn_ms * np.exp(more[arm.pair]))


def first_shown(calls: tuple[Calls, Calls]) -> tuple[int | None, ...]:
    """Return after how many pairs a decision shows a gain,
    for gains of some margins; None where it ends without.
    """
    table = pair_table(*calls, "turn_ms")
    assert table is not None
    spoiled = [look for look in LOOKS if _is_spoiled(calls, look)]
    return tuple(
        _first(table, spoiled, by=math.log1p(-margins * POLICY.min_change)) for margins in MARGINS
    )


def _is_spoiled(calls: tuple[Calls, Calls], pairs: int) -> bool:
    evidence = bare(observations=observed(*(first_pairs(each, pairs) for each in calls)))
    return any(
        gate.status == "fail"
        for check in (one_mode.check, no_trend.check)
        for gate in check(evidence, POLICY)
    )


def _first(table: PairTable, spoiled: Sequence[int], *, by: float) -> int | None:
    """Return after how many pairs a gain is shown,
    *by* being what it adds to the log ratio of each.
    """
    once = int(table.start.max()) == 0
    level = 1 - 2 * planned_level(POLICY.alpha, starts=1 if once else None)
    step: Step = Restarts(restarts=8) if once else MorePairs(pairs=LOOKS[-1])
    for look in LOOKS:
        if look in spoiled:
            continue  # of so few pairs, that asks on
        columns = {each.name: getattr(table, each.name)[:look] for each in fields(table)}
        spread = controlled_change(
            replace(table, **columns | {"value": columns["value"] + by}), SCALE
        )
        assert spread is not None
        found = spread.relative(unit="relative", method="", level=level)
        said = claim(found, margin=POLICY.min_change)
        if said == "yes":
            return look
        leg = Leg(name="pays", state=said, reason="", estimate=found, margin=POLICY.min_change)
        if said != "unclear" or not may_settle_pairs(leg, step, look):
            return None
    return None


def of_pairs(
    draws: int, seed: int = 1, noises: Collection[str] = NOISES
) -> Iterator[tuple[str, bool, int, int, float, float]]:
    """Yield noise, how servers start, pairs, margins of gain, the
    chance that is printed, and the share of the draws that show it.
    """
    for name, each in product(noises, (False, True)):
        rng = np.random.default_rng(seed)
        found = (first_shown(played(name, rng, starts_each_pair=each)) for _ in range(draws))
        ended = np.array([[look or math.inf for look in looks] for looks in found])
        for pairs in SHOWN:
            for place, (_, chance) in enumerate(
                gains_shown(POLICY.min_change, pairs=pairs, starts=None if each else 1)
            ):
                yield (
                    name,
                    each,
                    pairs,
                    MARGINS[place],
                    chance,
                    float(np.mean(ended[:, place] <= pairs)),
                )


def _alike(rng: np.random.Generator, shares: Floats, contexts: int) -> Floats:
    drawn_shares: Floats = rng.dirichlet(shares * (1 / PLANNED_CORRELATION - 1), contexts)
    return drawn_shares


def _whole(rng: np.random.Generator, shares: Floats, contexts: int) -> Floats:
    """Have all answers of some contexts end alike, and those of the others each by itself."""
    alike = rng.random((contexts, 1)) < PLANNED_CORRELATION
    return np.where(alike, np.eye(shares.size)[rng.choice(shares.size, contexts, p=shares)], shares)


RESEMBLING: Final[Mapping[str, Callable[[np.random.Generator, Floats, int], Floats]]] = {
    SAME: _alike,
    "whole contexts": _whole,
    "independent": lambda _, shares, contexts: np.tile(shares, (contexts, 1)),
}
"""How likely the answers of each context are lost, won and equal, where such shares of all are."""


def answered(
    noise: str, rng: np.random.Generator, *, points: float, flips: float
) -> tuple[float, int]:
    """Return after how many questions a decision says "as accurate"
    (1) or "worse" (-1) of an arm; 0 where it ends without.
    """
    context = np.arange(ITEMS[-1]) // TOGETHER
    shares = np.array([(flips - points / 100) / 2, (flips + points / 100) / 2, 1 - flips])
    ended = np.cumsum(RESEMBLING[noise](rng, shares, context[-1] + 1), axis=1)[context]
    difference = np.array([-1.0, 1.0, 0.0])[
        (rng.random((context.size, 1)) > ended[:, :2]).sum(axis=1)
    ]
    level = answer_level(POLICY.alpha, planned=True)
    for look in ITEMS:
        word, told = _judged(difference[:look], context[:look], level=level)
        if word or (look >= FEW_ITEMS and not may_settle_answers(told, look)):
            return look, word
    return math.inf, 0


def _judged(difference: Floats, context: Ints, *, level: float) -> tuple[int, Leg]:
    """Return what so many answers say, half of them at each
    of two lengths, and the criterion that is open otherwise.
    """
    margin = POLICY.accuracy_margin
    whole = counts(difference, context)
    lengths = [
        counts(difference[own], context[own])
        for own in (context % len(LENGTHS) == place for place in range(len(LENGTHS)))
    ]
    worst = min(holm_adjusted([p_worse(each, margin=margin) for each in lengths]))
    estimate = tango(whole, level=1 - 2 * level) if difference.size >= FEW_ITEMS else None
    leg = Leg(name="safe", state="unclear", reason="", estimate=estimate, margin=margin)
    if min(p_worse(whole, margin=margin), 2 * worst) <= level:
        return -1, leg
    return int(p_not_worse(whole, margin=margin) <= level), leg


def of_answers(
    draws: int, seed: int = 1, resembling: Collection[str] = RESEMBLING
) -> Iterator[tuple[str, int, str, float, float]]:
    """Yield noise, questions, what is true of the arm, the chance
    that is printed, and the share of the draws that say so.
    """
    for name in resembling:
        for truth, points, word in ((EQUAL, 0.0, 1), (WORSE, -10.0, -1)):
            rng = np.random.default_rng(seed)
            flips = PLANNED_DISCORDANCE + (0.02 if points else 0.0)
            ended = [answered(name, rng, points=points, flips=flips) for _ in range(draws)]
            for items in ASKED:
                printed = likely(ITEMS, margin=POLICY.accuracy_margin, together=TOGETHER)[truth].by(
                    items, word
                )
                yield (
                    name,
                    items,
                    truth,
                    printed,
                    float(np.mean([said == word and look <= items for look, said in ended])),
                )


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> int:
    """Print the tables; return 3 where a chance is further off than is promised."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    furthest = dict.fromkeys(PROMISED, 0.0)

    def row(name: str, *cells: str, chance: float, share: float) -> None:
        furthest[name == SAME] = max(furthest[name == SAME], abs(chance - share))
        write(f"| {' | '.join((name, *cells))} | {chance:.0%} | {share:.0%} |\n")

    write(
        "| noise | servers start | pairs | faster by | printed | shown "
        "|\n|---|---|---|---|---|---|\n"
    )
    for name, each, pairs, margins, chance, share in of_pairs(options.draws, options.seed):
        often = "for each pair" if each else "once"
        row(
            name,
            often,
            f"{pairs}",
            f"{margins * POLICY.min_change:.0%}",
            chance=chance,
            share=share,
        )
    write(
        "\n| answers of one context | questions | truth | printed | shown "
        "|\n|---|---|---|---|---|\n"
    )
    for name, items, truth, chance, share in of_answers(options.draws, options.seed):
        row(name, f"{items:,}", truth, chance=chance, share=share)
    write(
        f"\n{options.draws:,} draws; furthest off: {furthest[True]:.1%} as expected, "
        f"{furthest[False]:.1%} elsewhere\n"
    )
    return 3 if any(furthest[same] > most for same, most in PROMISED.items()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
