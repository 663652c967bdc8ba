import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.answer import Parsed, ReplyToolCall
from agentload.dispatch.fault import Fault
from agentload.dispatch.framing import OverlongError
from agentload.dispatch.sse import StreamParser, document

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
STREAMS = sorted(path.name for path in WIRE.glob("*.sse"))

TRUTH = {
    "vllm_chat.sse": Parsed(
        stamps_ns=(2, 3, 4, 5, 6, 7),
        tokens=(1, 1, 1, 1, 1, 1),
        token_rule="usage",
        first_answer_ns=2,
        prompt_tokens=19,
        cached_tokens=16,
        output_tokens=6,
        finish_reason="length",
        has_end_mark=True,
        text="gory gre@\ufffdonents'''",
    ),
    "vllm_chat_token_ids.sse": Parsed(
        stamps_ns=(2, 3, 4, 5),
        tokens=(1, 3, 1, 1),
        token_rule="token_ids",
        first_answer_ns=2,
        prompt_tokens=19,
        output_tokens=6,
        finish_reason="length",
        has_end_mark=True,
        text="gory gre@rawnumerator",
    ),
    "vllm_completion.sse": Parsed(
        stamps_ns=(1, 2, 3),
        tokens=(1, 1, 1),
        token_rule="token_ids",
        first_answer_ns=1,
        prompt_tokens=5,
        output_tokens=3,
        finish_reason="length",
        has_end_mark=True,
        text="jorhelpAL",
    ),
    "vllm_reasoning.sse": Parsed(
        stamps_ns=(2, 3, 4, 5, 6),
        tokens=(2, 1, 1, 1, 1),
        token_rule="token_ids",
        first_answer_ns=5,
        prompt_tokens=30,
        output_tokens=6,
        thinking_tokens=4,
        finish_reason="stop",
        has_end_mark=True,
        text="42",
        thinking="Let me see",
    ),
    "vllm_tool_call.sse": Parsed(
        stamps_ns=(2, 3, 4, 5),
        tokens=(2, 1, 2, 1),
        token_rule="token_ids",
        first_answer_ns=2,
        prompt_tokens=40,
        output_tokens=6,
        finish_reason="tool_calls",
        has_end_mark=True,
        tool_calls=(ReplyToolCall(name="read_file", arguments='{"path": "a.py"}'),),
    ),
    "vllm_engine_killed.sse": Parsed(
        stamps_ns=(2, 3),
        tokens=(1, 1),
        token_rule="one_a_chunk",
        first_answer_ns=2,
        output_tokens=2,
        has_end_mark=True,
        fault=Fault(
            kind="InternalServerError",
            message="EngineCore encountered an issue. See stack trace (above) for the root cause.",
            code=500,
        ),
        text="{} X",
    ),
    "vllm_server_killed.sse": Parsed(
        stamps_ns=(2, 3),
        tokens=(1, 1),
        token_rule="one_a_chunk",
        first_answer_ns=2,
        output_tokens=2,
        text="{}flags",
    ),
    "vllm_queue_full.sse": Parsed(
        has_end_mark=True,
        fault=Fault(
            kind="Service Unavailable",
            message="The engine is currently busy and cannot accept new requests. Please try again "
            "later or on a different instance.",
            code=503,
        ),
    ),
    "llama_cpp_chat.sse": Parsed(
        stamps_ns=(2, 3, 4, 5, 6, 7),
        tokens=(1, 1, 1, 1, 1, 1),
        token_rule="one_a_chunk",
        first_answer_ns=2,
        output_tokens=6,
        finish_reason="length",
        has_end_mark=True,
        text=" faceY call",
    ),
    "llama_cpp_cut.sse": Parsed(  # by a second request: an end mark, and no reason
        stamps_ns=(2, 3, 4, 5),
        tokens=(1, 1, 1, 1),
        token_rule="one_a_chunk",
        first_answer_ns=2,
        output_tokens=4,
        has_end_mark=True,
        text=" faceY",
    ),
    "transformers_chat.sse": Parsed(
        stamps_ns=(2, 3, 4, 5, 6, 7),
        tokens=(1, 1, 1, 1, 1, 1),
        token_rule="usage",
        first_answer_ns=2,
        prompt_tokens=13,
        output_tokens=6,
        finish_reason="length",
        text="conflictventotal :user set",
    ),
}


