"""Group the segments of a context into chat messages.

Consecutive segments of one role share a message, because several chat templates refuse two messages of a role in a row. Tool results
answer the assistant message right before them, which gets one tool call for each. A result without such a message (its call was
compacted away) becomes user text, since servers refuse results without a call.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from agentload.model.trace import Key, Role, Segment
from agentload.prompts.words import WIDTH, WORDS

Speaker: TypeAlias = Literal["system", "user", "assistant", "tool"]
_ASSISTANT: Final[frozenset[Role]] = frozenset({"assistant"})
_TOOL: Final[frozenset[Role]] = frozenset({"tool"})
_SYSTEM: Final[frozenset[Role]] = frozenset({"system"})
_USER: Final[frozenset[Role]] = frozenset({"user", "image", "tool"})
_SCHEMA_WORDS: Final = 600
"""About the mean of OpenClaw's schemas: 8.0k tokens for some 14 tools (its docs/concepts/context.md)."""
_SEGMENT_TOOLS: Final = 64
"""Maximum tools in one segment; up to four such segments in a context have distinct names."""


class Message(NamedTuple):
    """A chat message and its segments."""

    role: Speaker
    segments: tuple[Segment, ...]
    results: tuple[Segment, ...] = ()
    """The tool results after an assistant's message."""
    position: int = 0
    """Which of the calls a tool's message answers."""


def messages(context: Sequence[Segment]) -> Iterator[Message]:
    """Yield the messages of a context in order, without tool schemas."""
    spoken = [segment for segment in context if segment.role != "tools"]
    at = 0
    while at < len(spoken):
        match spoken[at].role:
            case "assistant":
                end = _run(spoken, at, _ASSISTANT)
                last = _run(spoken, end, _TOOL)
                results = tuple(spoken[end:last])
                yield Message("assistant", tuple(spoken[at:end]), results)
                yield from (Message("tool", (result,), position=position) for position, result in enumerate(results))
                at = last
            case "system":
                end = _run(spoken, at, _SYSTEM)
                yield Message("system", tuple(spoken[at:end]))
                at = end
            case _:  # a tool result here has no call before it
                end = _run(spoken, at, _USER)
                yield Message("user", tuple(spoken[at:end]))
                at = end


def _run(spoken: Sequence[Segment], start: int, roles: frozenset[Role]) -> int:
    end = start
    while end < len(spoken) and spoken[end].role in roles:
        end += 1
    return end


def schema_count(tokens: int) -> int:
    """Return how many tools a schema segment of this length describes."""
    return min(_SEGMENT_TOOLS, max(1, round(tokens / _SCHEMA_WORDS)))


def schemas(words: bytes, tools: int, *, position: int) -> bytes:
    """Write the schemas of `tools` tools with these words as descriptions; `position` makes names of several segments distinct."""
    count = len(words) // WIDTH
    cuts = [WIDTH * (count * tool // tools) for tool in range(tools + 1)]
    return b",".join(_schema(words[cuts[tool] : cuts[tool + 1]], _schema_name(position, tool)) for tool in range(tools))


def tool_call(key: Key, words: bytes, *, seed: int, position: int) -> bytes:
    """Write the tool call that belongs to the result of this key; the words are its argument."""
    arguments = rb"{\"input\":\"" + words.rstrip() + rb"\"}" if words else b"{}"
    name = WORDS[_digest(seed, key)[0] % _SEGMENT_TOOLS].encode()
    identity = call_id(key, seed=seed, position=position)
    return b'{"id":"%b","type":"function","function":{"name":"%b","arguments":"%b"}}' % (identity, name, arguments)


def call_id(key: Key, *, seed: int, position: int) -> bytes:
    """Return the id of a call and its result, from the result's key and the position of the call.

    Nine characters, as Mistral's template requires, and all digits, so that every id costs the same.
    """
    number = int.from_bytes(_digest(seed, key)[1:]) % 10**7
    return b"%07d%02d" % (number, position % 100)


def _schema(words: bytes, name: str) -> bytes:
    # Half of the words describe the tool, half its parameter.
    half = WIDTH * (len(words) // WIDTH // 2)
    return (
        b'{"type":"function","function":{"name":"%b","description":"%b","parameters":{"type":"object",'
        b'"properties":{"input":{"type":"string","description":"%b"}},"required":["input"]}}}'
    ) % (name.encode(), words[:half].rstrip(), words[half:].rstrip())


def _schema_name(position: int, tool: int) -> str:
    # Words of the table, so that every name costs the same.
    return WORDS[(position * _SEGMENT_TOOLS + tool) % len(WORDS)]


def _digest(seed: int, key: Key) -> bytes:
    return hashlib.shake_256(f"{seed}\0c{key}".encode()).digest(9)
