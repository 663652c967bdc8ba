"""Grade what trials say of two capacities, where the truth is known:
`python -m tests.decision.capacities [--number 60] [--seed N]`.

Deployments are drawn as decisions have them (`population.yaml`), trials are at the loads at
which a decision makes them, and the capacity criterion is the product's own. Other curves
than those of the population show what is said where their form does not hold.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.assess.capacity import SHARE
from advisor.decide import assess
from advisor.legs.capacity import capacity_leg
from advisor.loads import FACTORS, CapacityPoint, TwinReplay
from advisor.policy import Policy
from agentload.cli._print import table
from agentload.decision.carried_load import around
from agentload.decision.long_run import KNOWN
from tests.advisor.cases import BF16, FP8, bare
from tests.decision.deployments import Drawn, Truth, as_point

MINUTES: Final = 1.5
BOTH: Final = Policy(alpha=0.025)
"""Speed is measured too, so capacity has half of the error, unless agents are equal."""
RIGHT: Final = {1.25: "yes", 1.1: "unclear", 1.0: "equal"}
"""What to say of the agents of an arm for one of the reference's; 1.1 is the margin itself."""
FORMS: Final[Mapping[str, Callable[[float], float]]] = {
    "a cliff": lambda beyond: 0.98 if beyond <= 1 else 0.3,
    "a shelf": lambda beyond: 0.98 if beyond <= 1 else 0.93 if beyond <= 1.25 else 0.3,
    "a line": lambda beyond: min(0.98, max(0.05, 0.95 - 0.3 * (beyond - 1))),
}
"""Share of turns within the limits, by the load for one that is carried."""
OF_POPULATION: Final = "of the population"
OFF_ALIKE: Final = "of the population, twins off alike"
"""The slopes of both twins are off by the same."""


@dataclass(kw_only=True)
class Curved(Drawn):
    """A deployment whose share falls with load in a form of its own."""

    form: str

    def share_at(self, beyond: float) -> float:
        """Return the share of turns within the limits."""
        own = FORMS.get(self.form)
        return super().share_at(beyond) if own is None else own(beyond)

    def slope_off(self, arm: str) -> float:
        """Return how many times as steeply as its arm's the share of a twin falls."""
        return super().slope_off("bf16" if self.form == OFF_ALIKE else arm)

    def points(self, draws: int) -> Iterator[CapacityPoint]:
        """Yield the trials of both arms at the loads of a decision."""
        for arm in self.carried:
            holds = self.by_long_runs(arm)
            for draw in range(draws):
                limit = self.by_twin(arm, draw)

                def share(load: int, *, arm: str = arm, draw: int = draw) -> float:
                    return self.on_twin(arm, load, draw)[FACTORS.index(1.0)]

                for load in around(limit, share, wanted=SHARE):
                    trial = self.trial(arm, float(load), draw, MINUTES)
                    replay = TwinReplay(expected=self.on_twin(arm, load, draw), carried=holds)
                    known = replace(
                        trial, worth=holds / limit, error=math.log1p(KNOWN), replay=replay
                    )
                    yield as_point(arm, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What the criterion says of one deployment."""

    state: str
    is_wrong: bool
    covers: bool


def graded(ratio: float, form: str, seed: int, *, draws: int) -> Graded:
    """Draw a deployment and its trials, and grade what they say of its capacity."""
    drawn = Curved(
        world="plain",
        starts="one start",
        pair_sd=0.02,
        truth=Truth(gain=0, agents=ratio, points=0),
        rng=np.random.default_rng((seed, 31)),
        form=form,
    )
    pool = 2 * (BF16.pool_tokens or 0.0)
    larger = replace(FP8, pool_tokens=pool, expected_pool_tokens=pool)
    points = tuple(drawn.points(draws))
    evidence = bare(kind="measured", arms=(BF16, larger), capacity=points)
    undivided = assess(evidence, Policy()).capacity
    case = replace(assess(evidence, BOTH), capacity_undivided=undivided)
    leg = capacity_leg(case, "fp8", None)
    found, change = leg.estimate, ratio - 1
    low = None if found is None else found.low
    high = None if found is None else found.high
    return Graded(
        state=leg.state,
        is_wrong=leg.state not in (RIGHT[ratio], "unclear", "untested"),
        covers=(low is None or low <= change) and (high is None or change <= high),
    )


def lines(number: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Yield a line for each curve, ratio and number of draws."""
    for form in (OF_POPULATION, OFF_ALIKE, *FORMS):
        for ratio, right in RIGHT.items():
            for draws in (12, 6, 3):
                found: Sequence[Graded] = [
                    graded(ratio, form, seed + each, draws=draws) for each in range(number)
                ]
                counts = (
                    sum(each.state == right for each in found),
                    sum(each.is_wrong for each in found),
                    sum(each.covers for each in found),
                )
                shares = (f"{100 * count / number:.0f}%" for count in counts)
                yield form, f"{ratio:g}", str(draws), *shares


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=40_000)
    options = parser.parse_args()
    columns = ("curve", "ratio", "draws", "decided rightly", "wrong", "covers")
    for line in table(columns, list(lines(options.number, options.seed))):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
