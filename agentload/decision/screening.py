"""Screen the answers before questions are asked: are they broken, and at which lengths is it worth to ask?"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from agentload.decision.forecast import Price
from agentload.decision.means import Means
from agentload.decision.sequence import Known, Stage
from agentload.errors import EndpointError
from agentload.layout.cost import ASSUMED_PREFILL_TOKENS_PER_S
from agentload.run import foreground
from agentload.run.questions import subject_of
from agentload.run.screen import SALTS
from agentload.study.kinds import Ask

SHARE: Final = 0.05
"""Of the budget that a screen may take: only graded answers decide, and they need what is left."""


@dataclass(kw_only=True)
class Screen:
    """How likely each arm holds what comes next in the user's own prompts."""

    means: Means
    _is_asked: bool = False

    @property
    def is_wanted(self) -> bool:
        """Tell whether answers are still to be screened, and that leaves the budget for what decides."""
        is_asked = self._is_asked or bool(self.means.ledger.looks("screen"))
        return not is_asked and self._minutes <= SHARE * self.means.study.budget_s / 60

    def price(self, _: Stage) -> Price:
        """Return what the longest prompts of the trace take, under several salts on the reference and once on each arm."""
        return Price(minutes=self._minutes + self.means.starts_minutes)

    def ask(self, _: Stage) -> float | None:
        """Screen the arms; servers that tell no log probabilities leave it to the questions."""
        self._is_asked = True
        try:
            foreground.screened(self._study, self.means.beside, self.means.audience)
        except EndpointError as error:
            self.means.audience.notice(f"  answers are not screened: {error.message}")
        return self._minutes if self.means.is_virtual else None

    def said(self, known: Known | None) -> str:
        """Say what the screen found."""
        found = [] if known is None else [each.message for each in known.decision.findings if each.rule == "screened_answers"]
        return "; ".join(found) or "answers were not screened: questions alone tell"

    @property
    def _study(self) -> Ask:
        study = self.means.study
        return Ask(servers=study.servers, traces=study.traces, screen=True, seed=study.seed, tokenizer=study.tokenizer)

    @cached_property
    def _minutes(self) -> float:
        tokens = sum(segment.tokens for context in subject_of(self._study).contexts for segment in context)
        return tokens * (len(SALTS) + len(self.means.arms) - 1) / ASSUMED_PREFILL_TOKENS_PER_S / 60
