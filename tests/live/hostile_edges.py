"""What is lawful at its edges, or just beyond: where lines, numbers, characters and sizes end."""

import asyncio
from collections.abc import Mapping
from functools import partial

from agentload.model.commands import Status
from tests.live.hostile_odds import COUNT, PACKED, TEXTS, call, chunk, closed, ended
from tests.live.hostility import DONE, MB, MODES, Mode, again, body, event, finish, mode
from tests.live.scripted import END, STREAM, Peer

DIGITS = b"7" * 1_000_000
WIDE = "\U0001f600\u20ac\u00e9a "
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e "
"""Characters at which text is cut into lines in Python, and in no event."""
TOOLS = event(finish("tool_calls")) + COUNT
LAST = chunk({"content": "c"}, reason="length") + COUNT
EVENTS: Mapping[str, tuple[bytes, set[Status]]] = {
    "a_count_of_a_million_digits": (
        TEXTS + event(b'{"choices":[],"usage":{"completion_tokens":%b}}' % DIGITS),
        {"unreadable"},
    ),
    "a_fraction_of_a_million_digits": (
        event(b'{"choices":[],"created":0.%b}' % DIGITS) + TEXTS + COUNT,
        {"ok"},
    ),
    "an_exponent_of_a_million_digits": (
        event(b'{"choices":[],"created":1e%b}' % DIGITS) + TEXTS + COUNT,
        {"ok", "unreadable"},
    ),
    "counts_that_are_texts": (
        TEXTS + event({"choices": [], "usage": {"completion_tokens": "3"}}),
        {"unreadable"},
    ),
    "counts_of_whole_fractions": (
        TEXTS + event(b'{"choices":[],"usage":{"completion_tokens":3.0,"prompt_tokens":5e0}}'),
        {"ok", "unreadable"},
    ),
    "counts_of_less_than_zero_zeros": (
        TEXTS + event(b'{"choices":[],"usage":{"completion_tokens":-0,"prompt_tokens":5}}'),
        {"unreadable", "short"},
    ),
    "separators_that_end_no_line": (chunk({"content": SEPARATORS}) * 2 + LAST, {"ok"}),
    "separators_that_are_not_escaped": (
        b"".join(
            event(f'{{"choices":[{{"delta":{{"content":"{text}"}}}}]}}'.encode())
            for text in ("a\u2028", "b\u2029\x85")
        )
        + LAST,
        {"ok"},
    ),
    "carriage_returns_alone": ((TEXTS + COUNT).replace(b"\n", b"\r"), {"ok"}),
    "characters_that_are_too_long": (
        event(b'{"choices":[{"delta":{"content":"\xc0\xaf\xed\xa0\x80\xf8\x88\x80\x80\x80"}}]}')
        + TEXTS
        + COUNT,
        {"unreadable"},
    ),
    "an_event_of_200000_lines": (b"data: \n" * 200_000 + b"\n" + TEXTS + COUNT, {"unreadable"}),
    "an_event_of_50000_keys": (
        event({"choices": [], **{f"key{number}": number for number in range(50_000)}})
        + TEXTS
        + COUNT,
        {"ok", "unreadable"},
    ),
    "a_key_of_a_megabyte": (event({"choices": [], "x" * MB: 1}) + TEXTS + COUNT, {"ok"}),
    "tool_calls_whose_places_contradict_their_ids": (
        call([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}])
        + call([{"id": "b", "function": {"name": "g", "arguments": "{"}}])
        + call([{"index": 1 << 40, "id": "a", "function": {"arguments": "}"}}])
        + TOOLS,
        {"ok", "unreadable"},
    ),
    "contents_in_parts": (
        chunk({"content": [{"type": "text", "text": "a "}]}) * 2 + LAST,
        {"unreadable"},
    ),
    "messages_in_place_of_deltas": (
        event({"choices": [{"index": 0, "message": {"content": "a "}, "finish_reason": None}]}) * 2
        + LAST,
        {"ok", "unreadable"},
    ),
    "a_finish_reason_that_is_a_number": (
        TEXTS + event({"choices": [{"index": 0, "delta": {}, "finish_reason": 1}]}) + COUNT,
        {"unreadable"},
    ),
}
BYTES: Mapping[str, tuple[bytes, set[Status]]] = {
    "a_length_in_a_list": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 5, 5\r\n\r\n"
        + TEXTS,
        {"unreadable"},
    ),
    "a_chunk_size_with_an_underscore": (STREAM + b"1_0\r\n" + b" " * 16 + PACKED, {"unreadable"}),
    "a_chunk_size_with_a_sign": (STREAM + b"+5\r\n: a\n\n\r\n" + PACKED, {"unreadable"}),
    "a_chunk_size_with_0x": (STREAM + b"0x5\r\n: a\n\n\r\n" + PACKED, {"unreadable"}),
    "chunked_and_then_not": (
        STREAM.replace(b"chunked", b"chunked, identity") + PACKED,
        {"ok", "unreadable", "truncated"},
    ),
    "chunked_in_one_header_and_not_in_another": (
        STREAM[:-2] + b"transfer-encoding: identity\r\n\r\n" + PACKED[:-60],
        {"unreadable", "truncated", "reset"},
    ),
    "a_header_without_a_colon": (STREAM[:-2] + b"x-nothing\r\n\r\n" + PACKED, {"unreadable", "ok"}),
    "headers_beyond_ascii": (
        STREAM[:-2] + "x-wörd: naïve\r\nx-\U0001f600: 1\r\n\r\n".encode() + PACKED,
        {"unreadable", "ok"},
    ),
    "hints_with_a_body": (
        b"HTTP/1.1 103 Early Hints\r\ncontent-length: 5\r\n\r\nhello" + STREAM + PACKED,
        {"unreadable", "ok"},
    ),
    "trailers_that_take_the_head_back": (
        STREAM[:-2]
        + b"trailer: content-type\r\n\r\n"
        + PACKED[: -len(END)]
        + b"0\r\ncontent-type: application/json\r\ncontent-length: 1\r\nretry-after: 9\r\n\r\n",
        {"ok"},
    ),
    "two_content_types_that_differ": (
        STREAM[:-2] + b"content-type: application/json\r\n\r\n" + PACKED,
        {"unreadable", "ok"},
    ),
}
MODES |= {
    name: Mode(partial(ended, events=each), frozenset(ends))
    for name, (each, ends) in EVENTS.items()
}
MODES |= {
    name: Mode(partial(closed, data=each), frozenset(ends)) for name, (each, ends) in BYTES.items()
}


