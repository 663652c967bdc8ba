"""Read a server's count of tokens, in the words of OpenAI, Anthropic and those who follow them."""

from collections.abc import Mapping
from typing import Any

from agentload.importers.parts.dialogue import Usage


def usage(found: object) -> Usage:
    """Return prompt, output, cached and thinking tokens, as far as they are told."""
    said = found if isinstance(found, dict) else {}
    prompt, output = _count(said, "prompt_tokens", "input_tokens"), _count(said, "completion_tokens", "output_tokens")
    cached = _count(said, "cache_read_input_tokens", "cached_tokens", "prompt_cache_hit_tokens")
    if "cache_read_input_tokens" in said or "cache_creation_input_tokens" in said:
        # Anthropic counts what was cached apart from the input, OpenAI within it.
        prompt = (prompt or 0) + (cached or 0) + (_count(said, "cache_creation_input_tokens") or 0)
    told = _inner(said, "prompt_tokens_details", "input_tokens_details", "input_token_details")
    cached = _count(told, "cached_tokens", "cache_read") if cached is None else cached
    thinking = _count(
        _inner(said, "completion_tokens_details", "output_tokens_details", "output_token_details"), "reasoning_tokens", "reasoning"
    )
    return Usage(prompt=prompt or None, output=output, cached=cached, thinking=thinking)


def _count(said: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        count = said.get(name)
        count = int(count) if isinstance(count, str) and count.isdecimal() else count
        if isinstance(count, int | float) and not isinstance(count, bool) and count >= 0:
            return int(count)
    return None


def _inner(said: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((inner for name in names if isinstance(inner := said.get(name), dict)), {})
