"""Hold what an answer will say: its tokens in order, what each belongs to, and how the answer ends."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from agentload.serve.content import token_id

Kind: TypeAlias = Literal["reasoning", "content", "call"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Hold consecutive tokens of one kind. `name` is the tool that a call calls; its tokens spell the arguments."""

    kind: Kind
    pieces: tuple[str, ...]
    name: str = ""

    @property
    def text(self) -> str:
        """Return the text of this part."""
        return "".join(self.pieces)


@dataclass(frozen=True, kw_only=True)
class Script:
    """Hold a whole answer, token by token."""

    parts: tuple[Part, ...]
    finish: Finish
    stop_reason: str | None = None

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Return the text of every token."""
        return tuple(piece for part in self.parts for piece in part.pieces)

    @cached_property
    def escaped(self) -> tuple[bytes, ...]:
        """Return the text of every token as it stands inside a JSON string."""
        encode = msgspec.json.encode
        return tuple(encode(piece)[1:-1] for piece in self.pieces)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Return the id of every token."""
        return tuple(token_id(piece.strip()) for piece in self.pieces)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Return the index of each part's first token, and the count of all tokens."""
        total = 0
        out = [0]
        for part in self.parts:
            total += len(part.pieces)
            out.append(total)
        return tuple(out)

    @property
    def reasoning_tokens(self) -> int:
        """Count the tokens of thinking."""
        return sum(len(part.pieces) for part in self.parts if part.kind == "reasoning")

    def text(self, kind: Kind) -> str | None:
        """Return the text of all parts of a kind; None when there is none."""
        found = [part.text for part in self.parts if part.kind == kind]
        return "".join(found) if found else None


def logprob(script: Script, index: int, *, rank: int = 0) -> float:
    """Return a plausible log probability of a token: drawn from its text and place, lower for each rank below the first."""
    drawn = zlib.crc32(script.pieces[index].encode(), index) % 4096
    return -(drawn / 4096 + rank * (0.25 + drawn / 16384))


def alternative(script: Script, index: int, *, rank: int) -> str:
    """Return a token that might have stood here: a neighbour in the answer, so that it is a real word."""
    pieces = script.pieces
    return pieces[index] if rank == 0 else pieces[(index + rank) % len(pieces)]