def by_event(stream: bytes) -> list[bytes]:
    blank = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
    return [piece + blank for piece in stream.split(blank) if piece]


def parsed(reads: list[tuple[int, bytes]]) -> Parsed:
    parser = StreamParser()
    for at_ns, data in reads:
        parser.feed(at_ns, data)
    return parser.end(reads[-1][0])


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_says_what_it_said_and_when(name: str) -> None:
    reads = list(enumerate(by_event((WIRE / name).read_bytes()), start=1))
    if name == "vllm_server_killed.sse":  # its last event was cut off
        reads[-1] = (reads[-1][0], reads[-1][1].rstrip())
    assert parsed(reads) == TRUTH[name]


@given(name=st.sampled_from(STREAMS), marks=st.lists(st.integers(0, 4000), max_size=30))
def test_any_chunking_of_the_same_bytes_gives_an_equal_answer(name: str, marks: list[int]) -> None:
    stream = (WIRE / name).read_bytes()
    assert parsed([(7, data) for _, data in cut(stream, marks)]) == parsed([(7, stream)])


@given(name=st.sampled_from(STREAMS), marks=st.lists(st.integers(0, 4000), max_size=30))
def test_an_event_has_the_stamp_of_the_read_that_completed_it(name: str, marks: list[int]) -> None:
    stream = (WIRE / name).read_bytes()
    # Each read is stamped with the number of bytes up to its end;
    # read byte by byte, each event is stamped with its own end.
    ends = parsed([(at + 1, stream[at : at + 1]) for at in range(len(stream))]).stamps_ns
    reads = cut(stream, marks)
    assert parsed(reads).stamps_ns == tuple(
        next(edge for edge, _ in reads if edge >= end) for end in ends
    )


def cut(stream: bytes, marks: list[int]) -> list[tuple[int, bytes]]:
    edges = sorted({0, len(stream), *(mark % len(stream) for mark in marks)})
    return [(end, stream[start:end]) for start, end in pairwise(edges)]


def test_chunks_that_one_read_brought_share_its_stamp_and_are_counted_as_coalesced() -> None:
    events = by_event((WIRE / "vllm_chat.sse").read_bytes())
    found = parsed([(1, b"".join(events[:3])), (2, events[3]), (3, b"".join(events[4:]))])
    assert (found.stamps_ns, found.coalesced_reads) == ((1, 1, 2, 3, 3, 3), 3)


def test_the_role_chunk_beside_the_first_token_is_not_coalescing() -> None:
    events = by_event((WIRE / "vllm_chat.sse").read_bytes())
    found = parsed([(1, b"".join(events[:2])), *enumerate(events[2:], start=2)])
    assert found.coalesced_reads == 0


def test_tokens_so_far_follow_the_stream() -> None:
    parser = StreamParser()
    seen = []
    for at_ns, event in enumerate(by_event((WIRE / "vllm_chat_token_ids.sse").read_bytes())):
        parser.feed(at_ns, event)
        seen.append(parser.tokens_so_far)
    assert seen == [0, 1, 4, 5, 6, 6, 6]


def test_an_event_that_is_not_json_is_named() -> None:
    found = parsed([(1, b"data: <html>\n\n"), (2, b"data: [DONE]\n\n")])
    assert found == Parsed(
        unreadable="an event is not of the expected form: JSON is "
        "malformed: invalid character (byte "
        "0)",
        has_end_mark=True,
    )


def test_an_empty_event_is_a_heartbeat_and_no_part_of_the_answer() -> None:
    whole = (WIRE / "vllm_chat.sse").read_bytes()
    plain, beating = ([(at, event) for at, event in enumerate(by_event(whole))] for _ in range(2))
    beating.insert(3, (3, b"data:\n\n"))
    assert parsed(beating) == parsed(plain)


