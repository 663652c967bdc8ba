"""Write the chunks and bodies of `/v1/chat/completions` and `/v1/completions`, framed as events.

They equal those of vLLM 0.32 field by field.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final

import msgspec

from agentload.emulator.logprobs import Listed
from agentload.model.record import Record
from agentload.serve.script import Script, ScriptPart
from agentload.serve.wanted import Wanted, token_id

DONE: Final = b"data: [DONE]\n\n"

_TAIL: Final = (
    b'","logprobs":null,"finish_reason":null,"stop_reason":null,'
    b'"prompt_token_ids":null,"token_ids":null}]}\n\n'
)


def chunk(payload: bytes) -> bytes:
    """Frame bytes as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(value: object) -> bytes:
    """Encode one event as compact JSON, its fields in the order given."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the counts that every usage object starts with."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


class ServedRequest(Record):
    """Hold what both faces need to know of a request and its answer."""

    id: str
    """Id with the prefix of its face: `chatcmpl-…` or `cmpl-…`."""
    created: int
    """Wall clock, in seconds."""
    model: str
    fingerprint: str
    wanted: Wanted
    script: Script
    prompt_tokens: int
    prompt_ids: tuple[int, ...] | None = None
    """Token ids of the prompt; only when the client asked for them."""
    prompt_logprobs: tuple[Listed, ...] | None = None
    """Log probabilities at each token of the prompt but the first.

    Each list starts with the token itself; only when the client asked for them.
    """


class Face(ABC):
    """Turn one exchange into bytes; tokens are counted from 0.

    Events are ready to be framed as chunks.
    """

    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, exchange: ServedRequest) -> None:
        self._exchange = exchange
        self._script = exchange.script
        self._wanted = exchange.wanted
        self._head = {
            "id": exchange.id,
            "object": self.chunk_object,
            "created": exchange.created,
            "model": exchange.model,
        }
        # Without extras a stream takes a faster path.
        self._is_plain = (
            self._wanted.top_logprobs is None
            and not self._wanted.token_ids
            and not self._wanted.continuous_usage
        )

    @abstractmethod
    def opening(self) -> bytes:
        """Return the event before the first token, which leaves together with that token."""

    @abstractmethod
    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries tokens *first* to *stop* - 1."""

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the events after the last token: usage, if asked for, and the end mark."""
        if not self._wanted.include_usage:
            return (DONE,)
        details = self._thoughts(len(self._script.pieces))
        counts = self._counts(cached_tokens) | (
            {"completion_tokens_details": details} if details else {}
        )
        return event(
            {
                **self._head,
                "choices": [],
                "usage": counts,
                "system_fingerprint": self._exchange.fingerprint,
            }
        ), DONE

    def whole(self, cached_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        details = self._thoughts(len(self._script.pieces))
        return msgspec.json.encode(
            {
                **self._head,
                "object": self.whole_object,
                "choices": [self._choice()],
                "service_tier": None,
                "system_fingerprint": self._exchange.fingerprint,
                "usage": self._counts(cached_tokens) | {"completion_tokens_details": details},
                **self._prompt(),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    @abstractmethod
    def _choice(self) -> dict[str, Any]:
        """Return the choice of an answer that is not streamed."""

    def _prompt(self) -> dict[str, Any]:
        return {}

    # Chats override this and use the parameter.
    def _thoughts(self, completion_tokens: int) -> dict[str, int] | None:  # noqa: ARG002
        return None

    def _event(self, choice: dict[str, Any], stop: int) -> bytes:
        fields: dict[str, Any] = {**self._head, "choices": [choice]}
        if self._wanted.continuous_usage:
            fields["usage"] = self._running_usage(stop)
        if stop == len(self._script.pieces) and not self._wanted.include_usage:
            fields["system_fingerprint"] = self._exchange.fingerprint
        return event(fields)

    def _running_usage(self, completion_tokens: int) -> dict[str, Any]:
        counts = usage(self._exchange.prompt_tokens, completion_tokens)
        return counts | {"completion_tokens_details": self._thoughts(completion_tokens)}

    def _counts(self, cached_tokens: int) -> dict[str, Any]:
        counts = usage(self._exchange.prompt_tokens, len(self._script.pieces))
        return counts | {"prompt_tokens_details": {"cached_tokens": cached_tokens}}


class ChatFace(Face):
    """Turn one exchange into the bytes of a chat completion."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, exchange: ServedRequest) -> None:
        super().__init__(exchange)
        self._start = (
            b"data: " + msgspec.json.encode(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        )
        self._is_plain = self._is_plain and [part.kind for part in self._script.parts] == [
            "content"
        ]

    def opening(self) -> bytes:
        """Return the role chunk."""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        running = {"usage": self._running_usage(0)} if self._wanted.continuous_usage else {}
        return event(
            {
                **self._head,
                "choices": [choice],
                **running,
                "prompt_token_ids": self._exchange.prompt_ids,
                "prompt_text": None,
            }
        )

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries tokens *first* to *stop* - 1."""
        ended = stop == len(self._script.pieces)
        if self._is_plain:
            text = b"".join(self._script.escaped[first:stop])
            tail = self._end() if ended else b'"finish_reason":null,"token_ids":null}]}\n\n'
            return b'%b{"content":"%b"},"logprobs":null,%b' % (self._start, text, tail)
        choice: dict[str, Any] = {
            "index": 0,
            "delta": self._delta(first, stop),
            "logprobs": self._logprobs(first, stop),
        }
        choice |= (
            {"finish_reason": self._finish(), "stop_reason": self._script.stop_reason}
            if ended
            else {"finish_reason": None}
        )
        choice["token_ids"] = self._script.ids[first:stop] if self._wanted.token_ids else None
        return self._event(choice, stop)

    def _choice(self) -> dict[str, Any]:
        script = self._script
        return {
            "index": 0,
            "message": self._message(),
            "logprobs": self._logprobs(0, len(script.pieces)),
            "finish_reason": self._finish(),
            "stop_reason": script.stop_reason,
            "token_ids": script.ids if self._wanted.token_ids else None,
            "routed_experts": None,
        }

    def _prompt(self) -> dict[str, Any]:
        return {
            "prompt_logprobs": _scored(self._exchange),
            "prompt_token_ids": self._exchange.prompt_ids,
            "prompt_text": None,
        }

    def _thoughts(self, completion_tokens: int) -> dict[str, int] | None:
        total = self._script.reasoning_tokens
        return {"reasoning_tokens": min(total, completion_tokens)} if total else None

    def _end(self) -> bytes:
        choice = {
            "finish_reason": self._finish(),
            "stop_reason": self._script.stop_reason,
            "token_ids": None,
        }
        mark = (
            b""
            if self._wanted.include_usage
            else b',"system_fingerprint":' + msgspec.json.encode(self._exchange.fingerprint)
        )
        return msgspec.json.encode(choice)[1:] + b"]" + mark + b"}\n\n"

    def _finish(self) -> str:
        # As in vLLM: a call of a tool that the client named ends with "stop", any other with
        # "tool_calls".
        named = self._wanted.tool_choice not in (None, "none", "auto", "required")
        if named and self._script.finish == "tool_calls":
            return "stop"
        return self._script.finish

    def _delta(self, first: int, stop: int) -> dict[str, Any]:
        delta: dict[str, Any] = {}
        call = -1
        for start, part in zip(self._script.starts, self._script.parts, strict=False):
            call += part.kind == "call"
            begin = max(first - start, 0)
            end = min(stop - start, len(part.pieces))
            if begin >= end:
                continue
            text = "".join(part.pieces[begin:end])
            if part.kind == "call":
                delta.setdefault("tool_calls", []).append(
                    self._call_delta(part, call, text, is_first=begin == 0)
                )
            else:
                delta[part.kind] = delta.get(part.kind, "") + text
        return delta

    def _call_delta(
        self, part: ScriptPart, index: int, text: str, *, is_first: bool
    ) -> dict[str, Any]:
        if is_first:
            function = {"name": part.name, "arguments": text}
            return {
                "id": self._call_id(index),
                "type": "function",
                "index": index,
                "function": function,
            }
        return {"index": index, "function": {"arguments": text}}

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self._script.text("content"),
            "refusal": None,
        }
        message |= {"annotations": None, "audio": None, "function_call": None}
        calls = [part for part in self._script.parts if part.kind == "call"]
        if calls:
            message["tool_calls"] = [
                {
                    "id": self._call_id(index),
                    "type": "function",
                    "function": {"name": part.name, "arguments": part.text},
                }
                for index, part in enumerate(calls)
            ]
        message["reasoning"] = self._script.text("reasoning")
        return message

    def _call_id(self, index: int) -> str:
        return f"chatcmpl-tool-{self._exchange.id.removeprefix('chatcmpl-')}-{index}"

    def _logprobs(self, first: int, stop: int) -> dict[str, Any] | None:
        ranks = self._wanted.top_logprobs
        if ranks is None:
            return None
        listed = self._script.listed[first:stop]
        return {
            "content": [
                {**_logprob(*row[0]), "top_logprobs": [_logprob(*each) for each in row[:ranks]]}
                for row in listed
            ]
        }


def _logprob(token: str, value: float) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode())}


class CompletionsFace(Face):
    """Turn one exchange into the bytes of a text completion."""

    whole_object = chunk_object = "text_completion"

    def __init__(self, exchange: ServedRequest) -> None:
        super().__init__(exchange)
        self._start = (
            b"data: " + msgspec.json.encode(self._head)[:-1] + b',"choices":[{"index":0,"text":"'
        )

    def opening(self) -> bytes:
        """Return nothing: a completion starts with its first token."""
        return b""

    def tokens(self, first: int, stop: int) -> bytes:
        """Return the one event that carries tokens *first* to *stop* - 1."""
        ended = stop == len(self._script.pieces)
        if self._is_plain and not ended:
            return b"%b%b%b" % (self._start, b"".join(self._script.escaped[first:stop]), _TAIL)
        more = {
            "prompt_token_ids": self._exchange.prompt_ids if first == 0 else None,
            "token_ids": self._script.ids[first:stop] if self._wanted.token_ids else None,
        }
        return self._event(self._said(first, stop, ended=ended) | more, stop)

    def _choice(self) -> dict[str, Any]:
        token_ids = self._script.ids if self._wanted.token_ids else None
        more = {
            "token_ids": token_ids,
            "prompt_logprobs": _scored(self._exchange),
            "prompt_token_ids": self._exchange.prompt_ids,
            "routed_experts": None,
        }
        return self._said(0, len(self._script.pieces), ended=True) | more

    def _said(self, first: int, stop: int, *, ended: bool) -> dict[str, Any]:
        return {
            "index": 0,
            "text": "".join(self._script.pieces[first:stop]),
            "logprobs": self._logprobs(first, stop),
            "finish_reason": self._script.finish if ended else None,
            "stop_reason": self._script.stop_reason if ended else None,
        }

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


def _scored(exchange: ServedRequest) -> list[dict[str, Any] | None] | None:
    """Return the prompt's log probabilities as vLLM lists them: None first, then by token id."""
    if exchange.prompt_logprobs is None:
        return None
    return [None, *(_ranked(row) for row in exchange.prompt_logprobs)]


def _ranked(row: Listed) -> dict[str, Any]:
    values = sorted((value for _, value in row), reverse=True)
    return {
        str(token_id(token.strip())): {
            "logprob": value,
            "rank": values.index(value) + 1,
            "decoded_token": token,
        }
        for token, value in row
    }
