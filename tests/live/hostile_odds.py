"""Modes as tables: contradictions behind honest
lengths, bytes cut anywhere, and heads that lie.
"""

import asyncio
import gzip
from collections.abc import Mapping
from functools import partial

from agentload.model.commands import Status
from tests.live.hostility import (
    DONE,
    MB,
    MODES,
    NESTED,
    TIMED_OUT,
    Mode,
    body,
    event,
    finish,
    mode,
    raw,
    whole,
)
from tests.live.scripted import END, STREAM, Peer, good, usage

TEXTS = b"".join(event(each) for each in good(3)[:-2])
"""A stream of three tokens, without counts and end mark."""
COUNT = event(usage(3))


def chunk(delta: object, *, reason: str | None = None, **more: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more})


def said(*totals: int, reason: str = "length") -> bytes:
    """Return a chunk of text for each running total."""
    return b"".join(
        chunk({"content": "a "}, usage={"prompt_tokens": 5, "completion_tokens": total})
        for total in totals
    ) + event(finish(reason))


def ids(*lengths: int | None) -> bytes:
    """Return a chunk of text for each number of token ids that it lists."""
    chunks = (
        {"delta": {"content": "a "}, "token_ids": None if length is None else [7] * length}
        for length in lengths
    )
    return b"".join(event({"choices": [each]}) for each in chunks) + event(finish("length"))


def call(piece: object) -> bytes:
    return chunk({"tool_calls": piece})


