"""One kind of question: what it takes, how it is asked, and what was learnt."""

from typing import Protocol

from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.look import Look


class QuestionKind(Protocol):
    """One kind of question, of which so much is asked as a look says."""

    def price(self, look: Look, known: Known, /) -> LookPrice:
        """Return what the look takes, beyond what the run has already."""
        ...

    def ask(self, look: Look, known: Known, /) -> float | None:
        """Ask until the run has so much; return the minutes of
        virtual time that it took, None where the clock tells.
        """
        ...

    def said(self, known: Known, /) -> str:
        """Say what is known by it now."""
        ...
