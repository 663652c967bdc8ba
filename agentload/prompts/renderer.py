"""Render a context into the messages and tools of a request, with its exact length.

A context grows by a few messages a turn, so a prompt takes over the messages of the one
before it in its session. Other sessions begin alike, so every message's JSON text is cached
too: only new messages are drawn. The cache is bounded in bytes; the least recently used
messages are dropped first.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice, zip_longest
from operator import is_
from typing import Final, NamedTuple

from agentload.model.trace import Segment, image_tokens
from agentload.prompts import images
from agentload.prompts.messages import (
    Bodies,
    Cache,
    JsonPiece,
    Message,
    Slot,
    call_id,
    calls_in,
    divided_words,
    messages,
    on_a_line,
    schema_count,
    schemas,
    tool_call,
)
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.prompts.words import WIDTH

RECORDED_SCHEMAS: Final = '[{"type":"function"'
"""Beginning of recorded tools in OpenAI's format; all other tools are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered context: the JSON of each message and tool, which other prompts share."""

    spoken: tuple[JsonPiece, ...]
    """Messages."""
    written: tuple[JsonPiece, ...]
    """Tools, one piece for each segment that describes some."""
    size: int = 0
    """Bytes of all messages and tools."""
    over: int = 0
    """Tokens that all of these have beyond what the context asks for."""
    salt: str = ""
    context: tuple[Segment, ...] = field(default=(), repr=False)
    settled: int = 0
    """How many messages no later segment changes: those before the last run of one speaker."""
    settled_segments: int = 0
    """How many leading segments of the context these messages and the tools are made of."""

    @property
    def messages(self) -> bytes:
        """The messages as a JSON array."""
        return b"[%b]" % b",".join([piece.json for piece in self.spoken])

    @property
    def tools(self) -> bytes | None:
        """The tools as a JSON array; None without tools."""
        if not self.written:
            return None
        return b"[%b]" % b",".join([piece.json for piece in self.written])

    @property
    def tokens(self) -> int:
        """Tokens of the rendered context, including the template's."""
        return sum([piece.tokens for piece in (*self.spoken, *self.written)])

    def leads(self, context: Sequence[Segment], *, salt: str) -> bool:
        """Tell whether a context begins with the settled messages of this one, and adds no tools.

        The segment after them must be the same too, as it could join them.
        """
        count = self.settled_segments
        return (
            self.settled > 0
            and salt == self.salt
            and count < len(context)
            # Contexts of a session share their segments: identity is quicker than equality.
            and all(map(is_, islice(self.context, count + 1), context))
            and all(segment.role != "tools" for segment in context[count:])
        )

    @property
    def hash(self) -> str:
        """A name that is equal where messages and tools are equal."""
        digest = hashlib.blake2b(len(self.written).to_bytes(8, "big"), digest_size=16)
        digest.update(b"".join([piece.digest for piece in (*self.written, *self.spoken)]))
        return digest.hexdigest()


class _Lead(NamedTuple):
    """What a context's first segment carries: template tokens around all messages, and a salt."""

    frame: int
    salt: str


