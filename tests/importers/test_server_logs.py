"""Logs of what stands before a server, and of the
server: LiteLLM, OpenTelemetry, vLLM, a gateway.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.errors import TraceError
from agentload.model.trace import Recorded, Session, TurnRef
from tests.importers.entries import iso
from tests.importers.importing import ideal_of, imported, jsonl, lengths, sent

CHAT = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "u" * 80}]
LATER = [*CHAT, {"role": "assistant", "content": "a" * 40}, {"role": "tool", "content": "r" * 80}]


def spend(own: str, at: float, prompt: int, output: int, **more: Any) -> dict[str, Any]:
    known = {
        "request_id": own,
        "call_type": "acompletion",
        "status": "success",
        "model": "m",
        "spend": 0.1,
        "cache_hit": "False",
    }
    times = {"startTime": iso(at), "completionStartTime": iso(at + 1), "endTime": iso(at + 3)}
    return (
        known
        | times
        | {"prompt_tokens": prompt, "completion_tokens": output, "session_id": "x"}
        | more
    )


def test_litellms_requests_without_words_grow_where_their_lengths_allow_it(tmp_path: Path) -> None:
    records = [
        spend(
            "1",
            0,
            100,
            10,
            metadata={"usage_object": {"prompt_tokens_details": {"cached_tokens": 64}}},
        ),
        spend("2", 10, 150, 20),
        spend("2", 10, 150, 20),
        spend("3", 20, 90, 5),
        spend("4", 21, 90, 5, status="failure"),
        spend("5", 22, 90, 5, call_type="aembedding"),
        spend("6", 23, 90, 5, cache_hit="True"),
        spend("7", 24, 70, 5, session_id=None),
    ]
    (first, lone), summary = imported(tmp_path, {"l.json": msgspec.json.encode(records).decode()})
    assert summary.format == "litellm"
    assert [(lengths(session), session.start_s) for session in (first, lone)] == [
        ([100, 150, 90], 0.0),
        ([70], 24.0),
    ]
    assert [
        (turn.keep, [(segment.role, segment.tokens) for segment in turn.add])
        for turn in first.turns
    ] == [(None, [("user", 100)]), (None, [("assistant", 10), ("user", 40)]), (0, [("user", 90)])]
    assert first.turns[0].recorded == Recorded(ttft_s=1.0, api_s=3.0, cached=64)
    assert [turn.wait_s for turn in first.turns] == [0.0, 7.0, 7.0]
    assert {what for what, _, _ in summary.dropped} == {
        "a failed request",
        "a call that is not a chat",
        "a hit of LiteLLM's own cache",
    }
    assert summary.odd[0][0] == "a duplicate request"


def test_litellms_requests_with_words_share_exactly(tmp_path: Path) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "content": "a" * 40}}]}
    records = [
        spend("1", 0, 1_000, 30, session_id=None, messages=CHAT, response=answer),
        spend("2", 10, 1_100, 5, session_id=None, messages=msgspec.json.encode(LATER).decode()),
    ]
    (only,), summary = imported(tmp_path, {"l.jsonl": jsonl(*records)})
    assert [[(segment.role, segment.tokens) for segment in turn.add] for turn in only.turns] == [
        [("system", 833), ("user", 167)],
        [("assistant", 30), ("tool", 70)],
    ]
    assert (only.turns[1].wait, summary.ideal_import) == ("tool", ideal_of([only], 16))


def test_litellms_table_says_the_same(tmp_path: Path) -> None:
    columns = [
        "request_id",
        "call_type",
        "prompt_tokens",
        "completion_tokens",
        "startTime",
        "endTime",
        "session_id",
    ]
    rows = [
        [str(record[name]) for name in columns]
        for record in (spend("1", 0, 100, 10), spend("2", 10, 150, 20))
    ]
    (only,), _ = imported(
        tmp_path, {"l.csv": "\n".join(",".join(row) for row in [columns, *rows]) + "\n"}
    )
    assert (lengths(only), [turn.output for turn in only.turns]) == ([100, 150], [10, 20])


def span(
    own: str, parent: str | None, start: float, end: float, operation: str, **more: Any
) -> dict[str, Any]:
    base = 1_780_000_000_000_000_000
    return {
        "traceId": more.pop("trace", "t1"),
        "spanId": own,
        "parentSpanId": parent or "",
        "name": operation,
        "startTimeUnixNano": str(base + round(start * 1e9)),
        "endTimeUnixNano": str(base + round(end * 1e9)),
        "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": operation}}]
        + [
            {
                "key": key.replace("__", "."),
                "value": {"intValue": str(value)}
                if isinstance(value, int)
                else {"stringValue": value},
            }
            for key, value in more.items()
        ],
    }


def counts(prompt: int, output: int) -> dict[str, Any]:
    return {
        "gen_ai__usage__input_tokens": prompt,
        "gen_ai__usage__output_tokens": output,
        "gen_ai__request__model": "m",
    }


SPANS = [
    span("root", None, 0, 60, "invoke_agent"),
    span("c1", "root", 0, 5, "chat", **counts(1_000, 50)),
    span("tool", "root", 5, 40, "execute_tool"),
    span("sub", "tool", 6, 39, "invoke_agent"),
    span("s1", "sub", 6.5, 20, "chat", **counts(500, 30)),
    span("s2", "sub", 22, 39, "chat", **counts(560, 10)),
    span("c2", "root", 41, 50, "chat", **counts(1_200, 9)),
    span("http", "c2", 42, 43, "GET"),
]


def assert_agents(sessions: list[Session]) -> None:
    parent, child = sessions
    assert (parent.workload, child.workload) == ("otel", "otel-subagent")
    assert (lengths(parent), lengths(child)) == ([1_000, 1_200], [500, 560])
    assert [turn.spawn for turn in parent.turns] == [(child.session,), ()]
    assert [turn.after for turn in parent.turns] == [(), (TurnRef(session=child.session, turn=-1),)]
    assert [(turn.wait, turn.wait_s) for turn in (*parent.turns, *child.turns)] == [
        (None, 0.0),
        ("tool", 2.0),
        (None, 1.5),
        ("user", 2.0),
    ]


def test_spans_of_agents_inside_agents_are_sub_agents(tmp_path: Path) -> None:
    otlp = {
        "resourceSpans": [
            {
                "resource": {"attributes": []},
                "scopeSpans": [{"scope": {"name": "x"}, "spans": SPANS}],
            }
        ]
    }
    sessions, summary = imported(tmp_path, {"o.json": jsonl(otlp)})
    assert summary.format == "otel"
    assert_agents(sessions)


def test_spans_may_come_one_by_one_in_any_order_or_under_a_trace_id(tmp_path: Path) -> None:
    plain = [
        {"span_id": each["spanId"], "parent_span_id": each["parentSpanId"], "name": each["name"]}
        | {"start_time": int(each["startTimeUnixNano"]), "end_time": int(each["endTimeUnixNano"])}
        | {
            "attributes": {
                entry["key"]: next(iter(entry["value"].values())) for entry in each["attributes"]
            }
        }
        for each in SPANS
    ]
    assert_agents(
        imported(
            tmp_path / "1",
            {"o.jsonl": jsonl(*[each | {"trace_id": "t1"} for each in reversed(plain)])},
        )[0]
    )
    assert_agents(
        imported(tmp_path / "2", {"o.json": jsonl({"trace_id": "t1", "spans": plain})})[0]
    )


def test_messages_of_spans_make_contexts_exact_and_a_conversation_joins_its_traces(
    tmp_path: Path,
) -> None:
    asked = [{"role": "user", "parts": [{"type": "text", "content": "u" * 80}]}]
    said = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "1", "name": "read", "arguments": {"path": "x"}}],
        }
    ]
    result = [
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "1", "response": "r" * 200}],
        }
    ]

    def told(conversation: str, messages: list[Any], answer: list[Any]) -> dict[str, str]:
        encoded = {"gen_ai__input__messages": messages, "gen_ai__output__messages": answer}
        return {"gen_ai__conversation__id": conversation} | {
            key: msgspec.json.encode(value).decode() for key, value in encoded.items()
        }

    spans = [
        span("a", None, 0, 5, "chat", **counts(200, 30), **told("x", asked, said)),
        span(
            "b",
            None,
            9,
            12,
            "chat",
            trace="t2",
            **counts(330, 5),
            **told("x", [*asked, *said, *result], []),
        ),
    ]
    (only,), _ = imported(
        tmp_path, {"o.json": jsonl({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})}
    )
    assert [[(segment.role, segment.tokens) for segment in turn.add] for turn in only.turns] == [
        [("user", 200)],
        [("assistant", 30), ("tool", 100)],
    ]
    assert (only.turns[1].wait, only.turns[1].wait_s) == ("tool", 4.0)


VLLM = """\
(APIServer pid=7) INFO 11-05 12:39:35 [logger.py:40] Received request cmpl-1: prompt: '<|user|>it\\'s\\nlong {same}', \
params: SamplingParams(n=1, max_tokens=700, min_tokens=0), prompt_token_ids: None, lora_request: None.
INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK
(APIServer pid=7) INFO 11-05 12:39:36 [logger.py:40] Received request cmpl-2: params: SamplingParams(max_tokens=9), lora_request: None.
(APIServer pid=7) DEBUG 11-05 12:39:36 [logger.py:40] Request cmpl-2 details: prompt: None, prompt_token_ids: [5, 6, 7, 8, 9], \
prompt_embeds shape: None.
INFO 11-05 12:39:37 [logger.py:40] Received request cmpl-3: params: SamplingParams(max_tokens=9), lora_request: None.
INFO 11-05 12:39:38 [logger.py:60] Generated response cmpl-1 (streaming complete): output: 'aaaaaaaa', output_token_ids: [1, 2, 3], \
finish_reason: stop
"""
IDS = (
    "INFO {} [logger.py:40] Received request r{}: prompt: None, params: "
    "SamplingParams(max_tokens=1), prompt_token_ids: {}, x\n"
)


def test_vllms_log_tells_prompts_by_words_or_tokens_and_answers(tmp_path: Path) -> None:
    (first, second), summary = imported(
        tmp_path, {"v.log": VLLM.replace("{same}", "word " * 30)}, block=4
    )
    assert summary.format == "vllm_log"
    assert (lengths(first), first.turns[0].output, first.turns[0].recorded) == (
        [42],
        3,
        Recorded(api_s=3.0),
    )
    assert (lengths(second), second.turns[0].output, second.start_s) == ([5], 9, 1.0)
    assert (
        "a request whose prompt is not in the log (VLLM_LOGGING_LEVEL=DEBUG writes it)",
        1,
        None,
    ) in summary.dropped


def test_prompts_of_vllms_log_share_their_beginnings(tmp_path: Path) -> None:
    """And a log may go on over New Year, although its stamps name no year."""
    prompts = [list(range(40)), [*range(36), 99, 98], [7, *range(1, 40)]]
    stamps = ["12-31 23:59:58", "12-31 23:59:59", "01-01 00:00:00"]
    text = "".join(
        IDS.format(stamp, number, ids)
        for number, (stamp, ids) in enumerate(zip(stamps, prompts, strict=True))
    )
    sessions, summary = imported(tmp_path, {"v.log": text}, block=16)
    assert [session.start_s for session in sessions] == [0.0, 1.0, 2.0]
    assert summary.ideal_source == summary.ideal_import == 32 / (40 + 38 + 40)


ENVOY = {
    "start_time": iso(0),
    "path": "/v1/chat/completions",
    "response_code": 200,
    "bytes_received": 4_000,
    "bytes_sent": 22_000,
    "duration": 3_000,
}


def test_a_gateways_bytes_become_tokens(tmp_path: Path) -> None:
    lines = [
        ENVOY | {"x_session": "a"},
        ENVOY
        | {
            "x_session": "a",
            "start_time": iso(10),
            "bytes_received": 6_000,
            "llm_output_token": 55,
        },
        ENVOY | {"path": "/healthz"},
        ENVOY | {"response_code": 503},
    ]
    (only,), summary = imported(
        tmp_path, {"g.jsonl": jsonl(*lines)}, session="x_session", system=300
    )
    assert summary.format == "access_log"
    assert (lengths(only), [turn.output for turn in only.turns]) == ([1_000, 1_500], [100, 55])
    assert [[(segment.role, segment.tokens) for segment in turn.add] for turn in only.turns] == [
        [("system", 300), ("user", 700)],
        [("assistant", 100), ("user", 400)],
    ]
    assert only.turns[1].wait_s == 7.0
    assert {what for what, _, _ in summary.dropped} == {
        "not a chat request, by its path",
        "a failed request, by its status",
    }
    assert ("tokens estimated at 220 bytes each for answers", 1, None) in summary.estimated
    assert sent(only)[0][0].key == "system"


def test_common_log_lines_need_the_length_of_the_request(tmp_path: Path) -> None:
    line = (
        '10.0.0.9 - someone [10/Oct/2026:13:55:36 +0200] "POST /v1/completions HTTP/1.1" 200 '
        '880 "-" "curl"'
    )
    (only,), _ = imported(tmp_path, {"a.log": f"{line} request_length=2000 request_time=1.5\n"})
    assert (lengths(only), only.turns[0].output, only.turns[0].recorded) == (
        [500],
        4,
        Recorded(api_s=1.5),
    )
    with pytest.raises(TraceError, match="no tokens or bytes of the request"):
        imported(tmp_path, {"a.log": f"{line}\n"})
    assert "someone" not in repr(only)
