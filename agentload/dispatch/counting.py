"""Count how many tokens each chunk of a stream carried.

The text does not show it: half a character is a token with no text, and a server that lags
behind its engine sends many tokens in one chunk. So the server is asked for token ids or a
running usage. Where it gives neither, tokens are estimated, and the rule used is recorded.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import msgspec

from agentload.model.commands import TokenRule
from agentload.model.record import Record

Counting: TypeAlias = Literal["token_ids", "running_usage", "usage"]
"""What the server is asked to count by: ids per chunk, usage per chunk, or final usage."""
Kind: TypeAlias = Literal["answer", "thinking", "unknown"]
Shows: TypeAlias = Literal[
    "text",  # text or a tool call: a token for certain
    "empty",  # an empty text field: a token that completed no character
    "finish",  # an empty text field with a finish reason: the end-of-sequence token, or nothing
    "nothing",  # neither: a role alone, or tokens that a parser of the server holds back
]


class Chunk(msgspec.Struct, gc=False):
    """Describe what one event says about tokens.

    One is made for every event, hence a msgspec struct: it takes a third of a dataclass's time.
    """

    at_ns: int
    kind: Kind
    shows: Shows
    ids: int | None
    """How many token ids the event lists."""
    total: int | None
    """Completion tokens so far, from the event's usage."""
    length: int
    """Characters of the text that the event shows."""


class Counted(Record, kw_only=False):
    """Hold the chunks that carried tokens, the tokens of each, and the counting rule."""

    chunks: Sequence[Chunk]
    tokens: Sequence[int]
    rule: TokenRule | None


def token_counts(chunks: Sequence[Chunk], *, total: int | None) -> Counted:
    """Count the tokens of every chunk by the best evidence there is; *total* is the final usage."""
    said = _said(chunks, total)
    if said is not None and (total is None or not _ends_early(said, chunks)):
        return said
    shown = [chunk for chunk in chunks if chunk.shows != "nothing"]
    if total is not None:
        return _fitted(shown, total)
    likely = tuple(chunk for chunk in shown if chunk.shows != "finish")
    return Counted(likely, (1,) * len(likely), "one_a_chunk" if likely else None)


def _said(chunks: Sequence[Chunk], total: int | None) -> Counted | None:
    """Return what the server says that each chunk carries: token ids, or a running usage."""
    has_ids = any(chunk.ids is not None for chunk in chunks)
    if has_ids and not _lacks_ids(chunks, total):
        return _listed(chunks)
    first = next((chunk for chunk in chunks if chunk.shows != "nothing"), None)
    if first is None or first.total is None or first.shows == "finish":
        return None
    return _grown(chunks)


def _listed(chunks: Sequence[Chunk]) -> Counted:
    kept = [chunk for chunk in chunks if chunk.ids]
    return Counted(kept, [chunk.ids or 0 for chunk in kept], "token_ids" if kept else None)


def _lacks_ids(chunks: Sequence[Chunk], total: int | None) -> bool:
    """Tell whether some texts came without token ids although tokens are missing from the list.

    That is a server that stopped listing ids within the answer.
    """
    listed = sum(chunk.ids or 0 for chunk in chunks)
    return (total is None or listed < total) and any(
        chunk.shows == "text" and not chunk.ids for chunk in chunks
    )


def _ends_early(found: Counted, chunks: Sequence[Chunk]) -> bool:
    """Tell whether texts go on after the last chunk that is said to carry tokens.

    One text may, which a parser of the server held back.
    """
    texts = 0
    for chunk in reversed(chunks):
        if found.chunks and chunk is found.chunks[-1]:
            break
        texts += chunk.shows == "text"
    return texts > 1


def usage_drop(chunks: Sequence[Chunk], total: int | None) -> str | None:
    """Return where a running usage falls, or exceeds the final usage *total*; else None."""
    counts = [chunk.total for chunk in chunks if chunk.total is not None]
    if total is not None:
        counts.append(total)
    for before, after in pairwise(counts):
        if after < before:
            return f"usage counts {before} tokens, and later {after}"
    return None


def _grown(chunks: Sequence[Chunk]) -> Counted:
    kept = []
    tokens = []
    before = 0
    for chunk in chunks:
        if chunk.total is not None and chunk.total > before:
            kept.append(chunk)
            tokens.append(chunk.total - before)
            before = chunk.total
    return Counted(kept, tokens, "running_usage" if kept else None)


def _fitted(shown: Sequence[Chunk], total: int) -> Counted:
    # Count as many kinds of chunk as the total allows: doubtful
    # chunks (empty, finish) count only if there are tokens for them.
    readings = ({"text", "empty", "finish"}, {"text", "empty"}, {"text"})
    sizes = [tuple(chunk for chunk in shown if chunk.shows in kinds) for kinds in readings]
    chosen = next((chunks for chunks in sizes if len(chunks) <= total), sizes[-1])
    count = len(chosen)
    if count == 0:
        return Counted((), (), None)
    if count == total:
        return Counted(chosen, (1,) * count, "usage")
    tokens = tuple(after - before for before, after in pairwise(_marks(chosen, total)))
    return Counted(chosen, tokens, "spread")


def _marks(chosen: Sequence[Chunk], total: int) -> Iterator[int]:
    """Yield how many tokens had come before each chunk, and lastly after the last.

    Tokens are spread in proportion to the lengths of the texts, each chunk with at least one;
    evenly if there are fewer tokens than chunks, or no text.
    """
    count = len(chosen)
    whole = sum(chunk.length for chunk in chosen)
    mark = seen = 0
    if total < count or whole == 0:
        for index in range(count + 1):
            yield total * index // count
        return
    yield 0
    for left, chunk in zip(reversed(range(count)), chosen, strict=True):
        seen += chunk.length
        mark = max(mark + 1, min((2 * total * seen + whole) // (2 * whole), total - left))
        yield mark