@mode("ok")
async def a_pause_behind_each_byte_of_a_character(peer: Peer) -> None:
    await peer.send(STREAM)
    text = f'data: {{"choices":[{{"delta":{{"content":"{WIDE}"}}}}]}}\r\n\r\n'.encode()
    for byte in text * 2:
        await body(peer, bytes((byte,)))
        if byte > 0x7F or byte in b"\r\n":
            await asyncio.sleep(0.002)
    await body(peer, LAST + DONE)
    await peer.send(END)


@mode("ok")
async def comments_of_2_mb_ahead_of_the_answer(peer: Peer) -> None:
    await peer.send(STREAM)
    for piece in again(b": ping\n\n" * 8_000, 2 * MB):
        await body(peer, piece)
    await body(peer, TEXTS + COUNT + DONE)
    await peer.send(END)


@mode("ok", "reset", "truncated")
async def a_connection_that_dies_as_the_next_request_comes(peer: Peer) -> None:
    is_first = not hasattr(peer.writer, "answered_once")
    peer.writer.answered_once = True  # type: ignore[attr-defined]  # of this connection
    if is_first:
        await peer.answer()
    else:
        peer.reset()


@mode("ok", "http_error")
async def a_refusal_of_each_request_beside_a_good_answer(peer: Peer) -> None:
    """Answer well, and refuse in the same packet the request that was not sent yet."""
    refusal = b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno"
    await peer.send(STREAM + PACKED + refusal)
