"""Simulate looks at paired answers against a known truth: when they end, with which word."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from advisor.evidence import Floats
from advisor.statistics import accuracy
from advisor.statistics.accuracy import AnswerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Hold how the simulated draws of one truth ended."""

    items: Floats  # asked, of each draw
    words: Floats  # 1: it ended "as accurate", -1: "worse", 0: it is open
    together: int = 1  # questions behind a context

    @property
    def mean_items(self) -> float:
        """Return how many items were asked in the mean."""
        return float(self.items.mean())

    @property
    def contexts(self) -> float:
        """Return how many contexts were read in the mean."""
        return float(np.ceil(self.items / self.together).mean())

    @property
    def safe(self) -> float:
        """Return the share of the draws that end "as accurate"."""
        return self.by(math.inf, 1)

    @property
    def worse(self) -> float:
        """Return the share of the draws that end "worse"."""
        return self.by(math.inf, -1)

    def by(self, items: float, word: int) -> float:
        """Return the share of the draws that ended with *word* after at most *items* items."""
        return float(np.mean((self.words == word) & (self.items <= items)))


@cache
def _word(found: AnswerCounts, *, margin: float, level: float) -> int:
    """Return 1 for "as accurate", -1 for "worse", 0 for neither."""
    if accuracy.p_not_worse(found, margin=margin) <= level:
        return 1
    return -1 if accuracy.p_worse(found, margin=margin) <= level else 0


def ends(
    looks: Sequence[int],
    *,
    flips: float,
    change: float,
    margin: float,
    level: float,
    draws: int,
    seed: int = 0,
    together: int = 1,
    correlation: float = 0.0,
    most: int | None = None,
) -> Ends:
    """Simulate sequences of looks in which the share *flips* of the items differs.

    The share of right answers changes by *change*. No look goes beyond *most* items; what is said
    up to there is the same without it. *together* questions share one context, and differ together
    by *correlation*.
    """
    rng = np.random.default_rng(seed)
    chances = np.array([(flips - change) / 2, (flips + change) / 2, 1 - flips])
    asked, words = np.empty(draws), np.zeros(draws)
    for draw in range(draws):
        contexts = -(-looks[-1] // together)
        drawn = np.tile(chances, (contexts, 1))
        if together > 1 and correlation > 0:
            drawn = rng.dirichlet(np.maximum(chances, 1e-9) * (1 / correlation - 1), contexts)
        picked = (rng.random((contexts, together, 1)) > np.cumsum(drawn, axis=1)[:, None, :]).sum(
            axis=2
        )
        difference = np.where(picked == 0, -1.0, np.where(picked == 1, 1.0, 0.0)).ravel()
        clusters = np.repeat(np.arange(contexts), together)
        for look in (each for each in looks if most is None or each <= most):
            asked[draw] = look
            words[draw] = _word(
                accuracy.counts(difference[:look], clusters[:look]), margin=margin, level=level
            )
            if words[draw]:
                break
    return Ends(items=asked, words=words, together=together)