class Renderer:
    """Render the contexts of one trace for one tokenizer."""

    def __init__(
        self,
        *,
        seed: int,
        tokenizer: Tokenizer | None = None,
        block: int = 64,
        cache_bytes: int = 64 << 20,
    ) -> None:
        self._seed = seed
        self._tokenizer = tokenizer or WORD_TOKENS
        self._bodies = Bodies(seed=seed, tokenizer=self._tokenizer, block=block)
        self._cache = Cache(limit=cache_bytes)

    def render(
        self, context: tuple[Segment, ...], *, salt: str, after: Prompt | None = None
    ) -> Prompt:
        """Render a context; the salt replaces its first 8 tokens and those of drawn tools.

        Some templates put the tools first. What the context has in common with that of the
        prompt *after* which it comes is taken over from there.
        """
        if after is not None and after.leads(context, salt=salt):
            grouped = list(messages(context[after.settled_segments :]))
            kept, again = after.spoken[: after.settled], after.spoken[after.settled :]
            size, owed = after.size - _size(again), after.over - _over(again)
            written = after.written
            lead = None
        else:
            grouped = list(messages(context))
            kept = ()
            written, lead = self._begun(context, grouped, salt)
            size, owed = _size(written), _over(written)
        spoken = self._spoken(grouped, lead, owed)
        settled, segments = _settled(context, grouped)
        return Prompt(
            spoken=(*kept, *spoken),
            written=written,
            size=size + _size(spoken),
            over=owed + _over(spoken),
            salt=salt,
            context=context,
            settled=len(kept) + settled if segments else 0,
            settled_segments=segments,
        )

    def _begun(
        self, context: Sequence[Segment], grouped: Sequence[Message], salt: str
    ) -> tuple[tuple[JsonPiece, ...], _Lead | None]:
        """Write the tools; return them and what the first message has to carry."""
        described = [segment for segment in context if segment.role == "tools"]
        # The first segment carries the template's tokens around all messages, and the salt.
        around = self._tokenizer.frame("prompt")
        if not (grouped and grouped[0].role == "system"):
            around += self._tokenizer.frame("systemless")
        lead = _Lead(frame=around, salt=salt)
        if described and context[0] is described[0]:
            return tuple(self._written(described, lead, salt)), None
        return tuple(self._written(described, None, salt)), lead

    def _written(
        self, described: Sequence[Segment], lead: _Lead | None, salt: str
    ) -> list[JsonPiece]:
        """Write the tools; without a *lead*, the first ones get the salt if they are drawn."""
        slots = [Slot(segment) for segment in described]
        if lead is not None:
            slots[0] = Slot(described[0], frame=lead.frame, salt=lead.salt)
        elif described and described[0].text is None:
            slots[0] = Slot(described[0], salt=salt)
        return [self._schemas(slot, position) for position, slot in enumerate(slots)]

    def _spoken(self, grouped: Sequence[Message], lead: _Lead | None, owed: int) -> list[JsonPiece]:
        """Write the messages; *owed* tokens too many were written before them."""
        spoken: list[JsonPiece] = []
        for message in grouped:
            first = Slot(message.segments[0], owed=owed)
            if lead is not None and not spoken:
                first = first._replace(frame=lead.frame, salt=lead.salt)
            piece = self._cache.piece((message, first[1:]), partial(self._message, message, first))
            spoken.append(piece)
            owed += piece.over
        return spoken

    def _message(self, message: Message, first: Slot) -> JsonPiece:
        slots = self._slots(message, first)
        match message.role:
            case "assistant" if message.results:
                *before, last = slots
                body, calls = self._calling(last, message.results)
                texts = [*map(self._bodies.text, before), body]
                end = b'","tool_calls":[%b]}' % calls
                return _joined(b'{"role":"assistant","content":"', texts, end, b"")
            case "tool":
                key = message.segments[0].key
                identity = call_id(key, seed=self._seed, position=message.position)
                start = b'{"role":"tool","tool_call_id":"%b","content":"' % identity
            case role if any(segment.role == "image" for segment in message.segments):
                start = b'{"role":"%b","content":[' % role.encode()
                return _joined(start, self._parts(slots), b"]}", b",")
            case role:
                start = b'{"role":"%b","content":"' % role.encode()
        return _joined(start, map(self._bodies.text, slots), b'"}', b"")

    def _parts(self, slots: Sequence[Slot]) -> Iterator[JsonPiece]:
        """Yield the parts of a message with images: runs of images, and texts between them."""
        for is_image, run in groupby(slots, lambda slot: slot.segment.role == "image"):
            if is_image:
                yield _joined(b"", map(self._image, run), b"", b",")
            else:
                texts = map(self._bodies.text, run)
                yield _joined(b'{"type":"text","text":"', texts, b'"}', b"")

    def _slots(self, message: Message, first: Slot) -> list[Slot]:
        """Place each segment; the first of a message pays for its frame and for earlier excess."""
        role = "next_tool" if message.position else message.role
        framed = first._replace(frame=first.frame + self._tokenizer.frame(role))
        if len(message.segments) == 1:
            return [framed]
        newline = self._tokenizer.frame("newline")
        between = [Slot(segment, newline=newline) for segment in message.segments[1:-1]]
        return [framed._replace(newline=newline), *between, Slot(message.segments[-1])]

    def _image(self, slot: Slot) -> JsonPiece:
        size = slot.segment.pixels
        assert size is not None, slot.segment
        url = images.data_url(self._seed, slot.segment.key, size, salt=slot.salt or "")
        return JsonPiece(
            b'{"type":"image_url","image_url":{"url":"%b"}}' % url.encode(),
            image_tokens(size) + slot.frame,
            slot.frame,
        )

    def _calling(self, slot: Slot, results: Sequence[Segment]) -> tuple[JsonPiece, bytes]:
        """Return an assistant's text and tool calls."""
        segment = slot.segment
        if segment.text is not None or segment.plant is not None:  # real words stay together
            text, recorded = calls_in(segment.text or "")
            if len(recorded) != len(results):
                return self._bodies.text(slot), self._calls(b"", results)
            alone = slot._replace(segment=replace(segment, text=text))
            return self._bodies.text(alone), self._calls(b"", results, recorded)
        least = 1 + len(results)  # a word of text and one for each call
        words = self._bodies.words(slot, least=least)
        count = len(words) // WIDTH
        # Half of an assistant's tokens go to its tools: judgement, any split counts the same.
        passed = count // 2
        if count >= least:
            passed = max(len(results), passed)
        said = words[: WIDTH * (count - passed)]
        body = self._bodies.piece(on_a_line(said), self._bodies.cost(words), slot)
        return body, self._calls(words[len(said) :], results)

    def _calls(
        self, words: bytes, results: Sequence[Segment], recorded: Sequence[tuple[str, str]] = ()
    ) -> bytes:
        """Write the calls of these results: as *recorded*, if so, else with drawn words."""
        parts = divided_words(words, len(results))
        each_call = enumerate(zip_longest(results, parts, recorded))
        return b",".join(
            tool_call(result.key, part, seed=self._seed, position=position, recorded=said)
            for position, (result, part, said) in each_call
        )

    def _schemas(self, slot: Slot, position: int) -> JsonPiece:
        """Write a segment's schemas: the recorded ones if there is no salt, else drawn ones."""

        def written() -> JsonPiece:
            text = slot.segment.text or ""
            if slot.salt is None and text.startswith(RECORDED_SCHEMAS):
                return JsonPiece(text[1:-1].encode(), self._tokenizer.count(text) + slot.frame)
            count = schema_count(slot.segment.tokens)
            frame = slot.frame + self._tokenizer.frame("schema") * count
            if not position:
                frame += self._tokenizer.frame("tools")
            framed = slot._replace(frame=frame)
            words = self._bodies.words(framed)
            described = schemas(words, count, position=position)
            return self._bodies.piece(described, self._bodies.cost(words), framed)

        segment = slot.segment
        key = ("tools", segment.text, segment.key, segment.tokens, position, slot[1:])
        return self._cache.piece(key, written)


def _settled(context: Sequence[Segment], grouped: Sequence[Message]) -> tuple[int, int]:
    """Count the messages before the last run, and the segments of the context before that run.

    A run is the messages of one speaker with the tool results that answer them. There are
    no such segments where tools are described within that run.
    """
    settled = len(grouped)
    segments = len(context)
    for message in reversed(grouped):
        settled -= 1
        segments -= len(message.segments)
        if message.role != "tool":
            break
    if any(segment.role == "tools" for segment in context[segments:]):
        return settled, 0
    return settled, segments


def _size(pieces: Sequence[JsonPiece]) -> int:
    return sum([len(piece.json) for piece in pieces])


def _over(pieces: Sequence[JsonPiece]) -> int:
    return sum([piece.over for piece in pieces])


def _joined(start: bytes, pieces: Iterable[JsonPiece], end: bytes, separator: bytes) -> JsonPiece:
    pieces = list(pieces)
    whole = b"%b%b%b" % (start, separator.join([piece.json for piece in pieces]), end)
    return JsonPiece(whole, sum([piece.tokens for piece in pieces]), _over(pieces))
