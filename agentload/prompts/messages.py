"""Group the segments of a context into chat messages.

Segments of one role that follow each other share a message, because several chat templates refuse two messages of a role in a row.
Tool results answer the assistant message right before them: that message gets one tool call for each. A result without such a
message (its call was compacted away) becomes user text, since servers refuse a result that answers no call.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from agentload.model.trace import Role, Segment

Speaker: TypeAlias = Literal["system", "user", "assistant", "tool"]

_ASSISTANT: Final[frozenset[Role]] = frozenset({"assistant"})
_TOOL: Final[frozenset[Role]] = frozenset({"tool"})
_SYSTEM: Final[frozenset[Role]] = frozenset({"system"})
_USER: Final[frozenset[Role]] = frozenset({"user", "image", "tool"})


class Message(NamedTuple):
    """A chat message and the segments that fill it."""

    role: Speaker
    segments: tuple[Segment, ...]
    results: tuple[Segment, ...] = ()
    """Of an assistant's message: the tool results that follow it."""
    position: int = 0
    """Of a tool's message: which of the calls it answers."""


def messages(context: Sequence[Segment]) -> Iterator[Message]:
    """Yield the messages of a context in order; tool schemas are no message."""
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
            case _:  # a tool's result here has no call before it
                end = _run(spoken, at, _USER)
                yield Message("user", tuple(spoken[at:end]))
                at = end


def _run(spoken: Sequence[Segment], start: int, roles: frozenset[Role]) -> int:
    end = start
    while end < len(spoken) and spoken[end].role in roles:
        end += 1
    return end
