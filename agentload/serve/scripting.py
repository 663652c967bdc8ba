"""Write the script of an answer: what the emulated model says to a prompt, cut and ended as the request's parameters want."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

from agentload.emulator.answers import answer
from agentload.model.profile import ArmProfile
from agentload.prompts import count, words
from agentload.serve.calling import call
from agentload.serve.script import Finish, Part, Script
from agentload.serve.wanted import Wanted

_THOUGHTS: Final = "thoughts"
"""Key of the text that is thought; only its length matters."""


def script(asked: Wanted, *, arm: ArmProfile, prompt_tokens: int, seed: int) -> Script:
    """Return what the arm's model says. It thinks for exactly as many tokens as the request's budget for thinking allows."""
    room = arm.server.max_model_len - prompt_tokens
    limit = min(asked.max_tokens or room, room)
    thinking = _thoughts(asked, limit, seed)
    texts = _texts(asked)
    calling = None if asked.ignore_eos else call(asked, texts, arm=arm, prompt_tokens=prompt_tokens, seed=seed)
    if calling is not None:
        said = calling.pieces[: limit - len(thinking)]
        part = Part(kind="call", pieces=said, name=calling.name)
        return _with_thoughts(thinking, part, finish="tool_calls" if said == calling.pieces else "length")
    told = answer(arm, texts, context_tokens=prompt_tokens, seed=seed, limit=limit - len(thinking), is_forced=asked.ignore_eos)
    least = asked.min_tokens - len(thinking)
    if len(told.pieces) < least:
        told = answer(arm, texts, context_tokens=prompt_tokens, seed=seed, limit=least, is_forced=True)
    finish: Finish = "length" if len(thinking) + len(told.pieces) >= limit else "stop"
    pieces, stop = _stopped(told.pieces, asked.stop, least)
    return _with_thoughts(thinking, Part(kind="content", pieces=pieces), finish="stop" if stop else finish, stop_reason=stop)


def _texts(asked: Wanted) -> list[str]:
    if isinstance(asked.prompt, tuple):
        return [" ".join(map(str, asked.prompt))]
    if asked.face == "completions":
        return [asked.prompt]
    return [piece for piece in count.pieces(asked.messages, asked.tools) if isinstance(piece, str)]


def _thoughts(asked: Wanted, limit: int, seed: int) -> tuple[str, ...]:
    # One token is left for the answer.
    return _spaced(words.text(seed, _THOUGHTS, min(asked.thinking_tokens, limit - 1)))


def _spaced(text: str) -> tuple[str, ...]:
    said = text.split()
    return (*said[:1], *(f" {word}" for word in said[1:]))


def _with_thoughts(thinking: tuple[str, ...], part: Part, *, finish: Finish, stop_reason: str | None = None) -> Script:
    parts = (Part(kind="reasoning", pieces=thinking), part) if thinking else (part,)
    return Script(parts=parts, finish=finish, stop_reason=stop_reason)


def _stopped(pieces: tuple[str, ...], stops: tuple[str, ...], least: int) -> tuple[tuple[str, ...], str | None]:
    """Cut an answer before the first stop text that ends within or after the *least*-th token; its last tokens may be left without text."""
    if not stops:
        return pieces, None
    text = "".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    before = ends[least - 2] if 2 <= least <= len(ends) + 1 else 0
    found = [(at + len(stop), at, stop) for stop in stops if (at := text.find(stop, max(0, before - len(stop) + 1))) >= 0]
    if not found:
        return pieces, None
    end, at, stop = min(found)
    return _cut(pieces[: bisect_left(ends, end) + 1], at), stop


def _cut(pieces: tuple[str, ...], characters: int) -> tuple[str, ...]:
    kept = []
    for piece in pieces:
        kept.append(piece[:characters])
        characters -= len(kept[-1])
    return tuple(kept)
