"""Ask whether the arms' answers are as right: paired questions
at the lengths of the user's contexts, a look at a time.

A screen comes first: are answers broken, and at which lengths is it worth to ask?
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from advisor.legs.questions import shared
from agentload.decision.answers import answered, ordered, unanswered
from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage, reasons
from agentload.errors import EndpointError, InterruptError
from agentload.run import foreground
from agentload.run.questions import Question, asking_of, generated, questions_cost, subject_of
from agentload.run.screen import SALTS
from agentload.study.kinds import Ask

CANARY_SHARE: Final = 0.05
"""Of the budget that a canary and a screen may take
together: only what comes later decides between sound arms.
"""


@dataclass(kw_only=True)
class Accuracy:
    """The questions of a decision."""

    means: Means

    def price(self, stage: Stage) -> Price:
        """Return what the questions take that were not asked before."""
        means, study = self.means, self.means.questions(stage)
        left = unanswered(self._order(stage), means.beside)
        asked = replace(generated(asking_of(study)), order=left)
        expected = questions_cost(
            asked,
            arms=len(means.arms),
            concurrency=study.concurrency,
            thinking_tokens=0,
            prefill_s=means.prefill_s,
        )
        return Price(
            minutes=expected.minutes + means.starts_minutes,
            calls=expected.questions,
            tokens=expected.prompt_tokens,
        )

    def ask(self, stage: Stage) -> float | None:
        """Ask until there are so many answers; a simulated one takes what it was expected to."""
        means = self.means
        minutes = self.price(stage).minutes if means.is_virtual else None
        ended = answered(
            self.means.questions(stage),
            stage.amount,
            means.beside,
            means.audience,
            order=self._order(stage),
        )
        if minutes is None:
            foreground.concluded(
                ended.run_id, means.place, means.audience, load_error=ended.load_error
            )
        if ended.left:
            raise InterruptError("stopped")
        return minutes

    def said(self, known: Known | None) -> str:
        """Say how much more often each arm is right."""
        return "" if known is None else reasons(known, lambda verdict: verdict.safe)

    def _order(self, stage: Stage) -> tuple[Question, ...]:
        """Return the questions: most at the lengths that many of the
        user's calls have, fewer at those that take long to read.
        """
        shares = shared(
            stage.lengths, [(each.calls, each.context_tokens) for each in self.means.shapes]
        )
        return ordered(self.means.questions(stage), stage.amount, self.means.beside, shares=shares)


@dataclass(kw_only=True)
class Screen:
    """How likely each arm holds what comes next in the user's own prompts."""

    means: Means
    _is_asked: bool = False

    @property
    def is_wanted(self) -> bool:
        """Tell whether answers are still to be screened,
        and that leaves the budget for what decides.
        """
        is_asked = self._is_asked or bool(self.means.ledger.looks("screen"))
        canary = sum(self.means.ledger.looks("canary").values())
        return (
            not is_asked and canary + self._minutes <= CANARY_SHARE * self.means.study.budget_s / 60
        )

    def price(self, _: Stage) -> Price:
        """Return what the longest prompts of the trace take,
        under several salts on the reference and once on each arm.
        """
        return Price(minutes=self._minutes + self.means.starts_minutes)

    def ask(self, _: Stage) -> float | None:
        """Screen the arms; servers that tell no log probabilities leave it to the questions."""
        self._is_asked = True
        try:
            foreground.screened(self._study, self.means.beside, self.means.audience)
        except EndpointError as error:
            self.means.audience.notice(f"  answers are not screened: {error.message}")
        return self._minutes if self.means.is_virtual else None

    def said(self, _: Known | None) -> str:
        """Say what the screen found."""
        found = [each.message for each in self.means.findings if each.rule == "screened_answers"]
        return "; ".join(found) or "answers were not screened: questions alone tell"

    @property
    def _study(self) -> Ask:
        study = self.means.study
        return Ask(
            servers=study.servers,
            traces=study.traces,
            screen=True,
            seed=study.seed,
            tokenizer=study.tokenizer,
        )

    @cached_property
    def _minutes(self) -> float:
        prompts = (
            sum(segment.tokens for segment in context)
            for context in subject_of(self._study).contexts
        )
        return (
            sum(map(self.means.prefill_s, prompts)) * (len(SALTS) + len(self.means.arms) - 1) / 60
        )
