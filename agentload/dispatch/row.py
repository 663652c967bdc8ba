"""Build the stored row of one attempt: what was asked, and how the attempt ended."""

from dataclasses import fields
from typing import Final

from agentload.model.commands import Ending, Outcome, Send
from agentload.model.rows import CallRow

_ENDING: Final = tuple(each.name for each in fields(Ending))


def row(
    send: Send, outcome: Outcome, *, run_id: str, leg: int, prompt_hash: str | None = None
) -> CallRow:
    """Return the row of an attempt, joined from its command and its outcome."""
    call = send.call
    return CallRow(
        run_id=run_id,
        leg=leg,
        arm=send.arm,
        block=send.block,
        pair=send.pair,
        workload=call.workload,
        session=call.session,
        turn=call.turn,
        attempt=send.attempt,
        retry_of=send.retry_of,
        request_id=send.request_id,
        due_ns=send.due_ns,
        released_ns=send.released_ns,
        context_tokens=call.context_tokens,
        asked_tokens=call.output,
        tail=send.tail,
        prime=call.prime,
        prompt_hash=prompt_hash,
        deadline_ns=call.deadline_ns,
        turns_left=call.turns_left,
        **{name: getattr(outcome, name) for name in _ENDING},
    )
