"""Ask whether the arms' answers are as right: paired questions at the lengths of the user's contexts, a look at a time."""

from dataclasses import dataclass
from typing import Final

from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage, reasons
from agentload.errors import InterruptError
from agentload.run import foreground
from agentload.run.prepared import evaluation
from agentload.run.questions import Generated, asking_of, questions_cost
from agentload.run.simulated_answers import answer_all, answering
from agentload.study.kinds import Ask

TOGETHER: Final = 4
"""Questions behind one context, which is read once for all of them; each is about a part of its own."""


@dataclass(kw_only=True)
class Accuracy:
    """The questions of a decision."""

    means: Means

    def price(self, stage: Stage) -> Price:
        """Return what the questions take that were not asked before."""
        study = self._study(stage)
        asking = Generated(asking=asking_of(study))
        expected = questions_cost(asking, arms=len(self.means.arms), concurrency=study.concurrency, thinking_tokens=0)
        share = 1 - max(self.means.ledger.looks("accuracy"), default=0) / stage.amount
        return Price(
            minutes=expected.minutes * share + self.means.starts_minutes,
            calls=round(expected.questions * share),
            tokens=round(expected.prompt_tokens * share),
        )

    def ask(self, stage: Stage) -> float | None:
        """Ask until there are so many answers; a simulated one takes what it was expected to."""
        means = self.means
        if means.is_virtual:
            minutes = self.price(stage).minutes
            answer_all(answering(self._study(stage), means.beside))
            return minutes
        with evaluation(self._study(stage), means.beside) as (asking, _):
            ended = foreground.asked(asking, means.audience)
        foreground.concluded(ended.run_id, means.place, means.audience, load_error=ended.load_error)
        if ended.left:
            raise InterruptError("stopped")
        return None

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
