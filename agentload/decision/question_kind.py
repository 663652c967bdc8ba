"""Define one kind of question: what it takes, how it is asked, and what was learnt."""

from typing import Protocol

from agentload.decision.budget import BudgetLimit
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.look import Look


class QuestionKind(Protocol):
    """One kind of question, asked in the amount that a look says."""

    def price(self, look: Look, known: Known, /) -> LookPrice:
        """Return what the look takes, beyond what the run has already."""
        ...

    def ask(self, look: Look, known: Known, limit: BudgetLimit, /) -> float | None:
        """Ask until the run has the amount of the look, or the budget ends it.

        Returns the minutes of virtual time that it took; None in real time.
        """
        ...

    def said(self, known: Known, /) -> str:
        """Say what is known now of what was asked."""
        ...
