from dataclasses import fields
from typing import Any

from agentload.dispatch.row import row
from agentload.model.commands import Call, Ending, Limits, Outcome, Send
from agentload.model.rows import CallRow
from agentload.model.stamps import stamps


def test_a_row_holds_every_field_of_what_was_sent_and_how_it_ended() -> None:
    call = Call(
        session="s",
        turn=2,
        workload="rag",
        context=(),
        context_tokens=900,
        output=64,
        deadline_ns=77,
    )
    send = Send(
        request_id="al-1",
        call=call,
        attempt=1,
        retry_of="al-0",
        arm="fp8",
        block=3,
        pair=4,
        due_ns=10,
        released_ns=11,
        salt="x",
        limits=Limits(),
        tail=True,
    )
    outcome = Outcome(
        status="short",
        opened_ns=12,
        sent_ns=13,
        first_ns=14,
        first_answer_ns=15,
        last_ns=16,
        done_ns=17,
        chunks=stamps([14, 16], [1, 1]),
        stamp_source="kernel",
        coalesced_reads=1,
        token_rule="token_ids",
        prompt_tokens=901,
        cached_tokens=640,
        output_tokens=2,
        thinking_tokens=1,
        http_status=200,
        finish_reason="stop",
        error="2 tokens where 64 were forced (stop)",
        replica="10.0.0.1:8000",
    )
    found = row(send, outcome, run_id="r", leg=5, prompt_hash="abc")
    assert found == CallRow(
        run_id="r",
        leg=5,
        arm="fp8",
        block=3,
        pair=4,
        workload="rag",
        session="s",
        turn=2,
        attempt=1,
        retry_of="al-0",
        request_id="al-1",
        due_ns=10,
        released_ns=11,
        context_tokens=900,
        asked_tokens=64,
        status="short",
        tail=True,
        replica="10.0.0.1:8000",
        opened_ns=12,
        sent_ns=13,
        first_ns=14,
        first_answer_ns=15,
        last_ns=16,
        done_ns=17,
        stamp_source="kernel",
        coalesced_reads=1,
        token_rule="token_ids",
        prompt_tokens=901,
        cached_tokens=640,
        output_tokens=2,
        thinking_tokens=1,
        http_status=200,
        finish_reason="stop",
        error="2 tokens where 64 were forced (stop)",
        prompt_hash="abc",
        deadline_ns=77,
        chunks=stamps([14, 16], [1, 1]),
    )


def test_a_row_leaves_out_no_field_of_an_ending() -> None:
    call = Call(session="s", turn=0, workload="rag", context=(), context_tokens=1, output=1)
    send = Send(
        request_id="al-0",
        call=call,
        attempt=0,
        retry_of=None,
        arm="fp8",
        block=0,
        pair=0,
        due_ns=0,
        released_ns=0,
        salt="x",
        limits=Limits(),
    )
    # each of its own type, and none like another
    marks: dict[str, Any] = {
        field.name: number if field.type == int | None else f"its {field.name}"
        for number, field in enumerate(fields(Ending))
    }
    marks["chunks"] = stamps([5, 9], [1, 2])
    found = row(send, Outcome(**marks), run_id="r", leg=1)
    assert {name: getattr(found, name) for name in marks} == marks


def test_every_field_of_an_outcome_has_its_column_but_those_that_only_the_run_acts_on() -> None:
    acted_on = {"reply", "retry_after_ns"}
    assert {field.name for field in fields(Outcome)} - acted_on <= {
        field.name for field in fields(CallRow)
    }
