"""What hardly a server does: closes by halves, urgent bytes, wrong versions, fields of wrong types."""

import asyncio
import json
import socket
from collections.abc import Mapping
from functools import partial

from agentload.model.commands import Status
from tests.live.hostile_odds import COUNT, LENGTH, PACKED, PLAIN, TEXTS, call, chunk, closed, ended
from tests.live.hostility import DONE, MB, MODES, TIMED_OUT, Mode, event, finish, mode, whole
from tests.live.scripted import END, STREAM, Peer, token

LAST = chunk({"content": "c"}, reason="length") + COUNT
TOOLS = event(finish("tool_calls")) + COUNT
EVENTS: Mapping[str, tuple[bytes, set[Status]]] = {
    "thoughts_that_are_numbers": (chunk({"reasoning_content": 7}) * 2 + LAST, {"unreadable"}),
    "thoughts_that_are_objects": (chunk({"reasoning": {"a": 1}}) * 2 + LAST, {"unreadable"}),
    "thoughts_that_are_lists": (chunk({"reasoning_content": ["a"]}) * 2 + LAST, {"unreadable"}),
    "thoughts_under_both_names": (
        chunk({"reasoning": "a ", "reasoning_content": "a "}) * 2 + LAST,
        {"ok"},
    ),
    "refusals_of_wrong_types": (
        chunk({"content": "a ", "refusal": 7, "audio": [1], "function_call": "f"}) * 2 + LAST,
        {"unreadable"},
    ),
    "a_role_that_is_a_list": (chunk({"role": ["a"], "content": "a "}) * 2 + LAST, {"unreadable"}),
    "prompts_that_grow_in_the_answer": (
        b"".join(
            chunk({"content": "a "}, usage={"prompt_tokens": count, "completion_tokens": total})
            for total, count in enumerate((5, 6), 1)
        )
        + LAST,
        {"ok"},
    ),
    "counts_whose_sum_is_another": (
        TEXTS
        + event(
            {
                "choices": [],
                "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 1},
            }
        ),
        {"ok"},
    ),
    "cached_tokens_that_are_true": (
        TEXTS
        + event(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 5,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": True},
                },
            }
        ),
        {"unreadable"},
    ),
    "counts_of_an_infinite_exponent": (
        TEXTS + event(b'{"choices":[],"usage":{"completion_tokens":3,"prompt_tokens":1e400}}'),
        {"unreadable"},
    ),
    "two_end_marks_in_one_event": (
        TEXTS + COUNT + b"data: [DONE]\ndata: [DONE]\n\n",
        {"unreadable"},
    ),
    "an_end_mark_between_spaces": (TEXTS + COUNT + b"data:   [DONE]  \n\n", {"unreadable"}),
    "an_end_mark_that_is_named": (TEXTS + COUNT + b"event: done\ndata: [DONE]\n\n", {"ok"}),
    "two_objects_in_one_event": (event(json.dumps(token("a")).encode() * 2) + LAST, {"unreadable"}),
    "two_objects_on_two_lines": (TEXTS.replace(b"\n\ndata", b"\ndata", 1) + COUNT, {"unreadable"}),
    "nul_behind_each_event": (TEXTS.replace(b"}\n\n", b"}\x00\n\n") + COUNT, {"unreadable"}),
    "nul_between_events": (TEXTS.replace(b"\n\n", b"\n\n\x00\n\n") + COUNT, {"ok"}),
    "fields_in_capitals": (TEXTS.replace(b"data:", b"DATA:") + COUNT, {"truncated"}),
    "a_space_ahead_of_each_field": (TEXTS.replace(b"data:", b" data:") + COUNT, {"truncated"}),
    "a_mark_of_byte_order_in_each_event": (
        (TEXTS + COUNT).replace(b"data: ", b"data: \xef\xbb\xbf"),
        {"unreadable"},
    ),
    "texts_of_another_interface": (
        event({"choices": [{"index": 0, "text": "a ", "finish_reason": None}]}) * 2
        + event(finish("length"))
        + COUNT,
        {"ok"},
    ),
    "a_megabyte_of_spaces_in_an_event": (
        event(b'{"choices":' + b" " * MB + b"[]}") + TEXTS + COUNT,
        {"ok"},
    ),
    "arguments_of_a_tool_call_that_are_numbers": (
        call([{"index": 0, "function": {"name": "f", "arguments": 7}}]) * 2 + TOOLS,
        {"unreadable"},
    ),
    "gaps_between_tool_calls": (
        b"".join(
            call([{"index": place, "function": {"name": "f", "arguments": "{}"}}])
            for place in (0, 7, 63)
        )
        + TOOLS,
        {"ok"},
    ),
    "a_delta_of_nested_objects": (
        event(
            b'{"choices":[{"index":0,"delta":{"content":"a","x":'
            + b'{"a":' * 50_000
            + b"1"
            + b"}" * 50_000
            + b"}}]}"
        )
        + TEXTS
        + COUNT,
        {"unreadable"},
    ),
}
BYTES: Mapping[str, tuple[bytes, set[Status]]] = {
    "an_answer_without_a_head": (TEXTS + COUNT + DONE, {"unreadable"}),
    "radio": (STREAM.replace(b"HTTP/1.1", b"ICY") + PACKED, {"unreadable"}),
    "http_1_10": (STREAM.replace(b"1.1", b"1.10") + PACKED, {"unreadable"}),
    "http_2_in_words": (STREAM.replace(b"1.1", b"2.0") + PACKED, {"ok"}),
    "a_status_of_other_digits": (
        "HTTP/1.1 \u0662\u0660\u0660 OK\r\n".encode() + STREAM.split(b"\r\n", 1)[1] + PACKED,
        {"unreadable"},
    ),
    "a_status_of_four_digits": (STREAM.replace(b"200", b"0200") + PACKED, {"unreadable"}),
    "a_status_of_no_class": (STREAM.replace(b"200", b"600") + PACKED, {"http_error"}),
    "a_reason_that_drives_a_terminal": (
        b"HTTP/1.1 500 \x1b]0;owned\x07\x1b[2J\x9b31m\r\ncontent-length: 0\r\n\r\n",
        {"http_error"},
    ),
    "a_length_of_letters": (PLAIN + b"content-length: 12abc\r\n\r\n" + TEXTS, {"unreadable"}),
    "a_length_of_nothing": (PLAIN + b"content-length: \r\n\r\n" + TEXTS, {"unreadable"}),
    "a_length_of_other_digits": (
        PLAIN + "content-length: \u0663\r\n\r\n".encode() + TEXTS,
        {"unreadable"},
    ),
    "a_length_of_many_zeros": (
        PLAIN + b"content-length: " + b"0" * 1_000 + b"%d\r\n\r\n" % LENGTH + TEXTS + COUNT + DONE,
        {"ok"},
    ),
    "a_chunk_size_with_spaces": (STREAM + PACKED.replace(b"\r\n", b"  \r\n", 1), {"unreadable"}),
    "a_chunk_size_that_ends_without_a_return": (
        STREAM + PACKED.replace(b"\r\n", b"\n", 1),
        {"unreadable"},
    ),
    "a_chunk_extension_in_quotes_with_a_line": (
        STREAM + PACKED.replace(b"\r\n", b';a="b\r\nc"\r\n', 1),
        {"unreadable"},
    ),
    "a_transfer_that_is_nearly_chunked": (
        STREAM.replace(b"chunked", b"xchunked") + PACKED,
        {"ok"},  # it ends with the connection, and a chunk's size is a field that nobody reads
    ),
    "a_header_without_a_name": (STREAM[:-2] + b": x\r\n\r\n" + PACKED, {"unreadable"}),
    "an_upgrade_that_nobody_wanted": (
        STREAM[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n" + PACKED,
        {"ok"},
    ),
    "interim_heads_that_lie_of_a_stream": (
        STREAM.replace(b"200 OK", b"199 Nearly") * 3 + STREAM + PACKED,
        {"unreadable"},
    ),
    "two_times_to_wait_that_differ": (
        b"HTTP/1.1 429 Slow\r\nretry-after: 0\r\nretry-after: 9999\r\ncontent-length: 0\r\n\r\n",
        {"busy"},
    ),
    "busy_with_a_body_that_is_cut": (
        b'HTTP/1.1 429 Slow\r\nretry-after: 1\r\ncontent-length: 900\r\n\r\n{"error":',
        {"busy"},
    ),
    "compressed_twice": (
        STREAM[:-2] + b"content-encoding: gzip, identity\r\n\r\n" + PACKED,
        {"unreadable"},
    ),
    "zstandard": (STREAM[:-2] + b"content-encoding: zstd\r\n\r\n" + PACKED, {"unreadable"}),
}
MODES |= {
    name: Mode(partial(ended, events=each), frozenset(ends))
    for name, (each, ends) in EVENTS.items()
}
MODES |= {
    name: Mode(partial(closed, data=each), frozenset(ends)) for name, (each, ends) in BYTES.items()
}


@mode("stream_error", says="engine died")
async def an_error_that_calls_itself_ok(peer: Peer) -> None:
    await whole(peer, b'{"error":{"message":"engine died","code":500}}', status=b"200 OK")


@mode("truncated", says="no end mark")
async def a_whole_answer_that_is_no_stream(peer: Peer) -> None:
    message = {"role": "assistant", "content": "a b c"}
    said = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    }
    await whole(peer, json.dumps(said).encode(), status=b"200 OK")


