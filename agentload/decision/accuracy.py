"""Ask whether the arms' answers are as right: paired questions at the lengths of the user's contexts, a look at a time."""

from dataclasses import dataclass, replace
from typing import Final

from agentload.decision.answers import answered, ordered
from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage, reasons
from agentload.errors import InterruptError
from agentload.run import foreground
from agentload.run.questions import asking_of, generated, questions_cost
from agentload.study.kinds import Ask

TOGETHER: Final = 4
"""Questions behind one context, which is read once for all of them, until answers show how much they differ together."""


@dataclass(kw_only=True)
class Accuracy:
    """The questions of a decision."""

    means: Means

    def price(self, stage: Stage) -> Price:
        """Return what the questions take that were not asked before."""
        study = self._study(stage)
        asked = replace(generated(asking_of(study)), order=ordered(study, stage.amount, self.means.beside))
        expected = questions_cost(asked, arms=len(self.means.arms), concurrency=study.concurrency, thinking_tokens=0)
        share = 1 - max(self.means.ledger.looks("accuracy"), default=0) / stage.amount
        return Price(
            minutes=expected.minutes * share + self.means.starts_minutes,
            calls=round(expected.questions * share),
            tokens=round(expected.prompt_tokens * share),
        )

    def ask(self, stage: Stage) -> float | None:
        """Ask until there are so many answers; a simulated one takes what it was expected to."""
        means = self.means
        minutes = self.price(stage).minutes if means.is_virtual else None
        ended = answered(self._study(stage), stage.amount, means.beside, means.audience)
        if minutes is None:
            foreground.concluded(ended.run_id, means.place, means.audience, load_error=ended.load_error)
        if ended.left:
            raise InterruptError("stopped")
        return minutes

    def said(self, known: Known | None) -> str:
        """Say how much more often each arm is right."""
        return "" if known is None else reasons(known, lambda verdict: verdict.safe)

    def _study(self, stage: Stage) -> Ask:
        study = self.means.study
        return Ask(
            servers=study.servers,
            contexts=stage.lengths,
            items=stage.amount,
            per_context=TOGETHER,
            seed=study.seed,
            tokenizer=study.tokenizer,
        )
