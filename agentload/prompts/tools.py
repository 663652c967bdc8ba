"""Write tool schemas, tool calls and their ids as OpenAI-compatible servers expect them."""

import hashlib
from typing import Final

from agentload.model.trace import Key
from agentload.prompts.words import WIDTH, WORDS

_SCHEMA_WORDS: Final = 600
"""About the mean of OpenClaw's schemas: 8.0k tokens for some 14 tools (its docs/concepts/context.md)."""
_SEGMENT_TOOLS: Final = 64
"""Most tools that one segment describes; four such segments in a context have names of their own."""


def schema_count(tokens: int) -> int:
    """Return how many tools a segment of schemas of this length describes."""
    return min(_SEGMENT_TOOLS, max(1, round(tokens / _SCHEMA_WORDS)))


def schemas(words: bytes, tools: int, *, position: int) -> bytes:
    """Write the schemas of `tools` tools whose descriptions hold these words; `position` keeps the names of several segments apart."""
    count = len(words) // WIDTH
    cuts = [WIDTH * (count * tool // tools) for tool in range(tools + 1)]
    return b",".join(_schema(words[cuts[tool] : cuts[tool + 1]], _schema_name(position, tool)) for tool in range(tools))


def call(key: Key, words: bytes, *, seed: int, position: int) -> bytes:
    """Write the call that the tool result of this key answers; the words are its argument."""
    arguments = rb"{\"input\":\"" + words.rstrip() + rb"\"}" if words else b"{}"
    name = WORDS[_digest(seed, key)[0] % _SEGMENT_TOOLS].encode()
    identity = call_id(key, seed=seed, position=position)
    return b'{"id":"%b","type":"function","function":{"name":"%b","arguments":"%b"}}' % (identity, name, arguments)


def call_id(key: Key, *, seed: int, position: int) -> bytes:
    """Return the id that ties a call to its result, by what the result says and which of the message's calls it answers.

    Nine characters, which is what Mistral's template insists on, and all digits, so that every id costs the same.
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
