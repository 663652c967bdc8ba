"""Read chat messages as pieces of a context: role, length, identity.

The dialects are those of OpenAI, Anthropic and agents' transcripts.
"""

import base64
import binascii
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import msgspec

from agentload.importers.parts.files import JsonRecord, as_text, list_in, objects
from agentload.importers.parts.intake import Intake
from agentload.model.trace import Role, Segment, image_tokens

_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that begin a frame (ITU T.81, table B.1)."""
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
_BECOMES: Final = {
    "tool_result": "result",
    "tool_call_response": "result",
    "image": "image",
    "image_url": "image",
    "input_image": "image",
}
"""What a block of another type than text becomes."""
_LOOKED_AT: Final = 1 << 16
"""Letters of an encoded image in which its size is looked for."""
_UNKNOWN_IMAGE: Final = (448, 448)  # judgement, for an image that is only a link


class ContextPiece(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message or an image in it; `tokens` is an estimate until a server's count corrects it."""

    role: Role
    tokens: int
    key: str
    pixels: tuple[int, int] | None = None
    tool: str | None = None

    def segment(self) -> Segment:
        """Return the piece as a segment."""
        extra = () if self.tool is None else (("name", _json(self.tool)),)
        return Segment(
            role=self.role, tokens=self.tokens, key=self.key, pixels=self.pixels, extra=extra
        )


def total(pieces: Iterable[ContextPiece]) -> int:
    """Return the tokens of pieces."""
    return sum(piece.tokens for piece in pieces)


def apportion(weights: Sequence[int], total: int) -> list[int]:
    """Divide a total by weights into shares that add up to it, each at least 1 if possible."""
    if not weights:
        return []
    if not sum(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    rests = [total * weight % whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=rests.__getitem__, reverse=True)
    for index in by_rest[: total - sum(shares)]:
        shares[index] += 1
    if total >= len(weights):
        for index, share in enumerate(shares):
            if share == 0:
                largest = max(range(len(shares)), key=shares.__getitem__)
                shares[largest] -= 1
                shares[index] = 1
    return shares


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a PNG, GIF, JPEG or WebP image, otherwise None."""
    found = _size(head)
    if found is not None and min(found) >= 1:
        return found
    return None


def _size(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
        return width, height
    if head.startswith((b"GIF87a", b"GIF89a")) and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
        return width, height
    if head.startswith(b"\xff\xd8"):
        return _jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp(head)
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        if head[at + 1] in _FRAMES:
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(head[at + 2 : at + 4])
    return None


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 " if len(head) >= 30:
            width, height = struct.unpack("<HH", head[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if len(head) >= 25:
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(head) >= 30:
            width = int.from_bytes(head[24:27], "little") + 1
            height = int.from_bytes(head[27:30], "little") + 1
            return width, height
        case _:
            return None


def role_of(said: object) -> Role:
    """Return the role of this name; an unknown name is the user's."""
    if not isinstance(said, str):
        return "user"
    return _ROLES.get(said, "user")


def messages(intake: Intake, found: Iterable[Any]) -> Iterator[ContextPiece]:
    """Read a list of messages."""
    for message in found:
        if isinstance(message, dict):
            role = message.get("role") or message.get("from") or message.get("type")
            yield from pieces(intake, role_of(role), message)


def pieces(
    intake: Intake, role: Role, message: JsonRecord, *, tool: str | None = None
) -> Iterator[ContextPiece]:
    """Read one message: its text as one piece, each image as another.

    Tool results in an Anthropic user message become pieces of a tool.
    """
    blocks = _blocks(message)
    for result in blocks["result"]:
        content = result.get("content", result.get("result", result.get("response")))
        yield from pieces(intake, "tool", {"content": content}, tool=tool)
    said = map(_text, [*blocks["text"], *_tool_calls(message)])
    text = "\n".join(filter(None, said))
    if text:
        named = tool or (_tool_name(message) if role == "tool" else None)
        yield words(intake, role, text, tool=named)
    for image in blocks["image"]:
        yield _image(intake, image)


def words(intake: Intake, role: Role, text: str, *, tool: str | None = None) -> ContextPiece:
    """Return a text as a piece."""
    tokens = intake.length(text)
    return ContextPiece(role=role, tokens=tokens, key=intake.name(role, text), tool=tool)


def _blocks(message: JsonRecord) -> Mapping[str, list[Any]]:
    """Return a message's blocks by what they become: text, results of tools, images."""
    content = message.get("content", message.get("parts", message.get("value")))
    found: dict[str, list[Any]] = {"text": [], "result": [], "image": []}
    for block in content if isinstance(content, list) else [content]:
        kind = block.get("type") if isinstance(block, dict) else None
        found[_BECOMES.get(str(kind), "text")].append(block)
    return found


def _tool_calls(message: JsonRecord) -> Iterator[object]:
    yield from (call for call in message.get("tool_calls") or () if isinstance(call, dict))
    yield message.get("function_call") or None


def _tool_name(message: JsonRecord) -> str | None:
    return as_text(message.get("name") or message.get("toolName"))


def answers(response: JsonRecord) -> list[JsonRecord]:
    """List the message of a completion's first choice; empty if there is none."""
    first = objects(list_in(response.get("choices"))[:1])
    return objects([choice.get("message") for choice in first])


def schemas(intake: Intake, tools: Sequence[Any]) -> Iterator[ContextPiece]:
    """Read tool definitions as one piece."""
    if tools:
        yield words(intake, "tools", _json(tools))


def behind_system(
    tools: Iterable[ContextPiece], said: Iterable[ContextPiece]
) -> list[ContextPiece]:
    """Put tools where servers put them: after the leading system text, before the conversation."""
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
        case (
            {"function": {"name": name, "arguments": arguments}}
            | {"function": {"name": name}, "arguments": arguments}
            | {"name": name, "arguments": arguments}
        ):
            return _call(name, arguments)
        case {"function": {"name": name}}:
            return _call(name, None)
        case {"content": str() | list() as inner}:
            return text_of(inner)
        case dict() | list():
            return _json(block)
        case _:
            return str(block)


def _json(found: object) -> str:
    return msgspec.json.encode(found).decode()


def _call(name: object, arguments: object) -> str:
    if not isinstance(arguments, str):
        arguments = _json(arguments)
    return f"{name}({arguments})"


def _image(intake: Intake, block: JsonRecord) -> ContextPiece:
    match block:
        case {"data": str(data)} | {"source": {"data": str(data)}}:
            encoded = data
        case (
            {"image_url": {"url": str(url)}}
            | {"image_url": str(url)}
            | {"source": {"url": str(url)}}
        ):
            encoded = url.partition("base64,")[2] or url
        case _:
            encoded = _json(block)
    start = encoded[: min(len(encoded), _LOOKED_AT) & ~3]  # base64 has four letters for three bytes
    try:
        size = size_of(base64.b64decode(start, validate=True))
    except (binascii.Error, ValueError):
        size = None
    if size is None:
        intake.notes.estimate("size of a linked image")
    size = size or _UNKNOWN_IMAGE
    return ContextPiece(
        role="image",
        tokens=image_tokens(size),
        key=intake.identity.of("image", encoded),
        pixels=size,
    )
