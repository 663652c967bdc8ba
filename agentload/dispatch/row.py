"""Build the stored row of one attempt: what was asked, and how the attempt ended."""

from agentload.model.commands import Outcome, Send
from agentload.model.rows import CallRow
from agentload.model.stamps import Stamps


def row(
    send: Send,
    outcome: Outcome,
    *,
    run_id: str,
    leg: int,
    prompt_hash: str | None = None,
    chunks: Stamps | None = None,
) -> CallRow:
    """Return the row of an attempt, joined from its command and its outcome.

    *chunks* are the stamps of its answer, where the outcome lacks them.
    """
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
        # each by its name: a mapping of them takes as long again as the row
        status=outcome.status,
        replica=outcome.replica,
        gateway=outcome.gateway,
        dialled_ns=outcome.dialled_ns,
        opened_ns=outcome.opened_ns,
        sent_ns=outcome.sent_ns,
        first_ns=outcome.first_ns,
        first_answer_ns=outcome.first_answer_ns,
        last_ns=outcome.last_ns,
        done_ns=outcome.done_ns,
        stamp_source=outcome.stamp_source,
        coalesced_reads=outcome.coalesced_reads,
        token_rule=outcome.token_rule,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
        thinking_tokens=outcome.thinking_tokens,
        http_status=outcome.http_status,
        finish_reason=outcome.finish_reason,
        error=outcome.error,
        chunks=outcome.chunks if chunks is None else chunks,
    )
