"""What proxies, gateways and servers of other makes do that is odd and mostly lawful."""

from collections.abc import Mapping
from functools import partial

from agentload.model.commands import Status
from tests.live.hostile_odds import COUNT, PACKED, TEXTS, call, chunk, closed, ended, said
from tests.live.hostility import MODES, Mode, event, finish
from tests.live.scripted import END, STREAM

TOOLS = event(finish("tool_calls")) + COUNT
LAST = chunk({"content": "c"}, reason="length") + COUNT
ALTERNATIVES = [{"token": "a", "logprob": -1.5}] * 100
EVENTS: Mapping[str, tuple[bytes, set[Status]]] = {
    "comments_of_a_gateway_that_waits": (
        b": OPENROUTER PROCESSING\n\n" * 20 + TEXTS + COUNT,
        {"ok"},
    ),
    "running_usage_that_is_repeated_at_the_end": (said(1, 2, 3) + COUNT + COUNT, {"ok"}),
    "padding_in_each_event": (chunk({"content": "a "}, obfuscation="x" * 2_000) * 2 + LAST, {"ok"}),
    "details_of_thoughts": (
        chunk({"reasoning_details": [{"type": "text", "text": "a"}], "content": "a "}) * 2 + LAST,
        {"ok"},
    ),
    "ids_of_a_tool_call_that_change": (
        call([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}])
        + call([{"index": 0, "id": "b", "function": {"arguments": "}"}}])
        + TOOLS,
        {"ok"},
    ),
    "names_of_a_tool_call_that_repeat": (
        call([{"index": 0, "function": {"name": "f", "arguments": "{"}}]) * 2 + TOOLS,
        {"ok"},
    ),
    "arguments_of_a_tool_call_that_are_null": (
        call([{"index": 0, "function": {"name": "f", "arguments": None}}]) * 2 + TOOLS,
        {"ok"},
    ),
    "a_finish_reason_in_each_event": (
        chunk({"content": "a "}, reason="length") * 3 + COUNT,
        {"unreadable"},
    ),
    "results_of_a_filter_ahead_of_all": (
        event({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}) + TEXTS + COUNT,
        {"ok"},
    ),
    "a_role_in_each_event": (chunk({"role": "assistant", "content": "a "}) * 2 + LAST, {"ok"}),
    "a_hundred_alternatives_for_each_token": (
        event(
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {"content": "a "},
                        "logprobs": {
                            "content": [
                                {"token": "a", "logprob": -1.5, "top_logprobs": ALTERNATIVES}
                            ]
                        },
                    }
                ]
            }
        )
        * 2
        + LAST,
        {"ok"},
    ),
    "fingerprints_that_change": (
        chunk({"content": "a "}, system_fingerprint="x", service_tier="default")
        + chunk({"content": "b "}, system_fingerprint="y", service_tier=None)
        + LAST,
        {"ok"},
    ),
    "an_error_of_a_gateway_that_is_no_json": (
        b"event: error\ndata: upstream connect error\n\n",
        {"stream_error"},
    ),
    "html_ahead_of_the_counts": (TEXTS + b"<html>502 Bad Gateway</html>\n\n" + COUNT, {"ok"}),
    "times_to_wait_alone": (b"retry: 10\n\n" * 50 + TEXTS + COUNT, {"ok"}),
    "usage_within_a_choice": (
        event({"choices": [{"index": 0, "delta": {}, "usage": {"completion_tokens": 1}}]})
        + TEXTS
        + COUNT,
        {"ok"},
    ),
    "events_of_another_interface": (
        b'event: message_start\ndata: {"type":"message_start"}\n\n' * 3,
        {"truncated"},
    ),
    "an_end_mark_in_small_letters": (TEXTS + COUNT + b"data: [done]\n\n", {"unreadable"}),
    "an_end_mark_in_quotes": (TEXTS + COUNT + b'data: "[DONE]"\n\n', {"unreadable"}),
    "an_object_that_is_an_error": (
        event({"object": "error", "message": "engine died", "code": 400}),
        {"stream_error", "truncated"},
    ),
}
BYTES: Mapping[str, tuple[bytes, set[Status]]] = {
    "headers_of_a_proxy": (
        STREAM[:-2] + b"via: 1.1 a\r\nx-cache: MISS\r\nserver: cloudflare\r\n\r\n" + PACKED,
        {"ok"},
    ),
    "a_connection_kept_for_no_time": (
        STREAM[:-2] + b"keep-alive: timeout=0, max=0\r\nconnection: close\r\n\r\n" + PACKED,
        {"ok"},
    ),
    "processing_ahead_of_the_head": (
        b"HTTP/1.1 102 Processing\r\n\r\n" * 5 + STREAM + PACKED,
        {"ok"},
    ),
    "a_page_of_a_bad_gateway": (
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 17\r\n\r\n<html>502</html>\n",
        {"http_error"},
    ),
    "a_timeout_of_a_gateway_without_a_length": (
        b"HTTP/1.1 504 Gateway Time-out\r\nconnection: close\r\n\r\n<html>504",
        {"http_error"},
    ),
    "a_name_and_password_wanted": (
        b'HTTP/1.1 401 No\r\nwww-authenticate: Basic realm="x"\r\ncontent-length: 0\r\n\r\n',
        {"http_error"},
    ),
    "a_content_type_in_capitals": (
        STREAM.replace(b"text/event-stream", b"Text/Event-Stream") + PACKED,
        {"ok"},
    ),
    "a_transfer_in_capitals": (STREAM.replace(b"chunked", b"Chunked") + PACKED, {"ok"}),
    "a_transfer_in_capitals_that_is_cut": (
        STREAM.replace(b"chunked", b"CHUNKED") + PACKED[:-60],
        {"truncated", "reset"},
    ),
    "no_encoding_in_capitals": (
        STREAM[:-2] + b"content-encoding: Identity\r\n\r\n" + PACKED,
        {"ok"},
    ),
    "a_content_type_that_comes_twice": (
        STREAM[:-2] + b"content-type: text/event-stream\r\n\r\n" + PACKED,
        {"ok"},
    ),
    "trailers_with_a_checksum": (
        STREAM[:-2] + b"trailer: x-sum\r\n\r\n" + PACKED[: -len(END)] + b"0\r\nx-sum: 1\r\n\r\n",
        {"ok"},
    ),
    "an_extension_of_the_last_chunk": (STREAM + PACKED[: -len(END)] + b"0;x=y\r\n\r\n", {"ok"}),
    "a_status_without_a_reason": (STREAM.replace(b" OK", b"") + PACKED, {"ok"}),
    "blank_lines_ahead_of_the_head": (b"\r\n\r\n" + STREAM + PACKED, {"ok", "unreadable"}),
    "words_behind_the_end": (STREAM + PACKED + b"bye", {"ok"}),
    "a_cookie_of_a_balancer": (
        STREAM[:-2] + b"set-cookie: AWSALB=x; Path=/; Secure; SameSite=None\r\n\r\n" + PACKED,
        {"ok"},
    ),
}
MODES |= {
    name: Mode(partial(ended, events=each), frozenset(ends))
    for name, (each, ends) in EVENTS.items()
}
MODES |= {
    name: Mode(partial(closed, data=each), frozenset(ends)) for name, (each, ends) in BYTES.items()
}
