"""Name the content of a prompt block by block, so that the engine's prefix cache finds behind HTTP what it finds in virtual time.

The engine compares runs of (identity, tokens). Text arrives without keys, so its words are cut at the engine's block boundaries
and each block's words are their own identity: equal prefixes give equal runs, in whole blocks, and no two texts ever collide.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from agentload.model.trace import image_tokens
from agentload.prompts import count
from agentload.serve.wanted import Wanted

Runs: TypeAlias = tuple[tuple[str, int], ...]

# As many ids as Llama 3 has; the emulated vocabulary is a hash of the word.
_VOCABULARY = 128_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Hold a prompt as the engine sees it."""

    runs: Runs
    tokens: int


def content(wanted: Wanted, *, block: int) -> Content:
    """Cut the prompt of a request into runs of at most one block."""
    if wanted.face == "chat":
        return _cut(count.pieces(wanted.messages, wanted.tools), block)
    if isinstance(wanted.prompt, str):
        return _cut((wanted.prompt,), block)
    return _cut((" ".join(map(str, wanted.prompt)),), block)


def token_ids(wanted: Wanted) -> list[int]:
    """Return the ids of a prompt's tokens; those of an image are all the same."""
    if isinstance(wanted.prompt, tuple):
        return list(wanted.prompt)
    pieces = count.pieces(wanted.messages, wanted.tools) if wanted.face == "chat" else (wanted.prompt,)
    ids: list[int] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += map(token_id, piece.split())
        else:
            ids += [_VOCABULARY] * image_tokens(piece.size)
    return ids


def token_id(word: str) -> int:
    """Return the id of a word in the emulated vocabulary."""
    return zlib.crc32(word.encode()) % _VOCABULARY


def _cut(pieces: Iterable[str | count.Image], block: int) -> Content:
    runs: list[tuple[str, int]] = []
    tokens = 0
    text: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            text += piece.split()
            continue
        tokens = _cut_words(text, tokens, block, runs)
        text = []
        size = image_tokens(piece.size)
        runs.append((blake2b(piece.url.encode(), digest_size=16).hexdigest(), size))
        tokens += size
    return Content(tokens=_cut_words(text, tokens, block, runs), runs=tuple(runs))


def _cut_words(text: list[str], offset: int, block: int, runs: list[tuple[str, int]]) -> int:
    # After an image the text resumes inside a block: its first run ends where that block does.
    start = 0
    stop = min(len(text), -offset % block)
    while start < len(text):
        if stop > start:
            runs.append((" ".join(text[start:stop]), stop - start))
        start, stop = stop, min(len(text), stop + block)
    return offset + len(text)
