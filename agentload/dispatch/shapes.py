"""The JSON that OpenAI-compatible servers answer with, as
far as we read it: chunks of both streams, and whole answers.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

LARGE: Final = 512 << 10
MOST_PARTS: Final = 200_000  # of objects and lists: some 30 ms of decoding, and 30 MB
MOST_CALLS: Final = 1_000  # of tools, in one event or answer: each is handled by itself
WIDE: Final = 4 << 20  # one character beyond ASCII may make a text four times as large
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
"""Tokens, as many as the database can hold: more are no count."""


class ErrorEvent(bytes):
    """The payload of an event that the server named `error`."""

    __slots__ = ()


class Function(msgspec.Struct, gc=False):
    """What a tool call calls; in a stream, pieces of it."""

    name: str | None = None
    arguments: str | None = None


class ToolPiece(msgspec.Struct, gc=False):
    """A tool call, or in a stream the next piece of the one at `index`."""

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


class Choice(msgspec.Struct, gc=False):
    """One choice: `delta` in a chat stream, `message` in
    a chat answer, `text` in both forms of a completion.
    """

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class Details(msgspec.Struct, gc=False):
    """What a token count is made of."""

    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    """The server's own count."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: Details | None = None
    completion_tokens_details: Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Return how many tokens of the prompt came from the prefix cache, if the server says."""
        return (
            None
            if self.prompt_tokens_details is None or self.contradiction
            else self.prompt_tokens_details.cached_tokens
        )

    @property
    def contradiction(self) -> str | None:
        """Say what about the counts cannot be; None when nothing is."""
        cached = (
            None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens
        )
        if cached is None or self.prompt_tokens is None or cached <= self.prompt_tokens:
            return None
        return f"{cached} tokens of a prompt of {self.prompt_tokens} came from the cache"

    @property
    def thinking_tokens(self) -> int | None:
        """Return how many tokens of the answer were thinking, if the server says."""
        return (
            None
            if self.completion_tokens_details is None
            else self.completion_tokens_details.reasoning_tokens
        )


class Event(msgspec.Struct, gc=False):
    """An event of a stream, or a whole answer.

    `object` is "error" where older servers report one.
    """

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: object = None
    says: str | None = msgspec.field(name="object", default=None)

    @property
    def is_fault(self) -> bool:
        """Tell whether this is an error and no part of an answer."""
        return self.error is not None or self.says == "error"


class CrowdedError(Exception):
    """Decoding this would stop everything else for too long."""


def uncrowded(payload: bytes | bytearray) -> bytes | bytearray:
    """Return a text of JSON that may be decoded at once; raises
    `CrowdedError` for one that takes longer than any answer does.
    """
    # Parts that no comma divides lie in each other, and no deeper than a decoder goes.
    if len(payload) > LARGE and payload.count(b",") > MOST_PARTS:
        raise CrowdedError(f"more than {MOST_PARTS:,} parts")
    if len(payload) > WIDE and not (payload.isascii() and b"\\u" not in payload):
        raise CrowdedError(f"more than {WIDE >> 20} MB that are not ASCII")
    return payload


decode = msgspec.json.Decoder(Event).decode
"""Decode an event; raises one of `UNREADABLE`."""
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, CrowdedError)
