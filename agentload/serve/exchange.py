"""Hold one request together with the answer it will get: all that the bytes of the answer depend on."""

from __future__ import annotations

from dataclasses import dataclass

from agentload.serve.script import Script
from agentload.serve.wanted import Wanted


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
