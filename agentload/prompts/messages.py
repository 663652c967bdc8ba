"""Group a context's segments into chat messages, and draw and cache the words of each segment.

Consecutive segments of one role share a message, because several chat templates refuse
two messages of a role in a row. Tool results answer the assistant message right before
them, which gets one tool call for each. A result without such a message (its call was
compacted away) becomes user text, since servers refuse results without a call.
"""

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from agentload.model.trace import Key, Role, Segment
from agentload.prompts.tokenizer import Tokenizer
from agentload.prompts.words import WIDTH, WORDS, draw, table

Speaker: TypeAlias = Literal["system", "user", "assistant", "tool"]
_RESULTS: Final[frozenset[Role]] = frozenset({"tool"})
_SPEAKERS: Final[Mapping[Role, tuple[Speaker, frozenset[Role]]]] = {
    "assistant": ("assistant", frozenset({"assistant"})),
    "system": ("system", frozenset({"system"})),
}
"""Who speaks a message that begins with a role, and the roles that stay in it."""
_USER: Final[tuple[Speaker, frozenset[Role]]] = ("user", frozenset({"user", "image", "tool"}))
"""The same for any other role: a tool result here has no call before it."""
_SCHEMA_WORDS: Final = 600
"""Words of a schema, about the mean of OpenClaw's.

OpenClaw has 8.0k tokens for some 14 tools (its docs/concepts/context.md).
"""
_SEGMENT_TOOLS: Final = 64
"""Maximum tools in one segment; up to four such segments in a context have distinct names."""


_CALL: Final = re.compile(r"([\w.-]+)\((\{.*\})\)")


class Message(NamedTuple):
    """A chat message and its segments."""

    role: Speaker
    segments: tuple[Segment, ...]
    results: tuple[Segment, ...] = ()
    """The tool results after an assistant's message."""
    position: int = 0
    """Number of the call that a tool's message answers."""


def messages(context: Sequence[Segment]) -> Iterator[Message]:
    """Yield the messages of a context in order, without tool schemas."""
    spoken = [segment for segment in context if segment.role != "tools"]
    start = 0
    while start < len(spoken):
        speaker, roles = _SPEAKERS.get(spoken[start].role, _USER)
        end = _run(spoken, start, roles)
        last = _run(spoken, end, _RESULTS) if speaker == "assistant" else end
        results = tuple(spoken[end:last])
        yield Message(speaker, tuple(spoken[start:end]), results)
        for position, result in enumerate(results):
            yield Message("tool", (result,), position=position)
        start = last


def _run(spoken: Sequence[Segment], start: int, roles: frozenset[Role]) -> int:
    """Return where the segments of these roles end that begin at *start*."""
    end = start
    while end < len(spoken) and spoken[end].role in roles:
        end += 1
    return end


def schema_count(tokens: int) -> int:
    """Return how many tools a schema segment of this length describes."""
    return min(_SEGMENT_TOOLS, max(1, round(tokens / _SCHEMA_WORDS)))


def schemas(words: bytes, tools: int, *, position: int) -> bytes:
    """Write the schemas of this many tools, with the words as their descriptions.

    *position* makes the names of several segments distinct.
    """
    parts = []
    for tool, part in enumerate(divided_words(words, tools)):
        parts.append(_schema(part, _schema_name(position, tool)))
    return b",".join(parts)


