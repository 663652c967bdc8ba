"""Read chat messages of all dialects (OpenAI, Anthropic, agents' transcripts) as pieces of a context: role, length, identity."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from agentload.importers.parts.images import size_of
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.pieces import Piece
from agentload.model.trace import Role, image_tokens

_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "tool": "tool",
    "function": "tool",
    "toolResult": "tool",
    "tool_result": "tool",
    "observation": "tool",
}
_UNKNOWN_IMAGE: Final = (448, 448)  # judgement: where an image is only a link


def role_of(said: object) -> Role:
    """Return the role of that name; what is unknown speaks for the user."""
    return _ROLES.get(said, "user") if isinstance(said, str) else "user"


def messages(intake: Intake, found: Iterable[Any]) -> Iterator[Piece]:
    """Read a list of messages."""
    for message in found:
        if isinstance(message, dict):
            yield from pieces(intake, role_of(message.get("role") or message.get("from") or message.get("type")), message)


def pieces(intake: Intake, role: Role, message: dict[str, Any], *, tool: str | None = None) -> Iterator[Piece]:
    """Read one message: its text in one piece, each image in its own; results that an Anthropic user message holds are tools'."""
    content = message.get("content", message.get("parts", message.get("value")))
    blocks = content if isinstance(content, list) else [content]
    said: list[str] = []
    results: list[Any] = []
    images: list[Any] = []
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in {"tool_result", "tool_call_response"}:
            results.append(block)
        elif kind in {"image", "image_url", "input_image"}:
            images.append(block)
        else:
            said.append(_text(block))
    said += [_text(call) for call in message.get("tool_calls") or () if isinstance(call, dict)]
    if message.get("function_call"):
        said.append(_text(message["function_call"]))
    for result in results:
        yield from pieces(intake, "tool", {"content": result.get("content", result.get("result", result.get("response")))}, tool=tool)
    text = "\n".join(part for part in said if part)
    if text:
        name = message.get("name") or message.get("toolName")
        named = tool or (name if role == "tool" and isinstance(name, str) else None)
        yield Piece(role=role, tokens=intake.length(text), key=intake.name(role, text), tool=named)
    for image in images:
        yield _image(intake, image)


def schemas(intake: Intake, tools: Sequence[Any]) -> Iterator[Piece]:
    """Read tool definitions as one piece."""
    if tools:
        text = msgspec.json.encode(tools).decode()
        yield Piece(role="tools", tokens=intake.length(text), key=intake.name("tools", text))


def behind_system(tools: Iterable[Piece], said: Iterable[Piece]) -> list[Piece]:
    """Put tools where servers put them: behind the leading system text, in front of the conversation."""
    found = list(said)
    lead = list(takewhile(lambda piece: piece.role == "system", found))
    return [*lead, *tools, *found[len(lead) :]]


def text_of(content: object) -> str:
    """Return all text of a message's content."""
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    return _text(content)


def _text(block: object) -> str:
    match block:
        case None:
            return ""
        case str():
            return block
        case {"type": "thinking" | "reasoning", "thinking": str(text)}:
            return text
        case {"text": str(text)} | {"output": str(text)}:
            return text
        case {"type": "tool_use" | "toolCall" | "function_call", "name": name, **rest}:
            return _call(name, rest.get("input", rest.get("arguments")))
        case {"function": {"name": name, **rest}} | {"name": name, "arguments": _, **rest}:
            return _call(name, rest.get("arguments", block.get("arguments") if isinstance(block, dict) else None))
        case {"content": str() | list() as inner}:
            return text_of(inner)
        case dict() | list():
            return msgspec.json.encode(block).decode()
        case _:
            return str(block)


def _call(name: object, arguments: object) -> str:
    return f"{name}({arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()})"


def _image(intake: Intake, block: dict[str, Any]) -> Piece:
    match block:
        case {"data": str(data)} | {"source": {"data": str(data)}}:
            encoded = data
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)} | {"source": {"url": str(url)}}:
            encoded = url.partition("base64,")[2] or url
        case _:
            encoded = msgspec.json.encode(block).decode()
    try:
        size = size_of(base64.b64decode(encoded[: min(len(encoded), 1 << 16) & ~3], validate=True))
    except (binascii.Error, ValueError):
        size = None
    if size is None:
        intake.notes.estimate("size of an image that is only a link")
    size = size or _UNKNOWN_IMAGE
    return Piece(role="image", tokens=image_tokens(size), key=intake.identity.of("image", encoded), size=size)