@mode("ok")
async def closed_by_half_behind_the_answer(peer: Peer) -> None:
    await peer.send(STREAM + PACKED)
    peer.writer.write_eof()
    await peer.hang()


@mode("truncated", "reset")
async def closed_by_half_in_the_answer(peer: Peer) -> None:
    await peer.send(STREAM + PACKED[:-60])
    peer.writer.write_eof()
    await peer.hang()


@mode("ok")
async def urgent_bytes_in_the_answer(peer: Peer) -> None:
    """Send bytes out of band, which are none of the stream's."""
    sock = peer.writer.get_extra_info("socket")
    for piece in (STREAM, PACKED[:40], PACKED[40:]):
        await peer.send(piece)
        with socket.fromfd(sock.fileno(), sock.family, sock.type) as same:
            same.send(b"!", socket.MSG_OOB)
        await asyncio.sleep(0.002)


@mode("ok")
async def returns_and_line_ends_in_packets_of_their_own(peer: Peer) -> None:
    await peer.send(STREAM)
    for each in (TEXTS + COUNT + DONE).replace(b"\n", b"\r\n").split(b"\r"):
        for piece in (each, b"\r"):
            if piece:
                await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                await asyncio.sleep(0.001)
    await peer.send(END)


@mode("busy", *TIMED_OUT)
async def busy_with_a_body_without_end(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 429 Slow\r\nretry-after: 1\r\ntransfer-encoding: chunked\r\n\r\n")
    while not peer.writer.is_closing():
        await peer.send(b"1\r\nx\r\n")
        await asyncio.sleep(0.02)


@mode("http_error", *TIMED_OUT)
async def redirects_from_here_to_there_and_back(peer: Peer) -> None:
    here = peer.request.line.split()[1].split("?")[0].encode()
    there = here if peer.number % 2 else here + b"?x"
    await peer.send(b"HTTP/1.1 307 There\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % there)


@mode("ok")
async def all_tokens_at_once_behind_a_pause(peer: Peer) -> None:
    await peer.send(STREAM)
    await asyncio.sleep(0.2)
    await peer.send(PACKED)