def divided_words(words: bytes, count: int) -> list[bytes]:
    """Divide drawn words into parts of about equally many."""
    drawn = len(words) // WIDTH
    cuts = [WIDTH * (drawn * part // count) for part in range(count + 1)]
    return [words[start:end] for start, end in pairwise(cuts)]


def calls_in(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Divide an imported answer into its text and the calls at its end.

    Imports write a call as a line name(arguments).
    """
    lines = text.rstrip().split("\n")
    calls = list[tuple[str, str]]()
    while lines and (found := _CALL.fullmatch(lines[-1])) is not None:
        calls.insert(0, (found[1], found[2]))
        lines.pop()
    return "\n".join(lines), tuple(calls)


def tool_call(
    key: Key, words: bytes, *, seed: int, position: int, recorded: tuple[str, str] | None = None
) -> bytes:
    """Write the tool call whose result has this key.

    The words are its argument, unless its name and arguments were *recorded*.
    """
    if recorded is not None:
        name, arguments = map(_escaped, recorded)
    else:
        name = WORDS[_digest(seed, key)[0] % _SEGMENT_TOOLS].encode()
        arguments = rb"{\"input\":\"" + words.rstrip() + rb"\"}" if words else b"{}"
    identity = call_id(key, seed=seed, position=position)
    return b'{"id":"%b","type":"function","function":{"name":"%b","arguments":"%b"}}' % (
        identity,
        name,
        arguments,
    )


def call_id(key: Key, *, seed: int, position: int) -> bytes:
    """Return the id of a call and its result, from the result's key and the position of the call.

    Nine characters, as Mistral's template requires,
    and all digits, so that every id costs the same.
    """
    number = int.from_bytes(_digest(seed, key)[1:]) % 10**7
    return b"%07d%02d" % (number, position % 100)


def _schema(words: bytes, name: str) -> bytes:
    # Half of the words describe the tool, half its parameter.
    half = WIDTH * (len(words) // WIDTH // 2)
    return (
        b'{"type":"function","function":{"name":"%b","description":"%b",'
        b'"parameters":{"type":"object",'
        b'"properties":{"input":{"type":"string","description":"%b"}},"required":["input"]}}}'
    ) % (name.encode(), words[:half].rstrip(), words[half:].rstrip())


def _schema_name(position: int, tool: int) -> str:
    # Words of the table, so that every name costs the same.
    return WORDS[(position * _SEGMENT_TOOLS + tool) % len(WORDS)]


def _digest(seed: int, key: Key) -> bytes:
    return hashlib.shake_256(f"{seed}\0c{key}".encode()).digest(9)


SALT_TOKENS: Final = 8


class JsonPiece(NamedTuple):
    """A piece of a request: JSON text and token count."""

    json: bytes
    tokens: int
    over: int = 0
    digest: bytes = b""
    """Name of the JSON text; only pieces of a cache have one."""


class Cache:
    """An LRU cache of pieces."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: dict[Hashable, JsonPiece] = {}

    def piece(self, key: Hashable, make: Callable[[], JsonPiece]) -> JsonPiece:
        """Return the piece of this key, making it if needed."""
        # A dict keeps insertion order: removing and inserting a key makes it the youngest.
        piece = self._kept.pop(key, None)
        if piece is None:
            made = make()
            # Hashed here, once: a prompt is named by its pieces, and is never hashed as a whole.
            digest = hashlib.blake2b(made.json, digest_size=16).digest()
            piece = made._replace(digest=digest)
            self._size += len(piece.json)
        self._kept[key] = piece
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._size -= len(self._kept.pop(oldest).json)
        return piece


class Slot(NamedTuple):
    """A segment and its place in a prompt."""

    segment: Segment
    frame: int = 0
    """Template tokens charged to this segment."""
    newline: int = 0
    """Tokens of the newline after it; the one at a message's end belongs to the message's frame."""
    owed: int = 0
    """Tokens by which earlier segments exceeded their length, as a large frame makes them."""
    salt: str | None = None
    """Salt in place of the first 8 tokens, of the first segment and first drawn tools only."""


class Bodies:
    """Draw segments for one trace and one tokenizer."""

    def __init__(self, *, seed: int, tokenizer: Tokenizer, block: int) -> None:
        self._seed = seed
        self._tokenizer = tokenizer
        self._block = block
        self._salts: dict[str, bytes] = {}
        self._table = table(tokenizer.words)

    def text(self, slot: Slot) -> JsonPiece:
        """Write a segment's text, ending in white space, escaped for JSON."""
        segment = slot.segment
        if segment.text is not None:
            if segment.source is None:
                return self._literal(segment.text, slot)
            return self._fitted(segment.text, slot)
        if segment.plant is not None:
            return self._planted(segment.plant, slot)
        words = self.words(slot)
        return self.piece(on_a_line(words), self.cost(words), slot)

    def words(self, slot: Slot, *, taken: int = 0, least: int = 1) -> bytes:
        """Draw words, each followed by a space, for the remaining tokens.

        With template frames there are at least `least` words:
        frames were measured around text, so none may be empty.
        """
        drawn = self._drawn(slot, taken, least)
        if slot.salt is None:
            return drawn
        salt = self._salt(slot.salt)[: len(drawn)]
        return salt + drawn[len(salt) :]

    def cost(self, words: bytes) -> int:
        """Count the tokens of drawn words."""
        return self._tokenizer.cost(len(words) // WIDTH)

    def piece(self, json: bytes, tokens: int, slot: Slot) -> JsonPiece:
        """Return a segment's piece with its frame, and its excess over the requested length."""
        tokens += slot.frame + (slot.newline if json else 0)
        return JsonPiece(json, tokens, tokens - slot.segment.tokens)

    def _drawn(self, slot: Slot, taken: int, least: int) -> bytes:
        room = slot.segment.tokens - slot.frame - slot.newline - slot.owed
        fitting = self._tokenizer.fit(room - taken)
        count = max(least if slot.frame else 0, fitting)
        return draw(self._seed, slot.segment.key, count, block=self._block, table=self._table)

    def _salt(self, salt: str) -> bytes:
        if salt not in self._salts:  # all prompts of a block have one
            self._salts[salt] = draw(self._seed, f"salt {salt}", SALT_TOKENS, table=self._table)
        return self._salts[salt]

    def _literal(self, text: str, slot: Slot) -> JsonPiece:
        """Write a text as it is, with the salt in place of its first words."""
        if slot.salt is not None:
            rest = text.split(None, SALT_TOKENS)[SALT_TOKENS:]
            text = self._salt(slot.salt).decode() + "".join(rest)
        # A word must not merge with the first word of the next segment.
        if text and not text[-1].isspace():
            text += "\n"
        return JsonPiece(_escaped(text), self._tokenizer.count(text) + slot.frame)

    def _fitted(self, text: str, slot: Slot) -> JsonPiece:
        """Fit a live answer to its segment: cut if longer, padded with drawn words if shorter."""
        room = max(0, slot.segment.tokens - slot.frame - slot.newline - slot.owed)
        words = text.split()
        low = 0
        high = len(words)
        while low < high:  # the longest run of leading words that fits
            middle = (low + high + 1) // 2
            if self._tokenizer.count(" ".join(words[:middle])) <= room:
                low = middle
            else:
                high = middle - 1
        kept = " ".join(words[:low])
        used = self._tokenizer.count(kept)
        filler = self._drawn(slot, used, 0)
        whole = f"{kept} {filler.decode()}".strip()
        line = _escaped(whole + "\n") if whole else b""
        return self.piece(line, used + self.cost(filler), slot)

    def _planted(self, plant: str, slot: Slot) -> JsonPiece:
        """Write drawn words with a sentence planted among them."""
        cost = self._tokenizer.count(plant)
        words = self.words(slot, taken=cost, least=0)
        share = 0.5 if slot.segment.at is None else slot.segment.at
        at = WIDTH * round(share * (len(words) // WIDTH))
        whole = words[:at] + _escaped(plant) + b" " + words[at:]
        return self.piece(on_a_line(whole), self.cost(words) + cost, slot)


def on_a_line(words: bytes) -> bytes:
    """Return drawn words with a newline in place of their last space, escaped for JSON."""
    return words[:-1] + rb"\n" if words else b""


def _escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]
