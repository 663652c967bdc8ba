"""Speak `/v1/chat/completions` and `/v1/completions`: the chunks and bodies of vLLM 0.32, field by field, framed as events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec

from agentload.emulator.logprobs import Listed
from agentload.serve.script import Part, Script
from agentload.serve.wanted import Wanted, token_id

DONE: Final = b"data: [DONE]\n\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


class Face(Protocol):
    """Turn one answer into bytes. Events come ready to be framed; tokens are counted from 0."""

    def opening(self) -> bytes:
        """Return what precedes the first token; it leaves together with it."""
        ...

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries these tokens."""
        ...

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the events that follow the last token."""
        ...

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        ...


def chunk(payload: bytes) -> bytes:
    """Frame bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: object) -> bytes:
    """Encode one event, compact and in the order of its fields."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the counts that every usage object starts with."""
    return {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens + completion_tokens, "completion_tokens": completion_tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Hold what both faces need to know."""

    id: str
    """With the prefix of its face: `chatcmpl-…` or `cmpl-…`."""
    created: int
    """Wall clock, in seconds."""
    model: str
    fingerprint: str
    wanted: Wanted
    script: Script
    prompt_tokens: int
    prompt_ids: tuple[int, ...] | None = None
    """Only when the client asked for token ids."""
    prompt_logprobs: tuple[Listed, ...] | None = None
    """Of each token of the prompt but the first, itself first; only when the client asked for them."""


class ChatFace:
    """Turn one exchange into the bytes of a chat completion."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._script = exchange.script
        self._wanted = exchange.wanted
        head = msgspec.json.encode(self._head("chat.completion.chunk"))
        self._start = b"data: " + head[:-1] + b',"choices":[{"index":0,"delta":'
        # One part of plain text and no extras: the path that streams at full rate take.
        self._is_plain = (
            [part.kind for part in self._script.parts] == ["content"]
            and self._wanted.top_logprobs is None
            and not self._wanted.token_ids
            and not self._wanted.continuous_usage
        )

    def opening(self) -> bytes:
        """Return the role chunk."""
        exchange = self._exchange
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        fields: dict[str, Any] = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._wanted.continuous_usage:
            fields["usage"] = self._running_usage(0)
        fields |= {"prompt_token_ids": exchange.prompt_ids, "prompt_text": None}
        return event(fields)

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries these tokens."""
        ended = stop == len(self._script.pieces)
        if self._is_plain:
            text = b"".join(self._script.escaped[first:stop])
            tail = self._end() if ended else b'"finish_reason":null,"token_ids":null}]}\n\n'
            return b'%b{"content":"%b"},"logprobs":null,%b' % (self._start, text, tail)
        choice: dict[str, Any] = {"index": 0, "delta": self._delta(first, stop), "logprobs": self._logprobs(first, stop)}
        choice |= {"finish_reason": self._finish(), "stop_reason": self._script.stop_reason} if ended else {"finish_reason": None}
        choice["token_ids"] = self._script.ids[first:stop] if self._wanted.token_ids else None
        return _of_tokens(self._exchange, self._head("chat.completion.chunk"), choice, self._running_usage(stop), ended=ended)

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the usage chunk, if it was asked for, and the end mark."""
        details = self._completion_details()
        more = {"completion_tokens_details": details} if details else {}
        return _closing(self._exchange, self._head("chat.completion.chunk"), cached_tokens, more)

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        script, wanted = self._script, self._wanted
        choice = {
            "index": 0,
            "message": self._message(),
            "logprobs": self._logprobs(0, len(script.pieces)),
            "finish_reason": self._finish(),
            "stop_reason": script.stop_reason,
            "token_ids": script.ids if wanted.token_ids else None,
            "routed_experts": None,
        }
        prompt = {"prompt_logprobs": _scored(self._exchange), "prompt_token_ids": self._exchange.prompt_ids, "prompt_text": None}
        details = self._completion_details()
        return _whole(self._exchange, self._head("chat.completion"), choice, cached_tokens, details=details, prompt=prompt)

    def _head(self, kind: str) -> dict[str, Any]:
        exchange = self._exchange
        return {"id": exchange.id, "object": kind, "created": exchange.created, "model": exchange.model}

    def _end(self) -> bytes:
        choice = {"finish_reason": self._finish(), "stop_reason": self._script.stop_reason, "token_ids": None}
        mark = b"" if self._wanted.include_usage else b',"system_fingerprint":' + msgspec.json.encode(self._exchange.fingerprint)
        return msgspec.json.encode(choice)[1:] + b"]" + mark + b"}\n\n"

    def _finish(self) -> str:
        # A call of a tool that the client named ends with "stop", any other call with "tool_calls".
        named = self._wanted.tool_choice not in (None, "none", "auto", "required")
        return "stop" if named and self._script.finish == "tool_calls" else self._script.finish

    def _delta(self, first: int, stop: int) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        call = -1
        for start, part in zip(self._script.starts, self._script.parts, strict=False):
            call += part.kind == "call"
            begin, end = max(first - start, 0), min(stop - start, len(part.pieces))
            if begin >= end:
                continue
            text = "".join(part.pieces[begin:end])
            if part.kind == "call":
                delta.setdefault("tool_calls", []).append(self._call_delta(part, call, text, is_first=begin == 0))
            else:
                delta[part.kind] = delta.get(part.kind, "") + text
        return delta

    def _call_delta(self, part: Part, index: int, text: str, *, is_first: bool) -> dict[str, Any]:
        if is_first:
            function = {"name": part.name, "arguments": text}
            return {"id": self._call_id(index), "type": "function", "index": index, "function": function}
        return {"index": index, "function": {"arguments": text}}

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._script.text("content"), "refusal": None}
        message |= {"annotations": None, "audio": None, "function_call": None}
        calls = [part for part in self._script.parts if part.kind == "call"]
        if calls:
            message["tool_calls"] = [
                {"id": self._call_id(index), "type": "function", "function": {"name": part.name, "arguments": part.text}}
                for index, part in enumerate(calls)
            ]
        message["reasoning"] = self._script.text("reasoning")
        return message

    def _call_id(self, index: int) -> str:
        return f"chatcmpl-tool-{self._exchange.id.removeprefix('chatcmpl-')}-{index}"

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        details = None
        if total := self._script.reasoning_tokens:
            details = {"reasoning_tokens": min(total, completion_tokens)}
        return usage(self._exchange.prompt_tokens, completion_tokens) | {"completion_tokens_details": details}

    def _completion_details(self) -> dict[str, int] | None:
        total = self._script.reasoning_tokens
        return {"reasoning_tokens": total} if total else None

    def _logprobs(self, first: int, stop: int) -> dict[str, Any] | None:
        ranks = self._wanted.top_logprobs
        if ranks is None:
            return None
        listed = self._script.listed[first:stop]
        return {"content": [{**_logprob(*row[0]), "top_logprobs": [_logprob(*each) for each in row[:ranks]]} for row in listed]}


