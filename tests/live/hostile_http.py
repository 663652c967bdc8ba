"""Bodies of errors, floods, and what is hardly HTTP."""

import asyncio
import gzip
import random

from tests.live.hostility import (
    DONE,
    MB,
    NESTED,
    TIMED_OUT,
    TOKENS,
    again,
    body,
    event,
    flood,
    mode,
    raw,
    whole,
)
from tests.live.scripted import END, STREAM, Peer, token

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
    await peer.send(
        b"HTTP/1.1 429 Slow\r\nretry-after: " + b"9" * 5_000 + b"\r\ncontent-length: 0\r\n\r\n"
    )


@mode("unreadable", says="more than 16 MB")
async def answer_of_18_mb(peer: Peer) -> None:
    await whole(
        peer, b'{"choices":[{"message":{"content":"' + b"x" * (18 * MB) + b'"}}]}', status=b"200 OK"
    )


@mode("unreadable")
async def answer_of_nested_lists(peer: Peer) -> None:
    await whole(peer, NESTED, status=b"200 OK")


@mode("unreadable")
async def answer_of_a_million_choices(peer: Peer) -> None:
    await whole(peer, b'{"choices":[' + b"{}," * 1_000_000 + b"{}]}", status=b"200 OK")


@mode("unreadable")
async def answer_of_null(peer: Peer) -> None:
    await whole(peer, b"null", status=b"200 OK")


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


# --- HTTP ---


@mode("http_error")
async def redirect_to_no_address(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 308 There\r\nlocation: http://[::1/v1\r\ncontent-length: 0\r\n\r\n")


@mode("http_error")
async def redirect_to_itself(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 307 Here\r\nlocation: "
        + peer.request.line.split()[1].encode()
        + b"\r\ncontent-length: 0\r\n\r\n"
    )


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
    await peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: "
        b"upgrade\r\n\r\n\x81\x05hello"
    )
    await peer.hang()


@mode("http_error", says="died")
async def error_body_that_drives_a_terminal(peer: Peer) -> None:
    await whole(
        peer, b"\x1b]0;owned\x07\x1b[2J\r engine \x9b31m died \xe2\x80\xae\x00", kind=b"text/plain"
    )


@mode("http_error")
async def error_body_with_half_a_surrogate_pair(peer: Peer) -> None:
    await whole(peer, b'{"error":{"message":"engine \\ud800 died"},"detail":"\\udfff"}')


@mode("unreadable")
async def two_lengths_that_differ(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: "
        b"5\r\ncontent-length: 900\r\n\r\n" + TOKENS
    )
    peer.writer.close()


@mode("unreadable", "truncated")
async def a_length_and_chunks(peer: Peer) -> None:
    await peer.send(STREAM[:-2] + b"content-length: 3\r\n\r\n")
    await body(peer, TOKENS + DONE)
    await peer.send(END)


@mode("unreadable")
async def a_length_beyond_64_bits(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: "
        b"99999999999999999999999\r\n\r\n" + TOKENS
    )
    peer.writer.close()


@mode("unreadable", *TIMED_OUT)
async def a_chunk_length_of_zeros_without_end(peer: Peer) -> None:
    await peer.send(STREAM)
    await flood(peer, again(b"0" * 65_536, 50 * MB))


@mode("unreadable")
async def compressed_though_nobody_asked(peer: Peer) -> None:
    packed = gzip.compress(TOKENS + DONE)
    await peer.send(STREAM[:-2] + b"content-encoding: gzip\r\n\r\n")
    await body(peer, packed)
    await peer.send(END)


@mode("unreadable", "truncated")
async def compressed_in_transfer(peer: Peer) -> None:
    await peer.send(STREAM.replace(b"chunked", b"gzip, chunked"))
    await body(peer, gzip.compress(TOKENS + DONE))
    await peer.send(END)


@mode("truncated", "unreadable")
async def a_stream_of_no_bytes(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n"
    )


@mode("http_error", "unreadable")
async def status_of_999(peer: Peer) -> None:
    await whole(peer, b"{}", status=b"999 Beyond")


@mode("first_timeout")
async def a_head_that_drips(peer: Peer) -> None:
    for byte in STREAM * 100:
        if peer.writer.is_closing():
            return
        await peer.send(bytes((byte,)) if byte not in b"\r\n" else b"x")
        await asyncio.sleep(0.02)


@mode(*TIMED_OUT)
async def a_token_now_and_then_for_ever(peer: Peer) -> None:
    await peer.send(STREAM)
    while not peer.writer.is_closing():
        await peer.events(token("a"))
        await asyncio.sleep(0.2)


@mode("http_error", "unreadable", "reset")
async def redirect_into_another_request(peer: Peer) -> None:
    target = b"/v1/chat/completions HTTP/1.1\tX: y\x85 \xc3\xa9 ?\x00"
    await peer.send(
        b"HTTP/1.1 307 There\r\nlocation: "
        + target.replace(b"\x00", b"")
        + b"\r\ncontent-length: 0\r\n\r\n"
    )


@mode("http_error")
async def redirects_that_never_repeat(peer: Peer) -> None:
    here = peer.request.line.split()[1].split("?")[0].encode()
    await peer.send(
        b"HTTP/1.1 308 On\r\nlocation: %b?%d\r\ncontent-length: 0\r\n\r\n" % (here, peer.number)
    )


@mode("reset", "unreadable", "truncated", "stream_error", "ok")
async def an_answer_for_every_request_to_come(peer: Peer) -> None:
    """HTTP names no request in an answer: one that comes
    after the next request went out is the next one's.
    """
    await raw(peer, TOKENS, DONE)
    await asyncio.sleep(0.05)
    await raw(peer, event({"error": {"message": "poisoned"}}))


@mode("ok")
async def cookies_that_are_no_cookies(peer: Peer) -> None:
    strange = (
        b"=",
        b";",
        b"a=\x80\x9b[2J",
        b"x" * 5_000 + b"=1",
        b"b=\xff; max-age=0",
        b"c=1; max-age=-1; domain=other",
        b"d=\tX: y",
    )
    await peer.send(
        STREAM[:-2] + b"".join(b"set-cookie: " + each + b"\r\n" for each in strange) + b"\r\n"
    )
    await body(peer, TOKENS + DONE)
    await peer.send(END)
