"""Ask whether the arms' answers are as right: paired questions, a look at a time.

The questions have the lengths of the user's contexts. A screen comes first: are answers broken, and
at which lengths is it worth to ask?
"""

from dataclasses import replace
from functools import cached_property
from typing import Final

from advisor.legs.questions import shares_by_length
from agentload.ask.likely import TIMEOUT_S
from agentload.decision.answers import open_questions, question_order
from agentload.decision.budget import BudgetLimit, ask_questions
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import Criterion, Look
from agentload.decision.means import Means
from agentload.decision.sequence import reasons
from agentload.errors import EndpointError, InterruptError
from agentload.layout.cost import Prefill, assumed_prefill_s
from agentload.model.record import Record
from agentload.run import door
from agentload.run.audience import check_stored
from agentload.run.questions import (
    Question,
    QuestionsCost,
    asking_of,
    catalog_questions,
    questions_cost,
    subject_of,
)
from agentload.run.screen import SALTS
from agentload.study.kinds import Ask

CANARY_SHARE: Final = 0.05
"""Share of the budget that a canary and a screen may take together.

Only what comes later decides between sound arms.
"""


def price_of_questions(means: Means, study: Ask, order: tuple[Question, ...]) -> LookPrice:
    """Return what graded questions take on all arms."""
    found = _cost(means, study, order, means.rates.prefill_s)
    return LookPrice(
        minutes=found.minutes + means.starts_minutes,
        calls=found.questions,
        tokens=found.prompt_tokens,
    )


def _cost(
    means: Means, study: Ask, order: tuple[Question, ...], prefill_s: Prefill
) -> QuestionsCost:
    return questions_cost(
        replace(catalog_questions(asking_of(study)), order=order),
        arms=len(means.arms),
        concurrency=study.concurrency,
        thinking_tokens=study.thinking_tokens,
        prefill_s=prefill_s,
    )


class PairedAnswers(Record):
    """Ask the graded questions that say whether an arm is as accurate."""

    means: Means

    def price(self, look: Look, _: Known) -> LookPrice:
        """Return what the questions take that were not asked before."""
        left = open_questions(self._order(look), self.means.beside)
        return price_of_questions(self.means, self.means.questions(look), left)

    def pace(self, look: Look) -> float:
        """Return how much longer than assumed the open questions take by the arms' profiles."""
        means, study = self.means, self.means.questions(look)
        left = open_questions(self._order(look), means.beside)
        assumed = _cost(means, study, left, assumed_prefill_s).minutes
        return _cost(means, study, left, means.rates.prefill_s).minutes / assumed if left else 1.0

    def ask(self, look: Look, _: Known, limit: BudgetLimit) -> float | None:
        """Ask until there are as many answers as the look says; return minutes if simulated."""
        means, study, order = self.means, self.means.questions(look), self._order(look)
        price = price_of_questions(means, study, open_questions(order, means.beside))
        ask_questions(means, order, limit, study=study, price=price)
        return price.minutes if means.is_virtual else None

    def said(self, known: Known) -> str:
        """Say how much more often each arm is right."""
        return reasons(known, lambda verdict: verdict.safe)

    def _order(self, look: Look) -> tuple[Question, ...]:
        """Return the questions: most at common lengths, fewer at those that take long to read.

        Common are lengths that many of the user's calls have.
        """
        means = self.means
        calls = [(each.calls, each.context_tokens) for each in means.shapes]
        shares = shares_by_length(look.lengths, calls)
        return question_order(means.questions(look), look.amount, means.beside, shares=shares)


class Screen(Record, dict=True):
    """Screen how likely each arm holds what comes next in the user's own prompts."""

    means: Means

    def is_wanted(self, ledger: Ledger, *, asking: Criterion | None = None) -> bool:
        """Tell whether answers are still to be screened, and the budget allows that."""
        if asking == "screen" or ledger.looks("screen"):
            return False
        canary = sum(ledger.looks("canary").values())
        return canary + self._minutes <= CANARY_SHARE * self.means.study.budget_s / 60

    def price(self, _: Look, __: Known) -> LookPrice:
        """Return what the longest prompts take: under each salt on the reference, else once."""
        return LookPrice(minutes=self._minutes + self.means.starts_minutes)

    def ask(self, _: Look, __: Known, limit: BudgetLimit) -> float | None:
        """Screen the arms; without log probabilities, graded questions alone decide.

        Raises InterruptError where somebody stopped the screen, or the budget did.
        """
        try:
            ended = door.carry_out(self._study, self.means.beside, limit.limited_audience())
            stopped = InterruptError("stopped") if ended.was_stopped else None
            check_stored(ended, self.means.place, self.means.audience, stopped=stopped)
        except EndpointError as error:
            self.means.audience.notice(f"  answers are not screened: {error.message}")
        return self._minutes if self.means.is_virtual else None

    def said(self, known: Known) -> str:
        """Say what the screen found."""
        found = [each.message for each in known.findings if each.rule == "screened_answers"]
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
            timeouts=self.means.patience(TIMEOUT_S),
        )

    @cached_property
    def _minutes(self) -> float:
        contexts = subject_of(self._study).contexts
        prompts = [sum(segment.tokens for segment in context) for context in contexts]
        once_s = sum(map(self.means.rates.prefill_s, prompts))
        return once_s * (len(SALTS) + len(self.means.arms) - 1) / 60
