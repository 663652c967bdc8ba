"""What the emulated model says: right as often as its profile's accuracy table has it, and of exactly as many tokens as asked.

Whether a prompt is answered right depends on the seed and the prompt alone. Arms with equal seeds share most of the luck, as two
configurations of one model find the same prompts hard; the rest is their own, so that each is sometimes the better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from statistics import NormalDist
from typing import Final, Literal

from agentload.emulator.reading import read
from agentload.model.profile import ArmProfile
from agentload.prompts import words

RETRIEVAL: Final = "niah"
"""Task of the accuracy rows that answers are drawn by."""
SHARED_LUCK: Final = 0.8
"""Correlation of two arms' luck on a prompt. Judgement: published scores say nothing about single items."""
GARBAGE: Final = "!"
_CHAT_TOKENS: Final = (32, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer token by token."""

    pieces: tuple[str, ...]
    finish: Literal["stop", "length"]
    is_right: bool | None
    """None: nothing was asked that can be looked up."""

    @property
    def text(self) -> str:
        """Return the whole answer."""
        return "".join(self.pieces)


def success_rate(arm: ArmProfile, context_tokens: int) -> float:
    """Return how often the arm finds a fact in a context of this length: 1 where nothing was published.

    Between two published lengths the rate is on the line between them; beyond them it is that of the nearest.
    """
    points = sorted(
        (score.context_tokens, score.percent / 100) for score in arm.accuracy if score.task == RETRIEVAL and score.context_tokens
    )
    if not points:
        return 1.0
    for (short, high), (long, low) in pairwise(points):
        if short <= context_tokens <= long:
            return high + (low - high) * (context_tokens - short) / (long - short)
    return points[0][1] if context_tokens < points[0][0] else points[-1][1]


def succeeds(arm: ArmProfile, context_tokens: int, *, seed: int, prompt: bytes) -> bool:
    """Draw whether the arm answers a prompt (its digest) right."""
    normal = NormalDist()
    shared, own = (normal.inv_cdf(_uniform(seed, prompt, who)) for who in ("", arm.name))
    luck = normal.cdf(SHARED_LUCK**0.5 * shared + (1 - SHARED_LUCK) ** 0.5 * own)
    return luck < success_rate(arm, context_tokens)


def answer(arm: ArmProfile, texts: Sequence[str], *, context_tokens: int, seed: int, limit: int, is_forced: bool = False) -> Answer:
    """Answer a prompt (the texts of its messages) in at most *limit* tokens, or in exactly as many if forced to."""
    prompt = _digest(texts)
    found = read(texts)
    is_right = None if found is None else succeeds(arm, context_tokens, seed=seed, prompt=prompt)
    if arm.failure == "repetition" and not (succeeds(arm, context_tokens, seed=seed, prompt=prompt) if is_right is None else is_right):
        # A broken kernel gives garbage whatever was asked.
        return Answer(pieces=(GARBAGE,) * limit, finish="length", is_right=None if is_right is None else False)
    low, high = _CHAT_TOKENS
    said = [] if found is None else (found.right if is_right else found.wrong).split()
    filler = limit if is_forced else low + int.from_bytes(prompt[:4], "big") % (high - low) if found is None else 0
    if filler > len(said):
        said += words.text(seed, prompt.hex(), filler - len(said)).split()
    finish: Literal["stop", "length"] = "length" if len(said) >= limit else "stop"
    said = said[:limit]
    return Answer(pieces=(said[0], *(f" {word}" for word in said[1:])), finish=finish, is_right=is_right)


def _digest(texts: Sequence[str]) -> bytes:
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.digest()


def _uniform(seed: int, prompt: bytes, who: str) -> float:
    """Return a number between 0 and 1, both excluded, that depends on the arguments alone."""
    drawn = blake2b(b"%d\0%b\0%b" % (seed, prompt, who.encode()), digest_size=6).digest()
    return (int.from_bytes(drawn, "big") + 0.5) / (1 << 48)
