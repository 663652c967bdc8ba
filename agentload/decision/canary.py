"""Ask a few graded questions before speed is refined:
an arm whose answers are wrong altogether ends there.

The longest contexts of the trace are asked for most, because kernels break with
length; some are shorter, so that what is broken is known from which length on.
All questions are those that accuracy asks later at these lengths, and count
there. Their number is what a twentieth of the budget pays for, in whole contexts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from advisor.assess.accuracy import LEAST_IN_A_BUCKET
from advisor.judge import BROKEN
from agentload.decision.accuracy import CANARY_SHARE
from agentload.decision.answers import answered
from agentload.decision.forecast import Price
from agentload.decision.means import TOGETHER, Means
from agentload.decision.sequence import Known, Stage
from agentload.errors import InterruptError
from agentload.evidence import grades
from agentload.model.rows import ProbeRow
from agentload.run import foreground
from agentload.run.questions import Question, asking_of, generated, questions_cost
from agentload.store.database import reading
from agentload.store.loader import rewrite

NEARLY: Final = 7 / 8
"""Of the longest length: the one between it and an
ordinary one says from where on an arm is broken.
"""
SIZES: Final = ((5, 2, 2), (4, 1, 1), (3,))
"""Contexts at each of these lengths, the largest canary first.

Three at the longest can show ten lost answers.
"""
ENDS: Final = (BROKEN, "same_server")
"""Rules that say what a canary found."""
NO_CANARY: Final = f"no canary: the smallest takes more than {CANARY_SHARE:.0%} of the budget"
SHORTEST: Final = 4096
"""Of the lengths below the longest: shorter ones say little of where kernels break."""


@dataclass(kw_only=True)
class Canary:
    """The questions before speed is refined, as many as fit."""

    means: Means

    @property
    def stage(self) -> Stage | None:
        """Return the largest canary that fits into
        its share of the budget; None where none does.
        """
        most = CANARY_SHARE * self.means.study.budget_s / 60
        fits = (each for each in map(self._sized, SIZES) if self.price(each).minutes <= most)
        return next(fits, None)

    @property
    def smallest(self) -> Stage:
        """Return the smallest canary that may show something."""
        return self._sized(SIZES[-1])

    def price(self, stage: Stage) -> Price:
        """Return what the questions take."""
        study = self.means.questions(stage)
        asked = replace(generated(asking_of(study)), order=self._order(stage))
        arms = len(self.means.arms)
        found = questions_cost(
            asked,
            arms=arms,
            concurrency=study.concurrency,
            thinking_tokens=0,
            prefill_s=self.means.prefill_s,
        )
        return Price(
            minutes=found.minutes + self.means.starts_minutes,
            calls=found.questions,
            tokens=found.prompt_tokens,
        )

    def ask(self, stage: Stage) -> float | None:
        """Ask the questions; simulated ones take what they were expected to."""
        means = self.means
        order = self._order(stage)
        lengths = json.dumps({"lengths": stage.lengths})
        row = ProbeRow(
            run_id=means.run,
            arm="",
            probe=grades.CANARY,
            at_ns=0,
            settings=lengths,
            outcome="asked",
        )
        rewrite([row], means.place.database, run_id=means.run, name=grades.CANARY)
        ended = answered(
            self.means.questions(stage), len(order), means.beside, means.audience, order=order
        )
        if not means.is_virtual:
            foreground.concluded(
                ended.run_id, means.place, means.audience, load_error=ended.load_error
            )
        if ended.left:
            raise InterruptError("stopped")
        return self.price(stage).minutes if means.is_virtual else None

    def said(self, _: Known | None) -> str:
        """Say how many answers each arm has right, and what follows."""
        means = self.means
        with reading(means.place.database) as connection:
            buckets = grades.accuracy(connection, means.run, means.arms, self.means.reference)[0]
        if not buckets:
            return "no question was answered"
        first = [each for each in buckets if each.arm == buckets[0].arm]
        asked = sum(each.items for each in first)
        right = sum(each.both + each.reference_only for each in first)
        said = f"{self.means.reference} has {right} of {asked} answers right"
        for arm in (each for each in means.arms if each != self.means.reference):
            own = [each for each in buckets if each.arm == arm]
            said += (
                f", {arm} {sum(each.both + each.arm_only for each in own)} of "
                f"{sum(each.items for each in own)}"
            )
        if right < LEAST_IN_A_BUCKET * means.study.accuracy_margin * asked:
            return (
                f"{said}: {self.means.reference} cannot answer such questions, so nothing follows"
            )
        over = (each.message for each in means.findings if each.rule in ENDS)
        return "; ".join((said, *over))

    def _sized(self, contexts: Sequence[int]) -> Stage:
        lengths = self._lengths[: len(contexts)]
        return Stage(
            criterion="canary", amount=_contexts(contexts, lengths) * TOGETHER, lengths=lengths
        )

    @property
    def _lengths(self) -> tuple[int, ...]:
        """Return the lengths that are asked for, the
        longest first; accuracy asks at two of them as well.
        """
        *shorter, top = self.means.lengths
        between = int(NEARLY * top) // 1024 * 1024
        half = max((each for each in shorter if each <= between), default=0)
        return (top, *(each for each in (between, half) if SHORTEST <= each < top))

    def _order(self, stage: Stage) -> tuple[Question, ...]:
        """Return the questions: so many contexts of each length, a task after the other."""
        size = next(
            each for each in SIZES if _contexts(each, stage.lengths) * TOGETHER == stage.amount
        )
        asking = asking_of(self.means.questions(stage))
        asking = replace(asking, items=len(asking.tasks) * len(asking.contexts) * TOGETHER)
        found: list[Question] = []
        for length, contexts in zip(stage.lengths, size, strict=False):
            at = [each for each in asking.questions() if each.context == length]
            found += at[: contexts * TOGETHER]
        return tuple(found)


def _contexts(size: Sequence[int], lengths: Sequence[int]) -> int:
    """Return how many contexts a canary has that asks for
    so many at each length, where there are so many lengths.
    """
    return sum(size[: len(lengths)])
