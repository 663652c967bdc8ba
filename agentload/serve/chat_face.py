"""Speak `/v1/chat/completions`: the chunks and bodies of vLLM 0.32, field by field."""

from __future__ import annotations

from typing import Any

import msgspec

from agentload.serve.exchange import Exchange
from agentload.serve.script import Part, alternative, logprob
from agentload.serve.wire import DONE, event, usage


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
        fields = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._wanted.continuous_usage:
            fields["usage"] = self._running_usage(stop)
        if ended and not self._wanted.include_usage:
            fields["system_fingerprint"] = self._exchange.fingerprint
        return event(fields)

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the usage chunk, if it was asked for, and the end mark."""
        if not self._wanted.include_usage:
            return (DONE,)
        counts = usage(self._exchange.prompt_tokens, len(self._script.pieces)) | {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
        if details := self._completion_details():
            counts["completion_tokens_details"] = details
        head = self._head("chat.completion.chunk")
        return event({**head, "choices": [], "usage": counts, "system_fingerprint": self._exchange.fingerprint}), DONE

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
        counts = usage(self._exchange.prompt_tokens, len(script.pieces)) | {
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": self._completion_details(),
        }
        return msgspec.json.encode(
            {
                **self._head("chat.completion"),
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": self._exchange.fingerprint,
                "usage": counts,
                "prompt_logprobs": None,
                "prompt_token_ids": self._exchange.prompt_ids,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

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
        return {"content": [{**self._logprob(index, 0), "top_logprobs": self._top(index, ranks)} for index in range(first, stop)]}

    def _top(self, index: int, ranks: int) -> list[dict[str, Any]]:
        return [self._logprob(index, rank) for rank in range(ranks)]

    def _logprob(self, index: int, rank: int) -> dict[str, Any]:
        token = alternative(self._script, index, rank=rank)
        return {"token": token, "logprob": logprob(self._script, index, rank=rank), "bytes": list(token.encode())}
