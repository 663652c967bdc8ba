"""Recognise a gateway between us and the server, and what it did to a call.

A gateway may answer from a cache of its own, retry, fall back to another model, or buffer
streams; then the gateway is measured instead of the server. LiteLLM, Portkey, Helicone,
Cloudflare, Kong, ngrok and Envoy say so in headers; `age` is standard HTTP.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

Deed: TypeAlias = Literal["response cache", "fallback", "retry"]
Rule: TypeAlias = Literal["present", "hit", "above 0", "above 1"]

# From the gateways' own pages on response headers. LiteLLM sends its cache key only on a hit.
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
GATEWAYS: Final[Mapping[str, str]] = {
    "x-litellm-version": "LiteLLM",
    "x-litellm-model-id": "LiteLLM",
    "x-portkey-trace-id": "Portkey",
    "helicone-id": "Helicone",
    "cf-ray": "Cloudflare",
    "x-kong-proxy-latency": "Kong",
    "ngrok-aig-request-id": "ngrok",
    "x-envoy-upstream-service-time": "Envoy",
}
"""Headers that every answer through a gateway carries, and the gateway's name."""
WHOLE_TOKENS: Final = 16
"""The fewest tokens of an answer for which a stream differs visibly from one piece."""
WHOLE_SHARE: Final = 0.9
MOST_MODELS: Final = 16
"""Most models counted behind one name: a server may name a new one in every answer."""
MODEL_CHARS: Final = 96


def deed(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return what a gateway did to the call and the header that says so, as `retry (x-…: 2)`.

    *headers* have names in lower case. None where no header says that a gateway interfered.
    """
    for name, value in headers:
        found = HEADERS.get(name)
        if found is not None and _applies(found[1], value.strip()):
            shown = "" if found[1] == "present" else f": {value.strip()[:32]}"
            return f"{found[0]} ({name}{shown})"
    return None


class AnsweringModels:
    """Follow which models answer to each name that is asked for.

    A server may give its model another name than we ask for, but always the same one.
    Expected is the name asked for, once an answer has had it; until then, the most frequent one.
    """

    def __init__(self) -> None:
        self._answers: dict[str, Counter[str]] = {}

    def replaced(self, asked: str, named: str) -> str | None:
        """Note the model that an answer names; return the expected model if it is another."""
        name = shown_model(named)
        answers = self._answers.setdefault(asked, Counter())
        ours = shown_model(asked)
        expected = ours if ours in answers else max(answers, key=answers.__getitem__, default=name)
        if name in answers or name == ours or len(answers) < MOST_MODELS:
            answers[name] += 1
        return None if name == expected else expected


def shown_model(text: str) -> str:
    """Return a model's name on one line; of a long one the end, where variants differ.

    Nothing is masked here: many names of models look like keys.
    """
    line = text[-2 * MODEL_CHARS :]
    if not line.isprintable():
        line = "".join(char if char.isprintable() else " " for char in line)
    if len(text) <= MODEL_CHARS:
        return line
    return f"…{line[1 - MODEL_CHARS :]}"


def gateway(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the gateway that an answer came through, if its headers name one.

    *headers* have names in lower case.
    """
    for name, _ in headers:
        if name in GATEWAYS:
            return GATEWAYS[name]
    return None


def is_in_one_piece(output_tokens: int | None, coalesced_reads: int | None) -> bool:
    """Tell whether a streamed answer arrived as one piece.

    That is: nearly every chunk came in the same read as the chunk before it.
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
