"""The lines of a trace file as types: what msgspec reads, and what the JSON Schema is made from.

`python -m agentload.tracefile.wire > docs/trace.schema.json` writes that.

A field that is absent is None, or empty; unknown fields are allowed in objects and kept by `decode`.
"""

import sys
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

KIND: Final = "agentload-trace"
VERSION: Final = 1

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Ref: TypeAlias = Annotated[tuple[str, Annotated[int, Meta(ge=-1)]], Meta(description="A turn: [session, index]; -1 is the last one.")]
Key: TypeAlias = Annotated[
    str | tuple[int, int],
    Meta(description="Identity of the content: equal keys give equal bytes. [first, count] is a run of imported blocks."),
]


class Options(Struct, rename={"source": "from"}, omit_defaults=True):
    """What a segment may say beside role, tokens and key."""

    source: Ref | None = None
    plant: Annotated[str, Meta(description="A fact written into the text, in the place of as many tokens.")] | None = None
    at: Annotated[float, Meta(ge=0, le=1, description="Where the plant stands: 0 is the start, 1 the end.")] | None = None
    text: Annotated[str, Meta(description="Literal text instead of text made from the key.")] | None = None


class Segment(Struct, array_like=True):
    """A piece of context: [role, tokens, key, options?]; an image has its width and height in the place of tokens."""

    role: Literal["system", "user", "assistant", "tool", "tools", "image"]
    # Bounds are checked by `decode`: msgspec 0.22 corrupts memory on a union of a bounded integer with a tuple of fixed length.
    tokens: int | tuple[int, int]
    key: Key
    options: Options | None = None


class Check(Struct, omit_defaults=True):
    """What the answer is checked for; exactly one kind."""

    has: str | None = None
    matches: Annotated[str, Meta(description="A regular expression.")] | None = None
    number: Annotated[float, Meta(description="The last number of the answer.")] | None = None
    tolerance: Annotated[float, Meta(ge=0, description="Beside number.")] | None = None
    json: Annotated[dict[str, Any], Meta(description="A JSON Schema that accepts the answer.")] | None = None
    tool: Annotated[str, Meta(description="The name of the tool that is called.")] | None = None
    arguments: Annotated[dict[str, Any], Meta(description="Beside tool: what it is called with, at least.")] | None = None
    equals: str | None = None
    length: Annotated[tuple[Count, Count | None], Meta(description="[at least, at most] tokens.")] | None = None


class Recorded(Struct, omit_defaults=True):
    """Timings where the turn was recorded, for comparison only."""

    ttft_s: Seconds | None = None
    api_s: Seconds | None = None
    output: Count | None = None
    cached: Count | None = None
    start_s: Annotated[Seconds, Meta(description="When it was sent, on the axis of the sessions' start_s.")] | None = None


class Turn(Struct, omit_defaults=True):
    """One model call: due when the turn before it and every `after` are complete, plus `wait_s`."""

    add: Annotated[tuple[Segment, ...], Meta(description="What this turn adds to the context.")]
    output: Annotated[int, Meta(ge=0, description="Tokens of the answer, forced unless the history is live.")]
    wait: Literal["tool", "user", "schedule"] | None = None
    wait_s: Seconds = 0.0
    after: Annotated[tuple[Ref, ...], Meta(description="Turns of other sessions that must be complete too.")] = ()
    spawn: Annotated[tuple[str, ...], Meta(description="Sessions that start when this turn is complete.")] = ()
    keep: Annotated[int, Meta(ge=0, description="Leading segments of the context before that stay; all if absent.")] | None = None
    check: tuple[Check, ...] = ()
    event: Annotated[str, Meta(description="A label, such as compact.")] | None = None
    model: Annotated[str, Meta(description="An alias that an endpoint maps to one of its models.")] | None = None
    deadline_s: Annotated[Seconds, Meta(description="From due to the last token.")] | None = None
    thinking: Annotated[int, Meta(ge=0, description="How many of the output tokens are thinking.")] | None = None
    recorded: Recorded | None = None
    context: Annotated[int, Meta(ge=0, description="Prompt tokens where it was recorded.")] | None = None


class Session(Struct, omit_defaults=True):
    """One agent conversation; without `start_s` it is spawned by a turn of another."""

    session: Annotated[str, Meta(min_length=1)]
    workload: str
    turns: Annotated[tuple[Turn, ...], Meta(min_length=1)]
    start_s: Seconds | None = None
    prefix: Annotated[str, Meta(description="Name of one of the header's prefixes: what the context starts with.")] | None = None


class Header(Struct, omit_defaults=True):
    """The first line."""

    kind: Literal["agentload-trace"]
    version: Literal[1]
    name: str
    seed: int = 0
    block: Annotated[int, Meta(ge=1, description="Tokens of a block of an imported run.")] = 64
    tokenizer: str | None = None
    prefixes: dict[str, tuple[Segment, ...]] = {}
    source: Annotated[dict[str, Any], Meta(description="Where the trace comes from.")] = {}


def schema() -> bytes:
    """Return the schema of a line, made from the types that read it."""
    (header, session), parts = msgspec.json.schema_components((Header, Session), ref_template="#/$defs/{name}")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{KIND}/{VERSION}",
        "description": "A line of a trace file: the first is a Header, every other one a Session. Unknown fields are kept.",
        "oneOf": [header, session],
        "$defs": parts,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(schema())
