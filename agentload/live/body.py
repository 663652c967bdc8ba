"""The body of a request, joined from bytes that were rendered before: half a megabyte of prompt is neither decoded nor copied."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agentload.replay.counting import Counting


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What is asked for beside the prompt."""

    model: str
    max_tokens: int
    is_forced: bool = True
    """Make the server generate exactly `max_tokens`, whatever the model would say."""
    is_streamed: bool = True
    counting: Counting = "token_ids"
    temperature: float = 0.0
    seed: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    """Further fields of the body; they win over ours."""


def chat(messages: bytes, *, tools: bytes | None = None, sampling: Sampling) -> tuple[bytes, ...]:
    """Return the pieces of a chat completion's body; *messages* and *tools* are JSON."""
    if tools is None:
        return (_options(sampling), b',"messages":', messages, b"}")
    return (_options(sampling), b',"tools":', tools, b',"messages":', messages, b"}")


def completion(prompt: bytes | Sequence[int], *, sampling: Sampling) -> tuple[bytes, ...]:
    """Return the pieces of a text completion's body; *prompt* is JSON, or token ids."""
    rendered = prompt if isinstance(prompt, bytes) else msgspec.json.encode(prompt)
    return (_options(sampling), b',"prompt":', rendered, b"}")


def prompt_hash(*fragments: bytes | None) -> str:
    """Name a prompt by its rendered pieces: equal for all arms that got the same bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for fragment in fragments:
        content = fragment or b""
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.hexdigest()


def _options(sampling: Sampling) -> bytes:
    fields: dict[str, object] = {"model": sampling.model, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    if sampling.is_forced:
        # Both: `ignore_eos` keeps the end token out of play, `min_tokens` keeps stop strings out.
        fields |= {"ignore_eos": True, "min_tokens": sampling.max_tokens}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.is_streamed:
        usage = {"include_usage": True}
        if sampling.counting == "running_usage":
            usage["continuous_usage_stats"] = True
        fields |= {"stream": True, "stream_options": usage}
    if sampling.counting == "token_ids":
        fields["return_token_ids"] = True
    return msgspec.json.encode(fields | dict(sampling.extra))[:-1]
