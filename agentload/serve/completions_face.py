"""Speak `/v1/completions`: the chunks and bodies of vLLM 0.32, field by field."""

from __future__ import annotations

from typing import Any

import msgspec

from agentload.serve.exchange import Exchange
from agentload.serve.script import alternative, logprob
from agentload.serve.wire import DONE, event, usage


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
        fields = {**self._head(), "choices": [choice]}
        if self._wanted.continuous_usage:
            fields["usage"] = usage(self._exchange.prompt_tokens, stop) | {"completion_tokens_details": None}
        if ended and not self._wanted.include_usage:
            fields["system_fingerprint"] = self._exchange.fingerprint
        return event(fields)

    def closing(self, cached_tokens: int) -> tuple[bytes, ...]:
        """Return the usage chunk, if it was asked for, and the end mark."""
        if not self._wanted.include_usage:
            return (DONE,)
        counts = usage(self._exchange.prompt_tokens, len(self._script.pieces)) | {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
        return event({**self._head(), "choices": [], "usage": counts, "system_fingerprint": self._exchange.fingerprint}), DONE

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
            "prompt_logprobs": None,
            "prompt_token_ids": self._exchange.prompt_ids,
            "routed_experts": None,
        }
        counts = usage(self._exchange.prompt_tokens, len(script.pieces)) | {
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": None,
        }
        return msgspec.json.encode(
            {
                **self._head(),
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": self._exchange.fingerprint,
                "usage": counts,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

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
            "token_logprobs": [logprob(script, index) for index in range(first, stop)],
            "tokens": script.pieces[first:stop],
            # At least the token itself, as vLLM lists it.
            "top_logprobs": [
                {alternative(script, index, rank=rank): logprob(script, index, rank=rank) for rank in range(max(ranks, 1))}
                for index in range(first, stop)
            ],
        }
