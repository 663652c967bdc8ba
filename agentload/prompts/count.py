"""Count tokens as the emulator does: which texts of a request count, and in which order.

One white-space separated word is one token and the chat template adds
none. These texts count, in the order in which a server sees them:

1. `content` of the leading system (or developer) messages,
2. every `description` of the tool schemas, in the order of the JSON,
3. for each further message its `content`, then every
string value in the arguments of its tool calls.

An image costs `model.trace.image_tokens` of its size.
Names, ids, keys, types and numbers cost nothing.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from agentload.model.trace import image_tokens

Json = Mapping[str, object]

# A data URL's PNG header: signature, IHDR length and name, width
# and height are its first 24 bytes, 32 characters of base64.
_PNG_START: Final = "data:image/png;base64,"
_PNG_HEADER: Final = 32
_UNKNOWN_IMAGE: Final = (1024, 1024)


class Image(msgspec.Struct, frozen=True):
    """An image of a message; its URL is its identity."""

    url: str
    size: tuple[int, int]


def count(messages: Sequence[Json], tools: Sequence[Json] | None) -> int:
    """Count the tokens of a request's decoded `messages` and `tools`."""
    return sum(
        image_tokens(piece.size) if isinstance(piece, Image) else len(piece.split())
        for piece in pieces(messages, tools)
    )


def pieces(messages: Sequence[Json], tools: Sequence[Json] | None) -> Iterator[str | Image]:
    """Yield the texts and images that count, in server order."""
    lead = 0
    while lead < len(messages) and messages[lead].get("role") in {"system", "developer"}:
        yield from _content(messages[lead].get("content"))
        lead += 1
    yield from _descriptions(tools)
    for message in messages[lead:]:
        yield from _content(message.get("content"))
        for call in _sequence(message.get("tool_calls")):
            if isinstance(call, Mapping) and isinstance(function := call.get("function"), Mapping):
                yield from _arguments(function.get("arguments"))


def _content(content: object) -> Iterator[str | Image]:
    if isinstance(content, str):
        yield content
        return
    for part in _sequence(content):
        match part:
            case {"text": str(text)}:
                yield text
            case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
                yield Image(url=url, size=_size(url))
            case _:  # the emulator ignores audio and files
                pass


def _descriptions(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "description" and isinstance(value, str):
                yield value
            else:
                yield from _descriptions(value)
    else:
        for item in _sequence(node):
            yield from _descriptions(item)


def _arguments(text: object) -> Iterator[str]:
    if not isinstance(text, str):
        return
    try:
        yield from _strings(json.loads(text))
    except ValueError:  # a model may write arguments that are not JSON; servers pass them on
        yield text


def _strings(node: object) -> Iterator[str]:
    if isinstance(node, str):
        yield node
        return
    for item in node.values() if isinstance(node, Mapping) else _sequence(node):
        yield from _strings(item)


def _sequence(node: object) -> Iterable[object]:
    if isinstance(node, Sequence) and not isinstance(node, str | bytes):
        return node
    return ()


def _size(url: str) -> tuple[int, int]:
    # Only PNG has its size in a fixed place; other images are assumed to be a common camera crop.
    if not url.startswith(_PNG_START) or len(url) < len(_PNG_START) + _PNG_HEADER:
        return _UNKNOWN_IMAGE
    try:
        header = base64.b64decode(url[len(_PNG_START) :][:_PNG_HEADER], validate=True)
    except ValueError:
        return _UNKNOWN_IMAGE
    return int.from_bytes(header[16:20]), int.from_bytes(header[20:24])