def _logprob(token: str, value: float) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode())}


class CompletionsFace:
    """Turn one exchange into the bytes of a text completion."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._script = exchange.script
        self._wanted = exchange.wanted
        head = msgspec.json.encode(self._head())
        self._start = b"data: " + head[:-1] + b',"choices":[{"index":0,"text":"'
        self._is_plain = self._wanted.top_logprobs is None and not self._wanted.token_ids and not self._wanted.continuous_usage

    def opening(self) -> bytes:
        """Return nothing: a completion starts with its first token."""
        return b""

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries these tokens."""
        ended = stop == len(self._script.pieces)
        if self._is_plain and not ended:
            tail = b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n'
            return b"%b%b%b" % (self._start, b"".join(self._script.escaped[first:stop]), tail)
        choice = {
            "index": 0,
            "text": "".join(self._script.pieces[first:stop]),
            "logprobs": self._logprobs(first, stop),
            "finish_reason": self._script.finish if ended else None,
            "stop_reason": self._script.stop_reason if ended else None,
            "prompt_token_ids": self._exchange.prompt_ids if first == 0 else None,
            "token_ids": self._script.ids[first:stop] if self._wanted.token_ids else None,
        }
        running = usage(self._exchange.prompt_tokens, stop) | {"completion_tokens_details": None}
        return _of_tokens(self._exchange, self._head(), choice, running, ended=ended)

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the usage chunk, if it was asked for, and the end mark."""
        return _closing(self._exchange, self._head(), cached_tokens, {})

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        script = self._script
        choice = {
            "index": 0,
            "text": "".join(script.pieces),
            "logprobs": self._logprobs(0, len(script.pieces)),
            "finish_reason": script.finish,
            "stop_reason": script.stop_reason,
            "token_ids": script.ids if self._wanted.token_ids else None,
            "prompt_logprobs": _scored(self._exchange),
            "prompt_token_ids": self._exchange.prompt_ids,
            "routed_experts": None,
        }
        return _whole(self._exchange, self._head(), choice, cached_tokens)

    def _head(self) -> dict[str, Any]:
        exchange = self._exchange
        return {"id": exchange.id, "object": "text_completion", "created": exchange.created, "model": exchange.model}

    def _logprobs(self, first: int, stop: int) -> dict[str, Any] | None:
        ranks = self._wanted.top_logprobs
        if ranks is None:
            return None
        script = self._script
        offset = sum(map(len, script.pieces[:first]))
        offsets = []
        for piece in script.pieces[first:stop]:
            offsets.append(offset)
            offset += len(piece)
        return {
            "text_offset": offsets,
            "token_logprobs": [row[0][1] for row in script.listed[first:stop]],
            "tokens": script.pieces[first:stop],
            # At least the token itself, as vLLM lists it.
            "top_logprobs": [dict(row) for row in script.listed[first:stop]],
        }


def _scored(exchange: Exchange) -> list[dict[str, Any] | None] | None:
    """Return what vLLM lists of a prompt: nothing for its first token, then by token id."""
    if exchange.prompt_logprobs is None:
        return None
    return [None, *(_ranked(row) for row in exchange.prompt_logprobs)]


def _ranked(row: Listed) -> dict[str, Any]:
    values = sorted((value for _, value in row), reverse=True)
    return {
        str(token_id(token.strip())): {"logprob": value, "rank": values.index(value) + 1, "decoded_token": token} for token, value in row
    }


def _of_tokens(exchange: Exchange, head: dict[str, Any], choice: dict[str, Any], running: dict[str, Any], *, ended: bool) -> bytes:
    fields = {**head, "choices": [choice]}
    if exchange.wanted.continuous_usage:
        fields["usage"] = running
    if ended and not exchange.wanted.include_usage:
        fields["system_fingerprint"] = exchange.fingerprint
    return event(fields)


def _closing(exchange: Exchange, head: dict[str, Any], cached_tokens: int, more: dict[str, Any]) -> tuple[bytes, ...]:
    if not exchange.wanted.include_usage:
        return (DONE,)
    counts = _counts(exchange, cached_tokens) | more
    return event({**head, "choices": [], "usage": counts, "system_fingerprint": exchange.fingerprint}), DONE


def _whole(
    exchange: Exchange,
    head: dict[str, Any],
    choice: dict[str, Any],
    cached_tokens: int,
    *,
    details: dict[str, int] | None = None,
    prompt: Mapping[str, object] = MappingProxyType({}),
) -> bytes:
    return msgspec.json.encode(
        {
            **head,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": exchange.fingerprint,
            "usage": _counts(exchange, cached_tokens) | {"completion_tokens_details": details},
            **prompt,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


def _counts(exchange: Exchange, cached_tokens: int) -> dict[str, Any]:
    return usage(exchange.prompt_tokens, len(exchange.script.pieces)) | {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