EVENTS: Mapping[str, tuple[bytes, set[Status]]] = {
    # --- counts ---
    "usage_that_is_final_from_the_start": (said(3, 3, 3) + COUNT, {"ok"}),
    "usage_that_grows_at_the_end_alone": (said(1, 1, 3) + COUNT, {"ok"}),
    "usage_ahead_of_all_tokens": (COUNT + TEXTS, {"ok"}),
    "usage_that_comes_twice": (TEXTS + COUNT + COUNT, {"ok"}),
    "usage_that_falls_at_the_end": (said(1, 2, 3) + event(usage(2)), {"unreadable", "short"}),
    "usage_after_the_end_mark": (TEXTS + DONE + event(usage(900)), {"long", "unreadable"}),
    "usage_of_null": (TEXTS + event({"choices": [], "usage": None}), {"ok"}),
    "counts_of_fractions": (
        TEXTS + event({"choices": [], "usage": {"completion_tokens": 3.5}}),
        {"unreadable"},
    ),
    "counts_that_are_true": (
        TEXTS + event({"choices": [], "usage": {"completion_tokens": True}}),
        {"unreadable"},
    ),
    "counts_that_are_infinite": (
        TEXTS + event(b'{"choices":[],"usage":{"completion_tokens":Infinity}}'),
        {"unreadable"},
    ),
    "more_thoughts_than_tokens": (
        TEXTS
        + event(
            {
                "choices": [],
                "usage": {
                    "completion_tokens": 3,
                    "completion_tokens_details": {"reasoning_tokens": 99},
                },
            }
        ),
        {"ok"},  # some servers count thoughts apart
    ),
    "fewer_than_no_cached_tokens": (
        TEXTS
        + event(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 5,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": -1},
                },
            }
        ),
        {"unreadable"},
    ),
    "all_ids_in_the_first_chunk": (ids(3, 0, 0) + COUNT, {"ok"}),
    "ids_that_stop": (ids(1, None, None) + COUNT, {"ok"}),
    "more_ids_than_counted": (ids(1, 4, 1) + COUNT, {"unreadable"}),
    "ids_that_are_negative": (
        event(b'{"choices":[{"delta":{"content":"a"},"token_ids":[-1,1e3,7]}]}') + TEXTS + COUNT,
        {"unreadable"},
    ),
    # --- which model, which choice, which end ---
    "another_model_half_way": (
        chunk({"content": "a"}, model="m")
        + chunk({"content": "b"}, model="other")
        + chunk({"content": "c"}, model="other", reason="length")
        + COUNT,
        {"unreadable"},
    ),
    "models_that_are_no_names": (
        chunk({"content": "a"}, model=7)
        + chunk({"content": "b"}, model=["m"])
        + chunk({"content": "c"}, model=None, reason="length")
        + COUNT,
        {"ok", "unreadable"},
    ),
    "choices_in_another_order": (
        event({"choices": [{"index": 1, "delta": {"content": "a"}}]}) + TEXTS + COUNT,
        {"unreadable"},
    ),
    "a_choice_with_a_negative_index": (
        event({"choices": [{"index": -1, "delta": {"content": "a"}}]}) + TEXTS + COUNT,
        {"unreadable"},
    ),
    "a_choice_whose_index_is_a_text": (
        event({"choices": [{"index": "0", "delta": {"content": "a"}}]}) + TEXTS + COUNT,
        {"unreadable"},
    ),
    "choices_that_are_empty": (event({"choices": []}) * 3 + COUNT, {"truncated", "short"}),
    "contents_of_null": (chunk({"content": None}) * 3 + event(finish("length")) + COUNT, {"ok"}),
    "deltas_of_null": (
        event({"choices": [{"delta": None}]}) * 3 + event(finish("length")) + COUNT,
        {"ok"},
    ),
    "a_length_that_becomes_a_stop": (TEXTS + event(finish("stop")) + COUNT, {"unreadable"}),
    "a_stop_that_becomes_tools": (
        chunk({"content": "a "}) * 3 + event(finish("stop")) + event(finish("tool_calls")) + COUNT,
        {"ok"},
    ),
    "no_finish_reason": (chunk({"content": "a "}) * 3 + COUNT, {"ok", "truncated"}),
    "an_error_behind_the_counts": (
        TEXTS + COUNT + event({"error": {"message": "engine died"}}),
        {"stream_error"},
    ),
    "an_error_behind_the_end_mark": (
        TEXTS + COUNT + DONE + event({"error": {"message": "engine died"}}),
        {"stream_error"},
    ),
    "an_error_of_null": (
        chunk({"content": "a "}, error=None)
        + TEXTS[:0]
        + chunk({"content": "b "})
        + chunk({"content": "c"}, reason="length")
        + COUNT,
        {"ok"},
    ),
    "an_error_of_nothing": (event({"error": {}}) + TEXTS + COUNT, {"stream_error"}),
    "an_error_that_is_a_text": (event({"error": "engine died"}), {"stream_error"}),
    "a_detail_in_place_of_an_answer": (
        event({"detail": "engine died"}),
        {"truncated", "stream_error"},
    ),
    "two_end_marks": (TEXTS + COUNT + DONE, {"ok"}),
    "an_end_mark_in_the_middle": (TEXTS[: TEXTS.index(b"w1") - 60] + DONE + TEXTS, {"unreadable"}),
    # --- tools, thoughts, log probabilities ---
    "tool_calls_a_sign_at_a_time": (
        call([{"index": 0, "function": {"name": "f"}}])
        + b"".join(call([{"index": 0, "function": {"arguments": sign}}]) for sign in '{"a":1}')
        + event(finish("tool_calls"))
        + COUNT,
        {"ok"},
    ),
    "tool_calls_in_another_order": (
        call([{"index": 2, "function": {"arguments": "}"}}])
        + call([{"index": 0, "function": {"name": "g", "arguments": "{"}}])
        + call([{"function": {"name": "h"}}])
        + event(finish("tool_calls"))
        + COUNT,
        {"ok"},
    ),
    "tool_calls_that_are_objects": (call({"0": "f"}) + TEXTS + COUNT, {"unreadable"}),
    "thoughts_of_2_mb": (
        chunk({"reasoning_content": "ab " * 10_000}) * 70 + TEXTS + COUNT,
        {"unreadable"},
    ),
    "thoughts_and_answers_by_turns": (
        chunk({"reasoning": "a"})
        + chunk({"content": "b"})
        + chunk({"reasoning": "c"})
        + event(finish("length"))
        + COUNT,
        {"ok"},
    ),
    "log_probabilities_of_a_megabyte_each": (
        event(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": "a"},
                        "logprobs": {"content": [{"token": "a", "logprob": -1.5}] * 25_000},
                    }
                ]
            }
        )
        * 3
        + event(finish("length"))
        + COUNT,
        {"ok", "unreadable"},
    ),
    "log_probabilities_that_are_no_numbers": (
        event(b'{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[NaN]}}]}')
        + TEXTS
        + COUNT,
        {"unreadable"},
    ),
    # --- JSON and events ---
    "nested_lists_where_nobody_looks": (
        event(b'{"choices":[],"x":' + NESTED + b"}") + TEXTS + COUNT,
        {"unreadable"},
    ),
    "numbers_that_nobody_reads": (
        event(b'{"choices":[],"created":' + b"9" * 5_000 + b',"x":1e999}') + TEXTS + COUNT,
        {"ok", "unreadable"},
    ),
    "json_on_many_lines": (
        TEXTS.replace(b'"choices"', b'\ndata: "choices"\ndata: ') + COUNT,
        {"ok"},
    ),
    "no_space_behind_the_colon": (TEXTS.replace(b"data: ", b"data:") + COUNT, {"ok"}),
    "lines_that_end_in_every_way": (
        TEXTS.replace(b"\n\n", b"\r\n\r\n") + COUNT.replace(b"\n\n", b"\r\r"),
        {"ok"},
    ),
    "a_mark_of_byte_order": (b"\xef\xbb\xbf" + TEXTS + COUNT, {"ok"}),
    "names_of_events_that_nobody_knows": (
        b"event: ping\ndata: {}\n\nevent: \n\nid: 7\nretry: x\n\n" + TEXTS + COUNT,
        {"ok", "unreadable"},
    ),
    "events_of_null": (b"data: null\n\n" + TEXTS + COUNT, {"unreadable"}),
    "events_of_nothing": (b"data:\n\ndata\n\n" * 500 + TEXTS + COUNT, {"ok"}),
    "comments_alone": (b": ping\n\n" * 500, {"truncated"}),
    "html": (b"<html>login</html>\n\n", {"truncated", "unreadable"}),
    "half_a_character_in_two_events": (
        event(b'{"choices":[{"delta":{"content":"\xf0\x9f"}}]}')
        + event(b'{"choices":[{"delta":{"content":"\x98\x80"}}]}')
        + TEXTS
        + COUNT,
        {"unreadable"},
    ),
    "half_a_surrogate_pair_in_two_events": (
        event(b'{"choices":[{"delta":{"content":"\\ud83d"}}]}')
        + event(b'{"choices":[{"delta":{"content":"\\ude00"}}]}')
        + TEXTS
        + COUNT,
        {"unreadable"},
    ),
    "ids_of_other_answers": (
        b"".join(
            chunk({"content": "a "}, id=f"other{number}", reason=reason)
            for number, reason in enumerate((None, None, "length"))
        )
        + COUNT,
        {"ok"},
    ),
}
"""Streams by what is wrong with them; an end mark follows each."""

