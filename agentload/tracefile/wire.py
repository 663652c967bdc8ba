"""Define the lines of a trace file as msgspec types, the source of docs/trace.schema.json.

An absent field has its default, mostly None or empty. These types only read lines: `codec` writes
them by itself, and keeps the unknown fields of objects.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

KIND: Final = "agentload-trace"
VERSION: Final = 1

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Ref: TypeAlias = Annotated[
    tuple[str, Annotated[int, Meta(ge=-1)]],
    Meta(description="A turn: [session, index]; -1 is the last one."),
]
Key: TypeAlias = Annotated[
    str | tuple[int, int],
    Meta(
        description="Identity of the content: equal keys give equal bytes. "
        "[first, count] is a run of imported blocks."
    ),
]


class JsonOptions(Struct, rename={"source": "from"}, omit_defaults=True):
    """Options of a segment besides role, tokens and key."""

    source: Ref | None = None
    plant: (
        Annotated[str, Meta(description="A fact written into the text in place of as many tokens.")]
        | None
    ) = None
    at: (
        Annotated[
            float, Meta(ge=0, le=1, description="Position of the plant: 0 is the start, 1 the end.")
        ]
        | None
    ) = None
    text: (
        Annotated[str, Meta(description="Literal text instead of text drawn from the key.")] | None
    ) = None


class JsonSegment(Struct, array_like=True):
    """A piece of context: [role, tokens, key, options?]; an image's tokens are [width, height]."""

    role: Literal["system", "user", "assistant", "tool", "tools", "image"]
    # Bounds are checked by `codec`: msgspec 0.22 corrupts memory
    # on a union of a bounded integer with a tuple of fixed length.
    tokens: int | tuple[int, int]
    key: Key
    options: JsonOptions | None = None


class JsonCheck(Struct, omit_defaults=True):
    """A check of the answer, of exactly one kind."""

    has: str | None = None
    matches: Annotated[str, Meta(description="A regular expression.")] | None = None
    number: Annotated[float, Meta(description="The last number of the answer.")] | None = None
    tolerance: Annotated[float, Meta(ge=0, description="Tolerance of number.")] | None = None
    json: (
        Annotated[dict[str, Any], Meta(description="A JSON Schema that accepts the answer.")] | None
    ) = None
    tool: Annotated[str, Meta(description="The name of the tool to call.")] | None = None
    arguments: (
        Annotated[
            dict[str, Any],
            Meta(description="With tool: the least arguments it must be called with."),
        ]
        | None
    ) = None
    equals: str | None = None
    length: (
        Annotated[tuple[Count, Count | None], Meta(description="[at least, at most] tokens.")]
        | None
    ) = None


class JsonRecorded(Struct, omit_defaults=True):
    """Recorded timings, for comparison only."""

    ttft_s: Seconds | None = None
    api_s: Seconds | None = None
    output: Count | None = None
    cached: Count | None = None
    start_s: (
        Annotated[
            Seconds, Meta(description="When it was sent, on the axis of a session's start_s.")
        ]
        | None
    ) = None


class JsonTurn(Struct, omit_defaults=True):
    """One model call: due when the turn before it and every `after` are complete, plus `wait_s`."""

    add: Annotated[tuple[JsonSegment, ...], Meta(description="What this turn adds to the context.")]
    output: Annotated[
        int, Meta(ge=0, description="Tokens of the answer, forced unless the history is live.")
    ]
    wait: Literal["tool", "user", "schedule"] | None = None
    wait_s: Seconds = 0.0
    after: Annotated[
        tuple[Ref, ...], Meta(description="Turns of other sessions that must be complete too.")
    ] = ()
    spawn: Annotated[
        tuple[str, ...], Meta(description="Sessions that start when this turn is complete.")
    ] = ()
    keep: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="How many leading segments of the previous "
                "context stay; all if absent.",
            ),
        ]
        | None
    ) = None
    check: tuple[JsonCheck, ...] = ()
    event: Annotated[str, Meta(description="A label, such as compact.")] | None = None
    model: (
        Annotated[str, Meta(description="An alias that endpoints map to one of their models.")]
        | None
    ) = None
    deadline_s: Annotated[Seconds, Meta(description="From due to the last token.")] | None = None
    thinking: (
        Annotated[int, Meta(ge=0, description="How many of the output tokens are thinking.")] | None
    ) = None
    asks: Annotated[
        dict[str, Any],
        Meta(
            description="Further fields of the request, such as tool_choice, response_format, "
            "reasoning_effort."
        ),
    ] = {}
    recorded: JsonRecorded | None = None
    context: (
        Annotated[
            int,
            Meta(
                ge=0,
                description="Recorded prompt tokens; trace check compares the context with them.",
            ),
        ]
        | None
    ) = None


class JsonSession(Struct, omit_defaults=True):
    """One agent conversation; without `start_s` it is spawned by another session's turn."""

    session: Annotated[str, Meta(min_length=1)]
    workload: str
    turns: Annotated[tuple[JsonTurn, ...], Meta(min_length=1)]
    start_s: Seconds | None = None
    prefix: (
        Annotated[
            str, Meta(description="Name of the header's prefix that the context starts with.")
        ]
        | None
    ) = None


class JsonHeader(Struct, omit_defaults=True):
    """The first line."""

    kind: Literal["agentload-trace"]
    version: Literal[1]
    name: str
    seed: int = 0
    block: Annotated[int, Meta(ge=1, description="Tokens of a block of an imported run.")] = 64
    tokenizer: str | None = None
    prefixes: dict[str, tuple[JsonSegment, ...]] = {}
    source: Annotated[dict[str, Any], Meta(description="The origin of the trace.")] = {}
