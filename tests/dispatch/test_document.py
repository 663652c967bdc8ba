from pathlib import Path

import pytest

from agentload.dispatch.document import document
from agentload.dispatch.fault import Fault
from agentload.dispatch.sse import Parsed, ToolCall

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"


def test_an_answer_that_was_not_streamed_has_no_stamps() -> None:
    assert document((WIRE / "vllm_chat.json").read_bytes()) == Parsed(
        prompt_tokens=13, output_tokens=4, finish_reason="length", text="status escape finity"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>", Parsed(unreadable="the answer is not of the expected form: JSON is malformed: invalid character (byte 0)")),
        (b"{}", Parsed(unreadable="the answer has no choices")),
        (b'{"error":"broken"}', Parsed(fault=Fault(kind="error", message="broken"))),
        (b'{"object":"error","message":"no","type":"X","code":503}', Parsed(fault=Fault(kind="X", message="no", code=503))),
        (
            b'{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}',
            Parsed(finish_reason="tool_calls", tool_calls=(ToolCall(name="f", arguments="{}"),)),
        ),
    ],
)
def test_other_answers_that_were_not_streamed(body: bytes, expected: Parsed) -> None:
    assert document(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"choices":[{"message":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}]}",
        b'{"choices":[' + b"{}," * 300_000 + b"{}]}",
        b'{"choices":[{"message":{"content":"\\ud800"},"finish_reason":"stop"}]}',
        b'{"choices":[{"message":{"content":"a"}}],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}',
    ],
)
def test_an_answer_that_no_parser_can_read_is_unreadable(body: bytes) -> None:
    found = document(body)
    assert found.unreadable is not None
    assert len(found.unreadable) < 300


def test_a_finish_reason_is_a_short_word() -> None:
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"' + b"x" * 500_000 + b'"}]}'
    assert len(document(body).finish_reason or "") == 64