PACKED = b"%x\r\n%b\r\n" % (len(TEXTS + COUNT + DONE), TEXTS + COUNT + DONE) + END
LENGTH = len(TEXTS + COUNT + DONE)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
BYTES: Mapping[str, tuple[bytes, set[Status]]] = {
    "http_1_0_until_the_close": (
        PLAIN.replace(b"1.1", b"1.0") + b"\r\n" + TEXTS + COUNT + DONE,
        {"ok"},
    ),
    "http_1_0_cut_at_the_counts": (
        PLAIN.replace(b"1.1", b"1.0") + b"\r\n" + TEXTS[:-40],
        {"truncated"},
    ),
    "a_length_that_is_too_long": (
        PLAIN + b"content-length: %d\r\n\r\n" % (LENGTH + 9) + TEXTS + COUNT + DONE,
        {"ok"},
    ),
    "a_length_that_is_too_short": (
        PLAIN + b"content-length: %d\r\n\r\n" % (LENGTH - 60) + TEXTS + COUNT + DONE,
        {"truncated"},
    ),
    "a_length_below_nothing": (
        PLAIN + b"content-length: -5\r\n\r\n" + TEXTS + COUNT + DONE,
        {"unreadable"},
    ),
    "a_length_with_a_sign": (
        PLAIN + b"content-length: +%d\r\n\r\n" % LENGTH + TEXTS + COUNT + DONE,
        {"unreadable", "ok"},
    ),
    "a_length_that_comes_twice": (
        PLAIN + b"content-length: %d, %d\r\n\r\n" % (LENGTH, LENGTH) + TEXTS + COUNT + DONE,
        {"ok", "unreadable"},
    ),
    "chunk_sizes_with_extensions_and_trailers": (
        STREAM
        + PACKED.replace(b"\r\n", b";a=b\r\n", 1)[: -len(END)]
        + b"0\r\nx-end: 1\r\ncontent-length: 9\r\n\r\n",
        {"ok"},
    ),
    "chunk_sizes_in_capitals_and_zeros": (
        STREAM + b"000" + PACKED.swapcase()[:3] + PACKED[3:],
        {"ok"},
    ),
    "chunk_size_in_hexadecimal_of_c": (STREAM + b"0x" + PACKED, {"unreadable", "truncated"}),
    "chunk_that_is_longer_than_it_says": (
        STREAM + b"%x" % (LENGTH - 9) + PACKED[PACKED.index(b"\r\n") :],
        {"unreadable"},
    ),
    "chunk_that_is_shorter_than_it_says": (
        STREAM + b"%x" % (LENGTH + 9) + PACKED[PACKED.index(b"\r\n") :],
        {"ok"},
    ),
    "chunks_without_the_last": (STREAM + PACKED[: -len(END)], {"ok", "truncated"}),
    "chunks_in_http_1_0": (STREAM.replace(b"1.1", b"1.0") + PACKED, {"ok", "unreadable"}),
    "chunked_twice": (
        STREAM.replace(b"chunked", b"chunked, chunked") + PACKED,
        {"ok", "unreadable"},
    ),
    "lines_of_a_head_without_returns": (
        STREAM.replace(b"\r\n", b"\n") + PACKED,
        {"ok", "unreadable"},
    ),
    "a_header_that_is_folded": (
        STREAM[:-2] + b"x: a\r\n b\r\n\tc\r\n\r\n" + PACKED,
        {"ok", "unreadable"},
    ),
    "a_header_with_a_nul": (STREAM[:-2] + b"x: a\x00b\r\n\r\n" + PACKED, {"unreadable"}),
    "a_space_ahead_of_the_colon": (
        PLAIN + b"content-length : 3\r\ntransfer-encoding: chunked\r\n\r\n" + PACKED,
        {"unreadable"},
    ),
    "a_hundred_continues": (b"HTTP/1.1 100 Continue\r\n\r\n" * 100 + STREAM + PACKED, {"ok"}),
    "early_hints": (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + STREAM + PACKED, {"ok"}),
    "dates_that_cannot_be": (
        STREAM[:-2]
        + b"date: Fri, 31 Feb 99999 25:61:61 GMT\r\nexpires: -1\r\nage: 0\r\n\r\n"
        + PACKED,
        {"ok"},
    ),
    "a_header_of_60_kb": (
        STREAM[:-2] + b"x: " + b"y" * 60_000 + b"\r\n\r\n" + PACKED,
        {"ok", "unreadable"},
    ),
    "alert_of_tls": (b"\x15\x03\x01\x00\x02\x02\x28", {"unreadable", "reset", "truncated"}),
    "ssh": (b"SSH-2.0-OpenSSH_9.2\r\n", {"unreadable"}),
    "partial_content": (
        STREAM.replace(b"200 OK", b"206 Partial") + PACKED,
        {"ok", "http_error", "unreadable"},
    ),
    "not_modified": (b"HTTP/1.1 304 Not Modified\r\n\r\n", {"http_error"}),
    "see_other": (
        b"HTTP/1.1 303 See Other\r\nlocation: /v1/models\r\ncontent-length: 0\r\n\r\n",
        {"http_error"},
    ),
    "redirect_to_a_file": (
        b"HTTP/1.1 307 There\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n",
        {"http_error"},
    ),
    "text_that_is_plain": (
        STREAM.replace(b"text/event-stream", b"text/plain") + PACKED,
        {"ok", "unreadable"},
    ),
    "json_that_is_a_stream": (
        STREAM.replace(b"text/event-stream", b"application/json") + PACKED,
        {"unreadable"},
    ),
    "brotli": (STREAM[:-2] + b"content-encoding: br\r\n\r\n" + PACKED, {"unreadable"}),
    "closed_within_the_head": (STREAM[:40], {"reset", "truncated", "unreadable"}),
    "closed_at_once": (b"", {"reset", "truncated"}),
    **{
        f"busy_until_{name}": (
            b"HTTP/1.1 429 Slow\r\nretry-after: %b\r\ncontent-length: 0\r\n\r\n" % when,
            {"busy"},
        )
        for name, when in {
            "a_second_ago": b"-1",
            "not_a_number": b"NaN",
            "infinity": b"inf",
            "the_year_9999": b"Fri, 31 Dec 9999 23:59:59 GMT",
            "no_date": b"Fri, 31 Feb 2026 25:00:00 GMT",
            "another_digit": "\u0663".encode(),
            "nothing": b"",
        }.items()
    },
    "unavailable_for_a_billion_seconds": (
        b"HTTP/1.1 503 Busy\r\nretry-after: 1000000000\r\ncontent-length: 0\r\n\r\n",
        {"busy", "http_error"},
    ),
}
"""Whole answers by what is wrong with their bytes; the server closes the connection."""


