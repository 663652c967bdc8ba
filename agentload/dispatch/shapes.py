"""Describe the JSON that OpenAI-compatible servers answer with, as far as agentload reads it.

Covers the chunks of both kinds of stream, and whole answers.
"""

import re
from typing import Annotated, Final, TypeAlias

import msgspec

# Decoding holds the interpreter, also in a thread: each bound below stands for some 10 ms.
LARGE: Final = 32 << 10  # shorter texts are decoded unseen
MOST_EVENT: Final = 2 << 20
MOST_PARTS: Final = 200_000  # members of objects and lists
MOST_OBJECTS: Final = 100_000
MOST_NESTED: Final = 20_000  # objects and lists of an error, which may have any form
MOST_CALLS: Final = 1_000  # tool calls in one event or answer: each is handled separately
# One character beyond ASCII may make a decoded text four times as large; escapes take time.
WIDE: Final = 4 << 20
# No string of JSON holds this text unescaped.
_PROMPT_IDS: Final = re.compile(rb'"prompt_token_ids"\s*:\s*\[')
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""A number of tokens that fits the database's column; a larger one is no count."""


class ErrorEvent(bytes):
    """The payload of an event that the server named `error`."""

    __slots__ = ()


class Function(msgspec.Struct, gc=False):
    """The function that a tool call names; in a stream, pieces of its name and arguments."""

    name: str | None = None
    arguments: str | None = None


class ToolPiece(msgspec.Struct, gc=False):
    """A tool call; in a stream, the next piece of the tool call at `index`."""

    index: int | None = None
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to the message, or a whole message.

    vLLM calls thinking `reasoning`, others `reasoning_content`.
    """

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolPiece], msgspec.Meta(max_length=MOST_CALLS)] | None = None


class AnswerChoice(msgspec.Struct, gc=False):
    """One choice of an answer.

    Its text is in `delta` in a chat stream, in `message` in a whole chat answer, and in `text` in
    both forms of a completion.
    """

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class Details(msgspec.Struct, gc=False):
    """The parts of a token count."""

    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class TokenUsage(msgspec.Struct, gc=False):
    """The server's own token counts."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        """How many prompt tokens came from the prefix cache; None if the server does not say."""
        if self.prompt_tokens_details is None or self.contradiction:
            return None
        return self.prompt_tokens_details.cached_tokens

    @property
    def contradiction(self) -> str | None:
        """What about the counts is impossible; None when nothing is."""
        if self.prompt_tokens_details is None:
            cached = None
        else:
            cached = self.prompt_tokens_details.cached_tokens
        if cached is None or self.prompt_tokens is None or cached <= self.prompt_tokens:
            return None
        return f"{cached} tokens of a prompt of {self.prompt_tokens} came from the cache"

    @property
    def thinking_tokens(self) -> int | None:
        """How many tokens of the answer were thinking; None if the server does not say."""
        if self.completion_tokens_details is None:
            return None
        return self.completion_tokens_details.reasoning_tokens


_NONE: Final = msgspec.Raw()


class Event(msgspec.Struct, gc=False):
    """An event of a stream, or a whole answer.

    `object` is "error" where older servers report one.
    """

    choices: list[AnswerChoice] | None = None
    usage: TokenUsage | None = None
    error: msgspec.Raw = _NONE
    """JSON of any form, to be decoded within its own bounds."""
    says: str | None = msgspec.field(name="object", default=None)

    @property
    def is_fault(self) -> bool:
        """Whether this event is an error and no part of an answer."""
        has_error = self.error is not _NONE and bytes(self.error) != b"null"
        return has_error or self.says == "error"


class CrowdedError(Exception):
    """Decoding this text would block everything else for too long."""


def decodable(payload: bytes | bytearray, *, most_bytes: int = WIDE << 2) -> bytes | bytearray:
    """Return JSON text that can be decoded in one step, without the prompt's token ids.

    Raises `CrowdedError` if decoding would take longer than any real answer needs.
    """
    if len(payload) < LARGE:
        return payload
    if found := _PROMPT_IDS.search(payload, 0, MOST_EVENT):  # a million of them take 12 ms
        at = found.end()
        payload = payload[:at] + payload[max(at, payload.find(b"]", at)) :]
    if len(payload) > most_bytes:
        raise CrowdedError(f"more than {most_bytes >> 20} MB")
    if payload.count(b",") > MOST_PARTS or payload.count(b"{") > MOST_OBJECTS:
        raise CrowdedError(f"more than {MOST_PARTS:,} parts or {MOST_OBJECTS:,} objects")
    if len(payload) > WIDE and not (payload.isascii() and b"\\" not in payload):
        raise CrowdedError(f"more than {WIDE >> 20} MB that are not ASCII, or have escapes")
    return payload


def decodable_error(payload: bytes | bytearray) -> bytes | bytearray:
    """Return `decodable` text of an error, which may have any form; raises `CrowdedError`."""
    found = decodable(payload, most_bytes=MOST_EVENT)
    if found.count(b"{") + found.count(b"[") > MOST_NESTED:
        raise CrowdedError(f"more than {MOST_NESTED:,} objects and lists")
    return found


decode = msgspec.json.Decoder(Event).decode
"""Decode an event; raises one of `UNREADABLE`."""


class _Named(msgspec.Struct, gc=False):
    model: str | None = None


_named = msgspec.json.Decoder(_Named).decode


def model_name(payload: bytes | bytearray) -> str | None:
    """Return the model that an event names, if it names one; raises one of `UNREADABLE`."""
    return _named(payload).model if payload else None


UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, CrowdedError)
