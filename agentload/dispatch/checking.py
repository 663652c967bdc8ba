"""Grade the answers of a replayed trace.

An answer is graded by the checks that its turn has in the trace, or else by comparing it with
the recorded answer.
"""

from typing import Final

from agentload.model.commands import Outcome, Send
from agentload.model.rows import AnswerRow
from agentload.tasks import Grade
from agentload.tasks.parts.grading import grade_against_record, grade_all

RECORDED: Final = "recorded-next-turn"
"""Task name of replies that are compared with recorded ones.

Such a grade measures agreement with the recording, not correctness.
"""
CHECK: Final = "check/"
"""How the task name of an answer begins that its turn's checks grade; the workload follows."""


def answer_row(send: Send, outcome: Outcome, *, run_id: str) -> AnswerRow | None:
    """Return the grade of an answered turn with a check or a recorded answer; else None."""
    call = send.call
    reply = outcome.reply
    if outcome.status != "ok" or reply is None:
        return None
    said = reply.called or reply.text
    if call.check:
        found: Grade | None = grade_all(call.check, said, tokens=reply.tokens)
    else:
        found = None if call.recorded is None else grade_against_record(said, call.recorded)
    if found is None:
        return None
    return AnswerRow(
        run_id=run_id,
        arm=send.arm,
        task=f"{CHECK}{call.workload}" if call.check else RECORDED,
        item=f"{call.session}[{call.turn}]",
        context_tokens=call.context_tokens,
        depth=None,
        repetition=send.pair,
        score=found.score,
        right=found.right,
        answer=said,
        request_id=send.request_id,
    )