BOMB = gzip.compress(b" " * (64 * MB), 1)


async def ended(peer: Peer, events: bytes) -> None:
    """Send events, and the end mark if they have none yet."""
    await raw(peer, events, DONE)


async def closed(peer: Peer, data: bytes) -> None:
    await peer.send(data)
    peer.writer.close()


MODES |= {
    name: Mode(partial(ended, events=each), frozenset(ends))
    for name, (each, ends) in EVENTS.items()
}
MODES |= {
    name: Mode(partial(closed, data=each), frozenset(ends)) for name, (each, ends) in BYTES.items()
}


@mode("ok")
async def a_byte_in_each_packet(peer: Peer) -> None:
    for byte in STREAM + PACKED:
        await peer.send(bytes((byte,)))
        if not byte % 8:
            await asyncio.sleep(0)


@mode("reset", "truncated", "unreadable")
async def a_reset_at_any_byte(peer: Peer) -> None:
    whole_answer = STREAM + PACKED
    await peer.send(whole_answer[: len(whole_answer) * peer.number % (len(whole_answer) - 60)])
    peer.reset()


@mode("reset", "truncated", "unreadable")
async def a_close_at_any_byte(peer: Peer) -> None:
    whole_answer = STREAM + PACKED
    await closed(peer, whole_answer[: len(whole_answer) * peer.number % (len(whole_answer) - 60)])


