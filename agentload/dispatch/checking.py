"""Grade the answers of a replayed trace that says what they must hold."""

from agentload.model.commands import Outcome, Send
from agentload.model.rows import AnswerRow
from agentload.tasks.parts.grading import grade_all


def checked(send: Send, outcome: Outcome, *, run_id: str) -> AnswerRow | None:
    """Return the grade of a checked turn that was answered; None for every other."""
    call = send.call
    if not call.check or outcome.status != "ok" or outcome.reply is None:
        return None
    found = grade_all(call.check, outcome.reply.text, tokens=outcome.reply.tokens)
    return AnswerRow(
        run_id=run_id,
        arm=send.arm,
        task=f"check/{call.workload}",
        item=f"{call.session}[{call.turn}]",
        context_tokens=call.context_tokens,
        depth=None,
        repetition=send.pair,
        score=found.score,
        right=found.right,
        answer=outcome.reply.text,
        request_id=send.request_id,
    )
