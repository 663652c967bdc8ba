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
    if accuracy.p_worse(found, margin=margin) <= level:
        return -1
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTruth:
    """Describe how an arm's answers truly differ from the reference's."""

    flips: float  # share of the items that differ
    change: float  # of the share of right answers
    together: int = 1  # questions that share a context
    correlation: float = 0.0  # with which they differ together

    def differences(self, rng: np.random.Generator, contexts: int) -> Floats:
        """Draw -1 (lost), 1 (won) or 0 (equal) for each question of *contexts* contexts, in order.

        Each context draws chances of its own from a Dirichlet distribution about the truth: the
        larger its concentration, the less alike are the questions of one context.
        """
        lost = (self.flips - self.change) / 2
        won = (self.flips + self.change) / 2
        chances = np.array([lost, won, 1 - self.flips])
        of_context = np.tile(chances, (contexts, 1))
        if self.together > 1 and self.correlation > 0:
            concentration = 1 / self.correlation - 1
            of_context = rng.dirichlet(np.maximum(chances, 1e-9) * concentration, contexts)
        upto = np.cumsum(of_context, axis=1)[:, None, :]
        uniform = rng.random((contexts, self.together, 1))
        outcome = (uniform > upto).sum(axis=2).ravel()
        return np.select([outcome == 0, outcome == 1], [-1.0, 1.0], 0.0)


def ends(
    looks: Sequence[int],
    truth: AnswerTruth,
    *,
    margin: float,
    level: float,
    draws: int,
    most: int | None = None,
) -> Ends:
    """Simulate sequences of looks at answers of which *truth* holds.

    No look goes beyond *most* items; what is said up to there is the same without *most*.
    """
    rng = np.random.default_rng(0)
    contexts = math.ceil(looks[-1] / truth.together)
    context = np.repeat(np.arange(contexts), truth.together)
    taken = [each for each in looks if most is None or each <= most]
    asked = np.empty(draws)
    words = np.zeros(draws)
    for draw in range(draws):
        difference = truth.differences(rng, contexts)
        for look in taken:
            found = accuracy.counts_in_contexts(difference[:look], context[:look])
            asked[draw] = look
            words[draw] = _word(found, margin=margin, level=level)
            if words[draw]:
                break
    return Ends(items=asked, words=words, together=truth.together)