@pytest.mark.parametrize("count", [-1, 1 << 31, 10**30])
def test_a_count_that_no_server_can_mean_is_unreadable_and_ends_nothing_else(count: int) -> None:
    event = (
        b'data: {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": %d}}\n\n' % count
    )
    found = parsed([(1, b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'), (2, event)])
    assert (found.output_tokens, found.text) == (1, "a")
    assert found.unreadable is not None


def test_a_total_is_spread_over_texts_thoughts_and_calls_of_tools_by_their_length() -> None:
    parser = StreamParser()
    call = {"index": 0, "function": {"name": "read", "arguments": "x" * 8}}
    deltas: list[dict[str, object]] = [
        {"reasoning": "t" * 24},
        {"content": "a" * 4},
        {"tool_calls": [call]},
        {"content": "é" * 8},
    ]
    for at_ns, delta in enumerate(deltas):
        parser.feed(
            at_ns, b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"
        )
    parser.feed(9, b'data: {"choices": [], "usage": {"completion_tokens": 12}}\n\ndata: [DONE]\n\n')
    found = parser.end(9)
    assert (found.tokens, found.token_rule, found.thinking_tokens) == ((6, 1, 3, 2), "spread", 6)


def event(payload: bytes, *, name: bytes | None = None) -> bytes:
    return (b"" if name is None else b"event: " + name + b"\n") + b"data: " + payload + b"\n\n"


def chunk(
    text: str,
    *,
    finish: str | None = None,
    ids: int | None = None,
    total: int | None = None,
    index: int = 0,
    model: str | None = None,
) -> bytes:
    choice = {
        "index": index,
        "delta": {"content": text},
        "finish_reason": finish,
        "token_ids": None if ids is None else [7] * ids,
    }
    return event(
        json.dumps(
            {
                "model": model,
                "choices": [choice],
                "usage": None if total is None else {"completion_tokens": total},
            }
        ).encode()
    )


DONE = b"data: [DONE]\n\n"
UNREADABLE = {
    "nested too deeply": event(b'{"choices":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
    "an error nested too deeply": event(
        b'{"error":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}"
    ),
    "a number of 5,000 digits": event(b'{"usage":{"prompt_tokens":' + b"9" * 5_000 + b"}}"),
    "more choices than were asked for": event(b'{"choices":[{"index":1,"text":"c"}]}'),
    "a byte that is not UTF-8": event(b'{"choices":[{"delta":{"content":"\xff"}}]}'),
    "half a surrogate pair": event(b'{"choices":[{"delta":{"content":"\\ud800"}}]}'),
    "more parts than any answer has": event(b'{"error":[' + b"{}," * 300_000 + b"{}]}"),
    "more tokens from the cache than it had": event(
        b'{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":999999}}}'
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_no_parser_can_read_is_unreadable_and_nothing_else_is_lost(name: str) -> None:
    found = parsed(
        [
            (1, chunk("a", ids=1)),
            (2, UNREADABLE[name]),
            (3, chunk("b", ids=1, finish="stop")),
            (4, DONE),
        ]
    )
    assert found.unreadable is not None
    assert len(found.unreadable) < 300
    assert (found.text, found.tokens, found.finish_reason, found.cached_tokens) == (
        "ab",
        (1, 1),
        "stop",
        None,
    )


CROWDED = {
    "an error of lists in lists": b'{"error":['
    + b"[" * 500
    + (b"]" * 400 + b"," + b"[" * 400) * 600
    + b"]" * 501
    + b"}",
    "an error of objects": b'{"error":[' + b'{"a":1},' * 60_000 + b"{}]}",
    "an error of escapes": b'{"error":"' + b"\\n" * (7 << 20) + b'"}',
    "choices": b'{"choices":[' + b'{"delta":{"content":"x"}},' * 150_000 + b"{}]}",
    "calls of tools": b'{"choices":[{"delta":{"tool_calls":['
    + b'{"index":1},' * 150_000
    + b"{}]}}]}",
    "a finish reason of one word": b'{"choices":[{"finish_reason":"' + b"x" * 500_000 + b'"}]}',
}


@pytest.mark.parametrize("name", CROWDED)
def test_no_event_holds_the_interpreter_for_long(name: str) -> None:
    def longest_s() -> float:
        parser, data, longest = StreamParser(), event(CROWDED[name]), 0.0
        for at in range(0, len(data), 65_536):
            began_s = time.thread_time()
            parser.feed(1, data[at : at + 65_536])
            longest = max(longest, time.thread_time() - began_s)
        began_s = time.thread_time()
        found = parser.end(1)
        assert found.unreadable or found.fault or name.endswith("word")
        return max(longest, time.thread_time() - began_s)

    assert min(longest_s() for _ in range(3)) < 0.025


@pytest.mark.parametrize("apart", [b"", b" "])
def test_a_prompt_of_300_000_token_ids_is_skipped(apart: bytes) -> None:
    ids = b",".join(b"%d" % (100_000 + number) for number in range(300_000))
    first = b'{"choices":[{"delta":{"content":"a"},"token_ids":[7]}],"prompt_token_ids"'
    first += apart + b":" + apart + b"["
    found = parsed(
        [(1, event(first + ids + b"]}")), (2, chunk("b", ids=1, finish="stop")), (3, DONE)]
    )
    assert (found.text, found.tokens, found.unreadable) == ("ab", (1, 1), None)


CHOICES = b'{"choices":[{"index":0,"%s":{"content":"a"}},{"index":%d,"%s":{"content":"b"}}]}'


@pytest.mark.parametrize("index", [0, 1])
def test_an_answer_of_two_choices_is_unreadable(index: int) -> None:
    streamed = parsed([(1, event(CHOICES % (b"delta", index, b"delta"))), (2, DONE)])
    whole = document(CHOICES % (b"message", index, b"message"))
    assert streamed.unreadable == whole.unreadable == "2 choices came where one was asked for"
    assert streamed.text == whole.text == "a"


@pytest.mark.parametrize("code", ["9" * 5_000, 10**4_000])
def test_a_code_of_thousands_of_digits_is_no_code(code: object) -> None:
    if isinstance(code, int):
        payload = b'{"error":{"message":"full","code":1' + b"0" * 4_000 + b"}}"
    else:
        payload = json.dumps({"error": {"message": "full", "code": code}}).encode()
    assert parsed([(1, event(payload))]).fault == Fault(kind="error", message="full")


@pytest.mark.parametrize(
    "payload",
    [b'{"message":"engine died","type":"E"}', b'{"error":{"message":"engine died","type":"E"}}'],
)
def test_an_event_that_is_named_error_is_one_with_or_without_a_wrapper(payload: bytes) -> None:
    found = parsed([(1, chunk("a")), (2, event(payload, name=b"error")), (3, DONE)])
    assert (found.fault, found.unreadable) == (Fault(kind="E", message="engine died"), None)


def test_an_event_that_is_named_error_keeps_its_text_whatever_it_is() -> None:
    assert parsed([(1, event(b"engine died", name=b"error"))]).fault == Fault(
        kind="error", message="engine died"
    )


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([chunk("a"), chunk("b", finish="stop"), DONE, chunk("c")], "tokens came after the end mark"),
        ([chunk("a"), chunk("b", finish="stop"), chunk("c"), DONE], "tokens came after the finish reason"),
        ([each for text in "abcde" for each in [chunk(text, ids=1)] * 2] + [event(b'{"choices":[],"usage":{"completion_tokens":5}}'), DONE],
         "10 token ids are listed, and 5 tokens counted"),
        ([each for text in "abcde" for each in [chunk(text)] * 2] + [event(b'{"choices":[],"usage":{"completion_tokens":5}}'), DONE],
         "10 chunks, each sent twice, and 5 tokens counted"),
        ([*(chunk(str(total), total=total) for total in (9, 1, 7, 2, 5)), DONE], "usage counts 9 tokens, and later 1"),
        ([chunk("a", total=4), chunk("b", total=9), event(b'{"choices":[],"usage":{"completion_tokens":5}}'), DONE],
         "usage counts 9 tokens, and later 5"),
        ([chunk("a"), chunk("b", finish="length"), chunk("", finish="stop"), DONE], ("the finish reason is length, "
            "and later stop")),
        ([chunk("a"), chunk("b", index=9), chunk("c", finish="stop"), DONE], ("a choice 9 came where one "
            "choice was asked for")),
        ([chunk("a", model="m"), chunk("b", model="m"), chunk("c", model="x", finish="stop"), DONE],
         "the model is m, and later x"),
        ([chunk("a", ids=1), chunk("ab " * 500, finish="stop"), event(b'{"choices":[],"usage":{"completion_tokens":1}}'), DONE],
         "1,501 characters, and 1 tokens counted"),
    ],
)  # fmt: skip
def test_an_answer_that_contradicts_itself_is_unreadable(events: list[bytes], why: str) -> None:
    assert parsed(list(enumerate(events))).unreadable == why


@pytest.mark.parametrize("reasons", [("stop", "tool_calls"), ("tool_calls", "stop")])
def test_calls_of_tools_that_are_found_late_are_the_finish_reason(reasons: tuple[str, str]) -> None:
    found = parsed(
        list(enumerate([chunk("a"), *(chunk("", finish=reason) for reason in reasons), DONE]))
    )
    assert (found.finish_reason, found.unreadable) == ("tool_calls", None)


def test_tokens_after_the_end_mark_move_no_stamp() -> None:
    found = parsed([(1, chunk("a")), (2, chunk("b", finish="stop")), (3, DONE), (9, chunk("c"))])
    assert (found.stamps_ns, found.text) == ((1, 2), "ab")


def test_an_empty_chunk_after_the_finish_reason_and_a_finish_reason_without_text_are_no_contradiction() -> (
    None
):
    stream = [
        chunk("a", ids=1),
        chunk("", finish="stop"),
        chunk(""),
        event(b'{"choices":[],"usage":{"completion_tokens":1}}'),
        DONE,
    ]
    assert parsed(list(enumerate(stream))).unreadable is None


def test_the_same_token_again_and_again_is_not_sent_twice() -> None:
    stream = [*[chunk("ha")] * 6, event(b'{"choices":[],"usage":{"completion_tokens":6}}'), DONE]
    assert parsed(list(enumerate(stream))).unreadable is None


def test_a_tool_call_of_many_pieces_is_not_sent_twice() -> None:
    pieces = [
        event(
            b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"%d"}}]}}]}'
            % digit
        )
        for digit in range(8)
    ]
    stream = [*pieces, event(b'{"choices":[],"usage":{"completion_tokens":4}}'), DONE]
    assert parsed(list(enumerate(stream))).unreadable is None


