"""Render a context into the messages and tools of a request, with its exact length.

A context grows by a few segments a turn, so every segment's JSON text is kept and a request is joined from what is there: only new
segments are drawn. What is kept is bounded in bytes; the segments used longest ago go first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from agentload.model.trace import Segment, image_tokens
from agentload.prompts import images, tools
from agentload.prompts.bodies import Bodies, Slot
from agentload.prompts.cache import Cache, Piece
from agentload.prompts.messages import Message, messages
from agentload.prompts.tokenizer import WORD_TOKENS, Exactness, Part, Tokenizer
from agentload.prompts.words import WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered context: JSON texts, ready to be put into a request's body."""

    messages: bytes
    """A JSON array."""
    tools: bytes | None
    """A JSON array, or None where the context has no tools."""
    tokens: int
    """Tokens of the whole context as rendered, the template's included."""
    exact: Exactness


class Renderer:
    """Render the contexts of one trace for one tokenizer."""

    def __init__(self, *, seed: int, tokenizer: Tokenizer | None = None, block: int = 64, cache_bytes: int = 64 << 20) -> None:
        self._seed = seed
        self._tokenizer = tokenizer or WORD_TOKENS
        self._bodies = Bodies(seed=seed, tokenizer=self._tokenizer, block=block)
        self._cache = Cache(limit=cache_bytes)

    def render(self, context: tuple[Segment, ...], *, salt: str) -> Prompt:
        """Render a context; the salt replaces its first 8 tokens."""
        described = [segment for segment in context if segment.role == "tools"]
        leads = bool(described) and context[0] is described[0]
        schemas = [self._schemas(segment, number, salt if leads and number == 0 else None) for number, segment in enumerate(described)]
        grouped = enumerate(messages(context))
        spoken = [self._message(message, salt if not leads and number == 0 else None) for number, message in grouped]
        return Prompt(
            messages=b"[%b]" % b",".join(piece.json for piece in spoken),
            tools=b"[%b]" % b",".join(piece.json for piece in schemas) if schemas else None,
            tokens=sum(piece.tokens for piece in spoken) + sum(piece.tokens for piece in schemas),
            exact=self._tokenizer.exact,
        )

    def _message(self, message: Message, salt: str | None) -> Piece:
        slots = list(self._slots(message.role, message.segments, salt))
        match message.role:
            case "assistant" if message.results:
                *before, last = slots
                said = [*(self._text(slot) for slot in before), *self._calling(last, message.results)]
                calls = said.pop()
                body = b'{"role":"assistant","content":"%b","tool_calls":[%b]}' % (b"".join(piece.json for piece in said), calls.json)
                return Piece(body, sum(piece.tokens for piece in said) + calls.tokens)
            case "tool":
                content = self._text(slots[0])
                identity = tools.call_id(message.segments[0].key, seed=self._seed, index=message.position)
                return Piece(b'{"role":"tool","tool_call_id":"%b","content":"%b"}' % (identity, content.json), content.tokens)
            case _ if any(segment.role == "image" for segment in message.segments):
                parts = [self._part(is_image, list(run)) for is_image, run in groupby(slots, lambda slot: slot.segment.role == "image")]
                body = b'{"role":"%b","content":[%b]}' % (message.role.encode(), b",".join(part.json for part in parts))
                return Piece(body, sum(part.tokens for part in parts))
            case _:
                texts = [self._text(slot) for slot in slots]
                body = b'{"role":"%b","content":"%b"}' % (message.role.encode(), b"".join(text.json for text in texts))
                return Piece(body, sum(text.tokens for text in texts))

    def _slots(self, part: Part, segments: Sequence[Segment], salt: str | None) -> Iterator[Slot]:
        # The first segment of a message pays for the message's frame, the first of the context for the prompt's.
        frame = self._tokenizer.frame(part) + (0 if salt is None else self._tokenizer.frame("prompt"))
        for segment in segments:
            yield Slot(segment, frame, salt)
            frame, salt = 0, None

    def _text(self, slot: Slot) -> Piece:
        segment = slot.segment
        key = ("text", segment.key, segment.tokens, slot.frame, slot.salt, segment.text, segment.plant, segment.at)
        return self._cache.piece(key, lambda: self._bodies.text(slot))

    def _part(self, is_image: bool, slots: Sequence[Slot]) -> Piece:  # noqa: FBT001  # what groupby grouped by
        if is_image:
            drawn = [self._image(slot) for slot in slots]
            return Piece(b",".join(image.json for image in drawn), sum(image.tokens for image in drawn))
        texts = [self._text(slot) for slot in slots]
        return Piece(b'{"type":"text","text":"%b"}' % b"".join(text.json for text in texts), sum(text.tokens for text in texts))

    def _image(self, slot: Slot) -> Piece:
        size = slot.segment.size
        assert size is not None, slot.segment

        def drawn() -> Piece:
            url = images.data_url(self._seed, slot.segment.key, size, salt=slot.salt or "")
            return Piece(b'{"type":"image_url","image_url":{"url":"%b"}}' % url.encode(), image_tokens(size) + slot.frame)

        return self._cache.piece(("image", slot.segment.key, size, slot.frame, slot.salt), drawn)

    def _calling(self, slot: Slot, results: Sequence[Segment]) -> tuple[Piece, Piece]:
        """Return what an assistant says and the calls it makes."""
        segment = slot.segment
        frame = self._tokenizer.frame("call") * len(results)
        if segment.text is not None or segment.plant is not None:  # real words stay together
            return self._text(slot._replace(frame=slot.frame + frame)), self._calls(b"", results)

        def drawn() -> Piece:
            return Piece(self._bodies.words(slot, slot.frame + frame + self._tokenizer.frame("newline")), 0)

        key = ("words", segment.key, segment.tokens, slot.frame + frame, slot.salt)
        words = self._cache.piece(key, drawn).json
        count = len(words) // WIDTH
        # Half of an assistant's tokens are what it passes to its tools: judgement, any split counts the same.
        passed = WIDTH * (count // 2)
        said = words[: len(words) - passed]
        tokens = self._tokenizer.cost(count) + slot.frame + frame + (self._tokenizer.frame("newline") if said else 0)
        return Piece(said[:-1] + rb"\n" if said else b"", tokens), self._calls(words[len(said) :], results)

    def _calls(self, words: bytes, results: Sequence[Segment]) -> Piece:
        count = len(words) // WIDTH
        cuts = [WIDTH * (count * index // len(results)) for index in range(len(results) + 1)]
        calls = (
            tools.call(result.key, words[cuts[index] : cuts[index + 1]], seed=self._seed, index=index)
            for index, result in enumerate(results)
        )
        return Piece(b",".join(calls), 0)

    def _schemas(self, segment: Segment, position: int, salt: str | None) -> Piece:
        """Write the schemas of a segment; their descriptions hold its words."""

        def written() -> Piece:
            count = tools.schema_count(segment.tokens)
            frame = self._tokenizer.frame("schema") * count + (0 if salt is None else self._tokenizer.frame("prompt"))
            words = self._bodies.words(Slot(segment, frame, salt), frame)
            return Piece(tools.schemas(words, count, position=position), self._tokenizer.cost(len(words) // WIDTH) + frame)

        return self._cache.piece(("tools", segment.key, segment.tokens, position, salt), written)
