"""Ask a few graded questions before speed is refined, to find an arm that is broken.

An arm whose answers are wrong altogether ends there. Most questions are at the longest contexts
of the trace, because kernels break with length; some are shorter, to show from which length on an
arm is broken. Accuracy asks the same questions later at these lengths, and counts their answers.
Their number is what a twentieth of the budget pays for, in whole contexts.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from advisor.assess.answers import LEAST_IN_A_BUCKET
from advisor.evidence import AccuracyBucket
from advisor.judge import BROKEN
from agentload.decision.budget import BudgetLimit, ask_questions
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.look import Look
from agentload.decision.means import TOGETHER, Means
from agentload.decision.paired_answers import CANARY_SHARE, price_of_questions
from agentload.evidence import grades
from agentload.model.record import Record
from agentload.model.rows import ProbeRow
from agentload.run.questions import Question, asking_of
from agentload.store.database import reading
from agentload.store.loader import rewrite

NEARLY: Final = 7 / 8
"""Share of the longest length that is the second length asked.

Between the longest and an ordinary length, it shows from where on an arm is broken.
"""
SIZES: Final = ((5, 2, 2), (4, 1, 1), (3,))
"""Contexts at each length, the longest length first; the largest canary comes first.

Three at the longest length can show ten lost answers.
"""
ENDS: Final = (BROKEN, "same_server")
"""Rules that say what a canary found."""
NO_CANARY: Final = f"no canary: the smallest takes more than {CANARY_SHARE:.0%} of the budget"
SHORTEST: Final = 4096
"""Tokens below which a shorter length says little of where kernels break."""


class Canary(Record, dict=True):
    """Ask the questions before speed is refined, as many as fit."""

    means: Means

    @cached_property
    def look(self) -> Look | None:
        """Largest canary that fits its share of the budget; None where none does."""
        most = CANARY_SHARE * self.means.study.budget_s / 60
        sizes = map(self._sized, SIZES)
        return next((each for each in sizes if self._price(each).minutes <= most), None)

    def price(self, look: Look, _: Known) -> LookPrice:
        """Return what the questions take."""
        return self._price(look)

    def _price(self, look: Look) -> LookPrice:
        return price_of_questions(self.means, self.means.questions(look), self.order(look))

    def ask(self, look: Look, _: Known, limit: BudgetLimit) -> float | None:
        """Ask the questions; simulated ones take the minutes that they were expected to."""
        means = self.means
        order = self.order(look)
        price = self._price(look)
        row = ProbeRow(
            run_id=means.run,
            arm="",
            probe=grades.CANARY,
            at_ns=0,
            settings=json.dumps({"lengths": look.lengths}),
            outcome="asked",
        )
        rewrite([row], means.place.database, run_id=means.run, name=grades.CANARY)
        ask_questions(means, order, limit, study=means.questions(look), price=price)
        return price.minutes if means.is_virtual else None

    def said(self, known: Known) -> str:
        """Say how many answers each arm has right, and what follows."""
        means, reference = self.means, self.means.reference
        with reading(means.place.database) as connection:
            graded = grades.graded_answers(connection, means.run)
            buckets = grades.accuracy(graded, means.arms, reference)[0]
        if not buckets:
            return f"no question was answered by both {reference} and another arm"
        first = _of_arm(buckets, buckets[0].arm)
        asked = sum(each.items for each in first)
        right = sum(each.both + each.reference_only for each in first)
        # the table weighs each length by the user's calls of that length
        is_weighed = len({each.context_tokens for each in first}) > 1
        answers = "unweighted answers" if is_weighed else "answers"
        said = f"{reference} has {right} of {asked} {answers} right"
        for arm in (each for each in means.arms if each != reference):
            own = _of_arm(buckets, arm)
            own_right = sum(each.both + each.arm_only for each in own)
            said += f", {arm} {own_right} of {sum(each.items for each in own)}"
        if right < LEAST_IN_A_BUCKET * means.study.accuracy_margin * asked:
            return f"{said}: {reference} cannot answer such questions, so nothing follows"
        over = (each.message for each in known.findings if each.rule in ENDS)
        return "; ".join((said, *over))

    def _sized(self, contexts: Sequence[int]) -> Look:
        lengths = canary_lengths(self.means.lengths)[: len(contexts)]
        return Look(
            criterion="canary", amount=_contexts(contexts, lengths) * TOGETHER, lengths=lengths
        )

    def order(self, look: Look) -> tuple[Question, ...]:
        """Return the questions: the contexts of each length, task by task."""
        size = next(
            each for each in SIZES if _contexts(each, look.lengths) * TOGETHER == look.amount
        )
        asking = asking_of(self.means.questions(look))
        asking = replace(asking, items=len(asking.tasks) * len(asking.contexts) * TOGETHER)
        found: list[Question] = []
        for length, contexts in zip(look.lengths, size, strict=False):
            at = [each for each in asking.questions() if each.context == length]
            found += at[: contexts * TOGETHER]
        return tuple(found)


def canary_lengths(lengths: Sequence[int]) -> tuple[int, ...]:
    """Return the lengths that a canary asks at, the longest first, of those of the calls.

    Accuracy asks at two of them, too.
    """
    *shorter, top = lengths
    between = int(NEARLY * top) // 1024 * 1024
    half = max((each for each in shorter if each < between), default=0)
    return (top, *(each for each in (between, half) if SHORTEST <= each < top))


def _of_arm(buckets: Sequence[AccuracyBucket], arm: str) -> list[AccuracyBucket]:
    return [each for each in buckets if each.arm == arm]


def _contexts(size: Sequence[int], lengths: Sequence[int]) -> int:
    """Return how many contexts a canary of this size has at these lengths."""
    return sum(size[: len(lengths)])
