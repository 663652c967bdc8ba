"""A server that means ill: one way to answer wrongly a mode, each with the ends that its calls may have.

python -m tests.live.hostile    # prints its port and modes, serves until its standard input ends; the path names the mode: /MODE/v1
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from agentload.model.commands import Status
from tests.live.scripted import END, STREAM, Peer, good, serving, token, usage

MB = 1 << 20
TIMED_OUT: frozenset[Status] = frozenset({"first_timeout", "idle_timeout", "total_timeout"})


@dataclass(frozen=True)
class Mode:
    answer: Callable[[Peer], Awaitable[None]]
    ends: frozenset[Status]
    says: str = ""
    """Part of the error."""


MODES: dict[str, Mode] = {}


def mode(*ends: Status, says: str = "") -> Callable[[Callable[[Peer], Awaitable[None]]], Callable[[Peer], Awaitable[None]]]:
    def named(answer: Callable[[Peer], Awaitable[None]]) -> Callable[[Peer], Awaitable[None]]:
        MODES[answer.__name__] = Mode(answer, frozenset(ends), says)
        return answer

    return named


async def raw(peer: Peer, *events: bytes) -> None:
    """Send events as they are, in chunks of HTTP of at most 64 kB, and end the answer well."""
    await peer.send(STREAM)
    await body(peer, b"".join(events))
    await peer.send(END)


async def body(peer: Peer, data: bytes) -> None:
    for start in range(0, len(data), 65_536):
        piece = data[start : start + 65_536]
        await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))


async def whole(peer: Peer, content: bytes, *, status: bytes = b"500 No", kind: bytes = b"application/json") -> None:
    head = b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    await peer.send(head % (status, kind, len(content)) + content)


async def flood(peer: Peer, pieces: Iterable[bytes]) -> None:
    """Send for as long as the client listens."""
    for piece in pieces:
        if peer.writer.is_closing():
            return
        await peer.send(piece)
    await peer.hang()


def again(piece: bytes, total: int) -> Iterable[bytes]:
    return (piece for _ in range(total // len(piece) + 1))


def event(payload: object, *, name: str | None = None) -> bytes:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return (b"" if name is None else b"event: %b\n" % name.encode()) + b"data: " + text + b"\n\n"


def finish(reason: str, *, text: str = "") -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


DONE = event(b"[DONE]")
TOKENS = b"".join(event(each) for each in good(3)[:-1])
NESTED = b"[" * 100_000 + b"]" * 100_000

# --- bodies of errors, and answers that are no stream ---


@mode("http_error")
async def error_body_of_nested_lists(peer: Peer) -> None:
    await whole(peer, NESTED)


@mode("http_error")
async def error_body_of_nested_objects(peer: Peer) -> None:
    await whole(peer, b'{"error":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}")


@mode("http_error")
async def error_code_of_5000_digits(peer: Peer) -> None:
    await whole(peer, b'{"error":{"message":"m","code":"' + b"9" * 5_000 + b'"}}')


@mode("http_error")
async def error_detail_with_a_number_that_json_cannot_be_written_with(peer: Peer) -> None:
    await whole(peer, b'{"detail":{"x":' + b"9" * 4_000 + b"}}")


@mode("http_error")
async def error_body_of_18_mb(peer: Peer) -> None:
    await whole(peer, b"'x" * (9 * MB), kind=b"text/html")


@mode("busy")
async def busy_for_5000_digits_of_seconds(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 429 Slow\r\nretry-after: " + b"9" * 5_000 + b"\r\ncontent-length: 0\r\n\r\n")


@mode("unreadable", says="more than 16 MB")
async def answer_of_18_mb(peer: Peer) -> None:
    await whole(peer, b'{"choices":[{"message":{"content":"' + b"x" * (18 * MB) + b'"}}]}', status=b"200 OK")


@mode("unreadable")
async def answer_of_nested_lists(peer: Peer) -> None:
    await whole(peer, NESTED, status=b"200 OK")


@mode("unreadable")
async def answer_of_a_million_choices(peer: Peer) -> None:
    await whole(peer, b'{"choices":[' + b"{}," * 1_000_000 + b"{}]}", status=b"200 OK")


@mode("unreadable")
async def answer_of_null(peer: Peer) -> None:
    await whole(peer, b"null", status=b"200 OK")


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


@mode("stream_error")
async def error_of_9_mb(peer: Peer) -> None:
    await raw(peer, event({"error": {"message": "it's 'a " + "bearer sk-x " * (9 * MB // 12)}}), DONE)


@mode("unreadable")
async def number_of_5000_digits(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":[],"usage":{"prompt_tokens":' + b"9" * 5_000 + b"}}"), TOKENS, DONE)


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
    await raw(peer, event({"choices": {"0": "x"}}), event({"choices": [None]}), event({"choices": [{"delta": 7}]}), TOKENS, DONE)


@mode("unreadable")
async def usage_of_other_types(peer: Peer) -> None:
    await raw(peer, event({"choices": [], "usage": [1]}), event(b'{"usage":{"prompt_tokens":NaN}}'), TOKENS, DONE)


@mode("unreadable", says="came from the cache")
async def more_cached_than_prompted(peer: Peer) -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 999_999}}
    await raw(peer, TOKENS, event({"choices": [], "usage": counts}), DONE)


@mode("unreadable", "long")
async def a_million_token_ids(peer: Peer) -> None:
    await raw(peer, event(b'{"choices":[{"delta":{"content":"a"},"token_ids":[' + b"1," * 1_000_000 + b"1]}]}"), TOKENS, DONE)


@mode("unreadable", says="expected form")
async def many_tool_calls(peer: Peer) -> None:
    pieces = b",".join(b'{"index":%d}' % index for index in range(150_000))
    await raw(peer, event(b'{"choices":[{"delta":{"tool_calls":[' + pieces + b"]}}]}"), TOKENS, DONE)


@mode("long", "garbage", "unreadable")
async def text_of_15_mb_in_one_event(peer: Peer) -> None:
    await raw(peer, event(token("ab" * (7 * MB) + "\U0001f600")), TOKENS, DONE)


@mode("long", "garbage", "unreadable")
async def text_of_10_mb_in_100_events(peer: Peer) -> None:
    await raw(peer, event(token("ab" * 50_000)) * 100, TOKENS, DONE)


# --- floods ---


@mode("unreadable", says="an event of more than 16 MB")
async def line_without_end(peer: Peer) -> None:
    await peer.send(STREAM)
    await flood(peer, again(b"10000\r\n" + b"x" * 65_536 + b"\r\n", 100 * MB))


@mode("unreadable", says="an event of more than 16 MB")
async def event_without_end(peer: Peer) -> None:
    lines = b"data:\n" * 10_000
    await peer.send(STREAM)
    await flood(peer, again(b"%x\r\n%b\r\n" % (len(lines), lines), 100 * MB))


@mode("unreadable", says="in flight")
async def tokens_without_end(peer: Peer) -> None:
    tokens = event(b'{"choices":[{}]}') * 1_000
    await peer.send(STREAM)
    await flood(peer, again(b"%x\r\n%b\r\n" % (len(tokens), tokens), 200 * MB))


@mode("unreadable", says="in flight")
async def text_without_end(peer: Peer) -> None:
    text = event(token("\U0001f600" * 10_000))
    await peer.send(STREAM)
    await flood(peer, again(b"%x\r\n%b\r\n" % (len(text), text), 200 * MB))


@mode("total_timeout")
async def comments_without_end(peer: Peer) -> None:
    await peer.send(STREAM)
    while not peer.writer.is_closing():
        await peer.send(b"400\r\n" + b": ping\n\n" * 128 + b"\r\n")
        await asyncio.sleep(0.001)


@mode("unreadable", says="headers")
async def headers_without_end(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n")
    await flood(peer, again(b"x: y\r\n" * 1_000, 50 * MB))


@mode("unreadable", says="head of more than")
async def header_without_end(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nx: ")
    await flood(peer, again(b"y" * 65_536, 50 * MB))


@mode("unreadable", says="head of more than")
async def interim_heads_without_end(peer: Peer) -> None:
    await flood(peer, again(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 50 * MB))


@mode("unreadable", says="headers")
async def trailers_without_end(peer: Peer) -> None:
    await peer.send(STREAM)
    await body(peer, TOKENS)
    await peer.send(b"0\r\n")
    await flood(peer, again(b"x: y\r\n" * 1_000, 50 * MB))


@mode("unreadable", says="head of more than")
async def chunk_extension_without_end(peer: Peer) -> None:
    await peer.send(STREAM + b"1;")
    await flood(peer, again(b"y" * 65_536, 50 * MB))


@mode("unreadable", says="of type 'x")
async def content_type_of_60_kb(peer: Peer) -> None:
    await whole(peer, b"{}", status=b"200 OK", kind=b"x" * 60_000)


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
    await raw(peer, *(event(each) * 2 for each in [token("a"), token("b"), token("c"), finish("length"), usage(3)]), DONE)


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


# --- HTTP ---


@mode("http_error")
async def redirect_to_no_address(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 308 There\r\nlocation: http://[::1/v1\r\ncontent-length: 0\r\n\r\n")


@mode("http_error")
async def redirect_to_itself(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 307 Here\r\nlocation: " + peer.request.line.split()[1].encode() + b"\r\ncontent-length: 0\r\n\r\n")


@mode("ok")
async def age_of_5000_digits_and_a_flood_of_cookies(peer: Peer) -> None:
    cookies = b"".join(b"set-cookie: %d-%d=x\r\n" % (peer.number, index) for index in range(500))
    await peer.send(STREAM[:-2] + b"age: " + b"9" * 5_000 + b"\r\n" + cookies + b"\r\n")
    await body(peer, TOKENS + DONE)
    await peer.send(END)


@mode("unreadable", "truncated", *TIMED_OUT)
async def chunk_of_an_exabyte(peer: Peer) -> None:
    await peer.send(STREAM + b"fffffffffffffff\r\n" + TOKENS)
    peer.writer.close()


@mode("unreadable")
async def chunk_of_no_number(peer: Peer) -> None:
    await peer.send(STREAM + b"-5\r\n" + TOKENS)


@mode("unreadable")
async def status_of_no_number(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 two hundred\r\n\r\n")


@mode("unreadable")
async def http_2(peer: Peer) -> None:
    await peer.send(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18))


@mode("unreadable", "reset", "truncated", *TIMED_OUT)
async def noise(peer: Peer) -> None:
    await peer.send(random.Random(peer.number).randbytes(100_000))
    peer.writer.close()


@mode("unreadable", "reset", "truncated", "http_error", *TIMED_OUT)
async def good_answer_with_a_byte_changed(peer: Peer) -> None:
    stream = bytearray(STREAM + b"%x\r\n%b\r\n" % (len(TOKENS), TOKENS))
    stream[stream.index(b"\r\n\r\n") + 2] = 0
    await peer.send(bytes(stream))
    peer.writer.close()


@mode("truncated")
async def nothing_allowed_by_its_status(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")


@mode("reset", "unreadable", "truncated", *TIMED_OUT)
async def other_protocol(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n\x81\x05hello")
    await peer.hang()


async def _serve() -> None:
    async def answer(peer: Peer) -> None:
        await MODES[peer.request.line.split()[1].split("/")[1]].answer(peer)

    async with serving(answer) as server:
        sys.stdout.write(json.dumps({"port": server.port, "modes": list(MODES)}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        server.failures.clear()


if __name__ == "__main__":
    asyncio.run(_serve())
