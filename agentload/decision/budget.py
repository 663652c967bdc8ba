"""Stop what a decision asks when its budget ends; raise an error where a part was not finished.

What is asked runs under an audience, which can stop it. A `BudgetLimit` gives it an audience that
the end of the budget stops as well.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from agentload.ask.asker import TIMEOUT_S
from agentload.decision.answers import answers_until
from agentload.decision.forecast import LookPrice
from agentload.decision.means import Means
from agentload.errors import AgentloadError, EndpointError, InterruptError
from agentload.run.audience import ENDING_S, Audience, Stop, check_stored
from agentload.run.play import Played
from agentload.run.questions import Question
from agentload.study.kinds import Ask


class BudgetSpentError(AgentloadError):
    """The budget ended before all that was asked had its answer."""


@dataclass(slots=True, kw_only=True)
class BudgetLimit:
    """Stop what is asked when the budget ends, or earlier if the audience stops it."""

    audience: Audience
    ends_s: float
    """Instant of the monotonic clock at which nothing is left of the budget."""
    ending_s: float = ENDING_S
    """Seconds that calls in flight have then."""
    is_spent: bool = False

    def limited_audience(self) -> Audience:
        """Return the audience as the budget limits it: the budget's end stops it too."""
        return replace(
            self.audience,
            stopping=self.stopping,
            stop_words=self.stop_words,
            ending_s=self.ending_s,
        )

    def stop_words(self) -> tuple[str, str]:
        """Return why it stops, and the key that ends calls in flight at once."""
        if self.is_spent:
            return ("the budget is spent", "Ctrl-C")
        return self.audience.stop_words()

    @contextmanager
    def stopping(self, stop: Stop) -> Iterator[None]:
        """Call *stop* when the audience does, or when the budget is spent."""

        def stop_by_budget() -> None:
            self.is_spent = True
            stop()

        timer = asyncio.get_running_loop().call_at(self.ends_s, stop_by_budget)

        def stop_by_audience() -> None:
            timer.cancel()
            stop()

        try:
            with self.audience.stopping(stop_by_audience):
                yield
        finally:
            timer.cancel()


def ask_questions(
    means: Means, order: tuple[Question, ...], limit: BudgetLimit, *, study: Ask, price: LookPrice
) -> None:
    """Ask graded questions of the run, until all in this *order* have an answer.

    Raises InterruptError where somebody stopped them, BudgetSpentError where the budget did: what
    has no answer yet is not asked, and speaks against no arm.
    """
    timeouts = means.patience(TIMEOUT_S, expected_s=60 * price.minutes)
    study = msgspec.structs.replace(study, timeouts=timeouts)
    ended = answers_until(study, len(order), means.beside, limit.limited_audience(), order=order)
    if not means.is_virtual:
        check_stored(ended, means.place, means.audience)
    if ended.left and limit.is_spent:
        raise BudgetSpentError(
            f"the budget ended {ended.left:,} questions before their answers: they count for no arm"
        )
    if ended.left:
        raise InterruptError("stopped")


def require_whole(means: Means, ended: Played, limit: BudgetLimit) -> None:
    """Raise an error for rows missing in the database, a server that died, or a stop.

    A stop by the budget raises InterruptError too: the decision tells the two apart.
    """
    check_stored(ended, means.place, means.audience)
    if ended.died and not limit.is_spent:
        raise EndpointError(f"{', '.join(ended.died)} stopped answering", hint="start it again")
    if ended.was_stopped:
        raise InterruptError("stopped")