@mode("ok", "reset")
async def a_reset_behind_the_end(peer: Peer) -> None:
    await peer.send(STREAM + PACKED)
    await asyncio.sleep(0.02)
    peer.reset()


@mode("ok")
async def a_close_that_no_header_told(peer: Peer) -> None:
    await closed(peer, STREAM + PACKED)


@mode("ok", "http_error")
async def an_error_before_each_right_answer(peer: Peer) -> None:
    if peer.number % 2:
        await whole(peer, b'{"error":{"message":"engine restarts"}}')
    else:
        await peer.answer()


@mode("ok", "busy")
async def busy_before_each_right_answer(peer: Peer) -> None:
    if peer.number % 2:
        await closed(peer, b"HTTP/1.1 429 Slow\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n")
    else:
        await peer.answer()


@mode("http_error", "busy", "reset", "truncated", "unreadable", "ok")
async def answers_before_it_has_read(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    peer.reset()


@mode("unreadable")
async def a_bomb_of_gzip(peer: Peer) -> None:
    await peer.send(STREAM[:-2] + b"content-encoding: gzip\r\n\r\n")
    await body(peer, BOMB)
    await peer.send(END)


@mode(*TIMED_OUT)
async def half_closed_behind_the_head(peer: Peer) -> None:
    await peer.send(STREAM)
    await peer.hang()