def test_an_empty_finish_reason_is_none() -> None:
    assert parsed([(1, chunk("a", finish=""))]).finish_reason is None


def test_a_finish_reason_is_a_short_word() -> None:
    found = (
        parsed([(1, chunk("a", finish="x" * 500_000)), (2, chunk("", finish="st\x00op"))]),
        parsed([(1, chunk("", finish="st\x00op"))]),
    )
    assert found[0].finish_reason is not None
    assert (found[1].finish_reason, len(found[0].finish_reason) <= 64) == ("st op", True)


def test_a_stream_that_never_ends_its_line_is_given_up_at_16_mb() -> None:
    parser = StreamParser()
    parser.feed(1, b"x" * (16 << 20))
    with pytest.raises(OverlongError, match="an event of more than 16 MB"):
        parser.feed(2, b"x")


def test_what_a_stream_holds_follows_what_it_keeps() -> None:
    parser = StreamParser()
    parser.feed(1, chunk("a" * 50_000))
    assert 50_000 <= parser.held_bytes < 400_000
    parser.feed(2, b"data: " + b"x" * 100_000)
    assert 150_000 <= parser.held_bytes < 600_000


def test_an_answer_that_was_not_streamed_has_no_stamps() -> None:
    assert document((WIRE / "vllm_chat.json").read_bytes()) == Parsed(
        prompt_tokens=13, output_tokens=4, finish_reason="length", text="status escape finity"
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b"<html>",
            Parsed(
                unreadable="the answer is not of the expected form: JSON is malformed: invalid "
                "character (byte 0)"
            ),
        ),
        (b"{}", Parsed(unreadable="the answer has no choices")),
        (b'{"error":"broken"}', Parsed(fault=Fault(kind="error", message="broken"))),
        (
            b'{"object":"error","message":"no","type":"X","code":503}',
            Parsed(fault=Fault(kind="X", message="no", code=503)),
        ),
        (
            b'{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}',
            Parsed(
                finish_reason="tool_calls", tool_calls=(ReplyToolCall(name="f", arguments="{}"),)
            ),
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


def test_a_finish_reason_of_a_whole_answer_is_a_short_word() -> None:
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"' + b"x" * 500_000 + b'"}]}'
    assert len(document(body).finish_reason or "") == 64
