"""What stands between us and the server, by what it does to calls:
answers from a cache of its own, retries, falls back, buffers streams.

A gateway that does so is measured in the server's place. LiteLLM, Portkey, Helicone,
Cloudflare, Kong, ngrok and Envoy say it in headers; all of HTTP says an answer's age.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

Deed: TypeAlias = Literal["response cache", "fallback", "retry"]
Rule: TypeAlias = Literal["present", "hit", "above 0", "above 1"]

# From the gateways' own pages on response headers. LiteLLM sends its cache key on hits alone.
HEADERS: Final[Mapping[str, tuple[Deed, Rule]]] = {
    "x-litellm-cache-key": ("response cache", "present"),
    "x-litellm-attempted-fallbacks": ("fallback", "above 0"),
    "x-litellm-attempted-retries": ("retry", "above 0"),
    "x-portkey-cache-status": ("response cache", "hit"),
    "x-portkey-retry-attempt-count": ("retry", "above 0"),
    "helicone-cache": ("response cache", "hit"),
    "cf-aig-cache-status": ("response cache", "hit"),
    "cf-cache-status": ("response cache", "hit"),
    "x-openrouter-cache-status": ("response cache", "hit"),
    "x-cache-status": ("response cache", "hit"),
    "x-cache": ("response cache", "hit"),
    "age": ("response cache", "above 0"),  # RFC 9111, section 5.1: seconds since the origin said it
    "ngrok-aig-attempts": ("retry", "above 1"),
    "x-envoy-attempt-count": ("retry", "above 1"),
}
PRESENT: Final[Mapping[str, str]] = {
    "x-litellm-version": "LiteLLM",
    "x-litellm-model-id": "LiteLLM",
    "x-portkey-trace-id": "Portkey",
    "helicone-id": "Helicone",
    "cf-ray": "Cloudflare",
    "x-kong-proxy-latency": "Kong",
    "ngrok-aig-request-id": "ngrok",
    "x-envoy-upstream-service-time": "Envoy",
}
"""What answers of any kind through a gateway carry."""
WHOLE_TOKENS: Final = 16
"""Of an answer that is long enough for its stream to be told from one piece."""
WHOLE_SHARE: Final = 0.9


def deed(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return what a gateway did to the call and the header that says
    so, as `retry (x-…: 2)`; names of headers are in lower case.
    """
    for name, value in headers:
        if (found := HEADERS.get(name)) is not None and _applies(found[1], value.strip()):
            shown = "" if found[1] == "present" else f": {value.strip()[:32]}"
            return f"{found[0]} ({name}{shown})"
    return None


def gateway(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the gateway that an answer came through,
    where its headers tell; names in lower case.
    """
    return next((PRESENT[name] for name, _ in headers if name in PRESENT), None)


def is_in_one_piece(output_tokens: int | None, coalesced_reads: int | None) -> bool:
    """Tell whether a streamed answer arrived as a whole:
    nearly every chunk in one read with the chunk before it.
    """
    if output_tokens is None or coalesced_reads is None or output_tokens < WHOLE_TOKENS:
        return False
    return coalesced_reads >= WHOLE_SHARE * (output_tokens - 1)


def _applies(rule: Rule, value: str) -> bool:
    match rule:
        case "present":
            return bool(value) and value.lower() != "none"
        case "hit":
            return "hit" in value.lower().replace(",", " ").split()
        case "above 0":
            return value.isdecimal() and bool(value.strip("0"))
        case "above 1":
            return value.isdecimal() and value.lstrip("0") not in {"", "1"}
