"""End what a decision carries out through the door: a part that is not whole is an error."""

from agentload.decision.answers import answers_until
from agentload.decision.means import Means
from agentload.errors import EndpointError, InterruptError
from agentload.run.audience import check_stored
from agentload.run.play import Played
from agentload.run.questions import Question
from agentload.study.kinds import Ask


def ask_questions(means: Means, study: Ask, order: tuple[Question, ...], items: int) -> None:
    """Ask graded questions of the run, until there are *items* answers in all.

    Raises InterruptError where some are left.
    """
    ended = answers_until(study, items, means.beside, means.audience, order=order)
    if not means.is_virtual:
        check_stored(ended, means.place, means.audience)
    if ended.left:
        raise InterruptError("stopped")


def require_whole(means: Means, ended: Played) -> None:
    """Raise the error a part ends with: a server gone, a stop, rows missing in the database."""
    check_stored(ended, means.place, means.audience)
    if ended.died:
        raise EndpointError(f"{', '.join(ended.died)} stopped answering", hint="start it again")
    if ended.was_stopped:
        raise InterruptError("stopped")
