"""Streams that are HTTP and answers that are no stream: bad events, contradictions, wrong ends."""

import asyncio

from tests.live.hostility import DONE, MB, NESTED, TIMED_OUT, TOKENS, body, event, finish, mode, raw
from tests.live.scripted import STREAM, Peer, good, token, usage

# --- events ---


@mode("unreadable")
async def event_of_nested_lists(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":' + NESTED + b"}"), TOKENS, DONE)


@mode("unreadable", "stream_error")
async def event_with_a_nested_error(peer: Peer) -> None:
    await raw(peer, event(b'{"error":' + NESTED + b"}"), DONE)


@mode("stream_error", says="error")
async def event_named_error_with_nested_lists(peer: Peer) -> None:
    await raw(peer, event(NESTED, name="error"))


@mode("stream_error", says="engine died")
async def event_named_error_without_a_wrapper(peer: Peer) -> None:
    await raw(peer, event({"message": "engine died"}, name="error"))


@mode("stream_error", says="engine died")
async def event_named_error_that_is_no_json(peer: Peer) -> None:
    await raw(peer, event(b"engine died", name="error"), DONE)


@mode("stream_error")
async def error_code_in_a_stream_of_5000_digits(peer: Peer) -> None:
    await raw(peer, event({"error": {"message": "m", "code": "9" * 5_000}}), DONE)


@mode("unreadable", says="more than 2 MB")
async def error_of_9_mb(peer: Peer) -> None:
    await raw(
        peer, event({"error": {"message": "it's 'a " + "bearer sk-x " * (9 * MB // 12)}}), DONE
    )


@mode("unreadable")
async def number_of_5000_digits(peer: Peer) -> None:
    await raw(
        peer, event(b'{"choices":[],"usage":{"prompt_tokens":' + b"9" * 5_000 + b"}}"), TOKENS, DONE
    )


@mode("unreadable")
async def bytes_that_are_not_utf8(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":[{"delta":{"content":"\xff\xfe"}}]}'), TOKENS, DONE)


@mode("unreadable")
async def half_a_surrogate_pair(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":[{"delta":{"content":"\\ud800"}}]}'), TOKENS, DONE)


@mode("truncated", "unreadable")
async def stream_in_utf16(peer: Peer) -> None:
    await raw(peer, (TOKENS + DONE).decode().encode("utf-16"), event(b"\x00"))


@mode("unreadable")
async def choices_of_other_types(peer: Peer) -> None:
    await raw(
        peer,
        event({"choices": {"0": "x"}}),
        event({"choices": [None]}),
        event({"choices": [{"delta": 7}]}),
        TOKENS,
        DONE,
    )


@mode("unreadable")
async def usage_of_other_types(peer: Peer) -> None:
    await raw(
        peer,
        event({"choices": [], "usage": [1]}),
        event(b'{"usage":{"prompt_tokens":NaN}}'),
        TOKENS,
        DONE,
    )


@mode("unreadable", says="came from the cache")
async def more_cached_than_prompted(peer: Peer) -> None:
    counts = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 999_999},
    }
    await raw(peer, TOKENS, event({"choices": [], "usage": counts}), DONE)


@mode("unreadable", "long")
async def a_million_token_ids(peer: Peer) -> None:
    await raw(
        peer,
        event(b'{"choices":[{"delta":{"content":"a"},"token_ids":[' + b"1," * 1_000_000 + b"1]}]}"),
        TOKENS,
        DONE,
    )


@mode("unreadable", says="expected form")
async def many_tool_calls(peer: Peer) -> None:
    pieces = b",".join(b'{"index":%d}' % index for index in range(150_000))
    await raw(
        peer, event(b'{"choices":[{"delta":{"tool_calls":[' + pieces + b"]}}]}"), TOKENS, DONE
    )


@mode("stream_error")
async def error_of_lists_in_lists(peer: Peer) -> None:
    lists = b"[" * 400 + b"]" * 400
    await raw(peer, event(b'{"error":[' + (lists + b",") * 1_200 + lists + b"]}"), TOKENS, DONE)


@mode("unreadable", says="objects")
async def many_choices(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":[' + b"{}," * 150_000 + b"{}]}"), TOKENS, DONE)


@mode("ok")
async def arguments_of_nested_lists(peer: Peer) -> None:
    call = {"index": 0, "function": {"name": "f", "arguments": "[" * 100_000}}
    delta = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
    await raw(peer, event(delta), event(token("a")), event(token("b", finish="length")), DONE)


@mode("long", "garbage", "unreadable")
async def text_of_15_mb_in_one_event(peer: Peer) -> None:
    await raw(peer, event(token("ab" * (7 * MB) + "\U0001f600")), TOKENS, DONE)


@mode("long", "garbage", "unreadable")
async def text_of_10_mb_in_100_events(peer: Peer) -> None:
    await raw(peer, event(token("ab" * 50_000)) * 100, TOKENS, DONE)


# --- ends ---


@mode("aborted", says="'error'")
async def finished_by_an_error(peer: Peer) -> None:
    await raw(peer, event(token("a")), event(finish("error")), DONE)


@mode("aborted", says="'abort'")
async def finished_by_an_abort(peer: Peer) -> None:
    await raw(peer, event(token("a")), event(finish("abort")), event(usage(1)), DONE)


@mode("filtered")
async def finished_by_a_filter(peer: Peer) -> None:
    await raw(peer, event(token("a")), event(finish("content_filter")), DONE)


@mode("unreadable", says="'because'")
async def finished_by_something_else(peer: Peer) -> None:
    await raw(peer, TOKENS.replace(b'"length"', b'"because"'), DONE)


@mode("unreadable")
async def finish_reason_of_500_kb(peer: Peer) -> None:
    await raw(peer, event(token("a")), event(finish("x" * 500_000)), DONE)


@mode("unreadable")
async def finish_reason_with_a_nul(peer: Peer) -> None:
    await raw(peer, TOKENS.replace(b'"length"', b'"len\\u0000gth"'), DONE)


@mode("truncated")
async def finish_reason_that_is_empty(peer: Peer) -> None:
    await raw(peer, TOKENS.replace(b'"length"', b'""'), DONE)


@mode("truncated")
async def end_mark_alone(peer: Peer) -> None:
    await raw(peer, DONE)


@mode("unreadable", says="after the end mark")
async def tokens_after_the_end_mark(peer: Peer) -> None:
    await raw(peer, TOKENS, DONE, event(token("late")))


@mode("unreadable", says="listed")
async def every_event_twice(peer: Peer) -> None:
    await raw(
        peer,
        *(
            event(each) * 2
            for each in [token("a"), token("b"), token("c"), finish("length"), usage(3)]
        ),
        DONE,
    )


@mode("short")
async def cut_at_a_length_of_its_own(peer: Peer) -> None:
    await raw(peer, event(token("a", finish="length")), event(usage(1)), DONE)


@mode(*TIMED_OUT)
async def finished_and_never_closed(peer: Peer) -> None:
    await peer.send(STREAM)
    await body(peer, TOKENS[: TOKENS.index(b'"finish_reason": "length"')])
    await peer.hang()


@mode("ok")
async def a_second_answer_behind_the_first(peer: Peer) -> None:
    await raw(peer, TOKENS, DONE)
    await raw(peer, event({"error": {"message": "for somebody else"}}))


_waiting = 0


@mode("ok")
async def answers_when_nobody_else_comes(peer: Peer) -> None:
    global _waiting  # noqa: PLW0603  # one server, one count
    _waiting += 1
    before = 0
    while before != _waiting:
        before = _waiting
        await asyncio.sleep(0.5)
    await peer.answer()


# --- what is well formed and cannot be ---


@mode("unreadable", "stream_error")
async def error_with_half_a_surrogate_pair(peer: Peer) -> None:
    await raw(peer, event(b'{"error":{"message":"engine \\ud800 died","code":"\\udfff"}}'), DONE)


@mode("stream_error")
async def error_that_drives_a_terminal(peer: Peer) -> None:
    await raw(
        peer,
        event(
            {
                "error": {
                    "message": "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202eno\u2028yes\x00\x7f",
                    "code": "\x1b[8m",
                }
            }
        ),
        DONE,
    )


@mode("aborted", "unreadable")
async def finish_reason_that_drives_a_terminal(peer: Peer) -> None:
    await raw(peer, TOKENS.replace(b'"length"', b'"\\u001b[2J\\r\\u202e"'), DONE)


@mode("long", "unreadable")
async def a_billion_tokens_counted_for_three(peer: Peer) -> None:
    await raw(peer, *(event(each) for each in good(3)[:-2]), event(usage(10**9)), DONE)


@mode("unreadable", "long")
async def tokens_counted_beyond_64_bits(peer: Peer) -> None:
    await raw(peer, *(event(each) for each in good(3)[:-2]), event(usage(1 << 70)), DONE)


@mode("unreadable", "short")
async def no_tokens_counted_for_three(peer: Peer) -> None:
    await raw(peer, *(event(each) for each in good(3)[:-2]), event(usage(0)), DONE)


@mode("unreadable")
async def fewer_than_no_tokens(peer: Peer) -> None:
    await raw(peer, *(event(each) for each in good(3)[:-2]), event(usage(-3)), DONE)


@mode("unreadable", says="after the finish")
async def tokens_after_the_finish_reason(peer: Peer) -> None:
    await raw(
        peer,
        event(token("a")),
        event(finish("length")),
        event(token("b")),
        event(token("c")),
        event(usage(3)),
        DONE,
    )


@mode("unreadable", "long", "short")
async def two_counts_that_differ(peer: Peer) -> None:
    await raw(
        peer,
        *(event(each) for each in good(3)[:-2]),
        event(usage(3)),
        event(usage(4)),
        event(usage(2)),
        DONE,
    )


@mode("unreadable", says="usage counts")
async def running_usage_that_falls(peer: Peer) -> None:
    texts = (
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":%d}}' % total
        for total in (3, 1, 2)
    )
    await raw(peer, *map(event, texts), event(finish("length")), event(usage(3)), DONE)


@mode("unreadable", says="a choice 9")
async def a_choice_nobody_asked_for(peer: Peer) -> None:
    await raw(
        peer,
        event(token("a")),
        event(b'{"choices":[{"index":9,"delta":{"content":"b"}}]}'),
        event(finish("length")),
        event(usage(3)),
        DONE,
    )


@mode("unreadable", says="2 choices came")
async def two_choices_at_once(peer: Peer) -> None:
    choices = [{"index": index, "delta": {"content": "b"}} for index in (0, 1)]
    await raw(peer, event(token("a")), event({"choices": choices}), TOKENS, DONE)


@mode("reset", "truncated")
async def a_connection_that_dies_in_the_end_mark(peer: Peer) -> None:
    await peer.send(STREAM)
    await body(
        peer,
        event(token("a"))
        + event(token("b"))
        + event(finish("length", text="c"))
        + event(usage(3))
        + b"data: [DO",
    )
    peer.reset()


@mode("unreadable")
async def two_finish_reasons_that_differ(peer: Peer) -> None:
    await raw(
        peer,
        event(token("a")),
        event(token("b")),
        event(finish("length", text="c")),
        event(finish("error")),
        event(usage(3)),
        DONE,
    )


@mode("total_timeout", "idle_timeout")
async def empty_deltas_without_end(peer: Peer) -> None:
    await peer.send(STREAM)
    while not peer.writer.is_closing():
        await body(
            peer, event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        )
        await asyncio.sleep(0.01)


@mode("unreadable", "truncated")
async def another_choice_answers(peer: Peer) -> None:
    others = (
        {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": None}]}
        for index in (1, 7, 10**18)
    )
    await raw(peer, *(event(each) for each in others), DONE)


@mode("ok", "unreadable", "garbage")
async def text_of_nothing_but_nul(peer: Peer) -> None:
    await raw(
        peer,
        *(event(token("\x00", finish="length" if last else None)) for last in (False, False, True)),
        event(usage(3)),
        DONE,
    )


@mode("unreadable", "truncated", "stream_error")
async def keys_that_come_twice(peer: Peer) -> None:
    await raw(
        peer,
        event(
            b'{"choices":[{"delta":{"content":"a"}}],"choices":[],"error":null,"error":{"message":"late"}}'
        ),
        DONE,
    )


@mode("unreadable")
async def tools_at_places_that_cannot_be(peer: Peer) -> None:
    pieces = b'[{"index":-1,"function":{"name":7}},{"index":1e999},{"index":"0","function":null}]'
    await raw(peer, event(b'{"choices":[{"delta":{"tool_calls":' + pieces + b"}}]}"), TOKENS, DONE)


@mode("ok")
async def fields_of_events_that_nobody_reads(peer: Peer) -> None:
    noise = b"\xef\xbb\xbfid: " + b"7" * 60_000 + b"\nretry: " + b"9" * 5_000 + b"\n: \xff\xfe\n\n"
    await raw(peer, noise, TOKENS, DONE)
